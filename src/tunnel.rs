//! Streams on a line, for both ends: open and accept.

pub mod credit;
pub mod driver;
pub mod handshake;
pub mod session;
pub mod stream;
