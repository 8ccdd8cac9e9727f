//! L32: what a peer does that it may not do, and the answer that the protocol has for it.

use bytes::BytesMut;

use super::super::*;
use super::opened;
use crate::wire::frame::{self, Frame, MAX_PAYLOAD};

/// Streams that the peer may have open.
const MAX_STREAMS: usize = 4;
/// The stream that the hub itself opened.
const OURS: u32 = 2;

/// A hub's session, and what it says to an agent that sends anything.
struct Judge {
    now: Instant,
    session: Session,
}

/// RSTs in their order, and the code of the GOAWAY with which the line ends.
type Answer = (Vec<(u32, Code)>, Option<Code>);

impl Judge {
    fn new() -> Self {
        let now = Instant::now();
        let config = Config {
            max_streams: MAX_STREAMS,
            ..Config::new(Role::Hub)
        };
        let mut session = Session::new(now, config);
        let opened = session.open(now, Kind::Api, Class::Normal, Bytes::new());
        assert_eq!(opened, Ok(OURS));
        let mut judge = Self { now, session };
        assert_eq!(judge.answer(), (Vec::new(), None));
        judge
    }

    fn take(&mut self, frames: &[Frame]) {
        let mut message = BytesMut::new();
        for frame in frames {
            frame::encode(frame, &mut message);
        }
        self.session.handle_message(self.now, message.freeze());
    }

    /// All that it has to say. A line error is one for whoever closes the connection, too.
    fn answer(&mut self) -> Answer {
        let (mut refused, mut goaway) = (Vec::new(), None);
        let mut out = BytesMut::new();
        while self.session.poll_transmit(self.now, &mut out) {
            let mut message = out.split().freeze();
            while let Some(frame) = frame::decode(&mut message).unwrap() {
                match frame {
                    Frame::Rst { id, code, .. } => refused.push((id, code)),
                    Frame::Goaway(said) => goaway = Some(said.code),
                    _ => {}
                }
            }
        }
        let over = self.session.over();
        assert_eq!(goaway.is_some(), over.is_some_and(|over| over.fault));
        (refused, goaway)
    }
}

fn open(id: u32) -> Frame {
    opened(id, 64 << 10)
}

fn data(id: u32, len: usize) -> Frame {
    let payload = vec![1; len].into();
    Frame::Data { id, payload }
}

/// More than any window.
fn flood(id: u32) -> Frame {
    let amount = u32::MAX;
    Frame::Credit { id, amount }
}

fn rst(id: u32) -> Frame {
    let (code, text) = (Code::Cancelled, String::new());
    Frame::Rst { id, code, text }
}

