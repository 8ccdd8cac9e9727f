-- Public OpenPGP keys of which one has to have signed the catalog's head; none = nothing is verified.
CREATE TABLE catalog_signer (
  -- 40 upper-case hex digits
  fingerprint TEXT PRIMARY KEY,
  -- armor
  public      TEXT NOT NULL,
  added_by    TEXT NOT NULL,
  added_at    INTEGER NOT NULL
) STRICT;
