//! L40: HTTP/2 written by hand, frame by frame (RFC 9113), as no client library would.

use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::super::apiserver::ApiServer;
use super::super::hostile::{ACTS, acting};
use super::super::world::{PATIENCE, World, name};
use super::{beside, left_with};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const CANCEL: [u8; 4] = [0, 0, 0, 8];
const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

pub(super) fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend(id.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A literal of HPACK that nobody keeps (RFC 7541 6.2.2), its name by the static table's index.
fn literal(index: u8, value: &str) -> Vec<u8> {
    let mut out = if index < 15 {
        vec![index]
    } else {
        vec![15, index - 15]
    };
    out.extend(string(value));
    out
}

fn string(text: &str) -> Vec<u8> {
    let mut out = match u8::try_from(text.len()).unwrap() {
        short @ 0..127 => vec![short],
        long => vec![127, long - 127],
    };
    out.extend(text.as_bytes());
    out
}

/// The head of a request for pods, whole but for its flags.
fn head(token: &str, method: u8, path: &str) -> Vec<u8> {
    // :method, :scheme https, :path, :authority, authorization.
    let path = format!("/clusters/eu1/api/v1/{path}");
    let bearer = format!("Bearer {token}");
    [
        vec![0x80 | method, 0x87],
        literal(4, &path),
        literal(1, "localhost"),
        literal(23, &bearer),
    ]
    .concat()
}

const GET: u8 = 2;
const POST: u8 = 3;

/// How the hub ended it: the code of its GOAWAY, and what it sent before, by type, with the streams it reset.
#[derive(Debug, Default)]
struct End {
    goaway: Option<u32>,
    /// The first bytes of a HEADERS frame's payload: `:status` by index or as a literal.
    answers: Vec<Vec<u8>>,
    reset: BTreeSet<u32>,
    pongs: usize,
}

/// Sends all of it, reads what comes meanwhile until that is enough or the connection ends.
async fn ended(
    tls: TlsStream<TcpStream>,
    sent: Vec<u8>,
    pieces: usize,
    until: fn(&End) -> bool,
) -> End {
    let (mut read, mut write) = split(tls);
    let sending = async {
        for piece in sent.chunks(pieces) {
            if write.write_all(piece).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    };
    let reading = async {
        let mut end = End::default();
        let mut head = [0; 9];
        while !until(&end) && read.read_exact(&mut head).await.is_ok() {
            let [high, middle, low, kind, flags, id @ ..] = head;
            let len = u32::from_be_bytes([0, high, middle, low]);
            let mut payload = vec![0; usize::try_from(len).unwrap()];
            if read.read_exact(&mut payload).await.is_err() {
                break;
            }
            match kind {
                GOAWAY => end.goaway = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
                HEADERS => end.answers.push(payload[..payload.len().min(6)].to_vec()),
                RST_STREAM => {
                    end.reset.insert(u32::from_be_bytes(id));
                }
                PING if flags & ACK != 0 => end.pongs += 1,
                _ => {}
            }
        }
        end
    };
    tokio::join!(sending, reading).1
}

/// What is sent behind preface and settings, and the code of the GOAWAY that ends the connection.
pub(super) type Flood = (&'static str, Vec<u8>, u32);

const MANY: usize = 20_000;

/// Frames of the connection.
pub(super) fn idle_floods() -> Vec<Flood> {
    let flood = |what, frame: Vec<u8>| (what, frame.repeat(MANY), ENHANCE_YOUR_CALM);
    let value = [0, 4, 0, 0, 0xff, 0xff];
    vec![
        flood("PING", frame(PING, 0, 0, &[7; 8])),
        flood("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        flood("SETTINGS with a value", frame(SETTINGS, 0, 0, &value)),
        flood("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1])),
        flood("an unknown type", frame(0xfa, 0, 0, &[1; 20])),
        (
            "SETTINGS that nobody sent are acknowledged",
            frame(SETTINGS, ACK, 0, &[]).repeat(MANY),
            PROTOCOL_ERROR,
        ),
    ]
}

/// Frames of requests.
pub(super) fn request_floods(token: &str) -> Vec<Flood> {
    let get = head(token, GET, "pods");
    let post = head(token, POST, "namespaces/a/echo");
    let whole = END_HEADERS | END_STREAM;
    let reset = |id| frame(RST_STREAM, 0, id, &CANCEL);
    let asked = |id| frame(HEADERS, whole, id, &get);
    let resets = (0..10_500).map(|n| 2 * n + 1);
    let resets = resets.flat_map(|id| [asked(id), reset(id)].concat());
    let more = |fields: &[u8]| frame(CONTINUATION, 0, 1, fields).repeat(MANY);
    let begun = frame(HEADERS, END_STREAM, 1, &get);
    let sent = frame(HEADERS, END_HEADERS, 1, &post);
    let rows = [
        ("rapid reset", resets.collect()),
        (
            "RST_STREAM of one",
            [asked(1), reset(1).repeat(MANY)].concat(),
        ),
        (
            "empty DATA",
            [sent, frame(DATA, 0, 1, &[]).repeat(MANY)].concat(),
        ),
        (
            "CONTINUATION without a byte",
            [begun.clone(), more(&[])].concat(),
        ),
        (
            "CONTINUATION with headers",
            [begun, more(&field("x", "y").repeat(50))].concat(),
        ),
    ];
    let rows = rows.into_iter();
    rows.map(|(what, sent)| (what, sent, ENHANCE_YOUR_CALM))
        .collect()
}

/// A header with a name of its own.
fn field(name: &str, value: &str) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

async fn dialled(world: &World) -> TlsStream<TcpStream> {
    let tls = world.connect(&[b"h2"]).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    tls
}

pub(super) fn begun(frames: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), frames].concat()
}

/// However the bytes are cut into records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_are_told_to_calm_down_and_ended() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let floods = idle_floods()
        .into_iter()
        .chain(request_floods(&world.token));
    for (what, frames, code) in floods {
        for pieces in [16 << 10, 100] {
            let attack = ended(dialled(&world).await, begun(&frames), pieces, |_| false);
            let end = beside(&world, timeout(PATIENCE, attack)).await;
            let end = end.unwrap_or_else(|_| panic!("{what}: it goes on"));
            assert_eq!(end.goaway, Some(code), "{what}: {end:?}");
            assert!(end.pongs <= 10_001, "{what}: {end:?}");
            left_with(&world, 1).await;
        }
    }
    let line = world.hub.tunnels.get(&name()).expect("the line is up");
    assert_eq!(line.facts().live, 0, "of what was given up nothing runs");
}

/// Nobody reads what a flood is answered with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_whose_answers_nobody_reads_is_ended_as_well() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut tls = dialled(&world).await;
    let frames = begun(&frame(PING, 0, 0, &[7; 8]).repeat(100_000));
    let attack = async move { while tls.write_all(&frames).await.is_ok() {} };
    let ended = beside(&world, timeout(PATIENCE, attack)).await;
    ended.expect("the hub ends it");
    left_with(&world, 1).await;
}

/// A request in frames of 16 KiB.
fn parts(block: &[u8]) -> Vec<u8> {
    let mut chunks = block.chunks(16 << 10).peekable();
    let first = chunks.next().unwrap();
    let end = |last: bool| if last { END_HEADERS } else { 0 };
    let mut out = frame(HEADERS, END_STREAM | end(chunks.peek().is_none()), 1, first);
    while let Some(next) = chunks.next() {
        out.extend(frame(CONTINUATION, end(chunks.peek().is_none()), 1, next));
    }
    out
}

/// `:status` 431: a literal that the table keeps, its name by index, its value in the code of RFC 7541's appendix B.
const REFUSED: &[u8] = &[0x48, 0x83, 0x69, 0x90, 0xff];

/// Heads that are too large: in bytes, or only once they are unpacked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_without_measure_is_refused_or_ends_the_connection() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let get = head(&world.token, GET, "pods");
    // A header that the table keeps, and each byte behind it is that header again.
    let kept = [vec![0x40], string("x"), string(&"y".repeat(200))].concat();
    let bomb = |n: usize| [get.clone(), kept.clone(), vec![0xbe; n]].concat();
    let many = |n: usize| [get.clone(), field("x", "y").repeat(n)].concat();
    for (what, block) in [
        ("10,000 headers", many(10_000)),
        ("100,000 headers", many(100_000)),
        ("a head that unpacks to 2 MB", bomb(10_000)),
        ("a head that unpacks to 20 MB", bomb(100_000)),
    ] {
        let sent = begun(&parts(&block));
        // A refused stream leaves the connection to others.
        let enough = |end: &End| !end.answers.is_empty() || !end.reset.is_empty();
        let attack = ended(dialled(&world).await, sent, 16 << 10, enough);
        let end = beside(&world, timeout(PATIENCE, attack)).await;
        let end = end.unwrap_or_else(|_| panic!("{what}: it stays open"));
        let refused = end.answers.iter().any(|answer| answer.starts_with(REFUSED));
        let calmed = end.goaway == Some(ENHANCE_YOUR_CALM);
        assert!(
            refused || calmed || end.reset.contains(&1),
            "{what}: {end:?}"
        );
    }
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.headers.len() < 20), "{seen:?}");
    left_with(&world, 1).await;
}

