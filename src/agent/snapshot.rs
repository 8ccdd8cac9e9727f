//! The last known good install: keep it, load it.
