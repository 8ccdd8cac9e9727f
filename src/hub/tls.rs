//! The hub's own CA and leaf, or a given certificate.
