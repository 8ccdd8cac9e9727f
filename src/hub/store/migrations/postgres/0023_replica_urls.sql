-- How a replica says that clusters reach the hub: --url and --git-url. '' = it does not say.
ALTER TABLE replica ADD COLUMN urls TEXT COLLATE "C" NOT NULL DEFAULT '';
