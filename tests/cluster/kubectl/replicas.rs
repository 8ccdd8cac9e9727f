//! kubectl at one replica of a hub, the cluster's line at another: what it does, and what it costs when that one dies.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::{NAMESPACE, POD, Protocol, Running, fed, line, objects, ready, sessions};
use crate::line::{agent_pid, watch_works};
use crate::support::place::{output, run};
use crate::support::replicas::{Site, To, apart, has_line};
use crate::support::world::{CLUSTER, World};
use crate::support::{figure, seconds, shown, until};

/// Who writes at once while the replica dies.
const WRITERS: usize = 3;

/// L19: what L1 to L4 list, sent to a replica that does not have the line.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_line_at_another_replica_serves_kubectl() {
    let site = apart();
    let before = site.line_there();
    objects::reads_are_the_same(&site);
    objects::writes_work(&site);
    watch_works(&site, "apart");
    logs_follow(&site);
    sessions::exec_works(&site);
    sessions::attach_works(&site);
    sessions::cp_works(&site, 16, ", at another replica");
    sessions::port_forward_works(&site);
    // All of it went by the one line that the other replica has.
    let after = site.line_there();
    assert_eq!(before["epoch"], after["epoch"], "the line was another one");
    let opened = |line: &Value| line["opened"].as_u64().unwrap();
    assert!(opened(&after) - opened(&before) > 100, "{after}");
    assert!(!has_line(&site.hub));
}

/// L2: a line is shown when it is written.
fn logs_follow(world: &World) {
    let mut logs = Protocol::WebSocket.kubectl(world, &["logs", "-f", POD]);
    let (_following, lines) = Running::start(&mut logs);
    let mut attach = Protocol::WebSocket.kubectl(world, &["attach", "-q", "-i", POD]);
    fed(&mut attach, b"said by the peer line\n");
    line(&lines, "the log is followed", |line| {
        line == "got said by the peer line"
    });
}

/// L19, L11: the replica that has the line is killed while requests wait for the cluster's answer. The agent comes to the other
/// one, requests work again, and none was applied twice.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_replica_that_dies_costs_the_requests_that_it_had() {
    let mut site = apart();
    ready(&site);
    let (over, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    let told: Vec<Told> = thread::scope(|scope| {
        let writing = || writes(&site, &over, &tried);
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(writing)).collect();
        until("all of them write", seconds(60), || {
            tried.load(Ordering::Relaxed) > 3 * WRITERS
        });
        let agent = agent_pid(&site);
        signal(agent, "-STOP");
        until("each waits for its answer", seconds(60), || {
            site.line_there()["streams"]["api"] == json!(WRITERS)
        });
        site.other.strike();
        let killed = Instant::now();
        signal(agent, "-CONT");
        let works = || output(&mut get(&site)).status.success();
        until("kubectl works again", seconds(60), works);
        figure(
            "L19",
            "replica with the line killed → kubectl works again at the other",
            "≤ 30 s",
            shown(killed.elapsed()),
        );
        assert!(has_line(&site.hub), "the agent came to the other one");
        let since = tried.load(Ordering::Relaxed);
        until("all of them go on", seconds(60), || {
            tried.load(Ordering::Relaxed) > since + 3 * WRITERS
        });
        over.store(true, Ordering::Relaxed);
        let told = writers.into_iter().map(|writer| writer.join().unwrap());
        told.flatten().collect()
    });
    site.other.kill();
    none_twice(&site, &told);
    // And back, once it is started again.
    site.other.up();
    site.send(To::Other);
    site.line_is_at_the_other();
    run(&mut get(&site));
}

/// L11: as long as the agent does not come back either, a request is told who fails and when to come again.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_replica_that_is_gone_is_named_where_its_line_is_missed() {
    let mut site = apart();
    ready(&site);
    run(&mut get(&site));
    site.send(To::Nobody);
    site.other.kill();
    let asked = Instant::now();
    let (code, again, status) = site.runtime.block_on(plain(&site));
    figure(
        "L11",
        "replica with the line killed, agent cannot come → refused",
        "≤ 20 s",
        shown(asked.elapsed()),
    );
    assert_eq!((code, again.as_deref()), (503, Some("1")), "{status}");
    let cause = &status["details"]["causes"][0];
    let hop = (&cause["field"], &cause["reason"]);
    assert_eq!(hop, (&json!("line"), &json!("NotSent")), "{status}");
    let said = status["message"].as_str().unwrap();
    assert!(
        said.contains("the replica of the hub that has the line"),
        "{said}"
    );
    site.send(To::People);
}

pub(super) fn signal(pid: u32, signal: &str) {
    run(Command::new("kill").args([signal, &pid.to_string()]));
}

fn get(world: &World) -> Command {
    Protocol::WebSocket.kubectl(world, &["get", "pod", POD, "-o", "name"])
}

/// One GET that nobody repeats: code, `Retry-After` and body.
async fn plain(site: &Site) -> (u16, Option<String>, Value) {
    let ca = fs::read(site.hub.ca()).unwrap();
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
        .no_proxy()
        .build()
        .unwrap();
    let url = format!("{}/clusters/{CLUSTER}/version", site.hub.url());
    let asked = client.get(url).bearer_auth(site.hub.token()).send();
    let answer = asked.await.unwrap();
    let again = answer.headers().get("retry-after");
    let again = again.map(|again| again.to_str().unwrap().to_owned());
    let code = answer.status().as_u16();
    (code, again, answer.json().await.unwrap())
}

/// What became of one write.
struct Told {
    name: String,
    /// What kubectl said where it failed.
    failed: Option<String>,
}

/// Objects that the API server names, so that a repeated request would make another one: until it is over.
fn writes(world: &World, over: &AtomicBool, tried: &AtomicUsize) -> Vec<Told> {
    let mut told = Vec::new();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    while !over.load(Ordering::Relaxed) {
        let name = format!("once-{}", tried.fetch_add(1, Ordering::Relaxed));
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"generateName": format!("{name}-"), "labels": {"once": name}},
        });
        let file = world.directory.join(format!("{name}.json"));
        fs::write(&file, map.to_string()).unwrap();
        let create = ["create", "--raw", &path, "-f", file.to_str().unwrap()];
        let ended = output(world.through_line().args(create));
        fs::remove_file(&file).unwrap();
        let failed = (!ended.status.success()).then(|| String::from_utf8_lossy(&ended.stderr));
        let failed = failed.map(String::from);
        told.push(Told { name, failed });
    }
    told
}

/// What was said to be done is there once, what was refused is not, and of those that the replica took with it kubectl says that
/// nobody knows: they are there once at most.
fn none_twice(world: &World, told: &[Told]) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=once");
    let list = world.api.get(&path).unwrap();
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for map in list["items"].as_array().unwrap() {
        let name = map["metadata"]["labels"]["once"].as_str().unwrap();
        *made.entry(name.to_owned()).or_default() += 1;
    }
    let mut unknown = 0;
    for Told { name, failed } in told {
        let made = made.remove(name).unwrap_or_default();
        match failed {
            None => assert_eq!(made, 1, "{name}"),
            Some(said) if said.contains("look whether it took effect before repeating it") => {
                unknown += 1;
                assert!(made <= 1, "{name}: {said}");
            }
            Some(said) => {
                assert!(said.contains("(ServiceUnavailable): line: "), "{said}");
                assert_eq!(made, 0, "{name}: {said}");
            }
        }
    }
    assert_eq!((made, unknown), (BTreeMap::new(), WRITERS));
}
