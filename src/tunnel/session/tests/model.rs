//! L31: two sessions joined by a hostile network, against a model of what the applications wrote and read.
//!
//! The network cuts the bytes anywhere, stalls either direction, wakes nobody in order and at last may cut the line
//! within any byte. The applications open, write, read, finish, stop, reset and drop as they like, within limits so
//! small that all of them are met.

use std::collections::BTreeMap;

use bytes::BytesMut;
use proptest::prelude::*;

use super::super::*;
use super::byte;
use crate::tunnel::budget::Budget;
use crate::tunnel::websocket::{self, Reader, Received};
use crate::wire::frame::MAX_MESSAGE;

const BUDGET: usize = 300 << 10;
const MAX_STREAMS: usize = 6;

/// One application's view of one stream.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what has happened, in any combination"
)]
struct Half {
    written: usize,
    read: usize,
    finished: bool,
    /// It stopped, reset or dropped the stream: what comes is not its business any more.
    left: bool,
    /// It saw an error.
    failed: bool,
    ended: bool,
}

struct End {
    session: Session,
    reader: Reader,
    /// Bytes on their way to this end.
    wire: Vec<u8>,
    halves: BTreeMap<u32, Half>,
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
        if let Ok(id) = this
            .session
            .open(self.now, Kind::Api, class, Bytes::from_static(b"{}"))
        {
            this.halves.insert(id, Half::default());
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
            Err(_) => half.failed = true,
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
            Err(_) => {
                half.failed = true;
                false
            }
        }
    }

    fn transmit(&mut self, end: usize) -> bool {
        let mut out = BytesMut::zeroed(websocket::SPACE);
        let sent = self.ends[end].session.poll_transmit(self.now, &mut out);
        assert!(out.len() - websocket::SPACE <= websocket::MAX_SEALED);
        if sent {
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
                    assert_eq!(this.session.over(), None, "ours keeps the protocol");
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
        len > 0
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
                    if !half.left && !half.ended && !half.failed {
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

#[derive(Debug, Clone)]
enum Step {
    Open(usize, bool),
    Write(usize, usize, usize),
    Read(usize, usize, usize),
    Finish(usize, usize),
    Leave(usize, usize, u8),
    Transmit(usize),
    Deliver(usize, usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = || 0..2_usize;
    let pieces = prop_oneof![1..30_usize, 30..5000_usize, 5000..200_000_usize];
    let step = prop_oneof![
        2 => (end(), any::<bool>()).prop_map(|(end, class)| Step::Open(end, class)),
        5 => (end(), 0..8_usize, pieces.clone()).prop_map(|(end, n, len)| Step::Write(end, n, len)),
        3 => (end(), 0..8_usize, pieces.clone()).prop_map(|(end, n, len)| Step::Read(end, n, len)),
        1 => (end(), 0..8_usize).prop_map(|(end, n)| Step::Finish(end, n)),
        1 => (end(), 0..8_usize, 0..3_u8).prop_map(|(end, n, how)| Step::Leave(end, n, how)),
        5 => end().prop_map(Step::Transmit),
        5 => (end(), pieces).prop_map(|(end, len)| Step::Deliver(end, len)),
        1 => (1..2000_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..250)
}

fn play(steps: Vec<Step>) -> Net {
    let mut net = Net::new();
    for step in steps {
        match step {
            Step::Open(end, background) => {
                let class = if background {
                    Class::Background
                } else {
                    Class::Normal
                };
                net.open(end, class);
            }
            Step::Write(end, n, len) => {
                if let Some(id) = net.pick(end, n) {
                    net.write(end, id, len);
                }
            }
            Step::Read(end, n, len) => {
                if let Some(id) = net
                    .pick(end, n)
                    .filter(|id| !net.ends[end].halves[id].failed)
                {
                    net.read(end, id, len);
                }
            }
            Step::Finish(end, n) => {
                if let Some(id) = net.pick(end, n)
                    && net.ends[end].session.finish(id).is_ok()
                {
                    net.ends[end].halves.get_mut(&id).unwrap().finished = true;
                }
            }
            Step::Leave(end, n, how) => {
                if let Some(id) = net.pick(end, n) {
                    net.leave(end, id, how);
                }
            }
            Step::Transmit(end) => drop(net.transmit(end)),
            Step::Deliver(end, len) => drop(net.deliver(end, len)),
            Step::Wait(millis) => {
                net.now += Duration::from_millis(millis);
                for end in &mut net.ends {
                    end.session.heard(net.now);
                    end.session.handle_timeout(net.now);
                }
            }
        }
        net.check();
    }
    net
}

/// Every handle is dropped: nothing may be left.
fn drop_all(net: &mut Net) {
    for end in [0, 1] {
        let ids: Vec<u32> = net.ends[end].halves.keys().copied().collect();
        for id in ids {
            net.leave(end, id, 2);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// When the network heals and all read: what nobody gave up has arrived, whole and on its stream; both ends agree
    /// that all is over, and no memory is left.
    #[test]
    fn nothing_is_lost_or_stuck_in_a_network_that_heals(steps in steps()) {
        let mut net = play(steps);
        net.settle();
        for end in [0, 1] {
            for (id, writer) in &net.ends[end].halves {
                let Some(reader) = net.ends[1 - end].halves.get(id) else { continue };
                if !(writer.left || writer.failed || reader.left || reader.failed) {
                    prop_assert_eq!(reader.read, writer.written, "stream {}", id);
                    prop_assert_eq!(reader.ended, writer.finished, "stream {}", id);
                }
            }
        }
        drop_all(&mut net);
        net.settle();
        for end in &net.ends {
            let session = &end.session;
            prop_assert!(session.streams.is_empty());
            prop_assert_eq!((session.live(), session.unread(), session.queued), (0, 0, 0));
        }
        prop_assert_eq!(net.process.used(), 0);
    }

    /// The line is cut within any byte: what was read is a beginning of what was written, an end is only seen where
    /// nothing is missing (`Net::read`), and no memory is left.
    #[test]
    fn a_cut_at_any_byte_truncates_and_never_invents(steps in steps(), rest in [0..100_000_usize, 0..100_000_usize]) {
        let mut net = play(steps);
        for end in [0, 1] {
            net.transmit(1 - end);
            net.deliver(end, rest[end]);
            net.ends[end].session.lose(Code::LineLost, "cut");
        }
        for end in [0, 1] {
            let ids: Vec<u32> = net.ends[end].halves.keys().copied().collect();
            for id in ids {
                while !net.ends[end].halves[&id].left && net.read(end, id, 10_000) {}
                let half = &net.ends[end].halves[&id];
                prop_assert!(half.left || half.failed || half.ended, "stream {} hangs", id);
            }
            prop_assert_eq!(net.ends[end].session.live(), 0);
        }
        drop_all(&mut net);
        for end in &net.ends {
            prop_assert!(end.session.streams.is_empty());
            prop_assert_eq!((end.session.unread(), end.session.queued), (0, 0));
        }
        prop_assert_eq!(net.process.used(), 0);
    }
}

const _: () = assert!(websocket::MAX_SEALED < MAX_MESSAGE);
