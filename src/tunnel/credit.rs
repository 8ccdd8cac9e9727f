//! Flow-control arithmetic.
