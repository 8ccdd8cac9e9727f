-- Times are UTC milliseconds since 1970. Ids are UUIDv7 in text form. `rev` rises with every update of a record.
-- Text is ordered by its bytes, whatever the database's own language: lists go on behind the last name.

CREATE TABLE meta (
  key   TEXT COLLATE "C" PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE bundle (
  digest      TEXT COLLATE "C" PRIMARY KEY,
  engine      TEXT COLLATE "C" NOT NULL CHECK (engine IN ('flux', 'argocd')),
  version     TEXT COLLATE "C" NOT NULL,
  objects     BIGINT NOT NULL,
  images      TEXT COLLATE "C" NOT NULL,
  data        BYTEA NOT NULL,
  imported_by TEXT COLLATE "C" NOT NULL,
  created_at  BIGINT NOT NULL
);
CREATE INDEX bundle_newest ON bundle (engine, created_at);

CREATE TABLE cluster (
  id                  TEXT COLLATE "C" PRIMARY KEY,
  name                TEXT COLLATE "C" NOT NULL,
  labels              TEXT COLLATE "C" NOT NULL,
  engine              TEXT COLLATE "C" NOT NULL CHECK (engine IN ('flux', 'argocd')),
  engine_version      TEXT COLLATE "C" NOT NULL,
  bundle              TEXT COLLATE "C" NOT NULL REFERENCES bundle (digest),
  catalog_path        TEXT COLLATE "C" NOT NULL,
  adoption            TEXT COLLATE "C" NOT NULL,
  policy              TEXT COLLATE "C" NOT NULL,
  desired_image       TEXT COLLATE "C",
  -- UID of the namespace kube-system; empty until the first join.
  incarnation         TEXT COLLATE "C",
  -- Of the newest line; only ever rises.
  epoch               BIGINT NOT NULL DEFAULT 0,
  agent_version       TEXT COLLATE "C",
  agent_image         TEXT COLLATE "C",
  agent_arch          TEXT COLLATE "C",
  -- The root revision that the engine last applied.
  synced_revision     TEXT COLLATE "C",
  assignment_revision BIGINT NOT NULL DEFAULT 0,
  assignment_hash     TEXT COLLATE "C" NOT NULL DEFAULT '',
  joined_at           BIGINT,
  last_seen           BIGINT,
  -- A removed cluster stays as a tombstone, so that its agent hears 410 and not "unknown".
  removed_at          BIGINT,
  created_at          BIGINT NOT NULL,
  updated_at          BIGINT NOT NULL,
  rev                 BIGINT NOT NULL DEFAULT 1,
  -- How the cluster reaches the Git host: as its operator chose, and whether its agent found no route of its own.
  git_route           TEXT COLLATE "C" NOT NULL DEFAULT 'auto' CHECK (git_route IN ('auto', 'direct', 'line')),
  git_no_route        BOOLEAN NOT NULL DEFAULT FALSE,
  -- The number of an operator's last wish for another engine version or registry; a change that does not work within
  -- so many seconds is undone.
  engine_change       BIGINT NOT NULL DEFAULT 0,
  engine_within       BIGINT NOT NULL DEFAULT 300,
  -- Takes the place of the registries that the engine's images name: empty = theirs, NULL = the hub's default (`meta`,
  -- key `image_registry`).
  image_registry      TEXT COLLATE "C"
);
CREATE UNIQUE INDEX cluster_name ON cluster (name) WHERE removed_at IS NULL;

CREATE TABLE cluster_key (
  id          TEXT COLLATE "C" PRIMARY KEY,
  cluster_id  TEXT COLLATE "C" NOT NULL REFERENCES cluster (id),
  kind        TEXT COLLATE "C" NOT NULL CHECK (kind IN ('identity', 'deploy')),
  -- ssh-ed25519 AAAA…
  public      TEXT COLLATE "C" NOT NULL,
  fingerprint TEXT COLLATE "C" NOT NULL UNIQUE,
  state       TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'active', 'retiring', 'revoked')),
  -- The key's id at the Git host; the built-in one has none.
  host_key_id TEXT COLLATE "C",
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  -- When an operator wanted another key in this one's place; empty = nobody did.
  replace_asked_at BIGINT
);
CREATE INDEX cluster_key_cluster ON cluster_key (cluster_id);

