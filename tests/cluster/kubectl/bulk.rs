//! Large answers and large uploads: neither end takes in more than its windows hold.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use super::revoked::by;
use super::{NAMESPACE, POD, Protocol, ready, user};
use crate::figures::{hub_pid, rss};
use crate::line::{agent_pid, agent_pids};
use crate::support::place::{output, run};
use crate::support::world::{self, World};
use crate::support::{figure, seconds, shown, until};

const OBJECTS: usize = 1_000;
/// Bytes of each object's payload: some 100 MB together.
const PAYLOAD: usize = 100_000;
/// What either process may grow by, in MB, while that passes through it. The line's own bound is 24 MiB at the agent.
const GROWTH: f64 = 32.0;

/// A list of 100 MB in one answer grows neither hub nor agent by it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_large_list_passes_without_being_held() {
    const PLACE: &str = "bulk-list";
    let world = world::adopted();
    ready(&world);
    make(&world, PLACE, OBJECTS, PAYLOAD);
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
                // How often a peak is looked for; nothing is waited for.
                thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        let began = Instant::now();
        let path = format!("/api/v1/namespaces/{PLACE}/configmaps");
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
    unmake(&world, PLACE);
}

/// L9: the agent dies in the middle of a list: what came until then is no whole answer to kubectl.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_list_whose_agent_is_killed_is_an_error_to_kubectl() {
    const PLACE: &str = "bulk-agent";
    let world = world::adopted();
    ready(&world);
    let pid = agent_pid(&world);
    broken_off(&world, PLACE, "agent", || {
        run(Command::new("kill").args(["-KILL", &pid.to_string()]));
    });
    until("a new line is up", seconds(120), || {
        agent_pids(&world).iter().any(|new| *new != pid) && world.line_is_up()
    });
    unmake(&world, PLACE);
}

/// L9: the API server dies in the middle of a list. When it is there again, kubectl works, over the line that was there before.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_list_whose_api_server_is_killed_is_an_error_to_kubectl() {
    const PLACE: &str = "bulk-server";
    let world = world::adopted();
    ready(&world);
    let before = (world.epoch(), agent_pids(&world));
    broken_off(&world, PLACE, "API server", || {
        world.place.kill_api_server();
    });
    let get = || output(world.through_line().args(["get", "--raw", "/readyz"]));
    let refused = get();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    world.place.start_api_server();
    until("the API server answers", seconds(60), || {
        world.api.text("/readyz").is_ok()
    });
    let works = || get().stdout == b"ok";
    let took = until("kubectl works again", seconds(60), works);
    figure(
        "L9",
        "API server killed and back → kubectl works through the line",
        "",
        shown(took),
    );
    assert_eq!((world.epoch(), agent_pids(&world)), before);
    world.function(seconds(240));
    unmake(&world, PLACE);
}

/// A large list that `who` ends in its middle: kubectl says so, and has not got it all.
fn broken_off(world: &World, namespace: &str, who: &str, dies: impl FnOnce()) {
    // More than all buffers on the way take in.
    const LARGE: (usize, usize) = (100, 1_000_000);
    make(world, namespace, LARGE.0, LARGE.1);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?labelSelector=bulk");
    let mut list = world
        .through_line()
        .args(["get", "--raw", &path])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = list.stdout.take().unwrap();
    // Nobody reads on: the rest waits at its source.
    let mut got = vec![0; 1 << 20];
    out.read_exact(&mut got).unwrap();
    dies();
    let began = Instant::now();
    out.read_to_end(&mut got).unwrap();
    let ended = list.wait_with_output().unwrap();
    let took = began.elapsed();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    figure(
        "L9",
        &format!("{who} killed in the middle of a list → kubectl over, not with 0"),
        "",
        format!(
            "{}, after {} bytes: {}",
            shown(took),
            got.len(),
            said.trim()
        ),
    );
    assert!(got.len() < LARGE.0 * LARGE.1, "all of it came");
    let whole = serde_json::from_slice::<Value>(&got);
    assert!(whole.is_err_and(|e| e.is_eof()), "it looks whole");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(!said.is_empty());
}

/// Nobody waits until they are gone.
fn unmake(world: &World, namespace: &str) {
    let gone = format!("/api/v1/namespaces/{namespace}");
    assert!(world.api.delete(&gone), "{namespace} was not there");
}

/// Made by the admin directly, many at a time, in a namespace of their own: with that all of them go by one request.
fn make(world: &World, namespace: &str, objects: usize, payload: usize) {
    let place = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
    });
    world.api.create("/api/v1/namespaces", &place);
    thread::scope(|scope| {
        for part in 0..8 {
            scope.spawn(move || {
                for n in (part..objects).step_by(8) {
                    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
                    let item = json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": format!("bulk-{n}"), "namespace": namespace, "labels": {"bulk": "yes"}},
                        "data": {"payload": dense(payload)},
                    });
                    world.api.create(&path, &item);
                }
            });
        }
    });
}

/// So many characters, of which compression leaves three quarters: kubectl asks for gzip, and of a text that repeats itself
/// nothing to speak of would come by the line.
fn dense(length: usize) -> String {
    let mut bytes = vec![0; length.div_ceil(4) * 3];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    let mut text = base64::engine::general_purpose::STANDARD.encode(bytes);
    text.truncate(length);
    text
}

const WHOLE: usize = 100 << 20;

/// L5: an upload that the API server refuses ends early, with the API server's words: one that is too big, and one of somebody
/// who may not. What its client got rid of lies mostly in the systems' buffers, before the hub and before the API server, 10 MB each
/// where Linux is left as it is (`tcp_wmem` and `tcp_rmem`), the rest in the line's windows. So the bound is what all of them hold,
/// and not how little is read once the refusal is there: that is for `proxy::upload`, where the buffers are full before.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_upload_that_is_refused_ends_early() {
    const USER: &str = "uploader";
    let world = world::adopted();
    ready(&world);
    let own = user(&world, USER, &["--group", "view"]);
    until("the grant is in force", seconds(30), || {
        let get = ["get", "pod", POD];
        output(&mut by(&world, &own, Protocol::WebSocket, &get))
            .status
            .success()
    });
    let token = fs::read_to_string(world.directory.join(format!("{USER}.token"))).unwrap();
    let may_not = format!("User \"linesman:{USER}\" cannot create resource \"configmaps\"");
    for (what, token, code, words) in [
        ("too big", world.hub.token(), 413, "limit is "),
        ("not allowed", token.trim().to_owned(), 403, &*may_not),
    ] {
        let (told, text, sent) = uploaded(&world, &token);
        figure(
            "L5",
            &format!("bytes sent of an upload of 100 MiB that is {what}, and refused"),
            "early",
            format!("{} KB", sent / 1000),
        );
        assert_eq!(told, code, "{what}: {text}");
        let status: Value = serde_json::from_str(&text).unwrap();
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{what}: {text}");
        assert!(sent < 32 << 20, "{what}: {sent} bytes were taken");
    }
}

/// Answer and text to a body of [`WHOLE`] bytes, and how many of these were taken.
fn uploaded(world: &World, token: &str) -> (u16, String, u64) {
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
    (code, text, sent.load(Ordering::Relaxed))
}