/// A window that is given back again and again, and frames that no connection has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_the_protocol_ends_its_connection_only() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let most = 0x7fff_ffff_u32.to_be_bytes();
    for (what, frames) in [
        (
            "a window above 2^31",
            frame(WINDOW_UPDATE, 0, 0, &most).repeat(2),
        ),
        ("a frame above 16 KiB", frame(DATA, 0, 1, &vec![0; 16_385])),
        ("DATA of no stream", frame(DATA, 0, 1, b"x")),
        ("RST_STREAM of no stream", frame(RST_STREAM, 0, 1, &CANCEL)),
        ("CONTINUATION of nothing", frame(CONTINUATION, 0, 1, b"x")),
        ("PING of 7 bytes", frame(PING, 0, 0, &[1; 7])),
        ("PING on a stream", frame(PING, 0, 1, &[1; 8])),
        (
            "a stream of ours",
            frame(HEADERS, 5, 2, &head(&world.token, GET, "pods")),
        ),
    ] {
        let attack = ended(dialled(&world).await, begun(&frames), 16 << 10, |_| false);
        let end = beside(&world, timeout(PATIENCE, attack)).await;
        let end = end.unwrap_or_else(|_| panic!("{what}: it stays open"));
        assert!(end.goaway.is_some_and(|code| code > 0), "{what}: {end:?}");
    }
    left_with(&world, 1).await;
}