CREATE TABLE join_token (
  id                   TEXT COLLATE "C" PRIMARY KEY,
  cluster_id           TEXT COLLATE "C" NOT NULL REFERENCES cluster (id),
  hash                 BYTEA NOT NULL,
  kind                 TEXT COLLATE "C" NOT NULL CHECK (kind IN ('join', 'readopt')),
  -- Whether another incarnation than the one on record may redeem it.
  new_cluster          BOOLEAN NOT NULL DEFAULT FALSE,
  adoption             TEXT COLLATE "C" NOT NULL,
  issued_by            TEXT COLLATE "C" NOT NULL,
  expires_at           BIGINT NOT NULL,
  redeemed_at          BIGINT,
  redeemed_fingerprint TEXT COLLATE "C",
  redeemed_incarnation TEXT COLLATE "C",
  redeemed_addr        TEXT COLLATE "C",
  revoked_at           BIGINT,
  created_at           BIGINT NOT NULL
);
CREATE INDEX join_token_cluster ON join_token (cluster_id);

CREATE TABLE "user" (
  id          TEXT COLLATE "C" PRIMARY KEY,
  name        TEXT COLLATE "C" NOT NULL UNIQUE,
  issuer      TEXT COLLATE "C" NOT NULL DEFAULT 'local',
  roles       TEXT COLLATE "C" NOT NULL,
  -- Kubernetes groups of the default grant, without the prefix `linesman:`.
  groups      TEXT COLLATE "C" NOT NULL,
  disabled_at BIGINT,
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  rev         BIGINT NOT NULL DEFAULT 1,
  -- The provider's own, never changing name of a user who comes from one; `issuer` says which. Empty = a local user.
  subject     TEXT COLLATE "C"
);
CREATE UNIQUE INDEX user_identity ON "user" (issuer, subject) WHERE subject IS NOT NULL;

CREATE TABLE api_token (
  id         TEXT COLLATE "C" PRIMARY KEY,
  user_id    TEXT COLLATE "C" NOT NULL REFERENCES "user" (id),
  hash       BYTEA NOT NULL,
  title      TEXT COLLATE "C" NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT,
  created_at BIGINT NOT NULL,
  -- What it may be used for, a list of scopes; the empty list = all that its user may.
  scopes     TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  created_by TEXT COLLATE "C" NOT NULL DEFAULT 'hub',
  idempotency_key TEXT COLLATE "C",
  -- The clusters that it reaches, a list of names; empty = all.
  clusters   TEXT COLLATE "C"
);
CREATE INDEX api_token_user ON api_token (user_id);
CREATE UNIQUE INDEX api_token_once ON api_token (created_by, idempotency_key);

CREATE TABLE ssh_key (
  id          TEXT COLLATE "C" PRIMARY KEY,
  user_id     TEXT COLLATE "C" NOT NULL REFERENCES "user" (id),
  public      TEXT COLLATE "C" NOT NULL,
  fingerprint TEXT COLLATE "C" NOT NULL UNIQUE,
  title       TEXT COLLATE "C" NOT NULL,
  created_at  BIGINT NOT NULL
);

CREATE TABLE fact (
  cluster_id TEXT COLLATE "C" NOT NULL REFERENCES cluster (id),
  key        TEXT COLLATE "C" NOT NULL,
  value      TEXT COLLATE "C" NOT NULL,
  source     TEXT COLLATE "C" NOT NULL,
  at         BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, key)
);

CREATE TABLE condition (
  cluster_id  TEXT COLLATE "C" NOT NULL REFERENCES cluster (id),
  type        TEXT COLLATE "C" NOT NULL,
  -- Who says so: `agent` or `hub`. A report replaces the agent's conditions only.
  source      TEXT COLLATE "C" NOT NULL CHECK (source IN ('agent', 'hub')),
  status      TEXT COLLATE "C" NOT NULL CHECK (status IN ('True', 'False', 'Unknown')),
  reason      TEXT COLLATE "C" NOT NULL,
  message     TEXT COLLATE "C" NOT NULL,
  since       TEXT COLLATE "C" NOT NULL,
  observed_at BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, type)
);

CREATE TABLE step (
  cluster_id TEXT COLLATE "C" NOT NULL REFERENCES cluster (id),
  step       TEXT COLLATE "C" NOT NULL,
  state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('running', 'waiting', 'done', 'failed')),
  reason     TEXT COLLATE "C" NOT NULL,
  at         TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (cluster_id, step)
);

