//! Large answers and large uploads: neither end takes in more than its windows hold.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{NAMESPACE, ready};
use crate::figures::{hub_pid, rss};
use crate::line::agent_pid;
use crate::support::place::run;
use crate::support::world::{self, World};
use crate::support::{figure, shown};

const OBJECTS: usize = 5_000;
/// Bytes of each object's payload: some 100 MB together.
const PAYLOAD: usize = 20_000;
/// What either process may grow by, in MB, while that passes through it. The line's own bound is 24 MiB at the agent.
const GROWTH: f64 = 32.0;

/// A list of 100 MB in one answer grows neither hub nor agent by it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_large_list_passes_without_being_held() {
    let world = world::adopted();
    ready(&world);
    make(&world);
    let pids = [("hub", hub_pid(&world)), ("agent", agent_pid(&world))];
    let before = pids.map(|(_, pid)| rss(pid));
    let over = AtomicBool::new(false);
    let (read, took, peak) = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut peak = before;
            while !over.load(Ordering::Relaxed) {
                for ((_, pid), peak) in pids.iter().zip(&mut peak) {
                    *peak = peak.max(rss(*pid));
                }
                thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let began = Instant::now();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        let mut list = world
            .through_line()
            .args(["get", "--raw", &path])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = list.stdout.take().unwrap();
        let (mut read, mut buffer) = (0, vec![0; 1 << 16]);
        while let Ok(n @ 1..) = out.read(&mut buffer) {
            read += n;
        }
        assert!(list.wait().unwrap().success());
        over.store(true, Ordering::Relaxed);
        (read, began.elapsed(), watching.join().unwrap())
    });
    assert!(read > OBJECTS * PAYLOAD, "{read} bytes");
    let megabytes = read / 1_000_000;
    figure(
        "L1",
        &format!("a list of {OBJECTS} objects, {megabytes} MB, through the line"),
        "",
        shown(took),
    );
    for (((name, _), before), peak) in pids.iter().zip(before).zip(peak) {
        figure(
            "L1",
            &format!("{name}'s memory while that passes: before → peak"),
            &format!("+ ≤ {GROWTH} MB"),
            format!("{before:.1} → {peak:.1} MB"),
        );
        assert!(
            peak - before <= GROWTH,
            "{name} grew from {before} to {peak} MB"
        );
    }
    run(world.place.kubectl().args([
        "-n",
        NAMESPACE,
        "delete",
        "configmaps",
        "-l",
        "bulk",
        "--wait=false",
        "-o",
        "name",
    ]));
}

/// Made by the admin directly, many at a time.
fn make(world: &World) {
    let payload = "x".repeat(PAYLOAD);
    let items: Vec<_> = (0..OBJECTS).map(|n| json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("bulk-{n}"), "namespace": NAMESPACE, "labels": {"bulk": "yes"}},
        "data": {"payload": payload},
    })).collect();
    thread::scope(|scope| {
        for part in items.chunks(OBJECTS.div_ceil(8)) {
            scope.spawn(move || {
                for item in part {
                    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
                    world.api.create(&path, item);
                }
            });
        }
    });
}

/// L5: an upload that the API server refuses ends early, with the API server's words.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_upload_that_is_too_big_is_refused_early() {
    const WHOLE: usize = 100 << 20;
    let world = world::adopted();
    ready(&world);
    let sent = std::sync::Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    let chunks = (0..WHOLE >> 16).map(move |_| {
        counter.fetch_add(1 << 16, Ordering::Relaxed);
        Ok::<_, std::io::Error>(vec![b'x'; 1 << 16])
    });
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let ca = reqwest::Certificate::from_pem(&fs::read(world.hub.ca()).unwrap()).unwrap();
    let url = format!(
        "{}/clusters/{}/api/v1/namespaces/{NAMESPACE}/configmaps",
        world.hub.url(),
        world::CLUSTER
    );
    let token = world.hub.token();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (code, text) = runtime.block_on(async move {
        let client = reqwest::Client::builder()
            .tls_certs_only([ca])
            .no_proxy()
            .http1_only()
            .build()
            .unwrap();
        let request = client
            .post(url)
            .bearer_auth(token)
            .header("content-type", "application/json");
        let response = request
            .header("content-length", WHOLE)
            .body(body)
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    });
    let sent = sent.load(Ordering::Relaxed);
    figure(
        "L5",
        "bytes sent of an upload of 100 MiB that is refused",
        "early",
        format!("{} KB", sent / 1000),
    );
    assert_eq!(code, 413, "{text}");
    assert!(sent < 32 << 20, "{sent} bytes were taken");
}
