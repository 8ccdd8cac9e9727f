-- Processes of the hub, and which of them has a cluster's line. Times are the database's own. With SQLite there is only one
-- process, which needs neither.
CREATE TABLE replica (
  -- UUID, new with each start
  id          TEXT PRIMARY KEY,
  -- host:port where the others reach it
  peer        TEXT NOT NULL,
  cert_sha256 BLOB NOT NULL,
  lease_until INTEGER NOT NULL
) STRICT;

-- Up while the lease of its replica holds.
CREATE TABLE line (
  cluster_id TEXT PRIMARY KEY REFERENCES cluster (id),
  replica    TEXT NOT NULL,
  epoch      INTEGER NOT NULL,
  session    TEXT NOT NULL,
  instance   TEXT NOT NULL,
  remote     TEXT NOT NULL,
  since      INTEGER NOT NULL,
  -- What the clock of the line showed at that time.
  hub_clock  INTEGER NOT NULL,
  at         INTEGER NOT NULL
) STRICT;
CREATE INDEX line_replica ON line (replica);
