-- Bytes of all records before this one, for retention by size; those from before this column count as nothing.
ALTER TABLE audit ADD COLUMN before INTEGER NOT NULL DEFAULT 0;
