//! In-process tests: real hub and agent parts on port 0.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod architecture;
mod cli;
mod corpus;
mod git;
mod hub;
mod joined;
mod line;
mod postgres;
mod process;
mod provider;
mod proxy;
mod secrecy;
mod store;
mod tls;
mod wait;
