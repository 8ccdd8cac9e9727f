-- Why the catalog's copy of a cluster's agent could not be renewed, as the replica that renews it last met it.
CREATE TABLE copy_trouble (
    cluster_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES cluster (id) ON DELETE CASCADE,
    trouble TEXT COLLATE "C" NOT NULL
);
