//! The line against its peers, in one run: `make bench`, or `tests/run bench-line` for this alone.
//!
//! Every measurement has two processes of its own, the hub's end and the agent's end, joined by loopback or by a
//! shaped pair of network namespaces. Ours is the real driver over TLS and WebSocket; beside it stand TLS with
//! one connection a stream, which is what the machine can do at best, remotedialer, konnectivity and chisel as they
//! are (`benches/peer`), and yamux and HTTP/2 over TLS (`peers`). The agent's end makes and takes the bytes by itself, so
//! that no other socket is in the way; konnectivity and chisel know no streams but those between sockets, and have one
//! more at either end. What a hub does besides, and what people notice of it, is measured with the real one: `storm` and `recovery`.
//!
//! ```text
//! line [--runs N] [--seconds N] [--peers DIRECTORY] [--out DIRECTORY] [CASE]...
//! ```
//!
//! It ends with 1 where the line is beyond a bar of the acceptance (`bar`) or got stuck in a run, with all that was measured written.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a bench prints, fails by panicking and divides counts"
)]

use std::path::PathBuf;
use std::process::ExitCode;

mod bar;
mod cases;
mod counts;
mod end;
#[path = "../../tests/it/joined.rs"]
mod joined;
mod load;
mod machine;
mod net;
mod peers;
mod proxied;
mod recovery;
mod shaper;
mod storm;
mod suite;
mod table;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the suite was asked for.
pub(crate) struct Options {
    pub(crate) runs: usize,
    pub(crate) seconds: u64,
    /// Holds the programs of `benches/peer`, each by its peer's name; the column of one that is not there stays empty.
    pub(crate) peers: Option<PathBuf>,
    pub(crate) out: PathBuf,
    /// Beginnings of names of cases; none means all.
    pub(crate) cases: Vec<String>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut options = Options {
        runs: 5,
        seconds: 2,
        peers: None,
        out: PathBuf::from("target/bench"),
        cases: vec![],
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "end" => {
                end::run(&words.collect::<Vec<_>>());
                return ExitCode::SUCCESS;
            }
            "--runs" => options.runs = words.next().unwrap().parse().unwrap(),
            "--seconds" => options.seconds = words.next().unwrap().parse().unwrap(),
            "--peers" => options.peers = Some(words.next().unwrap().into()),
            "--out" => options.out = words.next().unwrap().into(),
            _ => options.cases.push(word),
        }
    }
    if suite::run(&options) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
