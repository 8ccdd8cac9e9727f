-- Logins that are under way, and how often people typed wrong codes: any replica goes on with what another one began.
CREATE TABLE login_waiting (
  kind       TEXT NOT NULL CHECK (kind IN ('login', 'code', 'device', 'invite')),
  -- SHA-256 of state, code or device code.
  key        BLOB NOT NULL,
  -- Whose share of the places it takes, and from where it came.
  address    TEXT NOT NULL,
  remote     TEXT NOT NULL,
  -- SHA-256 of the browser's cookie, and of the code that a person types.
  browser    BLOB,
  user_code  BLOB,
  -- AES-256-GCM under the key in the data directory.
  sealed     BLOB NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('waiting', 'refused', 'ready')),
  -- When a device asked last, and the seconds that it has to wait.
  asked_at   INTEGER,
  interval_s INTEGER NOT NULL,
  begun_at   INTEGER NOT NULL,
  ends_at    INTEGER NOT NULL,
  PRIMARY KEY (kind, key)
) STRICT;
CREATE INDEX login_waiting_address ON login_waiting (kind, address, begun_at);
CREATE INDEX login_waiting_end ON login_waiting (ends_at);

CREATE TABLE login_guess (
  address TEXT PRIMARY KEY,
  since   INTEGER NOT NULL,
  n       INTEGER NOT NULL
) STRICT;

-- The replica that asks the provider about the session now, and until when at the latest.
ALTER TABLE session ADD COLUMN turn_by TEXT;
ALTER TABLE session ADD COLUMN turn_until INTEGER;
