//! The hub itself: who it is, who the caller is, its own checks.
