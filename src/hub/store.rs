//! The store: records behind one type.

pub mod sqlite;
