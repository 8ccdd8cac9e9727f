-- Those of one cluster that are not over: there are so many at most, each report counts them, and one that changes anything looks,
-- in their order, for those that its agent does not know.
CREATE INDEX heal_cluster_not_over ON heal (cluster_id, id) WHERE restored_at IS NULL AND result <> 'failed';
