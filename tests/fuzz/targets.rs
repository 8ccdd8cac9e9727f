//! What is fuzzed, as plain functions: the fuzz targets and the stable replay of the corpus both call them.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::Request;
use http::request::Parts;
use linesman::hub::proxy::exit::{Exit, Framing};
use linesman::hub::proxy::rewrite::{self, Outgoing};
use linesman::keys::{KeyPair, Public};
use linesman::kubeapi::message::{self, Scanner};
use linesman::kubeapi::{headers, path};
use linesman::ssh::known_hosts::KnownHosts;
use linesman::tunnel::handshake;
use linesman::tunnel::session::{Config, Role, Session};
use linesman::tunnel::websocket::{self, Broken, Reader, Received};
use linesman::wire::api::{AgentBuild, HubKey};
use linesman::wire::frame::{self, Class, Code, Goaway, Kind};
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
        match (what, what % 10) {
            (0xfa..=0xfc, _) => session.drain(
                now,
                Goaway {
                    code: Code::Draining,
                    retry_after_ms: 0,
                    drain_ms: u32::try_from(amount).unwrap_or(0) * 100,
                    text: String::new(),
                },
            ),
            (0xfd..=0xff, _) => session.lose(Code::LineLost, "fuzz"),
            (_, 0) => {
                let (message, after) = tail.split_at(amount.min(tail.len()));
                session.handle_message(now, Bytes::copy_from_slice(message));
                rest = after;
            }
            (_, 1) => mine.extend(
                session
                    .open(now, Kind::Api, Class::Normal, Bytes::new())
                    .ok(),
            ),
            (_, 2) => drop(session.write(now, picked, &vec![what; amount * 64])),
            (_, 3) => drop(session.read(now, picked, &mut vec![0; amount * 64])),
            (_, 4) => drop(session.finish(picked)),
            (_, 5) => session.stop(now, picked, Code::None),
            (_, 6) => session.reset(picked, Code::Cancelled, "fuzz"),
            (_, 7) => session.release(now, picked),
            (_, 8) => {
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

/// The bytes of a hostile peer after the upgrade: whole or torn they are the same messages and the same fault, no
/// message is longer than one may be, and each of them sealed by the other end is read as it was.
pub(super) fn websocket(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    let role = if first & 1 == 1 {
        Role::Agent
    } else {
        Role::Hub
    };
    let whole = received(role, bytes, bytes.len().max(1));
    let torn = received(role, bytes, usize::from(first >> 1).max(1));
    assert_eq!(whole, torn);
    for one in whole.0 {
        let Received::Message(message) = one else {
            continue;
        };
        assert!(message.len() <= frame::MAX_MESSAGE);
        if message.len() <= websocket::MAX_SEALED {
            let mut out = BytesMut::zeroed(websocket::SPACE);
            out.extend_from_slice(&message);
            let key = (role == Role::Hub).then_some([*first, 2, 3, 4]);
            let start = websocket::seal(&mut out, key);
            let again = received(role, &out[start..], out.len());
            assert_eq!(again, (vec![Received::Message(message)], None));
        }
    }
}

/// All that is read of bytes that come in pieces of at most this size, and the fault that ended it.
fn received(role: Role, bytes: &[u8], piece: usize) -> (Vec<Received>, Option<Broken>) {
    let (mut reader, mut all) = (Reader::new(role), Vec::new());
    let mut rest = bytes;
    loop {
        match reader.poll() {
            Ok(Some(one)) => all.push(one),
            Err(fault) => return (all, Some(fault)),
            Ok(None) if rest.is_empty() => return (all, None),
            Ok(None) => {
                let len = if let Some((body, missing)) = reader.direct() {
                    let len = missing.min(piece).min(rest.len());
                    body.extend_from_slice(&rest[..len]);
                    len
                } else {
                    let space = reader.space();
                    let len = space.len().min(piece).min(rest.len());
                    assert!(len > 0, "a reader that wants more has room for it");
                    space[..len].copy_from_slice(&rest[..len]);
                    reader.filled(len);
                    len
                };
                rest = &rest[len..];
            }
        }
    }
}

/// What an API server sends in a session: whole or torn, it says the same of its end.
pub(super) fn exit(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    let framing = if first & 1 == 1 {
        Framing::Spdy
    } else {
        Framing::WebSocket
    };
    let code = |piece: usize| {
        let mut exit = Exit::new(framing);
        for piece in bytes.chunks(piece) {
            exit.see(piece);
        }
        exit.code()
    };
    let whole = code(bytes.len().max(1));
    assert_eq!(whole, code(usize::from(first >> 1).max(1)));
    assert_eq!(whole, code(1));
}

/// What either end hears of the other before it knows it, from anyone: read, and refused where it has a signature, for that is never the
/// key's.
pub(super) fn handshake(data: &[u8]) {
    drop(handshake::read_hello(data));
    let refused =
        handshake::check_hello(b"challenge", data, Public([7; 32]), "hub", &["hub.example"]);
    assert!(refused.is_err());
    let keys = [HubKey {
        kid: "1".to_owned(),
        key: Public([7; 32]).to_base64(),
        not_after: None,
    }];
    assert!(handshake::check_welcome(b"hello", data, &keys, 0).is_err());
    let agent = handshake::Agent {
        cluster: &"eu1".parse().unwrap(),
        identity: &KeyPair::from_seed(&[9; 32]),
        hub: "hub",
        host: "hub.example",
        nonce: [3; 32],
        instance: "1",
        resumes: None,
        cap: None,
        build: &AgentBuild::default(),
        keyset: &keys,
    };
    drop(handshake::hello(data, &agent));
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

/// The bytes of a user's connection. What passes the check of its framing does so in any pieces; what the hub
/// rewrites is well framed and carries no identity, and the agent reads the same request.
pub(super) fn rewrite(data: &[u8]) {
    let whole = scanned(data, data.len().max(1));
    let torn = scanned(data, 3);
    assert_eq!(whole.is_some(), torn.is_some());
    if let (Some(whole), Some(torn)) = (whole, torn) {
        assert_eq!(whole, torn);
        assert!(data.starts_with(&whole), "what passes is what came");
    }
    let Some(end) = data.windows(4).position(|four| four == b"\r\n\r\n") else {
        return;
    };
    let head = &data[..end + 4];
    let framing = message::head(head);
    let Some(parts) = parts(head) else { return };
    if framing.is_err() || rewrite::framing(&parts).is_err() {
        return;
    }
    let Some(target) = rewrite::target(&parts.uri) else {
        return;
    };
    let Ok(outgoing) = rewrite::outgoing(&parts, &target, "") else {
        return;
    };
    let sent = outgoing.rest.as_str();
    let came = parts.uri.path_and_query().unwrap().as_str();
    assert!(came.ends_with(sent) || sent.starts_with('/') && came.ends_with(&sent[1..]));
    read_by_the_agent(&outgoing);
}

/// The agent's own rules on what the hub sends.
fn read_by_the_agent(outgoing: &Outgoing) {
    let mut head = format!("{} {} HTTP/1.1\r\n", outgoing.method, outgoing.rest).into_bytes();
    for (name, value) in &outgoing.headers {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    let framing = message::head(&head).expect("the hub sends well-framed requests");
    assert_eq!(framing.upgrade, outgoing.upgrade.is_some());
    let parts = parts(&head).expect("the hub sends requests that can be parsed");
    assert_eq!(parts.uri.path_and_query(), Some(&outgoing.rest));
    let kept = headers::clean_request(&parts.headers).expect("no identity is left");
    for name in kept.keys() {
        assert!(!forbidden(name.as_str()), "{name}");
    }
    assert_eq!(headers::upgrade(&parts.headers), Ok(outgoing.upgrade));
    let seen = path::classify(&parts.method, parts.uri.path(), parts.uri.query());
    assert_eq!(seen.as_ref(), Ok(&outgoing.info), "hub and agent disagree");
    assert!(!seen.unwrap().namespace.contains('/'));
}

fn forbidden(name: &str) -> bool {
    let name = name.replace('_', "-");
    ["impersonate-", "x-remote-", "x-forwarded-", "proxy-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || [
            "authorization",
            "cookie",
            "audit-id",
            "transfer-encoding",
            "trailer",
            "te",
        ]
        .contains(&name.as_str())
}

/// What passes, given in pieces of this size; `None` where a violation was found.
fn scanned(data: &[u8], piece: usize) -> Option<Vec<u8>> {
    let (mut scanner, mut out) = (Scanner::default(), Vec::new());
    for piece in data.chunks(piece) {
        let mut rest = piece;
        while !rest.is_empty() {
            let taken = scanner.push(rest, &mut out).ok()?;
            rest = &rest[taken..];
            if scanner.is_asked() {
                return Some(out);
            }
        }
    }
    Some(out)
}

/// The head as a lenient parser takes it.
fn parts(head: &[u8]) -> Option<Parts> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.lines();
    let mut words = lines.next()?.split(' ');
    let mut request = Request::builder().method(words.next()?).uri(words.next()?);
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        request = request.header(name.trim(), value.trim());
    }
    Some(request.body(()).ok()?.into_parts().0)
}
