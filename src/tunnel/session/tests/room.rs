//! L23: who gives up his memory where there is too little of it.

use std::collections::BTreeSet;

use bytes::BytesMut;
use proptest::prelude::*;

use super::super::*;
use super::opened;
use crate::wire::frame::{self, MAX_PAYLOAD};

const BUDGET: usize = 20 * MAX_PAYLOAD;

/// A hub's session whose agent sends what a test says, as long as it has credit.
struct Full {
    start: Instant,
    now: Instant,
    session: Session,
    next: u32,
}

impl Full {
    fn new() -> Self {
        let now = Instant::now();
        let start = now;
        let config = Config {
            budget: BUDGET,
            window: 16 << 20,
            ..Config::new(Role::Hub)
        };
        Self {
            start,
            now,
            session: Session::new(now, config),
            next: 1,
        }
    }

    /// The peer opens a stream, and sends `frames` on it; none where it was refused.
    fn open(&mut self, frames: usize) -> Option<u32> {
        let id = self.next;
        self.next += 2;
        let mut message = BytesMut::new();
        frame::encode(&opened(id, 1), &mut message);
        self.session.handle_message(self.now, message.freeze());
        self.session.streams.contains_key(&id).then(|| {
            self.send(id, frames);
            id
        })
    }

    fn send(&mut self, id: u32, frames: usize) {
        for _ in 0..frames {
            let mut message = BytesMut::new();
            frame::data(id, &[1; MAX_PAYLOAD], &mut message);
            self.session.handle_message(self.now, message.freeze());
        }
        let mut out = BytesMut::new();
        while self.session.poll_transmit(self.now, &mut out) {
            out.clear();
        }
    }

    /// The peer sends one byte.
    fn trickle(&mut self, id: u32) {
        let mut message = BytesMut::new();
        frame::data(id, &[1], &mut message);
        self.session.handle_message(self.now, message.freeze());
    }

    fn read(&mut self, id: u32) {
        drop(self.session.read(self.now, id, &mut [0; MAX_PAYLOAD]));
    }

