//! L36: no bytes are one request to the hub and another one to the agent: whatever a connection brings, what the hub's parsers forward
//! the agent's reads as exactly that, or it is refused. The fuzz target `parsers` looks for more of it.

use proptest::prelude::*;
use proptest::sample::select;

use super::hostile::{PODS, SMUGGLING, TARGETS};
use crate::corpus::parsers::{Forwarded, Seen, forwarded};

const PIECES: [usize; 4] = [1, 3, 40, 100_000];

fn filled(text: &str) -> Vec<u8> {
    text.replace('@', "/clusters/eu1")
        .replace('$', "Authorization: Bearer x")
        .into_bytes()
}

/// What both ends read of it.
fn read(forwarded: &Forwarded) -> (String, &[u8]) {
    let (_, agents) = forwarded.agents.as_ref().expect("the agent read it");
    assert_eq!(agents, &forwarded.hubs);
    let target = format!("{} {}", forwarded.outgoing.method, forwarded.outgoing.rest);
    (target, &agents.bytes)
}

#[test]
fn requests_one_behind_the_other_are_those_that_were_sent() {
    let bytes = filled(
        "GET @/api/v1/pods?x=%2F&&y= HTTP/1.1\r\nHost: h\r\n$\r\n\r\n\
         POST @/api/v1/pods HTTP/1.1\r\nHost:h\r\nContent-Length: 4\r\nX: a\r\nX:  b \r\n\r\nbody\
         PUT @/api/v1/pods/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n\
         3;x=\"y\"\r\nabc\r\n00a\r\n0123456789\r\n0\r\nContent-Length: 5\r\n\r\n\
         GET @/api/v1/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nget\r\n0\r\n\r\n\
         HEAD @/api/v1/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
         DELETE @/api/v1/pods/a HTTP/1.1\r\nHost: h\r\nConnection: X, close\r\nX: a\r\n\r\n",
    );
    for piece in PIECES {
        let all = forwarded(&bytes, piece);
        let found: Vec<_> = all.iter().map(read).collect();
        let found: Vec<_> = found.iter().map(|(t, body)| (t.as_str(), *body)).collect();
        let wanted: [(&str, &[u8]); 6] = [
            ("GET /api/v1/pods?x=%2F&&y=", b""),
            ("POST /api/v1/pods", b"body"),
            ("PUT /api/v1/pods/a", b"abc0123456789"),
            ("GET /api/v1/x", b"get"),
            ("HEAD /api/v1/x", b""),
            ("DELETE /api/v1/pods/a", b""),
        ];
        assert_eq!(found, wanted, "in pieces of {piece}");
    }
}

/// A body that ends too soon, or goes wrong behind a good part, is no whole one at either end.
#[test]
fn a_part_of_a_body_is_not_taken_for_the_whole() {
    let head = "@/api/v1/pods HTTP/1.1\r\nHost: h\r\n";
    for (rest, part) in [
        ("Content-Length: 9\r\n\r\nbody", "body"),
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", "body"),
        (
            "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n",
            "body",
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nx\r\n",
            "body",
        ),
    ] {
        for (method, piece) in ["POST", "GET"]
            .into_iter()
            .flat_map(|method| PIECES.map(|piece| (method, piece)))
        {
            let bytes = filled(&format!("{method} {head}{rest}"));
            let all = forwarded(&bytes, piece);
            let [one] = all.as_slice() else {
                panic!("{} requests of {method} {rest:?}", all.len())
            };
            let cut = Seen {
                bytes: part.as_bytes().to_vec(),
                whole: false,
            };
            assert_eq!(one.hubs, cut, "{method} {rest:?}");
        }
    }
}

/// The table of the hub as it stands, and the good request behind each row.
#[test]
fn nothing_of_the_smuggling_table_reaches_an_agent() {
    for row in SMUGGLING {
        let row = filled(&format!("{row}{PODS}"));
        for piece in PIECES {
            let all = forwarded(&row, piece);
            assert!(all.is_empty(), "{}: {all:?}", String::from_utf8_lossy(&row));
        }
    }
    let good = forwarded(&filled(PODS), 7);
    assert_eq!(good.iter().map(read).count(), 1);
}

#[test]
fn targets_of_the_table_are_read_alike_or_refused() {
    for (target, code) in TARGETS {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n$\r\n\r\n{PODS}");
        let all = forwarded(&filled(&request), 11);
        // What is another cluster's is refused once it is known who asks.
        assert!(code == 403 || all.is_empty(), "{target}: {all:?}");
        for one in &all {
            read(one);
        }
    }
}

/// Lines of a request's head, as they should not be but for a few.
const FIELDS: [&str; 30] = [
    "Host: h",
    "host: evil",
    "Host:",
    "X: a",
    "X:\tb ",
    "x-y: \u{e9}",
    "Content-Length: 4",
    "Content-Length: 04",
    "Content-Length: +4",
    "Content-Length: 4, 4",
    "Content-Length: 0",
    "Content-Length:",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: CHUNKED",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: \u{b}chunked",
    "Connection: close",
    "Connection: keep-alive, X",
    "Connection: Upgrade",
    "Connection: Content-Length, Transfer-Encoding",
    "Upgrade: websocket",
    "Upgrade: SPDY/3.1",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "TE: trailers",
    "Trailer: X",
    " folded",
    "Impersonate-User: root",
    "Content_Length: 9",
];

/// Good and bad parts of a request, put together at random.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = select(vec![
        "GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "get", "CONNECT", "OPTIONS",
    ]);
    let target = select(vec![
        "/clusters/eu1/api/v1/pods",
        "/clusters/eu1/api/v1/pods?x=%2F&y=a#z",
        "/clusters/eu1/api/v1/namespaces/a/pods/b/exec?command=sh",
        "/clusters/eu1/api/v1/namespaces/a/services/s/proxy/a%2Fb//../c",
        "/clusters/eu1?x",
        "http://h/clusters/eu1/api",
        "http://evil/clusters/eu1/api",
        "/clusters/eu1/api/./v1",
        "*",
        "h:443",
    ]);
    let version = select(vec![
        "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2",
    ]);
    let field = select(FIELDS.to_vec());
    let body = select(vec![
        "",
        "body",
        "4\r\nbody\r\n0\r\n\r\n",
        "4;x=y\r\nbody\r\n0\r\nHost: x\r\n\r\n",
        "4\r\nbodyx\r\n0\r\n\r\n",
        "0\r\n\r\n",
        "0x4\r\nbody\r\n0\r\n\r\n",
        "4\nbody\r\n0\r\n\r\n",
        "+4\r\nbody\r\n0\r\n\r\n",
        "4 \r\nbody\r\n0\r\n\r\n",
        "0\r\n",
        "00\r\n\r\n",
        "4\r\nGET \r\n0\r\n\r\n",
        "fffffffffffffffff\r\nbody",
    ]);
    let end = select(vec![
        "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r",
        "\r\r\n",
    ]);
    let fields = prop::collection::vec((field, end), 0..4);
    (method, target, version, fields, body).prop_map(|(method, target, version, fields, body)| {
        let mut text = format!("{method} {target} {version}\r\nHost: h\r\n");
        for (field, end) in fields {
            text.push_str(field);
            text.push_str(end);
        }
        format!("{text}\r\n{body}").into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_a_connection_brings_is_read_alike_or_refused(
        requests in prop::collection::vec(request(), 1..4),
        changed in prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        piece in select(PIECES.to_vec()),
    ) {
        let mut bytes = requests.concat();
        if let Some((at, byte)) = changed {
            *at.get_mut(&mut bytes) = byte;
        }
        forwarded(&bytes, piece);
    }
}
