-- With which code a session's command ended; part of the record's hash where there is one.
ALTER TABLE audit ADD COLUMN exit INTEGER;
