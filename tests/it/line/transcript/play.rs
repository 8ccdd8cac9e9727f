//! One end of a transcript is of this build, the other says what was recorded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use linesman::tunnel::session::{Config, Read, Session};
use linesman::wire::frame::{Class, Code, Goaway, Kind};

use super::text::{Act, End, Entry, HEADER, frames};

/// Between a message and what comes after it.
const STEP: Duration = Duration::from_millis(1);
const PING: u8 = 0x20;
const PONG: u8 = 0x21;

/// An end with a session of this build.
pub(super) struct Live {
    pub(super) end: End,
    pub(super) session: Session,
    pub(super) now: Instant,
}

impl Live {
    pub(super) fn new(end: End, config: Config, now: Instant) -> Self {
        Self {
            end,
            session: Session::new(now, config),
            now,
        }
    }

    pub(super) fn step(&mut self) {
        self.now += STEP;
    }

    pub(super) fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.session.handle_timeout(self.now);
    }

    pub(super) fn hear(&mut self, message: Bytes) {
        self.session.handle_message(self.now, message);
        while self.session.poll_event().is_some() {}
    }

    /// The next message, where there is one.
    pub(super) fn say(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        let said = self.session.poll_transmit(self.now, &mut out);
        said.then(|| out.freeze())
    }

    pub(super) fn act(&mut self, act: &Act) -> Result<(), String> {
        let (now, session) = (self.now, &mut self.session);
        match act {
            Act::Open {
                id,
                kind,
                class,
                meta,
            } => {
                let class = if *class == 1 {
                    Class::Background
                } else {
                    Class::Normal
                };
                let meta = Bytes::from(meta.clone());
                let opened = session.open(now, Kind::from(*kind), class, meta);
                let opened = opened.map_err(|error| format!("open {id}: {error}"))?;
                same("the stream's id", &opened, id)?;
            }
            Act::Write { id, times, text } => {
                let data = text.repeat(*times);
                let taken = session.write(now, *id, data.as_bytes());
                let taken = taken.map_err(|error| format!("write on {id}: {error}"))?;
                same(&format!("bytes that {id} takes"), &taken, &data.len())?;
            }
            Act::Read { id } => {
                let mut out = [0; 4096];
                while let Ok(Read::Data(_)) = session.read(now, *id, &mut out) {}
            }
            Act::Finish { id } => {
                let done = session.finish(*id);
                done.map_err(|error| format!("finish {id}: {error}"))?;
            }
            Act::Stop { id, code } => session.stop(now, *id, Code::from(*code)),
            Act::Reset { id, code, text } => session.reset(*id, Code::from(*code), text),
            Act::Drain {
                code,
                retry_after_ms,
                drain_ms,
                text,
            } => session.drain(
                now,
                Goaway {
                    code: Code::from(*code),
                    retry_after_ms: *retry_after_ms,
                    drain_ms: *drain_ms,
                    text: text.clone(),
                },
            ),
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, asked: &T) -> Result<(), String> {
    if found == asked {
        Ok(())
    } else {
        Err(format!("{what}: {found:?} instead of {asked:?}"))
    }
}

/// Writes down what two ends of this build say to each other while they do what `acts` say.
pub(super) fn record(ends: &mut [Live; 2], acts: &[Entry]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut over = [false; 2];
    for entry in acts {
        entries.push(entry.clone());
        match entry {
            Entry::Act(by, act) => {
                let end = ends.iter_mut().find(|end| end.end == *by).unwrap();
                end.act(act).unwrap();
            }
            Entry::Wait(millis) => ends.iter_mut().for_each(|end| end.wait(*millis)),
            other => panic!("not for both ends: {other:?}"),
        }
        while let Some((from, message)) = (0..2).find_map(|from| Some((from, ends[from].say()?))) {
            entries.push(Entry::Message(ends[from].end, message.clone()));
            ends.iter_mut().for_each(Live::step);
            ends[1 - from].hear(message);
        }
        for (end, over) in ends.iter().zip(&mut over) {
            if let Some(why) = end.session.over().filter(|_| !*over) {
                *over = true;
                entries.push(Entry::Over(end.end, why.code.into()));
            }
        }
    }
    entries
}

/// Lets `live` do what the transcript says of its end and hear what the other one said then. What differs from what
/// its end said then is the error.
pub(super) fn play(mut live: Live, entries: &[Entry]) -> Result<(), String> {
    let (mut said, mut recorded) = (Said::default(), Said::default());
    let mut over = None;
    for entry in entries {
        match entry {
            Entry::Act(by, act) if *by == live.end => live.act(act)?,
            Entry::Wait(millis) => live.wait(*millis),
            Entry::Message(by, message) => {
                live.step();
                if *by == live.end {
                    recorded.add(message)?;
                } else {
                    live.hear(without_pongs(message));
                }
            }
            Entry::Over(by, code) if *by == live.end => over = Some(*code),
            Entry::Act(..) | Entry::Over(..) | Entry::Shake(..) | Entry::Refusal(..) => {}
        }
        while let Some(message) = live.say() {
            said.add(&message)?;
            for (_, _, serial) in frames(&message).iter().filter(|frame| frame.0 == PING) {
                live.step();
                let mut pong = BytesMut::new();
                frame(PONG, 0, 0, serial, &mut pong);
                live.hear(pong.freeze());
            }
        }
    }
    let ended = live.session.over().map(|over| u16::from(over.code));
    same("the code of the session's end", &ended, &over)?;
    same("frames of the line", &said.line, &recorded.line)?;
    for id in said.streams.keys().chain(recorded.streams.keys()) {
        let (said, recorded) = (said.streams.get(id), recorded.streams.get(id));
        same(&format!("stream {id}"), &said, &recorded)?;
    }
    Ok(())
}

/// This build's own PINGs are answered, whenever it sends them, so that those of the one before are not.
fn without_pongs(message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    let mut rest = message;
    for (kind, _, payload) in frames(message) {
        let (frame, next) = rest.split_at(HEADER + payload.len());
        rest = next;
        if kind != PONG {
            out.extend_from_slice(frame);
        }
    }
    out.freeze()
}

/// What an end said, without what it is free in: how DATA is cut, when and in which portions credit comes, how often
/// it asks whether the peer is there, what a text for people says, and what the other end is to skip.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// Frames of stream 0, but for PING.
    line: Vec<(u8, Vec<u8>)>,
    streams: BTreeMap<u32, OfStream>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct OfStream {
    parts: Vec<Part>,
    /// STOP's.
    stopped: Vec<Vec<u8>>,
    gave_credit: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Kind, class and meta.
    Open(Vec<u8>),
    Data(String),
    Fin,
    /// The code.
    Rst(Vec<u8>),
}

impl Said {
    fn add(&mut self, message: &[u8]) -> Result<(), String> {
        for (kind, id, payload) in frames(message) {
            match kind {
                0x80.. | PING => {}
                // Code and times.
                0x22 => self.line.push((kind, payload[..10].to_vec())),
                _ if id == 0 => self.line.push((kind, payload.to_vec())),
                _ => self.streams.entry(id).or_default().add(kind, payload)?,
            }
        }
        Ok(())
    }
}

impl OfStream {
    fn add(&mut self, kind: u8, payload: &[u8]) -> Result<(), String> {
        match (kind, self.parts.last_mut()) {
            (0x10, _) => {
                let meta = [&payload[..2], &payload[6..]].concat();
                self.parts.push(Part::Open(meta));
            }
            (0x11, Some(Part::Data(data))) => data.push_str(&String::from_utf8_lossy(payload)),
            (0x11, Some(Part::Fin | Part::Rst(_))) => return Err("DATA after the end".to_owned()),
            (0x11, _) => {
                let data = String::from_utf8_lossy(payload).into_owned();
                self.parts.push(Part::Data(data));
            }
            (0x12, _) => self.gave_credit = true,
            (0x13, _) => self.parts.push(Part::Fin),
            (0x14, _) => self.parts.push(Part::Rst(payload[..2].to_vec())),
            (0x15, _) => self.stopped.push(payload.to_vec()),
            _ => return Err(format!("frame {kind:#04x} of a stream")),
        }
        Ok(())
    }
}

/// As the same transcript would be with an `end` of a later build, which says more than this one knows: frames of
/// unknown types, and flags.
pub(super) fn later(end: End, entries: &[Entry]) -> Vec<Entry> {
    let more = |entry: &Entry| match entry {
        Entry::Message(by, message) if *by == end => {
            let mut out = BytesMut::new();
            for (n, (kind, id, payload)) in (0..).zip(frames(message)) {
                frame(0x80 + n, 0, 0, b"{\"later\":1}", &mut out);
                frame(kind, 0xff, id, payload, &mut out);
                frame(0xff - n, 7, id, &[0; 40], &mut out);
            }
            Entry::Message(*by, out.freeze())
        }
        other => other.clone(),
    };
    entries.iter().map(more).collect()
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8], out: &mut BytesMut) {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    out.extend_from_slice(&[kind, flags, len[1], len[2], len[3]]);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(payload);
}
