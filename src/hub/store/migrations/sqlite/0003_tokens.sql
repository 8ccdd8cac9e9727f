-- What a token may be used for, a list of scopes; the empty list = all that its user may.
ALTER TABLE api_token ADD COLUMN scopes TEXT NOT NULL DEFAULT '[]';
ALTER TABLE api_token ADD COLUMN created_by TEXT NOT NULL DEFAULT 'hub';
ALTER TABLE api_token ADD COLUMN idempotency_key TEXT;
CREATE INDEX api_token_user ON api_token (user_id);
CREATE UNIQUE INDEX api_token_once ON api_token (created_by, idempotency_key);
