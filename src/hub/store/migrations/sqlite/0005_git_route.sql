-- How a cluster reaches the Git host: as its operator chose, and whether its agent found no route of its own.

ALTER TABLE cluster ADD COLUMN git_route TEXT NOT NULL DEFAULT 'auto' CHECK (git_route IN ('auto', 'direct', 'line'));
ALTER TABLE cluster ADD COLUMN git_no_route INTEGER NOT NULL DEFAULT 0 CHECK (git_no_route IN (0, 1));
