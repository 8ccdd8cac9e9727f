-- The replica that wrote the record; NULL = the hub is alone. Not part of what is hashed.
ALTER TABLE audit ADD COLUMN writer TEXT;

-- How often each kind of record has changed, for replicas; here there are none.
CREATE TABLE change (
  topic TEXT PRIMARY KEY,
  n     INTEGER NOT NULL
) STRICT;
