-- Troubles that people were told of, so that a hub that starts anew does not tell them again.
CREATE TABLE trouble (
  cluster TEXT NOT NULL,
  class   TEXT NOT NULL,
  -- JSON
  record  TEXT NOT NULL,
  PRIMARY KEY (cluster, class)
) STRICT;
