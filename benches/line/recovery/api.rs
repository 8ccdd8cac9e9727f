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

const TICK: Duration = Duration::from_millis(250);

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
    let last = last.and_then(|last| last.parse().ok());
    let last = last.unwrap_or_else(|| began.passed());
    let events = stream::unfold(last, move |last| async move {
        sleep_until(began.at + TICK * (last + 1)).await;
        // What was missed comes at once, as from an API server, which flushes when it has no more.
        let newest = began.passed().max(last + 1);
        let events: String = (last + 1..=newest).map(|n| began.event(n)).collect();
        Some((Ok(Frame::data(Bytes::from(events))), newest))
    });
    StreamBody::new(events).boxed_unsync()
}

impl Began {
    /// Events until now.
    fn passed(self) -> u32 {
        let passed = self.at.elapsed().as_millis() / TICK.as_millis();
        u32::try_from(passed).expect("a bench does not run for years")
    }

    /// Its number, and when it was made.
    fn event(self, number: u32) -> String {
        let made = (self.shown + TICK * number).unix_timestamp_nanos();
        format!("{number} {made}\n")
    }
}
