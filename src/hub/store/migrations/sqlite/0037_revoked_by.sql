-- Who took a grant back. NULL = nobody did by name: it went with its user or its cluster, or before this was on record.
ALTER TABLE access_grant ADD COLUMN revoked_by TEXT;
