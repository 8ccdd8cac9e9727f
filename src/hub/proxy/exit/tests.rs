use http::Method;
use proptest::prelude::*;

use super::*;
use crate::kubeapi::path;

const WELL: &str = r#"{"metadata":{},"status":"Success"}"#;

fn failed(code: &str) -> String {
    format!(
        r#"{{"metadata":{{}},"status":"Failure","message":"command terminated with non-zero exit code: exit status {code}","reason":"NonZeroExitCode","details":{{"causes":[{{"reason":"ExitCode","message":"{code}"}}]}}}}"#
    )
}

/// A frame as a WebSocket server sends it.
fn part(first: u8, payload: &[u8]) -> Vec<u8> {
    let len = match payload.len() {
        len @ ..=125 => vec![u8::try_from(len).unwrap()],
        len @ ..=0xffff => [&[126][..], &u16::try_from(len).unwrap().to_be_bytes()].concat(),
        len => [&[127][..], &u64::try_from(len).unwrap().to_be_bytes()].concat(),
    };
    [&[first][..], &len, payload].concat()
}

fn message(channel: u8, payload: &[u8]) -> Vec<u8> {
    part(0x82, &[&[channel][..], payload].concat())
}

fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&stream.to_be_bytes()[..], &[flags], &length[1..], payload].concat()
}

fn control(kind: u8, payload: &[u8]) -> Vec<u8> {
    let head = [
        0x80,
        3,
        0,
        kind,
        0,
        0,
        0,
        u8::try_from(payload.len()).unwrap(),
    ];
    [&head[..], payload].concat()
}

fn seen(framing: Framing, bytes: &[u8], piece: usize) -> Option<i32> {
    let mut exit = Exit::new(framing);
    for piece in bytes.chunks(piece.max(1)) {
        exit.see(piece);
    }
    exit.code()
}

