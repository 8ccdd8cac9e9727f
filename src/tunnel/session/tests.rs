use std::collections::BTreeMap;

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::wire::frame::{self, Frame, Open};

mod drain;
mod faults;
mod load;
mod model;
mod order;
mod room;

/// Two sessions and the messages between them, which are delivered when the test says so.
struct Net {
    now: Instant,
    ends: [Session; 2],
    wires: [VecDeque<Bytes>; 2],
    /// Bytes written and read so far, by writer and stream.
    written: BTreeMap<(usize, u32), usize>,
    read: BTreeMap<(usize, u32), usize>,
    handles: [Vec<u32>; 2],
}

/// A peer's word that it opens stream `id`, on which it reads `window` bytes.
fn opened(id: u32, window: u32) -> Frame {
    Frame::Open(Open {
        id,
        kind: Kind::Git,
        class: Class::Normal,
        window,
        meta: Bytes::new(),
    })
}

fn byte(id: u32, at: usize) -> u8 {
    u8::try_from((at * 7 + at / 251 + usize::try_from(id).unwrap()) % 251).unwrap()
}

impl Net {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            now,
            ends: [
                Session::new(now, Config::new(Role::Agent)),
                Session::new(now, Config::new(Role::Hub)),
            ],
            wires: [VecDeque::new(), VecDeque::new()],
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            handles: [vec![], vec![]],
        }
    }

    fn open(&mut self, end: usize) -> u32 {
        let id = self.ends[end]
            .open(self.now, Kind::Api, Class::Normal, Bytes::new())
            .unwrap();
        self.handles[end].push(id);
        id
    }

    fn write(&mut self, end: usize, id: u32, len: usize) {
        let at = self.written.entry((end, id)).or_default();
        let data: Vec<u8> = (*at..*at + len).map(|at| byte(id, at)).collect();
        *at += self.ends[end]
            .write(self.now, id, &data)
            .unwrap_or_default();
    }

    /// Reads what the other end wrote and compares it.
    fn read(&mut self, end: usize, id: u32, len: usize) -> bool {
        let mut out = vec![0; len];
        let Ok(Read::Data(len)) = self.ends[end].read(self.now, id, &mut out) else {
            return false;
        };
        let at = self.read.entry((1 - end, id)).or_default();
        for got in &out[..len] {
            assert_eq!(*got, byte(id, *at), "stream {id} at {at}");
            *at += 1;
        }
        len > 0
    }

    fn transmit(&mut self, end: usize) -> bool {
        let mut out = BytesMut::new();
        let sent = self.ends[end].poll_transmit(self.now, &mut out);
        assert!(out.len() <= frame::MAX_MESSAGE);
        if sent {
            self.wires[end].push_back(out.freeze());
        }
        sent
    }

    fn deliver(&mut self, from: usize) -> bool {
        let Some(message) = self.wires[from].pop_front() else {
            return false;
        };
        let to = 1 - from;
        self.ends[to].handle_message(self.now, message);
        assert_eq!(self.ends[to].over(), None);
        while let Some(event) = self.ends[to].poll_event() {
            if let Event::Opened { id, .. } = event {
                self.handles[to].push(id);
            }
        }
        true
    }

    /// Everybody does what they can until nobody can do anything.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for end in [0, 1] {
                while self.transmit(end) {
                    moved = true;
                }
                while self.deliver(end) {
                    moved = true;
                }
                for id in self.handles[end].clone() {
                    while self.read(end, id, 50_000) {
                        moved = true;
                    }
                }
            }
            if !moved {
                return;
            }
            self.now += Duration::from_millis(1);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Open(usize),
    Write(usize, usize, usize),
    Read(usize, usize, usize),
    Finish(usize, usize),
    Transmit(usize),
    Deliver(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = 0..2_usize;
    let step = prop_oneof![
        1 => end.clone().prop_map(Step::Open),
        4 => (end.clone(), 0..8_usize, 1..200_000_usize).prop_map(|(end, n, len)| Step::Write(end, n, len)),
        3 => (end.clone(), 0..8_usize, 1..90_000_usize).prop_map(|(end, n, len)| Step::Read(end, n, len)),
        1 => (end.clone(), 0..8_usize).prop_map(|(end, n)| Step::Finish(end, n)),
        4 => end.clone().prop_map(Step::Transmit),
        4 => end.prop_map(Step::Deliver),
        1 => (1..40_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// L31, against the model: bytes come in order, once, on their stream; when all have read, all that was written
    /// has arrived, every stream can still be written to its end, and nothing is left behind.
    #[test]
    fn bytes_are_never_lost_and_nothing_gets_stuck(steps in steps()) {
        let mut net = Net::new();
        let pick = |net: &Net, end: usize, n: usize| net.handles[end].get(n).copied();
        for step in steps {
            match step {
                Step::Open(end) => { net.open(end); }
                Step::Write(end, n, len) => if let Some(id) = pick(&net, end, n) { net.write(end, id, len) },
                Step::Read(end, n, len) => if let Some(id) = pick(&net, end, n) { net.read(end, id, len); },
                Step::Finish(end, n) => if let Some(id) = pick(&net, end, n) { net.ends[end].finish(id).unwrap() },
                Step::Transmit(end) => { net.transmit(end); }
                Step::Deliver(end) => { net.deliver(end); }
                Step::Wait(millis) => net.now += Duration::from_millis(millis),
            }
        }
        net.settle();
        for (key, written) in &net.written {
            prop_assert_eq!(net.read.get(key).copied().unwrap_or_default(), *written);
        }
        for end in [0, 1] {
            for id in net.handles[end].clone() {
                net.write(end, id, 1000);
                net.ends[end].finish(id).unwrap();
            }
        }
        net.settle();
        for end in [0, 1] {
            for id in net.handles[end].clone() {
                prop_assert_eq!(net.ends[end].read(net.now, id, &mut [0; 8]), Ok(Read::End));
                net.ends[end].release(net.now, id);
            }
            let session = &net.ends[end];
            let (opened, closed) = session.counts();
            prop_assert_eq!((session.live(), opened - closed, session.unread(), session.queued), (0, 0, 0, 0));
            prop_assert!(session.streams.is_empty());
        }
        for (key, written) in &net.written {
            prop_assert_eq!(net.read.get(key).copied().unwrap_or_default(), *written);
        }
    }

    /// Whatever arrives: no panic, and memory within the budget.
    #[test]
    fn hostile_frames_end_the_stream_or_the_line(frames in proptest::collection::vec(
        (0..7_u8, 1..9_u32, 0..20_000_u32), 1..200))
    {
        let mut net = Net::new();
        for _ in 0..3 { net.open(1); }
        while net.transmit(1) {}
        for (kind, id, n) in frames {
            let len = usize::try_from(n).unwrap().min(frame::MAX_PAYLOAD);
            let frame = match kind {
                0 => opened(id, n),
                1 => Frame::Data { id, payload: vec![0; len].into() },
                2 => Frame::Credit { id, amount: n * 1000 },
                3 => Frame::Fin { id },
                4 => Frame::Rst { id, code: Code::Cancelled, text: String::new() },
                5 => Frame::Stop { id, code: Code::None },
                _ => Frame::Ping(n.into()),
            };
            let mut message = BytesMut::new();
            frame::encode(&frame, &mut message);
            net.ends[1].handle_message(net.now, message.freeze());
            prop_assert!(net.ends[1].unread() <= net.ends[1].config.budget);
            net.transmit(1);
        }
    }
}

#[test]
fn a_stopped_stream_swallows_what_is_written_and_ends() {
    let mut net = Net::new();
    let id = net.open(0);
    net.write(0, id, 500_000);
    net.settle();
    net.ends[1].stop(net.now, id, Code::None);
    net.transmit(1);
    net.deliver(1);
    assert_eq!(net.ends[0].write(net.now, id, &[0; 10]), Ok(10));
    net.transmit(0);
    net.deliver(0);
    assert_eq!(
        net.ends[1].read(net.now, id, &mut [0; 8]),
        Ok(Read::End),
        "the end of what was sent"
    );
    net.ends[1].finish(id).unwrap();
    net.settle();
    assert_eq!((net.ends[0].live(), net.ends[1].live()), (0, 0));
}

/// Before, whoever waited for room to write, or for the end, waited for ever, also when the line was lost.
#[test]
fn who_holds_a_stopped_stream_is_told_where_its_peer_never_ends_it() {
    let mut net = Net::new();
    let id = net.open(1);
    net.settle();
    net.ends[0].stop(net.now, id, Code::None);
    // The STOP arrives nowhere.
    assert!(net.transmit(0));
    net.now += STOP_PATIENCE + Duration::from_secs(1);
    let session = &mut net.ends[0];
    session.heard(net.now);
    session.handle_timeout(net.now);
    let events = |session: &mut Session| -> Vec<Event> {
        std::iter::from_fn(|| session.poll_event()).collect()
    };
    assert_eq!(events(session), [Event::Failed(id)]);
    let error = LineError::new(Code::Cancelled, "no end within 30 s after STOP");
    assert_eq!(session.error(id), Some(&error));
    assert_eq!(session.write(net.now, id, &[0; 10]), Err(error));
    // Its RST has left, and it is over on the wire.
    assert!(session.poll_transmit(net.now, &mut BytesMut::new()));
    assert_eq!(session.live(), 0);
    session.lose(Code::LineLost, "cut");
    assert_eq!(events(session), [Event::Failed(id)]);
}

#[test]
fn a_stream_that_is_reset_before_its_open_went_out_is_never_opened() {
    let mut net = Net::new();
    let id = net.open(0);
    net.ends[0].reset(id, Code::Cancelled, "");
    net.settle();
    assert_eq!((net.ends[0].live(), net.ends[1].counts()), (0, (0, 0)));
}

#[test]
fn a_silent_peer_is_asked_and_then_given_up() {
    let mut net = Net::new();
    net.settle();
    let start = net.now;
    net.now = net.ends[0].poll_timeout();
    net.ends[0].handle_timeout(net.now);
    assert!(net.transmit(0), "a PING");
    net.now = net.ends[0].poll_timeout();
    net.ends[0].handle_timeout(net.now);
    assert_eq!(
        net.ends[0].over().map(|over| over.code),
        Some(Code::LineLost)
    );
    assert!(net.now - start <= Duration::from_secs(25));
}

#[test]
fn a_drained_line_takes_no_streams_and_ends_when_it_is_empty() {
    let mut net = Net::new();
    let id = net.open(0);
    net.settle();
    net.ends[1].drain(
        net.now,
        Goaway {
            code: Code::Draining,
            retry_after_ms: 1,
            drain_ms: 60_000,
            text: String::new(),
        },
    );
    net.settle();
    assert_eq!(
        net.ends[0]
            .open(net.now, Kind::Git, Class::Normal, Bytes::new())
            .unwrap_err()
            .code,
        Code::Draining
    );
    net.now += Duration::from_secs(1);
    net.ends[1].handle_timeout(net.now);
    assert_eq!(net.ends[1].over(), None);
    for end in [0, 1] {
        net.ends[end].finish(id).unwrap();
    }
    net.settle();
    net.ends[1].handle_timeout(net.now);
    assert_eq!(
        net.ends[1].over().map(|over| over.code),
        Some(Code::Draining)
    );
}

/// L11: of the streams that end with the peer's GOAWAY, or with the line, those say so that the peer never heard of.
#[test]
fn a_stream_whose_open_has_not_left_says_so_at_its_end() {
    for lost in [false, true] {
        let mut net = Net::new();
        let sent = net.open(1);
        net.settle();
        let unsent = net.open(1);
        if lost {
            net.ends[1].lose(Code::LineLost, "cut");
        } else {
            net.ends[0].leave(Code::Draining, "the agent stops");
            net.transmit(0);
            net.deliver(0);
        }
        let told = |id| net.ends[1].error(id).map(|error| error.unsent);
        let others = lost.then_some(false);
        assert_eq!((told(sent), told(unsent)), (others, Some(true)), "{lost}");
    }
}

/// L41: a sign of life is one that was asked for after the question, not one that was on its way.
#[test]
fn a_peer_answers_only_while_it_is_there() {
    let mut net = Net::new();
    assert!(!net.ends[1].answered());
    // The PING that each line begins with.
    net.transmit(1);
    net.deliver(1);
    net.transmit(0);
    net.ends[1].ask();
    net.deliver(0);
    assert!(net.ends[1].rtt().is_some());
    assert!(!net.ends[1].answered());
    net.settle();
    assert!(net.ends[1].answered());
    net.ends[1].ask();
    net.transmit(1);
    assert!(!net.ends[1].answered(), "it is asked anew");
}
