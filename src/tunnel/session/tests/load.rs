//! What a session carries: unread input and what it costs, windows under load, bytes and waiting by class.

use bytes::BytesMut;

use super::super::*;
use super::opened;
use crate::tunnel::ClassLoad;
use crate::tunnel::budget::Budget;
use crate::wire::frame::{self, MAX_PAYLOAD};

/// A few bytes that hold on to a message cost what it costs; read to the end, they cost nothing.
#[test]
fn unread_input_counts_as_what_it_holds_on_to() {
    let now = Instant::now();
    let process = Budget::new(usize::MAX);
    let config = Config {
        process: process.clone(),
        ..Config::new(Role::Hub)
    };
    let mut session = Session::new(now, config);
    let mut out = [0; MAX_PAYLOAD];
    let mut message = BytesMut::new();
    for id in [1, 3] {
        frame::encode(&opened(id, 1), &mut message);
    }
    for _ in 0..2 {
        frame::data(1, &[1; MAX_PAYLOAD], &mut message);
    }
    let size = message.len();
    session.handle_message(now, message.freeze());
    assert_eq!((session.unread(), process.used()), (size, size));
    for left in [size, 0] {
        assert_eq!(session.read(now, 1, &mut out), Ok(Read::Data(MAX_PAYLOAD)));
        assert_eq!((session.unread(), process.used()), (left, left));
    }
    // Of a message of several streams each has its own part, whenever the others are read.
    let mut message = BytesMut::new();
    for id in [1, 3] {
        frame::data(id, &[1; MAX_PAYLOAD], &mut message);
    }
    session.handle_message(now, message.freeze());
    for (id, left) in [(1, MAX_PAYLOAD), (3, 0)] {
        assert_eq!(session.read(now, id, &mut out), Ok(Read::Data(MAX_PAYLOAD)));
        assert_eq!((session.unread(), process.used()), (left, left));
    }
    // A small part of a big message is copied: it does not hold on to the rest.
    let mut message = BytesMut::new();
    frame::data(1, &[2; 1200], &mut message);
    for _ in 0..3 {
        frame::data(3, &[2; MAX_PAYLOAD], &mut message);
    }
    session.handle_message(now, message.freeze());
    session.read(now, 3, &mut out).unwrap();
    session.read(now, 3, &mut out).unwrap();
    session.read(now, 3, &mut out).unwrap();
    assert!(
        (1200..5000).contains(&session.unread()),
        "{}",
        session.unread()
    );
}

/// L27: a stream that opens while others load the path gets their share of it.
#[test]
fn windows_grow_by_the_round_trip_under_load() {
    const LOADED: Duration = Duration::from_millis(8);
    let now = Instant::now();
    let mut far = Session::new(now, Config::new(Role::Agent));
    let mut near = Session::new(now, Config::new(Role::Hub));
    let carry = |from: &mut Session, to: &mut Session, now: Instant| {
        let mut out = BytesMut::new();
        while from.poll_transmit(now, &mut out) {
            to.handle_message(now, out.split().freeze());
        }
        while to.poll_event().is_some() {}
    };
    // The path is idle: a round trip takes no time.
    carry(&mut near, &mut far, now);
    carry(&mut far, &mut near, now);
    carry(&mut near, &mut far, now);
    let id = far
        .open(now, Kind::Api, Class::Normal, Bytes::new())
        .unwrap();
    let chunk = vec![7; 65_536];
    let mut at = now;
    let mut windows = Vec::new();
    for _ in 0..40 {
        // One round trip under load: what may go goes, arrives later, is read, and credit comes back.
        let mut out = BytesMut::new();
        let mut messages = Vec::new();
        loop {
            far.write(at, id, &chunk).unwrap();
            if !far.poll_transmit(at, &mut out) {
                break;
            }
            messages.push(out.split().freeze());
        }
        let apart = LOADED / u32::try_from(messages.len().max(1)).unwrap();
        let mut out = vec![0; 16_384];
        for message in messages {
            at += apart;
            near.handle_message(at, message);
            while let Ok(Read::Data(1..)) = near.read(at, id, &mut out) {}
        }
        windows.push(near.streams[&id].recv.window());
        carry(&mut near, &mut far, at);
    }
    // More than the path carries in a round trip: the window is not what limits the stream.
    assert!(windows[39] >= 256 << 10, "{windows:?}");
}

/// L50: what each class sent, and how long its streams waited for their turns; what arrived counts in the same class.
#[test]
fn bytes_and_waiting_are_counted_by_class() {
    let millis = Duration::from_millis;
    let begun = Instant::now();
    let mut session = Session::new(begun, Config::new(Role::Hub));
    let mut peer = Session::new(begun, Config::new(Role::Agent));
    let mut sent = |session: &mut Session, at: Duration, (id, len): (u32, usize)| {
        let queued = begun + at;
        assert_eq!(session.write(queued, id, &vec![7; len]).unwrap(), len);
        // Each write is on its way 4 ms later.
        let mut out = BytesMut::new();
        while session.poll_transmit(queued + millis(4), &mut out) {
            peer.handle_message(queued + millis(4), out.split().freeze());
        }
        let (here, there) = (session.load().classes, peer.load().classes);
        for ((_, here), (class, there)) in here.named().into_iter().zip(there.named()) {
            assert_eq!((there.received, there.sent), (here.sent, 0), "{class}");
        }
        here
    };
    let open = |session: &mut Session, class| {
        let id = session.open(begun, Kind::Api, class, Bytes::new());
        id.unwrap()
    };
    let one = open(&mut session, Class::Normal);
    let quiet = open(&mut session, Class::Background);
    let waited = |sent, delay| ClassLoad {
        sent,
        delay: Some(millis(delay)),
        received: 0,
    };
    let mut seen = Classes::default();
    assert_eq!(session.load().classes, seen);
    seen.sparse = waited(100, 4);
    assert_eq!(sent(&mut session, millis(0), (one, 100)), seen);
    seen.background = waited(200, 4);
    assert_eq!(sent(&mut session, millis(100), (quiet, 200)), seen);
    // Beyond 8 KiB in 50 ms it is bulk; what it sends behind its first turn waits for the next, here no time at all.
    let after = sent(&mut session, millis(200), (one, 40_000));
    assert_eq!(after.background, seen.background);
    assert_eq!(after.sparse, waited(100 + 16_384, 4));
    assert_eq!(
        (after.bulk.sent, after.bulk.delay),
        (40_000 - 16_384, Some(millis(0)))
    );
}
