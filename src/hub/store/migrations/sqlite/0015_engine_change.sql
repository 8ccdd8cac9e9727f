-- The number of an operator's last wish for another engine version or registry, and the registry that takes the place of
-- the ones that the engine's images name: empty = theirs, NULL = the hub's default (`meta`, key `image_registry`).
-- A change that does not work within so many seconds is undone.

ALTER TABLE cluster ADD COLUMN engine_change INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cluster ADD COLUMN engine_within INTEGER NOT NULL DEFAULT 300;
ALTER TABLE cluster ADD COLUMN image_registry TEXT;
