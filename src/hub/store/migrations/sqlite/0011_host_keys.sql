-- The keys that clusters are told a Git host may show.
CREATE TABLE host_key (
  githost     TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  -- 'type base64'
  public      TEXT NOT NULL,
  state       TEXT NOT NULL CHECK (state IN ('next', 'current', 'old')),
  source      TEXT NOT NULL,
  added_by    TEXT NOT NULL,
  added_at    INTEGER NOT NULL,
  -- Since when it is in this state.
  since       INTEGER NOT NULL,
  PRIMARY KEY (githost, fingerprint)
) STRICT;

-- What each cluster has and meets of the keys of its Git host.
CREATE TABLE cluster_host_key (
  cluster_id TEXT PRIMARY KEY REFERENCES cluster (id),
  -- JSON, fingerprints.
  trusted    TEXT NOT NULL,
  -- Since when it says just these.
  trusted_at INTEGER NOT NULL,
  -- JSON; empty = it got no key yet.
  shown      TEXT NOT NULL,
  at         INTEGER NOT NULL
) STRICT;
