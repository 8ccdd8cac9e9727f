//! SQLite: one writer, a few readers, WAL.
