//! A stand-in for the API servers of all clusters: any object is `{}`, and a watch has an event every [`TICK`], numbered, from the
//! one after its `resourceVersion`, so that who comes back can tell that none is missing.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use linesman::clock;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::end;

const TICK: Duration = Duration::from_millis(100);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// When event 0 was, by both clocks.
#[derive(Clone, Copy)]
struct Began {
    at: Instant,
    shown: OffsetDateTime,
}

pub(super) async fn run(address: &str) {
    let listener = end::listen(address).await;
    let began = Began {
        at: Instant::now(),
        shown: clock::now(),
    };
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let service = service_fn(move |request| async move {
            Ok::<_, Infallible>(Response::new(answer(began, &request)))
        });
        connections.spawn(async move {
            // Agents that leave are what is measured.
            drop(
                http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service)
                    .await,
            );
        });
        while connections.try_join_next().is_some() {}
    }
}

fn answer(began: Began, request: &Request<Incoming>) -> Body {
    let query = request.uri().query().unwrap_or_default();
    if !query.contains("watch=1") {
        return Full::new(Bytes::from_static(b"{}")).boxed_unsync();
    }
    let last = query.split("resourceVersion=").nth(1);
    let last = last.and_then(|last| last.parse().ok()).unwrap_or_else(|| {
        let passed = began.at.elapsed().as_millis() / TICK.as_millis();
        u32::try_from(passed).expect("a bench does not run for years")
    });
    let events = stream::unfold(last, move |last| async move {
        let next = last + 1;
        sleep_until(began.at + TICK * next).await;
        let made = (began.shown + TICK * next).unix_timestamp_nanos();
        let event = Bytes::from(format!("{next} {made}\n"));
        Some((Ok(Frame::data(event)), next))
    });
    StreamBody::new(events).boxed_unsync()
}
