-- The provider's own, never changing name of a user who comes from one; `issuer` says which. Empty = a local user.
ALTER TABLE user ADD COLUMN subject TEXT;
CREATE UNIQUE INDEX user_identity ON user (issuer, subject) WHERE subject IS NOT NULL;

-- A login with an identity provider, and all tokens that came of it. An ended one stays for a month.
CREATE TABLE session (
  id         TEXT PRIMARY KEY,
  user_id    TEXT NOT NULL REFERENCES user (id),
  -- The provider's refresh token, AES-256-GCM under the key in the data directory; empty = it gave none.
  sealed     BLOB,
  remote     TEXT NOT NULL,
  -- When the provider was last asked.
  asked_at   INTEGER NOT NULL,
  idle_until INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  ended_at   INTEGER,
  ended_why  TEXT,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX session_user ON session (user_id);
CREATE INDEX session_end ON session (expires_at);

-- One pair of access and refresh token; both secrets as SHA-256. The used ones tell reuse from nonsense.
CREATE TABLE session_token (
  id           TEXT PRIMARY KEY,
  session_id   TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
  access_hash  BLOB NOT NULL,
  refresh_hash BLOB NOT NULL,
  access_until INTEGER NOT NULL,
  used_at      INTEGER,
  created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX session_token_session ON session_token (session_id);
