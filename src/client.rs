//! The typed HTTP client of the hub.
