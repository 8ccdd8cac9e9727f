-- When the cluster's agent had moved on from the key by itself: what runs on its former line may end in its time. NULL = the key is in
-- force, or others ended it.
ALTER TABLE cluster_key ADD COLUMN moved_at INTEGER;
