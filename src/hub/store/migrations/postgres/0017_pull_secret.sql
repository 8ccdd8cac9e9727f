-- The Secret of the engine's namespace that images are pulled with, said with `image_registry`; NULL = none. That of all clusters is in
-- `meta`, key `image_pull_secret`.
ALTER TABLE cluster ADD COLUMN image_pull_secret TEXT COLLATE "C";
