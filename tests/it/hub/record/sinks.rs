//! The audit on its way to others: a file, a webhook.

use std::path::Path;
use std::time::Duration;

use linesman::hub::AuditConfig;
use linesman::hub::audit::chain;
use linesman::hub::audit::retain::{self, Retention};
use linesman::hub::audit::sink::Sink;
use serde_json::{Value, json};

use super::{now, records, records_after};
use crate::hub::support::TestHub;
use crate::wait::{until, until_some};

const PATIENCE: Duration = Duration::from_secs(10);

/// A SIEM's file: every record once, in order, over a restart, with a word where retention was faster.
#[tokio::test]
async fn a_file_sink_gets_every_record_or_is_told_of_the_gap() {
    let file = std::env::temp_dir().join(format!("linesman-sink-{}", uuid::Uuid::now_v7()));
    let config = AuditConfig {
        sinks: vec![Sink::File(file.clone())],
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
    let name = Sink::File(file.clone()).name();
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
    let (url, mut bodies) = receiver().await;
    let token = std::env::temp_dir().join(format!("linesman-hook-{}", uuid::Uuid::now_v7()));
    std::fs::write(&token, "s3cret\n").unwrap();
    let config = AuditConfig {
        sinks: vec![Sink::Webhook {
            url,
            token_file: Some(token.clone()),
            ca: None,
        }],
        ..AuditConfig::default()
    };
    let hub = TestHub::with_audit("audit-hook", config).await;
    records(&hub, 3).await;
    let mut got = Vec::new();
    while got.len() < 3 {
        let (authorization, body) = tokio::time::timeout(Duration::from_secs(20), bodies.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(authorization, "Bearer s3cret");
        let seq = |line: &str| serde_json::from_str::<Value>(line).unwrap()["seq"].as_i64();
        got.extend(body.lines().filter_map(seq));
    }
    assert_eq!(got, [1, 2, 3]);
    hub.stop().await;
    std::fs::remove_file(token).unwrap();
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

/// Answers 500 to the first call, 200 to the rest; gives what it took.
async fn receiver() -> (String, tokio::sync::mpsc::Receiver<(String, String)>) {
    use http_body_util::BodyExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/audit", listener.local_addr().unwrap());
    let (send, receive) = tokio::sync::mpsc::channel(16);
    let failed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    #[expect(clippy::disallowed_methods, reason = "ends with its runtime")]
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service =
                hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
                    let (send, failed) = (send.clone(), failed.clone());
                    async move {
                        let mut response =
                            http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
                        if !failed.swap(true, std::sync::atomic::Ordering::SeqCst) {
                            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                            return Ok::<_, hyper::Error>(response);
                        }
                        let authorization = request.headers()["authorization"]
                            .to_str()
                            .unwrap()
                            .to_owned();
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
    (url, receive)
}
