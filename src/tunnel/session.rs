//! The line's state machine, sans-IO.
