-- What a call was answered that comes again with its Idempotency-Key; NULL while it is carried out, and for calls whose own
-- records know them again. No answer that holds a secret is kept.
ALTER TABLE idempotency ADD COLUMN answer TEXT;
