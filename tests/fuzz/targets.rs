//! What is fuzzed, as plain functions: the fuzz targets and the stable replay of the corpus both call them.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use linesman::keys::Public;
use linesman::ssh::known_hosts::KnownHosts;
use linesman::tunnel::handshake;
use linesman::tunnel::session::{Config, Role, Session};
use linesman::wire::frame::{self, Class, Code, Kind};
use linesman::yaml;

/// Frames of a hostile message: each that decodes is encoded again to bytes that decode to the same.
pub(super) fn frame(data: &[u8]) {
    let mut message = Bytes::copy_from_slice(data);
    while let Ok(Some(read)) = frame::decode(&mut message) {
        let mut out = BytesMut::new();
        frame::encode(&read, &mut out);
        let mut again = out.freeze();
        assert_eq!(frame::decode(&mut again).ok().flatten(), Some(read));
    }
}

/// The most a session may hold for its streams, whatever the peer and the user do.
const MEMORY: usize = 32 << 20;

/// A session between a peer that sends anything and a user who does anything. The first byte of each step
/// says what happens, the second how much of it.
pub(super) fn session(data: &[u8]) {
    let mut now = Instant::now();
    let role = if data.first().is_some_and(|b| b & 1 == 1) {
        Role::Agent
    } else {
        Role::Hub
    };
    let mut session = Session::new(now, Config::new(role));
    let mut mine = Vec::new();
    let mut rest = data.get(1..).unwrap_or_default();
    while let [what, amount, tail @ ..] = rest {
        let (what, amount) = (*what, usize::from(*amount));
        rest = tail;
        let picked = mine
            .get(amount % mine.len().max(1))
            .copied()
            .unwrap_or_else(|| u32::try_from(amount).unwrap_or(1));
        match what % 10 {
            0 => {
                let (message, after) = tail.split_at(amount.min(tail.len()));
                session.handle_message(now, Bytes::copy_from_slice(message));
                rest = after;
            }
            1 => mine.extend(
                session
                    .open(now, Kind::Api, Class::Normal, Bytes::new())
                    .ok(),
            ),
            2 => drop(session.write(now, picked, &vec![what; amount * 64])),
            3 => drop(session.read(now, picked, &mut vec![0; amount * 64])),
            4 => drop(session.finish(picked)),
            5 => session.stop(now, picked, Code::None),
            6 => session.reset(picked, Code::Cancelled, "fuzz"),
            7 => session.release(now, picked),
            8 => {
                now += Duration::from_millis(u64::try_from(amount).unwrap_or(0) * 100);
                session.handle_timeout(now);
            }
            _ => {
                let mut out = BytesMut::new();
                session.poll_transmit(now, &mut out);
                assert!(out.len() <= frame::MAX_MESSAGE);
            }
        }
        while session.poll_event().is_some() {}
        assert!(session.unread() <= MEMORY);
    }
}

/// A HELLO from anyone: read, and refused, for its signature is never that of the key.
pub(super) fn handshake(data: &[u8]) {
    drop(handshake::read_hello(data));
    let refused =
        handshake::check_hello(b"challenge", data, Public([7; 32]), "hub", &["hub.example"]);
    assert!(refused.is_err());
}

/// `known_hosts` of any content: read or refused, and asked about a host.
pub(super) fn known_hosts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(known) = KnownHosts::parse(text) {
        assert!(known.keys("git.example", 22).len() <= text.lines().count());
    }
}

/// YAML of any content: what is read can be printed, and reads the same again.
pub(super) fn yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(documents) = yaml::documents(text) else {
        return;
    };
    for document in documents {
        if let Ok(printed) = yaml::print(&document) {
            assert_eq!(
                yaml::documents(&printed).ok(),
                Some(vec![document]),
                "{printed}"
            );
        }
    }
}