/// What is sent, and what of it is answered with RST.
type Row = (&'static str, Vec<Frame>, Vec<(u32, Code)>);

fn stream_errors() -> Vec<Row> {
    let fin = |id| Frame::Fin { id };
    let over_window = [vec![open(1)], vec![data(1, MAX_PAYLOAD); 5]].concat();
    vec![
        (
            "frames of a stream that is over",
            vec![open(1), rst(1), data(1, 1), fin(1), rst(1), flood(1)],
            vec![],
        ),
        (
            "frames of one that is over and was ours",
            vec![rst(OURS), data(OURS, 1), fin(OURS)],
            vec![],
        ),
        (
            "DATA without a byte",
            vec![open(1), data(1, 0)],
            vec![(1, Code::Protocol)],
        ),
        (
            "FIN twice",
            vec![open(1), fin(1), fin(1)],
            vec![(1, Code::Protocol)],
        ),
        (
            "DATA after FIN",
            vec![open(1), fin(1), data(1, 1)],
            vec![(1, Code::Flow)],
        ),
        ("more DATA than credit", over_window, vec![(1, Code::Flow)]),
        (
            "more CREDIT than a window",
            vec![open(1), flood(1)],
            vec![(1, Code::Flow)],
        ),
        (
            "two of them",
            vec![open(1), flood(1), open(3), flood(3)],
            vec![(1, Code::Flow), (3, Code::Flow)],
        ),
        (
            "more streams than may be",
            vec![open(1), open(3), open(5), open(7), open(9), open(13)],
            vec![(9, Code::Limit), (13, Code::Limit)],
        ),
    ]
}

/// A stream error never ends the line.
#[test]
fn a_stream_error_is_answered_with_its_code_and_the_line_holds() {
    for (what, frames, refused) in stream_errors() {
        let mut judge = Judge::new();
        judge.take(&frames);
        assert_eq!(judge.answer(), (refused, None), "{what}");
        judge.take(&[open(101), rst(101), Frame::Ping(7)]);
        assert_eq!(judge.answer().1, None, "{what}: it goes on");
    }
}

#[test]
fn a_line_error_is_said_and_ends_the_line() {
    let third = |id| [open(id), flood(id)];
    for (what, frames, code) in [
        (
            "the third FLOW",
            [third(1), third(3), third(5)].concat(),
            Code::Flow,
        ),
        ("OPEN of the wrong parity", vec![open(4)], Code::Protocol),
        ("OPEN of a stream of ours", vec![open(OURS)], Code::Protocol),
        (
            "OPEN with an id that does not rise",
            vec![open(5), open(3)],
            Code::Protocol,
        ),
        ("OPEN twice", vec![open(1), open(1)], Code::Protocol),
        (
            "DATA on a stream never opened",
            vec![data(1, 1)],
            Code::Protocol,
        ),
        ("CREDIT on one", vec![open(1), flood(3)], Code::Protocol),
        (
            "FIN on one of ours",
            vec![Frame::Fin { id: 4 }],
            Code::Protocol,
        ),
        ("RST on one of ours", vec![rst(4)], Code::Protocol),
        (
            "STOP on one",
            vec![Frame::Stop {
                id: 1,
                code: Code::None,
            }],
            Code::Protocol,
        ),
        (
            "a handshake on a running line",
            vec![Frame::Hello(vec![1; 70].into())],
            Code::Protocol,
        ),
    ] {
        let mut judge = Judge::new();
        judge.take(&frames);
        assert_eq!(judge.answer().1, Some(code), "{what}");
        // What comes behind it is nobody's.
        let streams = judge.session.counts();
        judge.take(&[open(1001)]);
        assert_eq!(judge.session.counts(), streams, "{what}");
    }
}

#[test]
fn bytes_that_are_no_frame_end_the_line() {
    let whole = |kind: u8, len: u32, payload: usize| {
        let [_, len @ ..] = len.to_be_bytes();
        let head = [&[kind, 0][..], &len, &1_u32.to_be_bytes()].concat();
        [head, vec![0; payload]].concat()
    };
    for (what, bytes, code) in [
        ("half a head", vec![0x11, 0, 0, 0], Some(Code::Protocol)),
        ("half a payload", whole(0x11, 10, 9), Some(Code::Protocol)),
        (
            "16,385 bytes",
            whole(0x11, 16_385, 16_385),
            Some(Code::Protocol),
        ),
        ("an unknown kind", whole(0x7f, 1, 1), Some(Code::Protocol)),
        ("a kind of a later version", whole(0x80, 1, 1), None),
    ] {
        let mut judge = Judge::new();
        judge.session.handle_message(judge.now, bytes.into());
        assert_eq!(judge.answer(), (Vec::new(), code), "{what}");
    }
}

/// Streams above the limit are refused, and a peer that does nothing else is left.
#[test]
fn more_than_ten_thousand_streams_above_the_limit_in_ten_seconds_end_the_line() {
    for (pause, ended) in [(5, Some(Code::Limit)), (11, None)] {
        let mut judge = Judge::new();
        let ids = |from: u32, to: u32| -> Vec<Frame> {
            let ids = (from..to).map(|n| 2 * n + 1);
            ids.map(open).collect()
        };
        let most = u32::try_from(MAX_STREAMS).unwrap();
        judge.take(&ids(0, most + 10_000));
        let (refused, goaway) = judge.answer();
        assert_eq!((refused.len(), goaway), (10_000, None));
        judge.now += Duration::from_secs(pause);
        judge.take(&ids(most + 10_000, most + 10_001));
        let one = ended.is_none().then_some((20_009, Code::Limit));
        let answer = (one.into_iter().collect(), ended);
        assert_eq!(judge.answer(), answer, "after {pause} s");
    }
}

/// A burst that is refused while the writer stands is answered, each of it once, and ends nothing.
#[test]
fn a_burst_above_the_limit_is_refused_one_by_one_and_ends_no_line() {
    const BURST: u32 = 5_000;
    let mut judge = Judge::new();
    let ids: Vec<u32> = (0..BURST).map(|n| 2 * n + 1).collect();
    let frames: Vec<Frame> = ids.iter().map(|id| open(*id)).collect();
    judge.take(&frames);
    let refused = ids[MAX_STREAMS..].iter().map(|id| (*id, Code::Limit));
    assert_eq!(judge.answer(), (refused.collect(), None));
    // Room again: the next one is taken, and the ones after it are not.
    judge.take(&[rst(1), open(20_001), open(20_003), open(20_007)]);
    let refused = vec![(20_003, Code::Limit), (20_007, Code::Limit)];
    assert_eq!(judge.answer(), (refused, None));
}
