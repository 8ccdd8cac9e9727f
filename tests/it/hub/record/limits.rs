//! A receiver of the audit that takes only so much at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use linesman::hub::AuditConfig;
use linesman::hub::audit::Entry;
use linesman::hub::audit::sink::{self, Seen, Sink};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::hub::support::TestHub;
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(20);

/// A webhook's receiver, and what it took.
struct Receiver {
    url: String,
    /// Bytes of one body.
    limit: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    bodies: mpsc::Receiver<String>,
}

impl Receiver {
    async fn start(limit: usize) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/audit", listener.local_addr().unwrap());
        let (send, bodies) = mpsc::channel(2_000);
        let limit = Arc::new(AtomicUsize::new(limit));
        let refused = Arc::new(AtomicUsize::new(0));
        let (most, count) = (limit.clone(), refused.clone());
        #[expect(clippy::disallowed_methods, reason = "ends with its runtime")]
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let answer = |request: http::Request<hyper::body::Incoming>| {
                    let (send, most, count) = (send.clone(), most.clone(), count.clone());
                    async move {
                        let body = request.into_body().collect().await?.to_bytes();
                        let mut response =
                            http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
                        if body.len() > most.load(Ordering::SeqCst) {
                            count.fetch_add(1, Ordering::SeqCst);
                            *response.status_mut() = http::StatusCode::PAYLOAD_TOO_LARGE;
                        } else {
                            let text = String::from_utf8(body.to_vec()).unwrap();
                            send.send(text).await.unwrap();
                        }
                        Ok::<_, hyper::Error>(response)
                    }
                };
                let io = hyper_util::rt::TokioIo::new(socket);
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(io, hyper::service::service_fn(answer));
                drop(served.await);
            }
        });
        Self {
            url,
            limit,
            refused,
            bodies,
        }
    }

    fn config(&self) -> AuditConfig {
        AuditConfig {
            sinks: vec![Sink::Webhook {
                url: self.url.clone().into(),
                token_file: None,
                header_file: None,
                ca: None,
            }],
            ..AuditConfig::default()
        }
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// The lines up to the record of this number, without the anchors.
    async fn lines(&mut self, last: i64) -> Vec<Value> {
        let mut lines: Vec<Value> = Vec::new();
        while lines.last().is_none_or(|line| line["seq"] != last) {
            let body = tokio::time::timeout(PATIENCE, self.bodies.recv()).await;
            let body = body.unwrap().unwrap();
            let new = body.lines().map(|line| serde_json::from_str(line).unwrap());
            lines.extend(new.filter(|line: &Value| line["anchor"].is_null()));
        }
        lines
    }
}

async fn written(hub: &TestHub, entries: impl Iterator<Item = Entry>) -> i64 {
    let written = entries.map(|entry| hub.hub.audit.event(entry));
    futures_util::future::try_join_all(written).await.unwrap();
    *hub.hub.audit.head().borrow()
}

fn numbers(lines: &[Value]) -> Vec<i64> {
    lines.iter().map(|l| l["seq"].as_i64().unwrap()).collect()
}

/// A batch that is too large for the receiver comes in parts, and nothing stalls.
#[tokio::test]
async fn a_receiver_with_a_limit_gets_every_record_once_and_in_order() {
    let mut receiver = Receiver::start(64 << 10).await;
    let hub = TestHub::with_audit("audit-limit", receiver.config()).await;
    let entries = (0..1_200).map(|n| Entry {
        action: "test".to_owned(),
        target: format!("{n} {}", "x".repeat(900)),
        ..Entry::default()
    });
    let last = written(&hub, entries).await;
    let lines = receiver.lines(last).await;
    assert_eq!(numbers(&lines), (1..=last).collect::<Vec<_>>());
    let refused = receiver.refused();
    assert!((1..20).contains(&refused), "{refused}");
    let behind = hub.hub.metrics.audit_behind("webhook");
    until("nothing is behind", PATIENCE, async || behind.get() == 0).await;
    hub.stop().await;
}

