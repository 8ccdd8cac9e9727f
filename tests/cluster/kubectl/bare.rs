//! L35, by the API server's own audit log: nobody asks it for anything as the line's account alone, and no request of a stream
//! is the agent's own.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::{NAMESPACE, POD, Protocol, Running, line, ready, user};
use crate::support::audit::Mark;
use crate::support::place::{kubectl, output};
use crate::support::world::{self, CLUSTER, World};
use crate::support::{figure, seconds, until};

const LINE: &str = "system:serviceaccount:linesman:linesman-line";
/// What the agent refuses by itself, so that the API server never hears of it.
const KEYS: &str = "/api/v1/namespaces/linesman/secrets/linesman-keys";

/// The hub's records of Kubernetes requests that it let through to the cluster: request id and path.
fn let_through(world: &World) -> BTreeMap<String, String> {
    let export = world.hub.linesman(&["audit", "export"]);
    let rows = export
        .lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .filter(|row: &Value| row["stage"] == "open" && row["cluster"] == CLUSTER);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.map(|row| (text(&row["requestId"]), text(&row["target"])))
        .collect()
}

/// Whether it is nobody's request but the account's own: it acts as nobody, is no review of its own rights, and was not refused
/// for whom it would have acted as.
fn bare(event: &Value) -> bool {
    let someone = event["impersonatedUser"]["username"].as_str();
    let review = event["verb"] == "create"
        && event["objectRef"]["resource"] == "selfsubjectaccessreviews"
        && event["objectRef"]["subresource"].is_null();
    let answer = &event["responseStatus"];
    let refused = answer["code"] == 403
        && answer["message"]
            .as_str()
            .is_some_and(|said| said.contains("cannot impersonate"));
    !someone.is_some_and(|name| name.starts_with("linesman:")) && !review && !refused
}

/// Whether it works for the hub's admin.
fn asks(world: &World, protocol: Protocol, args: &[&str]) -> bool {
    output(&mut protocol.kubectl(world, args)).status.success()
}

/// Requests of every kind, by the admin and by someone whose name is new to the cluster.
fn requests(world: &World) {
    let web = Protocol::WebSocket;
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?limit=1");
    for (args, works) in [
        (&["get", "pods", "--all-namespaces"][..], true),
        (&["get", "--raw", "/version"], true),
        (&["get", "--raw", &pods], true),
        (&["get", "--raw", "/metrics"], true),
        (&["auth", "whoami"], true),
        (&["auth", "can-i", "create", "pods"], true),
        (&["get", "pods", "none"], false),
        (&["create", "configmap", "bare"], true),
        (&["label", "configmap", "bare", "a=b"], true),
        (&["delete", "configmap", "bare"], true),
        (&["logs", POD, "--tail=1"], true),
        (&["-n", "linesman", "get", "secret", "linesman-keys"], false),
    ] {
        assert_eq!(asks(world, web, args), works, "{args:?}");
    }
    for protocol in Protocol::ALL {
        assert!(asks(world, protocol, &["exec", POD, "--", "true"]));
    }
    let watch = ["get", "pods", POD, "--watch", "-o", "name"];
    let (_watch, seen) = Running::start(&mut web.kubectl(world, &watch));
    line(&seen, "the watch runs", |line| line.starts_with("pod/"));
    let own = user(world, "newcomer", &["--group", "view"]);
    let newcomer = |args: &[&str]| {
        let mut command: Command = kubectl();
        command
            .arg("--kubeconfig")
            .arg(&own)
            .args(["-n", NAMESPACE]);
        world.hub.environment(&mut command);
        output(command.args(args)).status.success()
    };
    until("the newcomer is let in", seconds(30), || {
        newcomer(&["get", "pods"])
    });
    assert!(!newcomer(&["create", "configmap", "theirs"]));
}

/// L35
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_api_server_never_meets_the_lines_account_alone_nor_the_agents_on_a_stream() {
    never_alone(&world::adopted(), "");
}

/// Nor the agent's. `at` is which cluster it is, for the figure.
pub(crate) fn never_alone(world: &World, at: &str) {
    ready(world);
    let before = let_through(world);
    requests(world);
    let all = let_through(world);
    let new: BTreeSet<&String> = all.keys().filter(|id| !before.contains_key(*id)).collect();

    // All that this world has seen, other tests' requests too.
    let whole = Mark::beginning(&world.audit);
    let mut arrived = BTreeSet::new();
    until("all that was let through arrived", seconds(30), || {
        arrived = whole
            .events()
            .iter()
            .filter_map(|event| event["auditID"].as_str().map(str::to_owned))
            .collect();
        let mut missing = new.iter().filter(|id| !arrived.contains(**id));
        missing.all(|id| all[*id] == KEYS)
    });
    assert!(
        new.iter()
            .any(|id| all[*id] == KEYS && !arrived.contains(*id)),
        "what the agent refuses was sent"
    );
    let events = whole.events();
    let account = |event: &&Value| event["user"]["username"] == LINE;
    let alone: Vec<&Value> = events.iter().filter(account).filter(|e| bare(e)).collect();
    assert!(alone.is_empty(), "{} requests: {alone:#?}", alone.len());
    let mut carried = 0;
    for event in &events {
        let id = event["auditID"].as_str().unwrap_or_default();
        if all.contains_key(id) {
            carried += 1;
            assert_eq!(event["user"]["username"], LINE, "{event:#}");
            assert!(!bare(event), "{event:#}");
        }
    }
    assert!(carried >= 18, "{carried} requests are on both records");
    figure(
        "L35",
        &format!(
            "events of requests through the line in the API server's audit; as linesman-line alone or as the agent{at}"
        ),
        "0",
        format!("{carried}; {}", alone.len()),
    );
}
