//! A transcript as text, an entry a line. `#` begins a remark, for people: what the bytes before it mean.

use bytes::Bytes;
use linesman::keys::{hex, unhex};

/// Equal bytes in a row, from this many on, are written once, with their number.
const RUN: usize = 16;
/// Bytes of a frame's header.
pub(super) const HEADER: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Agent,
    Hub,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Hub => "hub",
        }
    }
}

/// A message of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shaken {
    /// `CHALLENGE`, `HELLO` or `WELCOME`.
    pub(super) name: String,
    /// As it was sent: that is what is signed.
    pub(super) json: String,
    /// None for CHALLENGE.
    pub(super) signature: Option<[u8; 64]>,
}

impl Shaken {
    pub(super) fn payload(&self) -> Bytes {
        let mut payload = self.json.clone().into_bytes();
        payload.extend(self.signature.iter().flatten());
        payload.into()
    }
}

/// What the application at an end asks of its session. Numbers are those of the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Open {
        id: u32,
        kind: u8,
        class: u8,
        meta: String,
    },
    /// The text as often as the number says.
    Write {
        id: u32,
        times: usize,
        text: String,
    },
    /// All that is there.
    Read {
        id: u32,
    },
    Finish {
        id: u32,
    },
    Stop {
        id: u32,
        code: u16,
    },
    Reset {
        id: u32,
        code: u16,
        text: String,
    },
    Drain {
        code: u16,
        retry_after_ms: u32,
        drain_ms: u32,
        text: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Shake(End, Shaken),
    /// What the hub says instead of WELCOME: code, `retry_after_ms` and text, and the message.
    Refusal(u16, u32, String, Bytes),
    Act(End, Act),
    Message(End, Bytes),
    /// Milliseconds.
    Wait(u64),
    /// The session of this end is over, with this code.
    Over(End, u16),
}

/// Frames of a message: type, stream and payload, as the bytes say and no code of the product.
pub(super) fn frames(message: &[u8]) -> Vec<(u8, u32, &[u8])> {
    let mut rest = message;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_be_bytes([0, rest[2], rest[3], rest[4]]);
        let id = u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]]);
        let end = HEADER + usize::try_from(len).unwrap();
        found.push((rest[0], id, &rest[HEADER..end]));
        rest = &rest[end..];
    }
    found
}

pub(super) fn print(entries: &[Entry]) -> String {
    entries.iter().map(|entry| line(entry) + "\n").collect()
}

fn line(entry: &Entry) -> String {
    match entry {
        Entry::Shake(by, shaken) => {
            let signature = shaken.signature.map(|bytes| format!(" {}", hex(&bytes)));
            let (name, json) = (&shaken.name, &shaken.json);
            let signature = signature.unwrap_or_default();
            format!("{} {name} {json}{signature}", by.word())
        }
        Entry::Refusal(code, retry, text, message) => {
            format!(
                "hub refuses {code} {retry} {} {}",
                quoted(text),
                sent(message)
            )
        }
        Entry::Act(by, act) => format!("{} {}", by.word(), told(act)),
        Entry::Message(by, message) => format!("{} sends {}", by.word(), sent(message)),
        Entry::Wait(millis) => format!("both wait {millis}"),
        Entry::Over(by, code) => format!("{} ends {code}", by.word()),
    }
}

fn told(act: &Act) -> String {
    match act {
        Act::Open {
            id,
            kind,
            class,
            meta,
        } => format!("opens {id} {kind} {class} {meta}"),
        Act::Write { id, times, text } => format!("writes {id} {times} {}", quoted(text)),
        Act::Read { id } => format!("reads {id}"),
        Act::Finish { id } => format!("finishes {id}"),
        Act::Stop { id, code } => format!("stops {id} {code}"),
        Act::Reset { id, code, text } => format!("resets {id} {code} {}", quoted(text)),
        Act::Drain {
            code,
            retry_after_ms,
            drain_ms,
            text,
        } => format!("drains {code} {retry_after_ms} {drain_ms} {}", quoted(text)),
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// `type flags length stream payload`, frames behind one another, and what they are.
fn sent(message: &[u8]) -> String {
    let mut rest = message;
    let (mut bytes, mut names) = (Vec::new(), Vec::new());
    for (kind, id, payload) in frames(message) {
        let (header, next) = rest.split_at(HEADER);
        rest = &next[payload.len()..];
        let header = [&header[..1], &header[1..2], &header[2..5], &header[5..]];
        bytes.extend(header.map(hex));
        if !payload.is_empty() {
            bytes.push(packed(payload));
        }
        names.push(format!("{} {id}", name(kind)));
    }
    format!("{} # {}", bytes.join(" "), names.join(", "))
}

fn name(kind: u8) -> &'static str {
    match kind {
        0x04 => "REFUSE",
        0x10 => "OPEN",
        0x11 => "DATA",
        0x12 => "CREDIT",
        0x13 => "FIN",
        0x14 => "RST",
        0x15 => "STOP",
        0x20 => "PING",
        0x21 => "PONG",
        0x22 => "GOAWAY",
        _ => "?",
    }
}

/// Hex, and `61x1000` for a thousand times 61.
fn packed(bytes: &[u8]) -> String {
    let same = bytes.chunk_by(|one, next| one == next);
    let mut parts: Vec<String> = Vec::new();
    let mut joins = false;
    for run in same {
        if run.len() >= RUN {
            parts.push(format!("{}x{}", hex(&run[..1]), run.len()));
            joins = false;
        } else if joins {
            parts.last_mut().unwrap().push_str(&hex(run));
        } else {
            parts.push(hex(run));
            joins = true;
        }
    }
    parts.join(" ")
}

pub(super) fn parse(text: &str) -> Vec<Entry> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| !line.is_empty())
        .map(|line| entry(line).unwrap_or_else(|| panic!("no entry of a transcript: {line}")))
        .collect()
}