/// A record that is refused alone is told as a gap, and those behind it come.
#[tokio::test]
async fn a_record_that_is_refused_alone_is_told_as_a_gap() {
    let mut receiver = Receiver::start(16 << 10).await;
    let hub = TestHub::with_audit("audit-refused", receiver.config()).await;
    let entry = |text: String| Entry {
        actor: text.clone(),
        action: "test".to_owned(),
        target: text.clone(),
        reason: Some(text),
        ..Entry::default()
    };
    let first = written(&hub, std::iter::once(entry("before".to_owned()))).await;
    // JSON writes each byte of it as six.
    let long = entry("\u{1}".repeat(1_024));
    let behind = entry("behind".to_owned());
    written(&hub, std::iter::once(long)).await;
    let last = written(&hub, std::iter::once(behind)).await;
    assert_eq!(last, first + 2);
    let lines = receiver.lines(last).await;
    let gap = json!({"gap": {"from": first + 1, "to": first + 1, "reason": "the sink refuses it as too large"}});
    let told: Vec<&Value> = lines.iter().rev().take(3).collect();
    assert_eq!(
        (&told[0]["target"], told[1], &told[2]["target"]),
        (&json!("behind"), &gap, &json!("before"))
    );
    hub.stop().await;
}

/// A receiver that refuses whatever comes is waited for: no record is given up for it, and the metrics show how many wait.
#[tokio::test]
async fn a_receiver_that_refuses_everything_is_waited_for() {
    let mut receiver = Receiver::start(10).await;
    let hub = TestHub::with_audit("audit-nothing", receiver.config()).await;
    let entries = (0..40).map(|_| Entry {
        action: "test".to_owned(),
        ..Entry::default()
    });
    let last = written(&hub, entries).await;
    let behind = hub.hub.metrics.audit_behind("webhook");
    until("all of them wait", PATIENCE, async || {
        behind.get() == last && receiver.refused() > 1
    })
    .await;
    receiver.limit.store(64 << 10, Ordering::SeqCst);
    let lines = receiver.lines(last).await;
    assert_eq!(numbers(&lines), (1..=last).collect::<Vec<_>>());
    hub.stop().await;
}

/// A replica that leads no longer, or a hub that is told to end, does not first give what has gathered for hours; and what it has yet to
/// give is none of its business any more, be it told to end or cut off.
#[tokio::test]
async fn a_sink_that_ends_leaves_what_waits_to_whoever_goes_on() {
    let receiver = Receiver::start(10).await;
    let hub = TestHub::start("audit-ends").await;
    let entries = (0..1_200).map(|_| Entry {
        action: "test".to_owned(),
        ..Entry::default()
    });
    let last = written(&hub, entries).await;
    let behind = hub.hub.metrics.audit_behind("webhook");
    let run = |sink: &Sink, stop: &CancellationToken| {
        let (store, head) = (hub.hub.store.clone(), hub.hub.audit.head());
        let seen = Seen {
            behind: behind.clone(),
            tried: hub.hub.tried.clone(),
        };
        sink::run(store, sink.clone(), head, seen, stop.clone())
    };
    let stop = CancellationToken::new();
    let mut cut = JoinSet::new();
    cut.spawn(run(&receiver.config().sinks[0], &stop));
    until("they wait", PATIENCE, async || behind.get() == last).await;
    cut.shutdown().await;
    assert_eq!(behind.get(), 0);

    receiver.limit.store(1 << 20, Ordering::SeqCst);
    stop.cancel();
    for sink in receiver.config().sinks {
        run(&sink, &stop).await.unwrap();
        let taken = hub.hub.store.audit_position(&sink.name()).await.unwrap();
        assert_eq!((taken, behind.get()), (None, 0));
    }
    hub.stop().await;
}