CREATE TABLE heal (
  id          TEXT COLLATE "C" PRIMARY KEY,
  cluster_id  TEXT COLLATE "C" NOT NULL REFERENCES cluster (id),
  class       TEXT COLLATE "C" NOT NULL,
  result      TEXT COLLATE "C" NOT NULL CHECK (result IN ('open', 'healed', 'reported', 'failed')),
  detected_at TEXT COLLATE "C" NOT NULL,
  restored_at TEXT COLLATE "C",
  record      TEXT COLLATE "C" NOT NULL,
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL
);
CREATE INDEX heal_cluster ON heal (cluster_id, id);
CREATE INDEX heal_open ON heal (cluster_id) WHERE result = 'open';
-- Faults that are there now are counted for the metrics.
CREATE INDEX heal_unrestored ON heal (class) WHERE restored_at IS NULL;
-- What came in the last minutes, over all clusters.
CREATE INDEX heal_lately ON heal (created_at);

CREATE TABLE audit (
  seq        BIGINT PRIMARY KEY,
  at         BIGINT NOT NULL,
  stage      TEXT COLLATE "C" NOT NULL CHECK (stage IN ('open', 'close', 'event')),
  actor      TEXT COLLATE "C" NOT NULL,
  action     TEXT COLLATE "C" NOT NULL,
  cluster    TEXT COLLATE "C",
  target     TEXT COLLATE "C" NOT NULL,
  request_id TEXT COLLATE "C" NOT NULL,
  verdict    TEXT COLLATE "C" NOT NULL CHECK (verdict IN ('allow', 'deny')),
  reason     TEXT COLLATE "C",
  -- Of a close: the `seq` of its open.
  opened     BIGINT,
  code       BIGINT,
  bytes      BIGINT,
  millis     BIGINT,
  remote     TEXT COLLATE "C" NOT NULL,
  prev       BYTEA NOT NULL,
  hash       BYTEA NOT NULL,
  -- Whom a request went as, where that is not its actor; part of the record's hash where there is one.
  acted_as   TEXT COLLATE "C",
  -- Bytes of all records before this one, for retention by size.
  before     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX audit_cluster ON audit (cluster, seq);
CREATE INDEX audit_actor ON audit (actor, seq);
CREATE INDEX audit_at ON audit (at);
CREATE UNIQUE INDEX audit_close ON audit (opened) WHERE opened IS NOT NULL;

-- Work that has to happen outside of the store, written in the transaction that causes it.
CREATE TABLE outbox (
  id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  cluster_id TEXT COLLATE "C" NOT NULL REFERENCES cluster (id),
  kind       TEXT COLLATE "C" NOT NULL,
  payload    TEXT COLLATE "C" NOT NULL,
  attempts   BIGINT NOT NULL DEFAULT 0,
  next_at    BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);

CREATE TABLE lease (
  name       TEXT COLLATE "C" PRIMARY KEY,
  holder     TEXT COLLATE "C" NOT NULL,
  epoch      BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

-- The digest of each POST's body by its Idempotency-Key, for 24 hours. Answers are not kept, for they hold join
-- tokens: a repeated call finds what the first one made, and gives a fresh token for it.
CREATE TABLE idempotency (
  user_id    TEXT COLLATE "C" NOT NULL,
  key        TEXT COLLATE "C" NOT NULL,
  digest     BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);

-- Who may reach which clusters' API as what. A revoked grant stays for a month, so that its id can be looked up.
CREATE TABLE access_grant (
  id              TEXT COLLATE "C" PRIMARY KEY,
  -- user:NAME or group:NAME
  subject         TEXT COLLATE "C" NOT NULL,
  -- "all", {"names": […]} or {"labels": "…"}
  clusters        TEXT COLLATE "C" NOT NULL,
  groups          TEXT COLLATE "C" NOT NULL,
  -- Empty = all.
  namespaces      TEXT COLLATE "C",
  mode            TEXT COLLATE "C" NOT NULL CHECK (mode IN ('full', 'read')),
  reason          TEXT COLLATE "C" NOT NULL,
  created_by      TEXT COLLATE "C" NOT NULL,
  idempotency_key TEXT COLLATE "C",
  expires_at      BIGINT,
  revoked_at      BIGINT,
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  rev             BIGINT NOT NULL DEFAULT 1,
  -- Whom it lets act as with kubectl --as: ["user:NAME", "group:NAME"].
  act_as          TEXT COLLATE "C" NOT NULL DEFAULT '[]'
);
CREATE INDEX access_grant_subject ON access_grant (subject) WHERE revoked_at IS NULL;
CREATE INDEX access_grant_end ON access_grant (expires_at) WHERE revoked_at IS NULL AND expires_at IS NOT NULL;
CREATE UNIQUE INDEX access_grant_once ON access_grant (created_by, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The hub's signature under the chain as it was.
CREATE TABLE audit_anchor (
  seq   BIGINT PRIMARY KEY,
  hash  BYTEA NOT NULL,
  at    BIGINT NOT NULL,
  sig   BYTEA NOT NULL,
  -- True = the records up to here were removed.
  start BOOLEAN NOT NULL
);

-- The last record that each sink has taken.
CREATE TABLE audit_sink (
  name TEXT COLLATE "C" PRIMARY KEY,
  seq  BIGINT NOT NULL
);

-- A login with an identity provider, and all tokens that came of it. An ended one stays for a month.
CREATE TABLE session (
  id         TEXT COLLATE "C" PRIMARY KEY,
  user_id    TEXT COLLATE "C" NOT NULL REFERENCES "user" (id),
  -- The provider's refresh token, AES-256-GCM under the key in the data directory; empty = it gave none.
  sealed     BYTEA,
  remote     TEXT COLLATE "C" NOT NULL,
  -- When the provider was last asked.
  asked_at   BIGINT NOT NULL,
  idle_until BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  ended_at   BIGINT,
  ended_why  TEXT COLLATE "C",
  created_at BIGINT NOT NULL
);
CREATE INDEX session_of_user ON session (user_id);
CREATE INDEX session_end ON session (expires_at);

-- One pair of access and refresh token; both secrets as SHA-256. The used ones tell reuse from nonsense.
CREATE TABLE session_token (
  id           TEXT COLLATE "C" PRIMARY KEY,
  session_id   TEXT COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
  access_hash  BYTEA NOT NULL,
  refresh_hash BYTEA NOT NULL,
  access_until BIGINT NOT NULL,
  used_at      BIGINT,
  created_at   BIGINT NOT NULL
);
CREATE INDEX session_token_session ON session_token (session_id);

-- The keys that clusters are told a Git host may show.
CREATE TABLE host_key (
  githost     TEXT COLLATE "C" NOT NULL,
  fingerprint TEXT COLLATE "C" NOT NULL,
  -- 'type base64'
  public      TEXT COLLATE "C" NOT NULL,
  state       TEXT COLLATE "C" NOT NULL CHECK (state IN ('next', 'current', 'old')),
  source      TEXT COLLATE "C" NOT NULL,
  added_by    TEXT COLLATE "C" NOT NULL,
  added_at    BIGINT NOT NULL,
  -- Since when it is in this state.
  since       BIGINT NOT NULL,
  PRIMARY KEY (githost, fingerprint)
);

-- What each cluster has and meets of the keys of its Git host.
CREATE TABLE cluster_host_key (
  cluster_id TEXT COLLATE "C" PRIMARY KEY REFERENCES cluster (id),
  -- JSON, fingerprints.
  trusted    TEXT COLLATE "C" NOT NULL,
  -- Since when it says just these.
  trusted_at BIGINT NOT NULL,
  -- JSON; empty = it got no key yet.
  shown      TEXT COLLATE "C" NOT NULL,
  at         BIGINT NOT NULL
);

-- Troubles that people were told of, so that a hub that starts anew does not tell them again.
CREATE TABLE trouble (
  cluster TEXT COLLATE "C" NOT NULL,
  class   TEXT COLLATE "C" NOT NULL,
  -- JSON
  record  TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (cluster, class)
);

-- Public OpenPGP keys of which one has to have signed the catalog's head; none = nothing is verified.
CREATE TABLE catalog_signer (
  -- 40 upper-case hex digits
  fingerprint TEXT COLLATE "C" PRIMARY KEY,
  -- armor
  public      TEXT COLLATE "C" NOT NULL,
  added_by    TEXT COLLATE "C" NOT NULL,
  added_at    BIGINT NOT NULL
);
