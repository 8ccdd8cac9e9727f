//! This replica's live lines, newest wins.
