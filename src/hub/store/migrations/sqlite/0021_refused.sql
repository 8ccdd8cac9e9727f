-- When the identity provider said that it does not vouch for the user any more, in milliseconds; a login takes it back.
ALTER TABLE user ADD COLUMN refused_at INTEGER;
