//! Git over SSH, served by the hub itself through the system's git.
