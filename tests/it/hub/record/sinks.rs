//! The audit on its way to others: a file, a webhook.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use linesman::hub::AuditConfig;
use linesman::hub::audit::chain;
use linesman::hub::audit::retain::{self, Retention};
use linesman::hub::audit::sink::{AuditFile, Sink};
use linesman::secret::Secret;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{now, records, records_after};
use crate::hub::support::TestHub;
use crate::proxy::record::{Log, logged};
use crate::wait::{until, until_some};

const PATIENCE: Duration = Duration::from_secs(10);

/// A SIEM's file: every record once, in order, over a restart, with a word where retention was faster.
#[tokio::test]
async fn a_file_sink_gets_every_record_or_is_told_of_the_gap() {
    let file = std::env::temp_dir().join(format!("linesman-sink-{}", linesman::clock::id()));
    let config = AuditConfig {
        sinks: vec![Sink::File(AuditFile::new(file.clone()))],
        ..AuditConfig::default()
    };
    let hub = TestHub::with_audit("audit-sink", config.clone()).await;
    records(&hub, 3).await;
    let first = lines(&file, 3).await;
    let seqs: Vec<i64> = first.iter().map(|l| l["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3]);
    let row = chain::record(serde_json::from_value(first[0].clone()).unwrap()).unwrap();
    assert_eq!(
        row.hash,
        chain::hash(&row),
        "a line holds all that is hashed"
    );
    let name = Sink::File(AuditFile::new(file.clone())).name();
    let kept = async || hub.hub.store.audit_position(&name).await.unwrap() == Some(3);
    until("the sink's place is kept", PATIENCE, kept).await;
    // Away for a while, in which retention removes what it has not seen.
    let data = hub.crash().await;
    let hub = TestHub::open("audit-sink", data).await;
    records_after(&hub).await;
    let keep = Retention {
        records: 1,
        ..Retention::default()
    };
    retain::round(&hub.hub.store, &hub.hub.audit, keep, Some(now()))
        .await
        .unwrap();
    let data = hub.crash().await;
    let hub = TestHub::open_with("audit-sink", data, config).await;
    let all = lines(&file, 5).await;
    assert_eq!(
        (&all[3]["gap"]["from"], &all[3]["gap"]["to"]),
        (&json!(4), &json!(5))
    );
    assert_eq!(all[4]["seq"], 6);
    // What the hub signed comes behind it.
    until_some("the sink has the anchor", PATIENCE, async || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str::<Value>);
        let mut anchors = lines.filter_map(|l| Some(l.ok()?["anchor"].take()));
        anchors
            .find(|a| (&a["seq"], &a["start"]) == (&json!(5), &json!(true)))
            .ok_or(text)
    })
    .await;
    hub.stop().await;
    std::fs::remove_file(file).unwrap();
}

/// A webhook that fails keeps its records waiting; nothing is lost, and none comes out of order.
#[tokio::test]
async fn a_webhook_gets_what_it_refused_before() {
    let Receiver {
        at,
        mut bodies,
        works,
        refused,
    } = receiver().await;
    let token = std::env::temp_dir().join(format!("linesman-hook-{}", linesman::clock::id()));
    std::fs::write(&token, "s3cret\n").unwrap();
    let config = AuditConfig {
        sinks: vec![Sink::Webhook {
            url: Secret::new(format!("http://{at}/audit")),
            token_file: Some(token.clone()),
            header_file: None,
            ca: None,
        }],
        ..AuditConfig::default()
    };
    let hub = TestHub::with_audit("audit-hook", config).await;
    records(&hub, 3).await;
    let has_failed = async || refused.load(Ordering::SeqCst) > 0;
    until("it refuses a call", PATIENCE, has_failed).await;
    works.store(true, Ordering::SeqCst);
    let got = taken(&mut bodies, 3, "Bearer s3cret").await;
    assert_eq!(got, [1, 2, 3]);
    hub.stop().await;
    std::fs::remove_file(token).unwrap();
}

