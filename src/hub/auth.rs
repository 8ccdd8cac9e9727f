//! A request's headers to its principal.
