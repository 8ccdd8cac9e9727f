-- Processes of the hub, and which of them has a cluster's line. Times are the database's own.
CREATE TABLE replica (
  -- UUID, new with each start
  id          TEXT COLLATE "C" PRIMARY KEY,
  -- host:port where the others reach it
  peer        TEXT COLLATE "C" NOT NULL,
  cert_sha256 BYTEA NOT NULL,
  lease_until BIGINT NOT NULL
);

-- Up while the lease of its replica holds.
CREATE TABLE line (
  cluster_id TEXT COLLATE "C" PRIMARY KEY REFERENCES cluster (id),
  replica    TEXT COLLATE "C" NOT NULL,
  epoch      BIGINT NOT NULL,
  session    TEXT COLLATE "C" NOT NULL,
  instance   TEXT COLLATE "C" NOT NULL,
  remote     TEXT COLLATE "C" NOT NULL,
  since      BIGINT NOT NULL,
  -- What the clock of the line showed at that time.
  hub_clock  BIGINT NOT NULL,
  at         BIGINT NOT NULL
);
CREATE INDEX line_replica ON line (replica);
