-- Times are UTC milliseconds since 1970. Ids are UUIDv7 in text form. `rev` rises with every update of a record.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE bundle (
  digest      TEXT PRIMARY KEY,
  engine      TEXT NOT NULL CHECK (engine IN ('flux', 'argocd')),
  version     TEXT NOT NULL,
  objects     INTEGER NOT NULL,
  images      TEXT NOT NULL,
  data        BLOB NOT NULL,
  imported_by TEXT NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX bundle_newest ON bundle (engine, created_at);

CREATE TABLE cluster (
  id                  TEXT PRIMARY KEY,
  name                TEXT NOT NULL,
  labels              TEXT NOT NULL,
  engine              TEXT NOT NULL CHECK (engine IN ('flux', 'argocd')),
  engine_version      TEXT NOT NULL,
  bundle              TEXT NOT NULL REFERENCES bundle (digest),
  catalog_path        TEXT NOT NULL,
  adoption            TEXT NOT NULL,
  policy              TEXT NOT NULL,
  desired_image       TEXT,
  -- UID of the namespace kube-system; empty until the first join.
  incarnation         TEXT,
  -- Of the newest line; only ever rises.
  epoch               INTEGER NOT NULL DEFAULT 0,
  agent_version       TEXT,
  agent_image         TEXT,
  agent_arch          TEXT,
  -- The root revision that the engine last applied.
  synced_revision     TEXT,
  assignment_revision INTEGER NOT NULL DEFAULT 0,
  assignment_hash     TEXT NOT NULL DEFAULT '',
  joined_at           INTEGER,
  last_seen           INTEGER,
  -- A removed cluster stays as a tombstone, so that its agent hears 410 and not "unknown".
  removed_at          INTEGER,
  created_at          INTEGER NOT NULL,
  updated_at          INTEGER NOT NULL,
  rev                 INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE UNIQUE INDEX cluster_name ON cluster (name) WHERE removed_at IS NULL;

CREATE TABLE cluster_key (
  id          TEXT PRIMARY KEY,
  cluster_id  TEXT NOT NULL REFERENCES cluster (id),
  kind        TEXT NOT NULL CHECK (kind IN ('identity', 'deploy')),
  -- ssh-ed25519 AAAA…
  public      TEXT NOT NULL,
  fingerprint TEXT NOT NULL UNIQUE,
  state       TEXT NOT NULL CHECK (state IN ('pending', 'active', 'retiring', 'revoked')),
  -- The key's id at the Git host; the built-in one has none.
  host_key_id TEXT,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX cluster_key_cluster ON cluster_key (cluster_id);

CREATE TABLE join_token (
  id                   TEXT PRIMARY KEY,
  cluster_id           TEXT NOT NULL REFERENCES cluster (id),
  hash                 BLOB NOT NULL,
  kind                 TEXT NOT NULL CHECK (kind IN ('join', 'readopt')),
  -- Whether another incarnation than the one on record may redeem it.
  new_cluster          INTEGER NOT NULL DEFAULT 0,
  adoption             TEXT NOT NULL,
  issued_by            TEXT NOT NULL,
  expires_at           INTEGER NOT NULL,
  redeemed_at          INTEGER,
  redeemed_fingerprint TEXT,
  redeemed_incarnation TEXT,
  redeemed_addr        TEXT,
  revoked_at           INTEGER,
  created_at           INTEGER NOT NULL
) STRICT;
CREATE INDEX join_token_cluster ON join_token (cluster_id);

CREATE TABLE user (
  id          TEXT PRIMARY KEY,
  name        TEXT NOT NULL UNIQUE,
  issuer      TEXT NOT NULL DEFAULT 'local',
  roles       TEXT NOT NULL,
  -- Kubernetes groups of the default grant, without the prefix `linesman:`.
  groups      TEXT NOT NULL,
  disabled_at INTEGER,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  rev         INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE TABLE api_token (
  id         TEXT PRIMARY KEY,
  user_id    TEXT NOT NULL REFERENCES user (id),
  hash       BLOB NOT NULL,
  title      TEXT NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE ssh_key (
  id          TEXT PRIMARY KEY,
  user_id     TEXT NOT NULL REFERENCES user (id),
  public      TEXT NOT NULL,
  fingerprint TEXT NOT NULL UNIQUE,
  title       TEXT NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE fact (
  cluster_id TEXT NOT NULL REFERENCES cluster (id),
  key        TEXT NOT NULL,
  value      TEXT NOT NULL,
  source     TEXT NOT NULL,
  at         INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE condition (
  cluster_id  TEXT NOT NULL REFERENCES cluster (id),
  type        TEXT NOT NULL,
  -- Who says so: `agent` or `hub`. A report replaces the agent's conditions only.
  source      TEXT NOT NULL CHECK (source IN ('agent', 'hub')),
  status      TEXT NOT NULL CHECK (status IN ('True', 'False', 'Unknown')),
  reason      TEXT NOT NULL,
  message     TEXT NOT NULL,
  since       TEXT NOT NULL,
  observed_at INTEGER NOT NULL,
  PRIMARY KEY (cluster_id, type)
) STRICT, WITHOUT ROWID;

CREATE TABLE step (
  cluster_id TEXT NOT NULL REFERENCES cluster (id),
  step       TEXT NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('running', 'waiting', 'done', 'failed')),
  reason     TEXT NOT NULL,
  at         TEXT NOT NULL,
  PRIMARY KEY (cluster_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE heal (
  id          TEXT PRIMARY KEY,
  cluster_id  TEXT NOT NULL REFERENCES cluster (id),
  class       TEXT NOT NULL,
  result      TEXT NOT NULL CHECK (result IN ('open', 'healed', 'reported', 'failed')),
  detected_at TEXT NOT NULL,
  restored_at TEXT,
  record      TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX heal_cluster ON heal (cluster_id, id);
CREATE INDEX heal_open ON heal (cluster_id) WHERE result = 'open';

CREATE TABLE audit (
  seq        INTEGER PRIMARY KEY,
  at         INTEGER NOT NULL,
  stage      TEXT NOT NULL CHECK (stage IN ('open', 'close', 'event')),
  actor      TEXT NOT NULL,
  action     TEXT NOT NULL,
  cluster    TEXT,
  target     TEXT NOT NULL,
  request_id TEXT NOT NULL,
  verdict    TEXT NOT NULL CHECK (verdict IN ('allow', 'deny')),
  reason     TEXT,
  -- Of a close: the `seq` of its open.
  opened     INTEGER,
  code       INTEGER,
  bytes      INTEGER,
  millis     INTEGER,
  remote     TEXT NOT NULL,
  prev       BLOB NOT NULL,
  hash       BLOB NOT NULL
) STRICT;
CREATE INDEX audit_cluster ON audit (cluster, seq);
CREATE UNIQUE INDEX audit_close ON audit (opened) WHERE opened IS NOT NULL;

-- Work that has to happen outside of the store, written in the transaction that causes it.
CREATE TABLE outbox (
  id         INTEGER PRIMARY KEY,
  cluster_id TEXT NOT NULL REFERENCES cluster (id),
  kind       TEXT NOT NULL,
  payload    TEXT NOT NULL,
  attempts   INTEGER NOT NULL DEFAULT 0,
  next_at    INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE lease (
  name       TEXT PRIMARY KEY,
  holder     TEXT NOT NULL,
  epoch      INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;

-- The digest of each POST's body by its Idempotency-Key, for 24 hours. Answers are not kept, for they hold join
-- tokens: a repeated call finds what the first one made, and gives a fresh token for it.
CREATE TABLE idempotency (
  user_id    TEXT NOT NULL,
  key        TEXT NOT NULL,
  digest     BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (user_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (created_at);
