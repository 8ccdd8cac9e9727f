//! The audit's hash chain; its sink writes before the request is sent.