/// What a receiver with a header of its own is shown stands in no log, and may be renewed in its file.
#[tokio::test]
async fn a_webhook_is_sent_the_headers_of_a_file() {
    let log = Log::default();
    let writer = log.clone();
    let _logging = logged(move || writer.clone());
    let Receiver {
        at,
        mut bodies,
        works,
        refused,
    } = receiver().await;
    let file = std::env::temp_dir().join(format!("linesman-headers-{}", linesman::clock::id()));
    std::fs::write(&file, "Authorization: Splunk canary-one\n").unwrap();
    let config = AuditConfig {
        sinks: vec![Sink::Webhook {
            url: Secret::new(format!("http://{at}/services/collector/raw")),
            token_file: None,
            header_file: Some(file.clone()),
            ca: None,
        }],
        ..AuditConfig::default()
    };
    let hub = TestHub::with_audit("audit-headers", config).await;
    records(&hub, 1).await;
    let has_failed = async || refused.load(Ordering::SeqCst) > 0;
    until("it refuses a call", PATIENCE, has_failed).await;
    works.store(true, Ordering::SeqCst);
    let one = taken(&mut bodies, 1, "Splunk canary-one").await;
    // Renewed, wrong for a while, and good again: each record comes once.
    std::fs::write(&file, "Content-Type: canary-none\n").unwrap();
    records_after(&hub).await;
    let said = || String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let why = "'content-type' (line 1) is not sent by a file";
    until("the file is refused", PATIENCE, async || {
        said().contains(why)
    })
    .await;
    std::fs::write(&file, "Authorization: Splunk canary-two\n").unwrap();
    let last = *hub.hub.audit.head().borrow();
    let rest = usize::try_from(last).unwrap() - one.len();
    let two = taken(&mut bodies, rest, "Splunk canary-two").await;
    assert_eq!([one, two].concat(), (1..=last).collect::<Vec<_>>());
    hub.stop().await;
    let said = said();
    let line = said.lines().find(|line| line.contains("canary"));
    assert_eq!(line, None);
    std::fs::remove_file(file).unwrap();
}

async fn lines(path: &Path, count: usize) -> Vec<Value> {
    let what = format!("the sink has {count} lines");
    until_some(&what, PATIENCE, async || {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|line: &Value| line["anchor"].is_null());
        let lines: Vec<Value> = lines.collect();
        if lines.len() >= count {
            Ok(lines)
        } else {
            Err(lines.len())
        }
    })
    .await
}

/// The numbers of the next records that it takes, at least so many of them.
async fn taken(bodies: &mut Bodies, count: usize, authorization: &str) -> Vec<i64> {
    let mut got = Vec::new();
    while got.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(20), bodies.recv()).await;
        let (shown, body) = next.unwrap().unwrap();
        assert_eq!(shown, authorization);
        let seq = |line: &str| serde_json::from_str::<Value>(line).unwrap()["seq"].as_i64();
        got.extend(body.lines().filter_map(seq));
    }
    got
}

fn secretive(at: SocketAddr, secret: &str) -> String {
    format!("http://{at}/canary-path-{secret}?key=canary-query-{secret}")
}

/// A webhook whose URL holds a secret.
fn with_secret(at: SocketAddr, secret: &str) -> AuditConfig {
    AuditConfig {
        sinks: vec![Sink::Webhook {
            url: Secret::new(secretive(at, secret)),
            token_file: None,
            header_file: None,
            ca: None,
        }],
        ..AuditConfig::default()
    }
}

/// What the hub says of its sinks.
async fn shown(hub: &TestHub) -> String {
    let (code, checks) = hub.get("/v1/hub/checks").await;
    assert_eq!(code, 200);
    checks.to_string()
}

