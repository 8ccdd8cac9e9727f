-- When the identity provider vouched for the user last, in milliseconds; NULL = a local user. Those who are here already have the
-- whole time from now on.
ALTER TABLE user ADD COLUMN vouched_at INTEGER;
UPDATE user SET vouched_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000 WHERE subject IS NOT NULL;
