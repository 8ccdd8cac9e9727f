//! L5: an upload that the API server refuses before it is complete.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::apiserver::{ApiServer, FORBIDDEN, HELD, REFUSALS, Refused};
use super::world::{PATIENCE, STILL, World, name};

const WHOLE: usize = 100 << 20;
const CHUNK: usize = 64 << 10;

/// What the user is told of each of [`REFUSALS`]: the API server's words, but where they are about the line's account, which is
/// nothing that the user did.
const TOLD: [(u16, &str); 3] = [
    (413, "much"),
    (403, FORBIDDEN),
    (503, "nothing was executed; repeat it"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_upload_is_not_read_any_further() {
    for (refusal, told) in REFUSALS.iter().zip(TOLD) {
        stays_unread(refusal, told).await;
    }
}

async fn stays_unread(refusal: &Refused, (code, words): (u16, &str)) {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let line = world.hub.tunnels.get(&name()).unwrap();
    let before = line.facts().sent;
    let forwarded = || usize::try_from(line.facts().sent - before).unwrap();
    let given = Arc::new(AtomicUsize::new(0));
    let (counter, chunk) = (given.clone(), Bytes::from(vec![b'x'; CHUNK]));
    let chunks = (0..WHOLE / CHUNK).map(move |_| {
        counter.fetch_add(CHUNK, Ordering::Relaxed);
        Ok::<_, Infallible>(Frame::data(chunk.clone()))
    });
    let request = Request::post(format!("/clusters/eu1/api/v1/raw/{}{HELD}", refusal.path))
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {}", world.token))
        .header(header::CONTENT_LENGTH, WHOLE)
        .body(StreamBody::new(stream::iter(chunks)))
        .unwrap();
    let tls = TokioIo::new(world.connect(&[]).await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(tls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "ends with its connection")]
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    let on_its_way = || (forwarded(), given.load(Ordering::Relaxed));
    // Before that, some MB more pass, as many as the systems' buffers take.
    let before = tokio::select! {
        _ = &mut answer => panic!("nobody has answered yet"),
        before = timeout(PATIENCE, stands_still(&world, on_its_way)) => before.expect("it stands still"),
    };
    server.release();
    let response = timeout(PATIENCE, answer).await;
    let response = response.expect("the refusal arrives").unwrap();
    assert_eq!(response.status(), code);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains(words), "{code}: {body}");
    // The hub lets go of the connection instead of reading the rest.
    drop(
        timeout(PATIENCE, connection)
            .await
            .expect("the upload is cut"),
    );
    let after = on_its_way();
    // Mostly the frame that stops it. All of it crosses where the refusal does not stop the stream.
    let more = after.0 - before.0;
    assert!(more < 1 << 20, "{code}: {more} bytes more were read");
    assert!(after.1 < WHOLE / 2, "{code}: {}", after.1);
    // Its end crosses the line, too.
    let ended = async {
        while line.facts().live > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the stream ends");
}

/// How much is on its way when no more of it moves while the hub has much else to do, and for some time.
async fn stands_still(world: &World, on_its_way: impl Fn() -> (usize, usize)) -> (usize, usize) {
    let (mut last, mut still, mut since) = (on_its_way(), 0, Instant::now());
    while still < 20 || since.elapsed() < STILL {
        let other = Request::get("/v1/hub").body(Bytes::new()).unwrap();
        assert_eq!(world.send(other).await.status(), 200);
        let now = on_its_way();
        if now == last {
            still += 1;
        } else {
            (last, still, since) = (now, 0, Instant::now());
        }
    }
    last
}

/// L5: a client that sends before it reads finds the status, not a reset: little more is read, and the connection stays for
/// a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_sends_is_not_reset_before_it_reads_why() {
    for (refusal, told) in REFUSALS.iter().zip(TOLD) {
        reads_why(refusal.path, told).await;
    }
}

async fn reads_why(path: &str, (code, words): (u16, &str)) {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let head = format!(
        "POST /clusters/eu1/api/v1/raw/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {WHOLE}\r\n\r\n",
        world.token
    );
    let mut tls = world.connect(&[]).await;
    tls.write_all(head.as_bytes()).await.unwrap();
    let chunk = vec![b'x'; CHUNK];
    // Until nobody takes any more: neither the hub nor the system's buffers.
    let mut sent = 0;
    let stuck = loop {
        match timeout(Duration::from_millis(200), tls.write(&chunk)).await {
            Ok(Ok(len)) => sent += len,
            Ok(Err(error)) => break Err(error),
            Err(_) => break Ok(()),
        }
        assert!(sent < WHOLE, "all of it was taken");
    };
    assert_eq!(stuck.map_err(|error| error.kind()), Ok(()), "after {sent}");
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, tls.read_to_end(&mut answer)).await;
    read.expect("the connection ends").unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
    assert!(answer.contains(words), "{answer}");
}