/// L34: names that no client library sends. Nothing of such a request arrives, as anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_http2_does_not_know_never_become_an_identity() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for fields in [
        &[("Impersonate-User", "root")][..],
        &[("IMPERSONATE-GROUP", "system:masters")],
        &[("impersonate-user ", "root")],
        &[(" impersonate-user", "root")],
        &[("impersonate-user:", "root")],
        &[("impersonate-user\r\nx", "root")],
        &[("x", "y\r\nImpersonate-User: root")],
        &[("impersonate-user", "root\n")],
        &[("impersonate-user", "ro\0ot")],
        &[
            ("connection", "impersonate-user"),
            ("impersonate-user", "root"),
        ],
        &[("connection", "impersonate-user")],
        &[("transfer-encoding", "chunked")],
        &[(":path", "/clusters/eu1/api")],
        &[("x", "y"), (":authority", "root")],
    ] {
        let added = fields.iter().flat_map(|(name, value)| field(name, value));
        let block = [head(&world.token, GET, "pods"), added.collect()].concat();
        let sent = begun(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
        let over = |end: &End| !end.answers.is_empty() || !end.reset.is_empty();
        let asked = ended(dialled(&world).await, sent, 16 << 10, over);
        let end = timeout(PATIENCE, asked).await;
        let end = end.unwrap_or_else(|_| panic!("{fields:?}: it goes on"));
        let refused = end.answers.iter().any(|answer| BAD.contains(&answer[0]));
        assert!(
            refused || end.reset.contains(&1) || end.goaway.is_some(),
            "{fields:?}: {end:?}"
        );
        assert_eq!(server.seen().len(), 0, "{fields:?}: {:?}", server.seen());
    }
    // The same by hand, and good.
    let block = [
        head(&world.token, GET, "pods"),
        field("x-remote-user", "root"),
    ]
    .concat();
    let sent = begun(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
    let asked = ended(dialled(&world).await, sent, 16 << 10, |end| {
        !end.answers.is_empty()
    });
    let end = timeout(PATIENCE, asked).await.expect("it is answered");
    assert_eq!(end.answers[0][0], 0x88, "{end:?}");
    let seen = server.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(acting(&seen[0]), ACTS);
}

/// `:status` 400 by index, and the beginning of one that is told as a literal: 403.
const BAD: [u8; 2] = [0x8c, 0x48];
