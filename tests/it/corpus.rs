//! The fuzz corpus and the crashers of the past, replayed on the stable toolchain. What a fuzzer finds is put
//! into `tests/fuzz/corpus/<target>/` and so becomes a test for good.

use std::path::Path;

#[path = "../fuzz/parsers.rs"]
pub(crate) mod parsers;
#[path = "../fuzz/targets.rs"]
mod targets;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new("tests/fuzz/corpus").join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "no corpus in {}", directory.display());
    for path in inputs {
        let input = std::fs::read(&path).unwrap();
        run(&input);
        // Every truncation of an input is an input too.
        for end in 0..input.len().min(64) {
            run(&input[..end]);
        }
    }
}

/// L32
#[test]
fn frames_of_the_corpus_are_read_or_refused() {
    replay("frame", targets::frame);
}

/// L32
#[test]
fn sessions_of_the_corpus_stay_within_their_bounds() {
    replay("session", targets::session);
}

/// L48
#[test]
fn sessions_of_the_corpus_end_alike_whole_or_torn() {
    replay("exit", targets::exit);
}

#[test]
fn handshakes_of_the_corpus_are_refused() {
    replay("handshake", targets::handshake);
}

#[test]
fn known_hosts_of_the_corpus_are_read_or_refused() {
    replay("known_hosts", targets::known_hosts);
}

#[test]
fn yaml_of_the_corpus_prints_as_it_reads() {
    replay("yaml", targets::yaml);
}

/// L36
#[test]
fn requests_of_the_corpus_are_refused_or_read_alike_by_hub_and_agent() {
    replay("rewrite", targets::rewrite);
}

/// L36
#[test]
fn connections_of_the_corpus_are_refused_or_read_alike_by_the_parsers_in_use() {
    replay("parsers", parsers::parsers);
}

/// L46
#[test]
fn websocket_bytes_of_the_corpus_are_the_same_messages_whole_or_torn() {
    replay("websocket", targets::websocket);
}
