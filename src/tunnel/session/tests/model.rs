//! L31: two sessions joined by a hostile network, against a model of what the applications wrote and read.
//!
//! The network cuts the bytes anywhere, stalls either direction, wakes nobody in order and may cut the line within any
//! byte, of which either end hears in its own time. The applications open, write, read, finish, stop, reset and drop as they
//! like, within limits so small that all of them are met; either end may ask to drain the line.

use std::collections::BTreeMap;

use bytes::BytesMut;

use super::super::*;
use super::byte;
use crate::tunnel::budget::Budget;
use crate::tunnel::websocket::{self, Reader, Received};
use crate::wire::frame::MAX_MESSAGE;

mod day;

const BUDGET: usize = 300 << 10;
const MAX_STREAMS: usize = 6;

/// One application's view of one stream.
#[derive(Debug, Default)]
struct Half {
    written: usize,
    read: usize,
    finished: bool,
    /// It stopped, reset or dropped the stream: what comes is not its business any more.
    left: bool,
    /// It saw this error.
    failed: Option<Code>,
    ended: bool,
}

struct End {
    session: Session,
    reader: Reader,
    /// Bytes on their way to this end.
    wire: Vec<u8>,
    halves: BTreeMap<u32, Half>,
    /// The connection is gone, as far as this end knows.
    closed: bool,
}

struct Net {
    now: Instant,
    ends: [End; 2],
    process: Budget,
}

impl Net {
    fn new() -> Self {
        let (now, process) = (Instant::now(), Budget::new(2 * BUDGET));
        let end = |role| End {
            session: Session::new(
                now,
                Config {
                    budget: BUDGET,
                    max_streams: MAX_STREAMS,
                    peer_max_streams: MAX_STREAMS + 1,
                    process: process.clone(),
                    ..Config::new(role)
                },
            ),
            reader: Reader::new(role),
            wire: vec![],
            halves: BTreeMap::new(),
            closed: false,
        };
        Self {
            now,
            ends: [end(Role::Agent), end(Role::Hub)],
            process,
        }
    }

    fn pick(&self, end: usize, n: usize) -> Option<u32> {
        let halves = &self.ends[end].halves;
        let open = halves.iter().filter(|(_, half)| !half.left);
        let ids: Vec<u32> = open.map(|(id, _)| *id).collect();
        ids.get(n % ids.len().max(1)).copied()
    }

    fn open(&mut self, end: usize, class: Class) {
        let this = &mut self.ends[end];
        let (over, draining) = (this.session.over().is_some(), this.session.is_draining());
        let opened = this
            .session
            .open(self.now, Kind::Api, class, Bytes::from_static(b"{}"));
        match opened {
            Ok(id) => {
                assert!(!over && !draining, "the line takes no new streams");
                this.halves.insert(id, Half::default());
            }
            Err(error) if over => assert_eq!(error.code, Code::LineLost),
            Err(error) if draining => assert_eq!(error.code, Code::Draining),
            Err(error) => assert!(matches!(error.code, Code::Limit | Code::OverBudget)),
        }
    }

    fn write(&mut self, end: usize, id: u32, len: usize) {
        let this = &mut self.ends[end];
        let half = this.halves.get_mut(&id).unwrap();
        if half.finished {
            return;
        }
        let data: Vec<u8> = (half.written..half.written + len)
            .map(|at| byte(id, at))
            .collect();
        match this.session.write(self.now, id, &data) {
            Ok(taken) => half.written += taken,
            Err(error) => half.failed = Some(error.code),
        }
    }

    /// What is read is what the other end wrote, in order; an end is only seen where all of it was.
    fn read(&mut self, end: usize, id: u32, len: usize) -> bool {
        let mut out = vec![0; len];
        let read = self.ends[end].session.read(self.now, id, &mut out);
        let other = self.ends[1 - end]
            .halves
            .get(&id)
            .map(|half| (half.written, half.finished, half.left));
        let half = self.ends[end].halves.get_mut(&id).unwrap();
        match read {
            Ok(Read::Data(len)) => {
                assert!(!half.ended && !half.left);
                for got in &out[..len] {
                    assert_eq!(*got, byte(id, half.read), "stream {id} at {}", half.read);
                    half.read += 1;
                }
                len > 0
            }
            Ok(Read::Blocked) => false,
            Ok(Read::End) => {
                half.ended = true;
                // A peer that was told to stop ends early; then `left` was set here.
                if let Some((written, finished, _)) = other {
                    assert!(
                        finished && written == half.read,
                        "stream {id} ends at {} of {written}",
                        half.read
                    );
                }
                false
            }
            Err(error) => {
                half.failed = Some(error.code);
                false
            }
        }
    }

    fn transmit(&mut self, end: usize) -> bool {
        if self.ends[end].closed {
            return false;
        }
        let mut out = BytesMut::zeroed(websocket::SPACE);
        let sent = self.ends[end].session.poll_transmit(self.now, &mut out);
        assert!(out.len() - websocket::SPACE <= websocket::MAX_SEALED);
        if sent && !self.ends[1 - end].closed {
            let start = websocket::seal(&mut out, (end == 0).then_some([1, 2, 3, 4]));
            self.ends[1 - end].wire.extend_from_slice(&out[start..]);
        }
        sent
    }

