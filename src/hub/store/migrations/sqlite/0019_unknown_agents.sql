-- Agents with good signatures by keys that the hub does not know.
CREATE TABLE unknown_agent (
  fingerprint TEXT PRIMARY KEY,
  -- ssh-ed25519 AAAA…
  public      TEXT NOT NULL,
  -- The name that the agent claims.
  cluster     TEXT NOT NULL,
  -- As far as it said so.
  incarnation TEXT,
  reason      TEXT NOT NULL CHECK (reason IN ('unknown-identity', 'key-known', 'incarnation-changed')),
  addr        TEXT NOT NULL,
  first_seen  INTEGER NOT NULL,
  last_seen   INTEGER NOT NULL
) STRICT;