fn entry(line: &str) -> Option<Entry> {
    let (who, rest) = line.split_once(' ')?;
    let by = match who {
        "agent" => End::Agent,
        "hub" => End::Hub,
        "both" => return Some(Entry::Wait(rest.strip_prefix("wait ")?.parse().ok()?)),
        _ => return None,
    };
    let (verb, rest) = rest.split_once(' ')?;
    Some(match verb {
        "CHALLENGE" | "HELLO" | "WELCOME" => {
            let (json, signature) = if verb == "CHALLENGE" {
                (rest, None)
            } else {
                let (json, signature) = rest.rsplit_once(' ')?;
                (json, Some(unhex(signature)?))
            };
            let (name, json) = (verb.to_owned(), json.to_owned());
            Entry::Shake(
                by,
                Shaken {
                    name,
                    json,
                    signature,
                },
            )
        }
        "refuses" => {
            let (code, rest) = rest.split_once(' ')?;
            let (retry, rest) = rest.split_once(' ')?;
            let end = rest.get(1..)?.find('"')? + 2;
            let (text, message) = rest.split_at(end);
            let text = serde_json::from_str(text).ok()?;
            let (code, retry) = (code.parse().ok()?, retry.parse().ok()?);
            Entry::Refusal(code, retry, text, bytes(message)?)
        }
        "sends" => Entry::Message(by, bytes(rest)?),
        "ends" => Entry::Over(by, rest.parse().ok()?),
        _ => Entry::Act(by, act(verb, rest)?),
    })
}

fn act(verb: &str, rest: &str) -> Option<Act> {
    let mut words = rest.splitn(
        if verb == "opens" || verb == "drains" {
            4
        } else {
            3
        },
        ' ',
    );
    let mut next = || words.next();
    let id = |word: Option<&str>| word?.parse::<u32>().ok();
    let quoted = |word: Option<&str>| serde_json::from_str(word?).ok();
    Some(match verb {
        "opens" => Act::Open {
            id: id(next())?,
            kind: next()?.parse().ok()?,
            class: next()?.parse().ok()?,
            meta: next()?.to_owned(),
        },
        "writes" => Act::Write {
            id: id(next())?,
            times: next()?.parse().ok()?,
            text: quoted(next())?,
        },
        "reads" => Act::Read { id: id(next())? },
        "finishes" => Act::Finish { id: id(next())? },
        "stops" => Act::Stop {
            id: id(next())?,
            code: next()?.parse().ok()?,
        },
        "resets" => Act::Reset {
            id: id(next())?,
            code: next()?.parse().ok()?,
            text: quoted(next())?,
        },
        "drains" => Act::Drain {
            code: next()?.parse().ok()?,
            retry_after_ms: id(next())?,
            drain_ms: id(next())?,
            text: quoted(next())?,
        },
        _ => return None,
    })
}

fn bytes(text: &str) -> Option<Bytes> {
    let text = text.split_once('#').map_or(text, |(bytes, _)| bytes);
    let mut all = Vec::new();
    for word in text.split_whitespace() {
        let (word, times) = word.split_once('x').unwrap_or((word, "1"));
        let pairs = word.as_bytes().chunks(2);
        let part: Option<Vec<u8>> = pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        all.extend(part?.repeat(times.parse().ok()?));
    }
    Some(all.into())
}
