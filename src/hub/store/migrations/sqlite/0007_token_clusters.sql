-- The clusters that a token reaches, a list of names; empty = all.
ALTER TABLE api_token ADD COLUMN clusters TEXT;
