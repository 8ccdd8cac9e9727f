//! The catalog's coordinates, and the keys that may push.
