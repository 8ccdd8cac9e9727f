-- When the identity provider vouched for the user last, in milliseconds; NULL = a local user. Those who are here already have the
-- whole time from now on.
ALTER TABLE "user" ADD COLUMN vouched_at BIGINT;
UPDATE "user" SET vouched_at = CAST(extract(epoch FROM now()) * 1000 AS BIGINT) WHERE subject IS NOT NULL;
