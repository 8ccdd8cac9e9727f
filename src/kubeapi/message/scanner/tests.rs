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

const REFUSED: [(&str, &str); 28] = [
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
    (
        "GET http:// HTTP/1.1\r\nHost: h\r\n\r\n",
        "a bad request line",
    ),
    ("GET /a<b HTTP/1.1\r\nHost: h\r\n\r\n", "a bad request line"),
    ("GET [::1 HTTP/1.1\r\nHost: h\r\n\r\n", "a bad request line"),
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
            assert_eq!(
                refused,
                Violation::Framing(why),
                "{text:?} in pieces of {piece}"
            );
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
            let refused = refused.map(|_| ()).unwrap_err();
            assert_eq!(refused, Violation::Framing(why), "{body:?}");
        }
    }
}

/// L40
#[test]
fn a_head_has_begun_from_its_first_byte_until_it_is_whole() {
    let whole = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET";
    let head = whole.len() - b"hiGET".len();
    let (mut scanner, mut out) = (Scanner::default(), Vec::new());
    let mut begun = vec![scanner.has_begun()];
    for byte in whole {
        scanner.push(&[*byte], &mut out).unwrap();
        begun.push(scanner.has_begun());
    }
    let expected = (0..=whole.len()).map(|read| (1..head).contains(&read) || read > head + 2);
    assert_eq!(begun, expected.collect::<Vec<_>>());
}

/// L37
#[test]
fn nothing_passes_behind_a_switch_before_its_answer() {
    let ask = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let smuggled = "GET /b HTTP/1.1\nHost: h\n\n";
    for (switched, passes) in [
        (true, Ok(smuggled.len())),
        (false, Err(Violation::Framing("a LF without CR"))),
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

/// L40
#[test]
fn a_head_without_measure_is_refused_before_it_is_whole() {
    let sized = |bytes: usize| {
        let mut head = b"GET / HTTP/1.1\r\nHost: h\r\nX: ".to_vec();
        head.resize(bytes - 4, b'x');
        [head, b"\r\n\r\n".to_vec()].concat()
    };
    let (scanner, out) = scanned(&sized(MAX_HEAD), 1024).unwrap();
    assert_eq!((scanner.heads(), out.len()), (1, MAX_HEAD));
    let long = Violation::HeadSize("more than 64 KiB");
    let endless = sized(MAX_HEAD + 5_000);
    for head in [&sized(MAX_HEAD + 1), &endless[..=MAX_HEAD]] {
        assert_eq!(scanned(head, 1024).map(|_| ()).unwrap_err(), long);
    }
}

#[test]
fn a_head_has_a_hundred_fields_at_most() {
    let head = |fields: usize| {
        let fields = "X: y\r\n".repeat(fields - 1);
        format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
    };
    assert!(super::head(head(100).as_bytes()).is_ok());
    let many = Violation::HeadSize("more than 100 header fields");
    assert_eq!(super::head(head(101).as_bytes()), Err(many));
}

#[test]
fn what_broke_is_the_request_it_broke_in() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (rest, heads, in_body) in [
        ("x\r\n", 1, true),
        ("0\r\n\r\nGET\r\n\r\n", 1, false),
        ("0\r\n\r\nGET / HTTP/1.0\r\n\r\nX\n", 2, false),
    ] {
        let (mut scanner, mut out) = (Scanner::default(), Vec::new());
        let pushed = scanner.push(format!("{head}{rest}").as_bytes(), &mut out);
        assert!(pushed.is_err(), "{rest:?}");
        let seen = (scanner.heads(), scanner.broke_in_body());
        assert_eq!(seen, (heads, in_body), "{rest:?}");
    }
}