/// Neither a receiver that refuses nor one that is not there has the hub show more of its URL than the host; another secret is
/// no other receiver, and an upgrade is no beginning.
#[tokio::test]
async fn the_secret_in_a_webhooks_url_is_not_shown_and_may_change() {
    let log = Log::default();
    let writer = log.clone();
    let _logging = logged(move || writer.clone());
    let said = || String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = free.local_addr().unwrap();
    drop(free);
    let Receiver {
        at,
        mut bodies,
        works,
        refused: _,
    } = receiver().await;
    let mut data = None;
    for (at, why) in [
        (nobody, "send to the audit webhook"),
        (at, "the audit webhook answered 500"),
    ] {
        let config = with_secret(at, "one");
        let hub = if let Some(data) = data.take() {
            TestHub::open_with("audit-url", data, config).await
        } else {
            let hub = TestHub::with_audit("audit-url", config).await;
            records(&hub, 1).await;
            hub
        };
        until("it fails", PATIENCE, async || said().contains(why)).await;
        let shown = shown(&hub).await;
        assert!(shown.contains(&format!("webhook {at} is ")), "{shown}");
        // However few records wait.
        assert!(shown.contains(" behind, and has failed since "), "{shown}");
        assert!(!shown.contains("canary"), "{shown}");
        data = Some(hub.crash().await);
    }
    let line = |log: &str| {
        log.lines()
            .find(|line| line.contains("canary"))
            .map(str::to_owned)
    };
    assert_eq!(line(&said()), None);

    // As a hub of before left it.
    works.store(true, Ordering::SeqCst);
    let hub = TestHub::open("audit-url", data.unwrap()).await;
    let store = &hub.hub.store;
    let last = *hub.hub.audit.head().borrow();
    let before = format!("webhook {}", secretive(at, "one"));
    for name in [before.clone(), format!("{before} (anchors)")] {
        store.set_audit_position(&name, last).await.unwrap();
    }
    records_after(&hub).await;
    let data = hub.crash().await;
    let hub = TestHub::open_with("audit-url", data, with_secret(at, "two")).await;
    let got = taken(&mut bodies, 1, "").await;
    assert_eq!(got.first(), Some(&(last + 1)), "{got:?}");
    let names = hub.hub.store.audit_sinks().await.unwrap();
    assert!(
        names.iter().all(|name| !name.contains("canary")),
        "{names:?}"
    );
    assert_eq!(line(&said()), None);
    hub.stop().await;
}

/// `Authorization` and body of each call.
type Bodies = mpsc::Receiver<(String, String)>;

/// Answers 500 until it `works`, 200 from then on.
struct Receiver {
    at: SocketAddr,
    /// What it took.
    bodies: Bodies,
    works: Arc<AtomicBool>,
    /// Calls that it refused.
    refused: Arc<AtomicUsize>,
}

async fn receiver() -> Receiver {
    use http_body_util::BodyExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (send, bodies) = mpsc::channel(64);
    let works = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicUsize::new(0));
    let (working, refusals) = (works.clone(), refused.clone());
    #[expect(clippy::disallowed_methods, reason = "ends with its runtime")]
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service =
                hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
                    let (send, working) = (send.clone(), working.clone());
                    let refusals = refusals.clone();
                    async move {
                        let mut response =
                            http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
                        if !working.load(Ordering::SeqCst) {
                            refusals.fetch_add(1, Ordering::SeqCst);
                            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                            return Ok::<_, hyper::Error>(response);
                        }
                        let authorization = request.headers().get("authorization");
                        let authorization = authorization.map(|value| value.to_str().unwrap());
                        let authorization = authorization.unwrap_or_default().to_owned();
                        let body = request.into_body().collect().await?.to_bytes();
                        let text = String::from_utf8(body.to_vec()).unwrap();
                        send.send((authorization, text)).await.unwrap();
                        Ok(response)
                    }
                });
            let io = hyper_util::rt::TokioIo::new(socket);
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(io, service)
                    .await,
            );
        }
    });
    Receiver {
        at,
        bodies,
        works,
        refused,
    }
}
