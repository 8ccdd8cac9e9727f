-- Faults that are there now are counted for the metrics.
CREATE INDEX heal_unrestored ON heal (class) WHERE restored_at IS NULL;
