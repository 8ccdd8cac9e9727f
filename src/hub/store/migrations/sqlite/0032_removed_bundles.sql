-- When an operator removed the bundle: its data is empty from then on. The row stays, for removed clusters refer to it.
ALTER TABLE bundle ADD COLUMN removed_at INTEGER;
