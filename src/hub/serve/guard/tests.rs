use std::convert::Infallible;

use http_body_util::Empty;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::*;
use crate::kubeapi::message::{self, MAX_HEAD};

/// How hyper answers to a head, where the service behind it says 204 to everything.
async fn answer(head: &[u8]) -> String {
    let (mut client, server) = duplex(MAX_HEAD + 1);
    let service = service_fn(async |_: Request<_>| {
        let mut response = Response::new(Empty::<&[u8]>::new());
        *response.status_mut() = hyper::StatusCode::NO_CONTENT;
        Ok::<_, Infallible>(response)
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.max_buf_size(MAX_HEAD).half_close(true);
    let serving = builder.serve_connection(TokioIo::new(server), service);
    let told = async {
        client.write_all(head).await.unwrap();
        client.shutdown().await.unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        told
    };
    tokio::join!(told, serving).0
}

fn alone(future: impl Future<Output = String>) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// Bytes that a head may be made of, those before all that parsers treat each in its own way.
fn text(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let odd = prop::sample::select(b"/:?#[]@%*<>\"\\^`{|} \t\x7f\x80\xc3\xa9\xff".to_vec());
    prop::collection::vec(prop_oneof![odd, 0x21..0x7f_u8], 0..most)
}

fn any_head() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![Just(b"GET".to_vec()), Just(b"CONNECT".to_vec()), text(6)];
    let slash = |mut text: Vec<u8>| {
        text.insert(0, b'/');
        text
    };
    let target = prop_oneof![text(12).prop_map(slash), text(12)];
    let field = (prop_oneof![Just(b"X".to_vec()), text(4)], text(12));
    let fields = prop::collection::vec(field, 0..4);
    (method, target, fields).prop_map(|(method, target, fields)| {
        let mut head = [&method[..], b" ", &target, b" HTTP/1.1\r\nHost: h\r\n"].concat();
        for (name, value) in fields {
            head.extend([&name[..], b": ", &value, b"\r\n"].concat());
        }
        head.extend(b"\r\n");
        head
    })
}

proptest! {
    /// L11: hyper refuses without a word; so nothing gets there that it would refuse.
    #[test]
    fn what_the_guard_lets_pass_the_parser_takes(head in any_head()) {
        if message::head(&head).is_ok() {
            let told = alone(answer(&head));
            prop_assert!(told.starts_with("HTTP/1.1 204"), "{told}: {}", String::from_utf8_lossy(&head));
        }
    }
}

/// L11, L40
#[tokio::test]
async fn the_parser_takes_the_longest_head_that_passes() {
    let longest = |target: usize| {
        let rest = "\r\nHost: h\r\nX: ";
        let mut head = format!("GET /{} HTTP/1.1{rest}", "y".repeat(target)).into_bytes();
        head.resize(MAX_HEAD - 4, b'x');
        [&head[..], b"\r\n\r\n"].concat()
    };
    let fields = "X: y\r\n".repeat(99);
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    for head in [longest(0), longest(65_400), many.into_bytes()] {
        assert!(message::head(&head).is_ok());
        let told = answer(&head).await;
        assert!(told.starts_with("HTTP/1.1 204"), "{told}");
    }
}

#[tokio::test]
async fn a_verdict_is_on_one_request_of_its_connection() {
    let verdict = Verdict::default();
    verdict.refuse(2, Violation::Framing("no Host"));
    let asked: Vec<_> = (0..3).map(|_| verdict.on_next()).collect();
    assert_eq!(asked, [None, Some(Violation::Framing("no Host")), None]);
}

/// L38: HTTP/2 was agreed upon, and then its parser alone would look at a head of HTTP/1.
#[tokio::test]
async fn nothing_but_http2_is_read_where_it_was_agreed_upon() {
    let whole = [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
    let late = [&PREFACE[..20], b"GET / HTTP/1.1\n\n"].concat();
    for (sent, good) in [
        (&whole[..], true),
        (b"GET / HTTP/1.1\n\n", false),
        (b"PRI * HTTP/1.1\r\nHost: h\r\n\r\n", false),
        (&late, false),
    ] {
        for piece in [1, 5, sent.len()] {
            let (mut client, server) = duplex(64);
            let mut guarded = Guarded::http2(server, Duration::from_mins(1), ());
            let send = async {
                for piece in sent.chunks(piece) {
                    client.write_all(piece).await.unwrap();
                }
                client.shutdown().await.unwrap();
            };
            let mut read = Vec::new();
            let ((), told) = tokio::join!(send, guarded.read_to_end(&mut read));
            let told = told.map_err(|error| error.kind());
            if good {
                assert_eq!((told, &read[..]), (Ok(sent.len()), sent));
            } else {
                assert_eq!(told, Err(std::io::ErrorKind::InvalidData), "{sent:?}");
                assert!(PREFACE.starts_with(&read), "{read:?}");
            }
        }
    }
}