    /// Up to `len` bytes arrive at `end`.
    fn deliver(&mut self, end: usize, len: usize) -> bool {
        let this = &mut self.ends[end];
        let len = len.min(this.wire.len());
        let arrived: Vec<u8> = this.wire.drain(..len).collect();
        let mut rest = &arrived[..];
        loop {
            match this.reader.poll().expect("ours is framed well") {
                Some(Received::Message(message)) => {
                    this.session.handle_message(self.now, message);
                    let over = this.session.over();
                    assert!(
                        over.is_none_or(|over| !over.fault),
                        "ours keeps the protocol"
                    );
                }
                Some(other) => panic!("{other:?}"),
                None if rest.is_empty() => break,
                None => {
                    let taken = if let Some((body, missing)) = this.reader.direct() {
                        let taken = missing.min(rest.len());
                        body.extend_from_slice(&rest[..taken]);
                        taken
                    } else {
                        let space = this.reader.space();
                        let taken = space.len().min(rest.len());
                        space[..taken].copy_from_slice(&rest[..taken]);
                        this.reader.filled(taken);
                        taken
                    };
                    rest = &rest[taken..];
                }
            }
        }
        while let Some(event) = this.session.poll_event() {
            if let Event::Opened { id, .. } = event {
                this.halves.insert(id, Half::default());
            }
        }
        let (all, peer) = (this.wire.is_empty(), self.ends[1 - end].closed);
        if all && peer && !self.ends[end].closed {
            self.lose(end, "the peer closed the connection");
            return true;
        }
        len > 0
    }

    fn drain(&mut self, end: usize, millis: u32) {
        let goaway = Goaway {
            code: Code::Draining,
            retry_after_ms: 0,
            drain_ms: millis,
            text: String::new(),
        };
        self.ends[end].session.drain(self.now, goaway);
    }

    /// This end has no connection any more.
    fn lose(&mut self, end: usize, why: &str) {
        let this = &mut self.ends[end];
        this.session.lose(Code::LineLost, why);
        this.wire.clear();
        this.closed = true;
    }

    /// The connection breaks: this end hears of it at once, the other one when it has read what still arrives.
    fn cut(&mut self, end: usize, arrives: usize) {
        if !self.ends[end].closed {
            self.lose(end, "cut");
            self.ends[1 - end].wire.truncate(arrives);
        }
    }

    /// Time passes; who is done with the line says the rest and closes it, as its driver does.
    fn wait(&mut self, time: Duration) {
        self.now += time;
        for end in [0, 1] {
            let session = &mut self.ends[end].session;
            session.heard(self.now);
            session.handle_timeout(self.now);
            if session.over().is_some() && !self.ends[end].closed {
                while self.transmit(end) {}
                self.lose(end, "over");
            }
        }
    }

    /// Until a line that drains, or that one end has lost, has ended at both.
    fn finish(&mut self) {
        for round in 0.. {
            assert!(round < 20, "it never ends");
            self.settle();
            let ends = &self.ends;
            let ending = |end: &End| end.session.is_draining() || end.closed;
            if ends.iter().all(|end| end.closed) || !ends.iter().any(ending) {
                return;
            }
            let next = ends.iter().map(|end| end.session.poll_timeout()).min();
            let next = next.unwrap().saturating_duration_since(self.now);
            self.wait(next.max(Duration::from_millis(1)));
        }
    }

    /// Why a stream may have failed at one end.
    fn may_fail_with(&self, end: usize, id: u32, code: Code) -> bool {
        let other = self.ends[1 - end].halves.get(&id);
        match code {
            Code::LineLost => self.ends[end].closed,
            // Its OPEN had not left when the other end asked to drain.
            Code::Draining => other.is_none() && self.ends[end].session.is_draining(),
            Code::Limit => other.is_none(),
            Code::OverBudget => true,
            Code::Cancelled => other.is_some_and(|other| other.left),
            _ => false,
        }
    }

    fn leave(&mut self, end: usize, id: u32, how: u8) {
        let this = &mut self.ends[end];
        let half = this.halves.get_mut(&id).unwrap();
        half.left = true;
        match how {
            0 => this.session.stop(self.now, id, Code::None),
            1 => this.session.reset(id, Code::Cancelled, "test"),
            _ => this.session.release(self.now, id),
        }
    }

    /// What holds after every step.
    fn check(&self) {
        for end in &self.ends {
            let session = &end.session;
            let (opened, closed) = session.counts();
            assert_eq!(opened, closed + session.live() as u64);
            assert!(session.live() <= 2 * MAX_STREAMS + 1);
            assert!(session.unread() <= BUDGET, "{} unread", session.unread());
            let most = MAX_LINE_QUEUED + ALWAYS_QUEUED * session.streams.len();
            assert!(session.queued <= most);
            let queued: usize = session
                .streams
                .values()
                .map(|stream| stream.queue.len())
                .sum();
            assert_eq!(session.queued, queued);
        }
        let unread: usize = self.ends.iter().map(|end| end.session.unread()).sum();
        assert_eq!(self.process.used(), unread);
    }

    /// The network heals and everybody reads, until nobody can do anything.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 20_000, "it goes on for ever");
            let mut moved = false;
            for end in [0, 1] {
                moved |= self.transmit(end);
                moved |= self.deliver(end, usize::MAX);
                let ids: Vec<u32> = self.ends[end].halves.keys().copied().collect();
                for id in ids {
                    let half = &self.ends[end].halves[&id];
                    if !half.left && !half.ended && half.failed.is_none() {
                        moved |= self.read(end, id, 50_000);
                    }
                }
            }
            self.check();
            if !moved {
                return;
            }
            self.now += Duration::from_millis(1);
        }
    }
}

const _: () = assert!(websocket::MAX_SEALED < MAX_MESSAGE);
