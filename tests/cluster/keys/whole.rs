//! H22, for `make chaos`: a cluster is copied with its keys, and the agent in the copy waits until a person has decided. Two labs.

use std::time::Instant;

use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::lost::KEYS;
use super::{of_kinds, start_agent, stop_agent};
use crate::healing::{unchanged, workloads};
use crate::support::api::deployment;
use crate::support::place::output;
use crate::support::world::{CLUSTER, FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// What an agent is refused with whose keys or token belong to another cluster by the UID of its `kube-system`.
const CHANGED: &str = "incarnation-changed";

/// The hub of the first lab, at the address by which the other one names this machine: the two have no route to each other.
fn door(first: &World, copy: &World) -> Runtime {
    let port = first.hub.https_port();
    let address = |world: &World| format!("{}:{port}", world.place.host);
    let (at, to) = (address(copy), address(first));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind(at)).unwrap();
    runtime.spawn(pass(listener, to));
    runtime
}

async fn pass(listener: TcpListener, to: String) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let to = to.clone();
        connections.spawn(async move {
            if let Ok(mut far) = TcpStream::connect(to).await {
                let _ended = copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}

/// The Secret with the agent's keys, as a backup of the namespace brings it into another cluster.
fn restore_keys(first: &World, copy: &World) {
    let keys = first.api.get(KEYS).unwrap();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "linesman"}});
    copy.api.create("/api/v1/namespaces", &namespace);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": keys["type"], "data": keys["data"],
        "metadata": {"name": "linesman-keys", "namespace": "linesman"},
    });
    copy.api
        .create("/api/v1/namespaces/linesman/secrets", &secret);
}

/// The keys of the agents that the hub refused for their cluster `uid`.
fn refused(hub_of: &World, uid: &str) -> Vec<String> {
    let list = ["cluster", "list", "--unknown"];
    let list = hub_of.hub.try_json(&list).unwrap_or_default();
    let all = list.as_array().into_iter().flatten();
    let its = all
        .filter(|a| a["incarnation"] == *uid && a["cluster"] == CLUSTER && a["reason"] == CHANGED);
    its.filter_map(|a| a["fingerprint"].as_str().map(str::to_owned))
        .collect()
}

/// Whether the agent has said in its cluster why it waits.
fn says_why(world: &World) -> bool {
    let events = "/apis/events.k8s.io/v1/namespaces/linesman/events";
    let all = world.api.get(events).unwrap_or_default();
    let mut all = all["items"].as_array().into_iter().flatten();
    all.any(|event| event["reason"] == "IncarnationChanged")
}

/// H22: the agent of a copy is refused by the hub with 409 and waits; the first cluster has its line, keys and workloads as before. Nor
/// may the copy be let in by the key of both, but by one of its own, and then the first one's have ended.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_copied_cluster_waits_and_nothing_changes_until_it_is_accepted() {
    let mut first = World::open("original");
    first.adopt();
    let mut copy = World::open("copied");
    // Of that one its lab alone is wanted.
    copy.hub.kill();
    let _door = door(&first, &copy);
    let (keys, brought, epoch) = (of_kinds(&first), workloads(&first), first.epoch());
    let own = keys.0[0].as_str();
    let uid = copy.uid("/api/v1/namespaces/kube-system").unwrap();

    restore_keys(&first, &copy);
    let yaml = first.directory.join("readopt.yaml");
    let file = yaml.to_str().unwrap();
    let readopt = ["cluster", "readopt", CLUSTER, "--file", file];
    first.hub.linesman(&readopt);
    let began = Instant::now();
    copy.apply(&yaml);
    until("the hub lists the agent of the copy", seconds(180), || {
        refused(&first, &uid) == [own]
    });
    let what = "cluster copied with its key Secret, YAML applied → its agent refused and listed";
    figure("H22", what, "", shown(began.elapsed()));
    until("the agent there says why it waits", seconds(60), || {
        says_why(&copy)
    });
    let accept = |key: &str| {
        let args = ["cluster", "accept", key, "--replace", "--yes"];
        output(&mut first.hub.cli(&args))
    };
    let answer = accept(own);
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(
        !answer.status.success() && said.contains("readopt --new-cluster"),
        "{said}"
    );
    first.function(seconds(120));
    assert!(first.line_is_up());
    let now = (of_kinds(&first), first.epoch());
    assert_eq!(now, (keys.clone(), epoch), "keys, and whose line it is");
    unchanged(&first, &brought);
    let fetches = deployment(FLUX, "source-controller");
    assert_eq!(copy.uid(&fetches), None, "an engine was installed");

    // With keys of its own it may take the name over, and not before the first one has lost its line.
    stop_agent(&copy);
    assert!(copy.api.delete(KEYS));
    start_agent(&copy);
    let mut new = None;
    until("the hub lists its new key", seconds(180), || {
        new = refused(&first, &uid).into_iter().find(|key| key != own);
        new.is_some()
    });
    stop_agent(&first);
    until("the first has no line", seconds(60), || !first.line_is_up());
    let answer = accept(&new.unwrap());
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "{said}");
    let began = Instant::now();
    until("the copy has the line", seconds(300), || {
        let view = first.hub.try_json(&["cluster", "show", CLUSTER]);
        view.is_ok_and(|view| {
            view["facts"]["incarnation"] == *uid && view["line"]["up"] == json!(true)
        })
    });
    let what = "copy accepted with keys of its own → it has the line";
    figure("H22", what, "", shown(began.elapsed()));
    assert!(!of_kinds(&first).0.contains(&keys.0[0]), "it has not ended");
    unchanged(&first, &brought);
    first.close();
    copy.close();
}
