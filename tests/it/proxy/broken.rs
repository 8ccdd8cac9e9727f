//! L9: a large list whose API server or agent dies in its middle is broken off for the user, and never looks whole: over
//! HTTP/1.1 its framing is not brought to its end, over HTTP/2 its stream is reset, and others go on beside it.

use std::io::ErrorKind;

use ::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{Door, PATIENCE, World};

/// Who dies while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    ApiServer,
    /// As SIGKILL does: its connections are gone, and nothing was said.
    Agent,
}

impl Death {
    async fn strike(self, server: &ApiServer, world: &World) {
        match self {
            Self::ApiServer => server.stop().await,
            Self::Agent => {
                let cut = Door {
                    shut: true,
                    cuts: 1,
                };
                world.door.send_replace(cut);
            }
        }
    }
}

/// The list's path, how its end is known over HTTP/1.1, and who dies.
const ROWS: [(&str, &str, Death); 4] = [
    ("endless", "transfer-encoding: chunked", Death::ApiServer),
    ("endless", "transfer-encoding: chunked", Death::Agent),
    ("promised", "content-length: 1000000000", Death::ApiServer),
    ("promised", "content-length: 1000000000", Death::Agent),
];

/// So much is read before.
const READ: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_breaks_off_has_no_end_over_http1() {
    for (path, framing, death) in ROWS {
        let server = ApiServer::start().await;
        let world = World::with_line(&server).await;
        let mut tls = world.connect(&[]).await;
        let request = format!(
            "GET /clusters/eu1/api/v1/{path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n\r\n",
            world.token
        );
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut begun = vec![0; READ];
        let read = timeout(PATIENCE, tls.read_exact(&mut begun)).await;
        read.expect("it begins").unwrap();
        let head = String::from_utf8_lossy(&begun[..1024]).to_lowercase();
        assert!(
            head.starts_with("http/1.1 200 ok\r\n") && head.contains(framing),
            "{head}"
        );
        death.strike(&server, &world).await;
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, tls.read_to_end(&mut rest)).await;
        let ended = ended.unwrap_or_else(|_| panic!("{path}, {death:?}: it goes on"));
        // Not even TLS says that this was all.
        let ended = ended.map_err(|error| error.kind());
        assert_eq!(ended, Err(ErrorKind::UnexpectedEof), "{path}, {death:?}");
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{path}, {death:?}");
        assert!(rest.len() < 64 << 20, "{path}, {death:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_breaks_off_is_a_reset_stream_over_http2() {
    for (path, _, death) in ROWS {
        let server = ApiServer::start().await;
        let world = World::with_line(&server).await;
        let tls = TokioIo::new(world.connect(&[b"h2"]).await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), tls).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        let ask = |path: &str| {
            let url = format!("https://localhost{path}");
            let bearer = format!("Bearer {}", world.token);
            let request = Request::get(url).header("authorization", bearer);
            request.body(Empty::<Bytes>::new()).unwrap()
        };
        let list = ask(&format!("/clusters/eu1/api/v1/{path}"));
        let answer = timeout(PATIENCE, sender.send_request(list)).await;
        let answer = answer.expect("it begins").unwrap();
        assert_eq!(answer.status(), 200, "{path}, {death:?}");
        let mut body = answer.into_body();
        let mut read = 0;
        while read < READ {
            let frame = timeout(PATIENCE, body.frame()).await.expect("it goes on");
            read += frame.unwrap().unwrap().into_data().unwrap().len();
        }
        death.strike(&server, &world).await;
        let end = async {
            loop {
                match body.frame().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            }
        };
        let error = timeout(PATIENCE, end).await.expect("it ends");
        let error = error.unwrap_or_else(|| panic!("{path}, {death:?}: it looks whole"));
        let cause = std::error::Error::source(&error);
        let cause = cause.and_then(|cause| cause.downcast_ref::<h2::Error>());
        let reset = cause.is_some_and(|cause| cause.is_reset() && cause.is_remote());
        assert!(reset, "{path}, {death:?}: {error:?}");
        // The connection is none of the list's.
        let beside = timeout(PATIENCE, sender.send_request(ask("/v1/whoami"))).await;
        assert_eq!(beside.expect("an answer").unwrap().status(), 200);
    }
}
