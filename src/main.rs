//! Parse, run, print the error chain once, say how it ended.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    linesman::cli::main()
}
