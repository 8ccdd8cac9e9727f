-- Where a bundle is from, and what vouched for its manifest ('' = nothing), by the word of the program that imported it. NULL = not known.
ALTER TABLE bundle ADD COLUMN source TEXT;
ALTER TABLE bundle ADD COLUMN verified_by TEXT;
