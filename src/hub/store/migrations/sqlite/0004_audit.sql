CREATE INDEX audit_actor ON audit (actor, seq);
CREATE INDEX audit_at ON audit (at);

-- The hub's signature under the chain as it was.
CREATE TABLE audit_anchor (
  seq   INTEGER PRIMARY KEY,
  hash  BLOB NOT NULL,
  at    INTEGER NOT NULL,
  sig   BLOB NOT NULL,
  -- 1 = the records up to here were removed.
  start INTEGER NOT NULL
) STRICT;

-- The last record that each sink has taken.
CREATE TABLE audit_sink (
  name TEXT PRIMARY KEY,
  seq  INTEGER NOT NULL
) STRICT;
