use super::*;

/// Passes the bytes through in pieces of this size.
fn scanned(bytes: &[u8], piece: usize) -> Result<(Scanner, Vec<u8>), Violation> {
    let (mut scanner, mut out) = (Scanner::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        while !rest.is_empty() {
            let taken = scanner.push(rest, &mut out)?;
            rest = &rest[taken..];
            if scanner.is_asked() {
                return Ok((scanner, out));
            }
        }
    }
    Ok((scanner, out))
}

const GOOD: [&str; 6] = [
    "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nX: \t y z\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nhost: h\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: h\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123\r\n\r\n89\r\n0\r\nX-Sum: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\n\r\n",
];

#[test]
fn well_formed_requests_pass_byte_by_byte() {
    for text in GOOD {
        for piece in 1..40 {
            let (scanner, out) = scanned(text.as_bytes(), piece).unwrap();
            assert_eq!(
                String::from_utf8(out).unwrap(),
                text,
                "in pieces of {piece}"
            );
            let State::Head(held) = scanner.state else {
                panic!("{:?}", scanner.state)
            };
            assert!(held.is_empty());
        }
    }
}

const REFUSED: [(&str, &str); 25] = [
    ("GET / HTTP/1.1\nHost: h\n\n", "a LF without CR"),
    ("GET / HTTP/1.1\r\nHost: h\n\r\n", "a LF without CR"),
    (
        "GET / HTTP/1.1\r\nHost: h\r\rX: y\r\n\r\n",
        "a CR without LF",
    ),
    ("GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", "a NUL"),
    (
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
        "a folded line",
    ),
    ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", "a bad field name"),
    (
        "GET / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n",
        "a line without a colon",
    ),
    (
        "GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n",
        "a bad field name",
    ),
    (
        "GET / HTTP/1.1\r\nHost: h\r\nX: \u{1}\r\n\r\n",
        "a control character",
    ),
    ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "a bad request line"),
    ("GET / x HTTP/1.1\r\nHost: h\r\n\r\n", "a bad request line"),
    ("GET /\tx HTTP/1.1\r\nHost: h\r\n\r\n", "a bad request line"),
    ("GET / HTTP/1.2\r\nHost: h\r\n\r\n", "a bad request line"),
    ("GET / http/1.1\r\nHost: h\r\n\r\n", "a bad request line"),
    (
        "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "a bad request line",
    ),
    ("GET / HTTP/1.1\r\n\r\n", "no Host"),
    (
        "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        "Host, Content-Length or Transfer-Encoding twice",
    ),
    (
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\nx",
        "Host, Content-Length or Transfer-Encoding twice",
    ),
    (
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Host, Content-Length or Transfer-Encoding twice",
    ),
    (
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        "both Content-Length and Transfer-Encoding",
    ),
    (
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "a Transfer-Encoding other than chunked",
    ),
    (
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
        "a control character",
    ),
    (
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding with HTTP/1.0",
    ),
    (
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
        "a Content-Length that is no number",
    ),
    (
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\nx",
        "a Content-Length that is no number",
    ),
];

/// L36
#[test]
fn what_two_servers_could_frame_differently_is_refused() {
    for (text, why) in REFUSED {
        for piece in [1, 7, 4096] {
            let refused = scanned(text.as_bytes(), piece).map(|_| ()).unwrap_err();
            assert_eq!(refused.0, why, "{text:?} in pieces of {piece}");
        }
    }
}

#[test]
fn bad_chunks_are_refused() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long = format!("1;{}\r\n", "x".repeat(300));
    for (body, why) in [
        ("x\r\n", "a bad chunk size"),
        ("\r\n", "a bad chunk size"),
        ("+5\r\nhello\r\n", "a bad chunk size"),
        ("0x5\r\nhello\r\n", "a bad chunk size"),
        ("5 \r\nhello\r\n", "a bad chunk size"),
        ("fffffffffffffffff\r\n", "a bad chunk size"),
        ("5\nhello\r\n", "a LF without CR"),
        ("5\r\nhello!\r\n", "a chunk that is longer than it says"),
        ("0\r\nX : y\r\n\r\n", "a bad field name"),
        (&long, "an endless chunk size"),
    ] {
        for piece in [1, 4096] {
            let refused = scanned(format!("{head}{body}").as_bytes(), piece);
            assert_eq!(refused.map(|_| ()).unwrap_err().0, why, "{body:?}");
        }
    }
}

/// L37
#[test]
fn nothing_passes_behind_a_switch_before_its_answer() {
    let ask = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let smuggled = "GET /b HTTP/1.1\nHost: h\n\n";
    for (switched, passes) in [
        (true, Ok(smuggled.len())),
        (false, Err(Violation("a LF without CR"))),
    ] {
        let (mut scanner, mut out) = scanned(ask.as_bytes(), 4096).unwrap();
        assert!(scanner.is_asked());
        assert_eq!(scanner.push(smuggled.as_bytes(), &mut out), Ok(0));
        assert_eq!(out, ask.as_bytes());
        scanner.answered(switched);
        out.clear();
        assert_eq!(scanner.push(smuggled.as_bytes(), &mut out), passes);
    }
}

#[test]
fn an_endless_head_is_left_to_the_server_and_nothing_behind_it() {
    let mut endless = b"GET / HTTP/1.1\r\nX: ".to_vec();
    endless.resize(MAX_HEAD + 5_000, b'x');
    let (scanner, out) = scanned(&endless, 1024).unwrap();
    assert!(out.len() > MAX_HEAD && out.len() < endless.len());
    assert!(matches!(scanner.state, State::Broken));
}
