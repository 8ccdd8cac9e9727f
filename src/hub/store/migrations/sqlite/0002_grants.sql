-- Who may reach which clusters' API as what. A revoked grant stays for a month, so that its id can be looked up.
CREATE TABLE access_grant (
  id              TEXT PRIMARY KEY,
  -- user:NAME or group:NAME
  subject         TEXT NOT NULL,
  -- "all", {"names": […]} or {"labels": "…"}
  clusters        TEXT NOT NULL,
  groups          TEXT NOT NULL,
  -- Empty = all.
  namespaces      TEXT,
  mode            TEXT NOT NULL CHECK (mode IN ('full', 'read')),
  reason          TEXT NOT NULL,
  created_by      TEXT NOT NULL,
  idempotency_key TEXT,
  expires_at      INTEGER,
  revoked_at      INTEGER,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  rev             INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE INDEX access_grant_subject ON access_grant (subject) WHERE revoked_at IS NULL;
CREATE INDEX access_grant_end ON access_grant (expires_at) WHERE revoked_at IS NULL AND expires_at IS NOT NULL;
CREATE UNIQUE INDEX access_grant_once ON access_grant (created_by, idempotency_key) WHERE idempotency_key IS NOT NULL;