    /// The streams that went for their memory.
    fn reset(&self) -> BTreeSet<u32> {
        let over = |stream: &StreamState| matches!(&stream.error, Some(error) if error.code == Code::OverBudget);
        let streams = self.session.streams.iter();
        streams
            .filter(|(_, stream)| over(stream))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Streams with unread bytes, by when somebody read of them, or they came, last.
    fn unread(&self) -> Vec<(Instant, u32)> {
        let streams = self.session.streams.iter();
        let mut unread: Vec<_> = streams
            .filter(|(_, stream)| stream.buffer.len() > 0)
            .map(|(id, stream)| (stream.unread_since, *id))
            .collect();
        unread.sort_unstable();
        unread
    }
}

#[test]
fn a_line_that_is_not_full_takes_new_streams() {
    let mut line = Full::new();
    for _ in 0..3 {
        assert!(line.open(6).is_some());
    }
    assert!(line.session.unread() > BUDGET / 4 * 3);
    assert!(line.open(0).is_some());
    assert_eq!(line.reset(), BTreeSet::new());
}

#[test]
fn over_budget_the_longest_unread_stream_is_reset_and_the_others_go_on() {
    let mut line = Full::new();
    let [first, second, third] = [6, 6, 6].map(|frames| {
        let id = line.open(frames).unwrap();
        line.now += Duration::from_secs(1);
        id
    });
    line.read(first);
    line.send(third, 4);
    assert_eq!(line.reset(), BTreeSet::from([second]));
    assert!(line.session.unread() <= BUDGET);
}

/// Before, it took none for as long as nobody read, and nothing was reset.
#[test]
fn a_full_line_takes_new_streams_again_when_what_nobody_reads_has_made_way() {
    let mut line = Full::new();
    let ids = [4; 4].map(|frames| line.open(frames).unwrap());
    let read = line.open(5).unwrap();
    assert_eq!(line.reset().len(), 1);
    assert_eq!(line.open(1), None, "full, and all of it is young");
    line.now += UNREAD_LONG;
    line.read(read);
    assert!(line.open(1).is_some());
    assert!(line.session.unread() <= BUDGET / 4 * 3);
    let reset = line.reset();
    assert!(!reset.contains(&read), "somebody reads it");
    assert!(
        reset.len() == 2 && reset.iter().all(|id| ids.contains(id)),
        "as many as it takes, and no more: {reset:?}"
    );
}

/// The same for streams of this end: a hub whose users leave theirs unread serves the next user.
#[test]
fn own_streams_open_on_a_full_line_when_what_nobody_reads_has_made_way() {
    let mut line = Full::new();
    for _ in 0..4 {
        line.open(4).unwrap();
    }
    line.open(5).unwrap();
    let open = |line: &mut Full| {
        let opened = line
            .session
            .open(line.now, Kind::Api, Class::Normal, Bytes::new());
        opened.map_err(|error| error.code)
    };
    assert_eq!(open(&mut line), Err(Code::OverBudget));
    line.now += UNREAD_LONG;
    assert_eq!(open(&mut line), Ok(2));
}

const CROWD: usize = 1_000;

/// Streams with a byte each that nobody reads.
fn crowd(line: &mut Full) -> Vec<u32> {
    let ids: Vec<u32> = (0..CROWD).map(|_| line.open(0).unwrap()).collect();
    for id in &ids {
        line.trickle(*id);
    }
    ids
}

/// Before, each OPEN that a full line refused looked at all its streams: a peer that sends nothing else took a core.
#[test]
fn an_open_that_a_full_line_refuses_costs_the_same_however_many_streams_there_are() {
    const OPENS: usize = 20_000;
    let mut line = Full::new();
    let first = line.open(19).unwrap();
    line.now += Duration::from_secs(1);
    let large = crowd(&mut line)[0];
    line.send(large, 19);
    assert_eq!(line.reset(), BTreeSet::from([first]));
    // What is left is young, and more than three quarters.
    let before = line.session.unread.looks;
    for _ in 0..OPENS {
        line.now += Duration::from_micros(1);
        assert_eq!(line.open(0), None);
    }
    let looks = line.session.unread.looks - before;
    assert!(looks <= 2 * (CROWD + OPENS), "{looks}");
    assert_eq!(line.session.over(), None, "to be refused is no offence");
    line.now += UNREAD_LONG;
    assert!(line.open(0).is_some());
    assert_eq!(line.reset(), BTreeSet::from([first, large]));
}

/// The same where each byte that comes costs a stream of a byte its memory, and younger ones hold the rest.
#[test]
fn streams_make_way_one_by_one_without_a_look_at_all_of_them() {
    let mut line = Full::new();
    let idle: Vec<u32> = (0..CROWD).map(|_| line.open(0).unwrap()).collect();
    let large = line.open(0).unwrap();
    let old: BTreeSet<u32> = crowd(&mut line).into_iter().collect();
    line.now += Duration::from_secs(1);
    while line.session.unread() + 2 * MAX_PAYLOAD < BUDGET {
        line.send(large, 1);
    }
    let rest = BUDGET - line.session.unread();
    for len in [rest / 2, rest - rest / 2] {
        let mut message = BytesMut::new();
        frame::data(large, &vec![1; len - frame::HEADER], &mut message);
        line.session.handle_message(line.now, message.freeze());
    }
    assert_eq!(
        (line.session.unread(), line.reset()),
        (BUDGET, BTreeSet::new())
    );
    let before = line.session.unread.looks;
    for id in idle {
        line.trickle(id);
        assert!(line.session.unread() <= BUDGET);
    }
    assert_eq!(line.reset(), old);
    let looks = line.session.unread.looks - before;
    assert!(looks <= 10 * CROWD, "{looks}");
}

/// The order in which streams make way is kept, but not for longer than it is right.
#[test]
fn of_streams_of_one_age_the_one_that_is_the_largest_by_then_goes() {
    let mut line = Full::new();
    let [first, small, large] = [6, 2, 6].map(|frames| line.open(frames).unwrap());
    line.send(large, 7);
    assert_eq!(line.reset(), BTreeSet::from([large]));
    // The others are in order now: first, small.
    line.send(small, 8);
    line.send(small, 6);
    assert_eq!(line.reset(), BTreeSet::from([large, small]));
    line.read(first);
}

#[derive(Debug, Clone)]
enum Act {
    Open(usize),
    Send(usize, usize),
    Read(usize),
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..6_usize).prop_map(Act::Open),
        (0..30_usize, 1..4_usize).prop_map(|(at, frames)| Act::Send(at, frames)),
        (0..30_usize).prop_map(Act::Read),
        (0..4_000_u64).prop_map(Act::Wait),
    ]
}

proptest! {
    /// Whatever is read and sent: the memory is bounded, nothing goes before what lay unread for longer (in whole
    /// seconds of the line), and nobody is kept out for longer than what is unread counts as young.
    #[test]
    fn memory_is_bounded_and_the_oldest_make_way(acts in proptest::collection::vec(act(), 1..120)) {
        let mut line = Full::new();
        let mut ids = Vec::new();
        for act in acts {
            let (before, reset) = (line.unread(), line.reset());
            let id = |at: usize| ids.get(at % ids.len().max(1)).copied();
            match act {
                Act::Open(frames) => ids.extend(line.open(frames)),
                Act::Send(at, frames) => if let Some(id) = id(at) { line.send(id, frames) },
                Act::Read(at) => if let Some(id) = id(at) { line.read(id) },
                Act::Wait(millis) => line.now += Duration::from_millis(millis),
            }
            prop_assert!(line.session.unread() <= BUDGET, "{} bytes", line.session.unread());
            let went: BTreeSet<u32> = line.reset().difference(&reset).copied().collect();
            let since = |at: Instant| at.saturating_duration_since(line.start).as_secs();
            let youngest = before.iter().filter(|(_, id)| went.contains(id)).map(|(at, _)| since(*at)).max();
            let stays = line.unread();
            let oldest = stays.iter().map(|(at, _)| since(*at)).min();
            if let (Some(youngest), Some(oldest)) = (youngest, oldest) {
                prop_assert!(youngest <= oldest, "one since {youngest} s went, one since {oldest} s stayed");
            }
        }
        line.now += UNREAD_LONG;
        prop_assert!(line.open(0).is_some(), "kept out");
    }
}
