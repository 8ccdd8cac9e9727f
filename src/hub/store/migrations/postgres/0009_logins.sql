-- Logins that are under way, and how often people typed wrong codes: any replica goes on with what another one began.
CREATE TABLE login_waiting (
  kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('login', 'code', 'device', 'invite')),
  -- SHA-256 of state, code or device code.
  key        BYTEA NOT NULL,
  -- Whose share of the places it takes, and from where it came.
  address    TEXT COLLATE "C" NOT NULL,
  remote     TEXT COLLATE "C" NOT NULL,
  -- SHA-256 of the browser's cookie, and of the code that a person types.
  browser    BYTEA,
  user_code  BYTEA,
  -- AES-256-GCM under the key in the data directory.
  sealed     BYTEA NOT NULL,
  state      TEXT COLLATE "C" NOT NULL CHECK (state IN ('waiting', 'refused', 'ready')),
  -- When a device asked last, and the seconds that it has to wait.
  asked_at   BIGINT,
  interval_s BIGINT NOT NULL,
  begun_at   BIGINT NOT NULL,
  ends_at    BIGINT NOT NULL,
  PRIMARY KEY (kind, key)
);
CREATE INDEX login_waiting_address ON login_waiting (kind, address, begun_at);
CREATE INDEX login_waiting_end ON login_waiting (ends_at);

CREATE TABLE login_guess (
  address TEXT COLLATE "C" PRIMARY KEY,
  since   BIGINT NOT NULL,
  n       BIGINT NOT NULL
);

-- The replica that asks the provider about the session now, and until when at the latest.
ALTER TABLE session ADD COLUMN turn_by TEXT COLLATE "C";
ALTER TABLE session ADD COLUMN turn_until BIGINT;