/// L48
#[test]
fn a_session_says_how_its_command_ended() {
    for (status, code) in [
        (WELL.to_owned(), Some(0)),
        (failed("1"), Some(1)),
        (failed("137"), Some(137)),
        (failed("-1073741819"), Some(-1_073_741_819)),
        // Windows' codes have 32 bits; what has more is none.
        (failed("4294967296"), None),
        (failed("one"), None),
        (
            r#"{"status":"Failure","message":"no such container","reason":"InternalError","details":{"causes":null}}"#.into(),
            None,
        ),
        (r#"{"status":"Failure","reason":"NonZeroExitCode"}"#.into(), None),
        ("container not running".into(), None),
        (format!("{WELL}{WELL}"), None),
        (String::new(), None),
    ] {
        let by_websocket = [
            message(1, b""),
            message(2, b""),
            message(3, b""),
            message(1, &vec![7; 70_000]),
            part(0x8a, b"ping"),
            message(3, status.as_bytes()),
            part(0x88, &[3, 0xe8]),
        ]
        .concat();
        let by_spdy = [
            control(4, &[0; 12]),
            control(2, &[0, 0, 0, 1, 9, 9]),
            control(2, &[0, 0, 0, 3, 9, 9]),
            data(5, 0, &vec![7; 70_000]),
            control(6, &[0, 0, 0, 1]),
            data(1, 0, status.as_bytes()),
            data(1, 1, b""),
            data(5, 1, b""),
            control(7, &[0; 8]),
        ]
        .concat();
        for piece in [1, 3, 7, 16_384, usize::MAX] {
            let told = [
                seen(Framing::WebSocket, &by_websocket, piece),
                seen(Framing::Spdy, &by_spdy, piece),
            ];
            assert_eq!(told, [code; 2], "{status} in pieces of {piece}");
        }
    }
}

/// A message may come in parts, with control frames between them, and its channel in any of them.
#[test]
fn a_status_in_parts_is_put_together() {
    let status = failed("3").into_bytes();
    let (one, two) = status.split_at(20);
    let bytes = [
        part(0x02, b""),
        part(0x00, b"\x03"),
        part(0x89, b""),
        part(0x00, one),
        part(0x80, two),
        message(1, b"later"),
    ]
    .concat();
    assert_eq!(seen(Framing::WebSocket, &bytes, 5), Some(3));
    let bytes = [data(1, 0, one), data(3, 0, b"between"), data(1, 1, two)].concat();
    assert_eq!(seen(Framing::Spdy, &bytes, 5), Some(3));
}

/// What it does not expect is the end of it, even where a status came before.
#[test]
fn at_anything_unexpected_nothing_is_known() {
    let status = message(3, WELL.as_bytes());
    for (what, bytes) in [
        ("a reserved bit", part(0xc2, b"\x01x")),
        ("a mask", vec![0x82, 0x80, 0, 0, 0, 0]),
        ("text", part(0x81, b"\x01x")),
        ("a part of nothing", part(0x80, b"x")),
        (
            "a message in a message",
            [part(0x02, b"\x01"), part(0x82, b"\x01")].concat(),
        ),
        ("a long control frame", part(0x89, &[0; 126])),
        ("a control frame in parts", part(0x09, b"")),
        ("an unknown kind", part(0x83, b"x")),
        ("too long a status", message(3, &[b' '; MOST])),
    ] {
        let bytes = [&status[..], &bytes, &status].concat();
        assert_eq!(seen(Framing::WebSocket, &bytes, 9), None, "{what}");
    }
    let status = data(1, 0, WELL.as_bytes());
    for (what, bytes) in [
        ("the stream 0", data(0, 0, b"x")),
        ("an unknown flag", data(3, 2, b"x")),
        ("an unknown kind", control(10, b"")),
        ("another version", vec![0x80, 2, 0, 1, 0, 0, 0, 0]),
        ("too long a status", data(1, 0, &[b' '; MOST])),
    ] {
        let bytes = [&status[..], &bytes].concat();
        assert_eq!(seen(Framing::Spdy, &bytes, 9), None, "{what}");
    }
}

/// A frame that names any length costs no memory.
#[test]
fn only_a_status_is_kept() {
    let mut exit = Exit::new(Framing::WebSocket);
    exit.see(&[0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    for _ in 0..1_000 {
        exit.see(&[1; 16 << 10]);
    }
    assert_eq!((exit.status.capacity(), exit.code()), (0, None));
}

#[test]
fn sessions_of_other_kinds_are_not_looked_at() {
    let framing = |target: &str, name: &'static str, value: &'static str| {
        let (path, query) = target.split_once('?').unwrap();
        let info = path::classify(&Method::GET, path, Some(query)).unwrap();
        let answer = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        Exit::of(&info, &answer).map(|exit| exit.framing)
    };
    let (exec, socket) = (
        "/api/v1/namespaces/a/pods/x/exec?command=sh",
        "sec-websocket-protocol",
    );
    let (attach, spdy) = (
        "/api/v1/namespaces/a/pods/x/attach?stdin=1",
        "x-stream-protocol-version",
    );
    let forward = "/api/v1/namespaces/a/pods/x/portforward?ports=1";
    let proxy = "/api/v1/namespaces/a/pods/x/proxy/exec?x=1";
    for (target, name, value, wanted) in [
        (exec, socket, "v5.channel.k8s.io", Some(Framing::WebSocket)),
        (exec, socket, "v4.channel.k8s.io", Some(Framing::WebSocket)),
        (exec, spdy, "v4.channel.k8s.io", Some(Framing::Spdy)),
        (attach, spdy, "v4.channel.k8s.io", Some(Framing::Spdy)),
        // Before the fourth version an error is a text.
        (exec, socket, "channel.k8s.io", None),
        (exec, socket, "v4.base64.channel.k8s.io", None),
        (exec, spdy, "v3.channel.k8s.io", None),
        (forward, socket, "SPDY/3.1+portforward.k8s.io", None),
        (forward, spdy, "portforward.k8s.io", None),
        (proxy, socket, "v5.channel.k8s.io", None),
    ] {
        assert_eq!(framing(target, name, value), wanted, "{target} {value}");
    }
}

/// Frames of a session, good ones for the most part, or any bytes.
fn session(framing: Framing) -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        Just(WELL.as_bytes().to_vec()),
        (0..300_i32).prop_map(|code| failed(&code.to_string()).into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..300),
    ];
    let frame = (any::<u8>(), 0..5_u8, payload).prop_map(move |(kind, to, payload)| {
        match (framing, kind) {
            (_, 0..=2) => payload,
            (Framing::WebSocket, 3..=40) => part(0x02, &payload),
            (Framing::WebSocket, 41..=80) => part(0x80, &payload),
            (Framing::WebSocket, 81..=100) => part(0x89, b"x"),
            (Framing::WebSocket, _) => message(to, &payload),
            (Framing::Spdy, 3..=50) => control(2, b"reply"),
            (Framing::Spdy, _) => data(u32::from(to), kind & 1, &payload),
        }
    });
    proptest::collection::vec(frame, 0..12).prop_map(|frames| frames.concat())
}

proptest! {
    /// Cut anywhere, the same bytes say the same.
    #[test]
    fn pieces_say_what_the_whole_says(
        (framing, bytes) in prop_oneof![Just(Framing::WebSocket), Just(Framing::Spdy)]
            .prop_flat_map(|framing| (Just(framing), session(framing))),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut exit = Exit::new(framing);
        for cut in cuts.windows(2) {
            exit.see(&bytes[cut[0]..cut[1]]);
            prop_assert!(exit.status.len() <= MOST);
        }
        prop_assert_eq!(exit.code(), seen(framing, &bytes, usize::MAX));
        prop_assert_eq!(exit.code(), seen(framing, &bytes, 1));
    }
}

/// Nor behind a status or an end, nor where what comes is no frame.
#[test]
fn a_word_has_a_place_between_two_messages_alone() {
    let takes = |pieces: &[&[u8]]| {
        let mut exit = Exit::new(Framing::WebSocket);
        for piece in pieces {
            exit.see(piece);
        }
        exit.takes_a_word()
    };
    let (out, ping, close) = (message(1, b"out"), part(0x89, b""), part(0x88, b"\x03\xe8"));
    let (begins, ends) = (part(0x02, b"\x01a"), part(0x80, b"b"));
    for (pieces, place) in [
        (&[&out[..], &ping[..]][..], true),
        (&[], true),
        (&[&out[..1]], false),
        (&[&out[..3]], false),
        (&[&begins[..], &ping[..]], false),
        (&[&begins[..], &ping[..], &ends[..]], true),
        (&[&message(3, WELL.as_bytes())[..]], false),
        (&[&close[..]], false),
        (&[&b"none"[..]], false),
    ] {
        assert_eq!(takes(pieces), place, "{pieces:?}");
    }
    let beside = |framing| Exit::new(framing).beside().is_some();
    assert_eq!(
        (beside(Framing::WebSocket), beside(Framing::Spdy)),
        (true, false)
    );
}
