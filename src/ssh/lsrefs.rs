//! Asking a Git server for one branch: the advertisement of protocol 0 and 1, `ls-refs` of protocol 2. Pure.
//!
//! Sources: gitprotocol-pack(5), gitprotocol-v2(5), gitprotocol-common(5).

#![deny(clippy::indexing_slicing, clippy::expect_used)]

/// A server that says more than this without naming the branch is given up.
const MAX_BYTES: usize = 32 << 20;
const FLUSH: &[u8] = b"0000";
const DELIMITER: &[u8] = b"0001";

/// The conversation so far.
#[derive(Debug)]
pub(super) struct Asking {
    wanted: String,
    state: State,
    unread: Vec<u8>,
    received: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// References follow, capabilities behind the first one.
    Advertisement,
    /// Protocol 2 lists what it can do.
    Capabilities {
        sha256: bool,
        ls_refs: bool,
    },
    /// The answer to `ls-refs`.
    Answer,
}

/// What to do after some bytes came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing yet; read on.
    Read,
    /// Send this, then read on.
    Send(Vec<u8>),
    /// The branch's commit id.
    Found(String),
    /// The repository is there and has no such branch.
    Missing,
    /// The server's own words.
    Refused(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(&'static str);

impl Asking {
    pub(super) fn branch(name: &str) -> Self {
        Self {
            wanted: format!("refs/heads/{name}"),
            state: State::Start,
            unread: Vec::new(),
            received: 0,
        }
    }

    /// Takes what the server sent. After anything but [`Turn::Read`] and [`Turn::Send`] the talk is over.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<Turn, Malformed> {
        self.received = self.received.saturating_add(bytes.len());
        if self.received > MAX_BYTES {
            return Err(Malformed("more than 32 MiB of references"));
        }
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut rest = unread.as_slice();
        let mut turn = Turn::Read;
        while turn == Turn::Read
            && let Some((packet, after)) = split(rest)?
        {
            turn = self.handle(packet)?;
            rest = after;
        }
        self.unread = rest.to_vec();
        Ok(turn)
    }

    fn handle(&mut self, packet: Packet<'_>) -> Result<Turn, Malformed> {
        let Packet::Line(line) = packet else {
            return self.handle_end(packet == Packet::Flush);
        };
        if let Some(words) = line.strip_prefix(b"ERR ") {
            return Ok(Turn::Refused(printable(words)));
        }
        match self.state {
            State::Start if line == b"version 2" => {
                self.state = State::Capabilities {
                    sha256: false,
                    ls_refs: false,
                };
                Ok(Turn::Read)
            }
            State::Start if line == b"version 1" => {
                self.state = State::Advertisement;
                Ok(Turn::Read)
            }
            State::Capabilities { sha256, ls_refs } => {
                self.state = State::Capabilities {
                    sha256: sha256 || line == b"object-format=sha256",
                    ls_refs: ls_refs || line == b"ls-refs" || line.starts_with(b"ls-refs="),
                };
                Ok(Turn::Read)
            }
            State::Start | State::Advertisement => {
                self.state = State::Advertisement;
                self.reference(line)
            }
            State::Answer => self.reference(line),
        }
    }

    fn handle_end(&mut self, flush: bool) -> Result<Turn, Malformed> {
        match self.state {
            State::Capabilities { sha256, ls_refs } if flush => {
                if !ls_refs {
                    return Err(Malformed("a Git server of protocol 2 without ls-refs"));
                }
                self.state = State::Answer;
                Ok(Turn::Send(self.question(sha256)))
            }
            State::Start | State::Advertisement | State::Answer if flush => Ok(Turn::Missing),
            _ => Err(Malformed("a delimiter where none belongs")),
        }
    }

    fn question(&self, sha256: bool) -> Vec<u8> {
        let mut text = packet(b"command=ls-refs\n");
        if sha256 {
            text.extend(packet(b"object-format=sha256\n"));
        }
        text.extend(DELIMITER);
        text.extend(packet(format!("ref-prefix {}\n", self.wanted).as_bytes()));
        text.extend(FLUSH);
        text
    }

    /// `<id> <name>`, with NUL and capabilities behind the first of an advertisement.
    fn reference(&self, line: &[u8]) -> Result<Turn, Malformed> {
        let line = line.split(|b| *b == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(line).map_err(|_| Malformed("a reference not in UTF-8"))?;
        let (id, name) = text
            .split_once(' ')
            .ok_or(Malformed("not a Git server's answer"))?;
        let hex = |b: u8| b.is_ascii_digit() || matches!(b, b'a'..=b'f');
        if !matches!(id.len(), 40 | 64) || !id.bytes().all(hex) {
            // `shallow <id>` lines and the placeholder of an empty repository are no references.
            let known = id == "shallow" || id == "unborn";
            return known
                .then_some(Turn::Read)
                .ok_or(Malformed("not a Git server's answer"));
        }
        // `ls-refs` may add attributes behind the name.
        let name = name.split(' ').next().unwrap_or_default();
        if name == self.wanted {
            return Ok(Turn::Found(id.to_owned()));
        }
        Ok(Turn::Read)
    }
}

/// What ends the session politely once the answer is there.
pub(super) fn farewell() -> &'static [u8] {
    FLUSH
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packet<'a> {
    /// Without its final newline.
    Line(&'a [u8]),
    Flush,
    Delimiter,
}

/// One packet and what follows it; `None` while it is incomplete.
fn split(bytes: &[u8]) -> Result<Option<(Packet<'_>, &[u8])>, Malformed> {
    let Some((head, rest)) = bytes.split_at_checked(4) else {
        return Ok(None);
    };
    let length = std::str::from_utf8(head)
        .ok()
        .filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
        .and_then(|h| usize::from_str_radix(h, 16).ok())
        .ok_or(Malformed("not a Git server's answer"))?;
    match length {
        0 => Ok(Some((Packet::Flush, rest))),
        1 | 2 => Ok(Some((Packet::Delimiter, rest))),
        3 => Err(Malformed("a packet of length 3")),
        _ => Ok(rest.split_at_checked(length - 4).map(|(line, after)| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            (Packet::Line(line), after)
        })),
    }
}

fn packet(line: &[u8]) -> Vec<u8> {
    let mut packet = format!("{:04x}", line.len() + 4).into_bytes();
    packet.extend(line);
    packet
}

/// A server's text, safe to show: one line, no control characters, at most 300 characters.
pub(super) fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "1111111111111111111111111111111111111111";

    fn lines(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            match *line {
                "" => bytes.extend(FLUSH),
                line => bytes.extend(packet(line.as_bytes())),
            }
        }
        bytes
    }

    #[test]
    fn the_old_advertisement_names_the_branch() {
        let other = format!(
            "{} HEAD\0multi_ack symref=HEAD:refs/heads/main",
            "2".repeat(40)
        );
        let main = format!("{ID} refs/heads/main\n");
        for first in ["version 1\n", other.as_str()] {
            let mut asking = Asking::branch("main");
            let bytes = lines(&[first, &other, &main, ""]);
            assert_eq!(asking.receive(&bytes), Ok(Turn::Found(ID.to_owned())));
        }
    }

    #[test]
    fn protocol_two_is_asked_for_the_branch() {
        let mut asking = Asking::branch("main");
        let hello = lines(&["version 2\n", "agent=git/2.39\n", "ls-refs=unborn\n", ""]);
        let question = b"0014command=ls-refs\n0001001fref-prefix refs/heads/main\n0000".to_vec();
        assert_eq!(asking.receive(&hello), Ok(Turn::Send(question)));
        let longer = format!("{} refs/heads/main2\n", "2".repeat(40));
        let answer = lines(&[&longer, &format!("{ID} refs/heads/main\n"), ""]);
        assert_eq!(asking.receive(&answer), Ok(Turn::Found(ID.to_owned())));
    }

    #[test]
    fn a_branch_that_is_not_there_is_missing() {
        let empty = format!("{} capabilities^{{}}\0caps", "0".repeat(40));
        for bytes in [
            lines(&[""]),
            lines(&[&empty, ""]),
            lines(&[&format!("{ID} refs/heads/other"), ""]),
        ] {
            assert_eq!(Asking::branch("main").receive(&bytes), Ok(Turn::Missing));
        }
    }

    #[test]
    fn a_servers_error_is_repeated_without_control_characters() {
        let bytes = lines(&["ERR no such\x1b[31m repo\n"]);
        assert_eq!(
            Asking::branch("main").receive(&bytes),
            Ok(Turn::Refused("no such[31m repo".to_owned()))
        );
    }

    #[test]
    fn something_else_than_git_is_malformed() {
        for bytes in [&b"Welcome to Ubuntu\n"[..], b"0003", b"0009hello", b"0001"] {
            assert!(Asking::branch("main").receive(bytes).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_answer(cut in 0_usize..100) {
            let bytes = lines(&[&format!("{} refs/heads/a\0caps", "2".repeat(40)), &format!("{ID} refs/heads/main\n"), ""]);
            let (one, two) = bytes.split_at(cut.min(bytes.len()));
            let mut asking = Asking::branch("main");
            let first = asking.receive(one).unwrap();
            let last = if first == Turn::Read { asking.receive(two).unwrap() } else { first };
            prop_assert_eq!(last, Turn::Found(ID.to_owned()));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            Asking::branch("main").receive(&bytes).ok();
            let mut framed = packet(&bytes);
            framed.extend(FLUSH);
            Asking::branch("main").receive(&framed).ok();
        }
    }
}
