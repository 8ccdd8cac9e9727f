//! Key pairs, fingerprints and the Secrets that hold them.
