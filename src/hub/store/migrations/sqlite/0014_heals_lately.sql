-- What came in the last minutes, over all clusters.
CREATE INDEX heal_lately ON heal (created_at);
