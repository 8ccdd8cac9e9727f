-- When an operator wanted another key in this one's place; empty = nobody did.
ALTER TABLE cluster_key ADD COLUMN replace_asked_at INTEGER;
