-- Agents with good signatures by keys that the hub does not know.
CREATE TABLE unknown_agent (
  fingerprint TEXT COLLATE "C" PRIMARY KEY,
  -- ssh-ed25519 AAAA…
  public      TEXT COLLATE "C" NOT NULL,
  -- The name that the agent claims.
  cluster     TEXT COLLATE "C" NOT NULL,
  -- As far as it said so.
  incarnation TEXT COLLATE "C",
  reason      TEXT COLLATE "C" NOT NULL CHECK (reason IN ('unknown-identity', 'key-known', 'incarnation-changed')),
  addr        TEXT COLLATE "C" NOT NULL,
  first_seen  BIGINT NOT NULL,
  last_seen   BIGINT NOT NULL
);
