-- 1 from the first change on that a call with an Idempotency-Key stored, in the transaction of that change: where its answer is
-- lost, this says whether there was one.
ALTER TABLE idempotency ADD COLUMN changed INTEGER;
