//! SSH client and server, on russh.

pub mod known_hosts;
