//! What kubectl meets where there is no way into the cluster: the agent has left, or its owner has shut the line.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Protocol, Running, line, ready};
use crate::support::place::{output, run};
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// `kubectl get pods` with nothing cached: whether it worked, what it said, and how long it took.
fn get(world: &World) -> (bool, String, Duration) {
    let cache = world.directory.join("kubectl-cache");
    let _none = std::fs::remove_dir_all(&cache);
    let began = Instant::now();
    let asked = output(cached(&cache, &mut world.through_line()));
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    (asked.status.success(), said, began.elapsed())
}

fn cached<'a>(cache: &Path, kubectl: &'a mut Command) -> &'a mut Command {
    kubectl
        .arg("--cache-dir")
        .arg(cache)
        .args(["-n", "kubectl-tests", "get", "pods"])
}

/// L11, L16: an agent that left may be followed by the next one, so it is waited for once; then kubectl is told at once, and
/// not call by call of its discovery.
#[test]
#[ignore = "needs a real cluster: make test"]
fn kubectl_is_told_at_once_that_a_cluster_is_offline() {
    let world = world::adopted();
    ready(&world);
    let scale = |replicas: &str| {
        run(world.place.kubectl().args([
            "-n",
            "linesman",
            "scale",
            "deployment/linesman-agent",
            replicas,
        ]));
    };
    scale("--replicas=0");
    until("the line is down", seconds(60), || !world.line_is_up());
    let (worked, said, waited) = get(&world);
    assert!(!worked && waited < seconds(20), "{waited:?}: {said}");
    let (worked, said, took) = get(&world);
    scale("--replicas=1");
    figure(
        "L11",
        "kubectl get against a cluster whose agent left → error",
        "",
        shown(took),
    );
    assert!(!worked, "{said}");
    assert!(said.contains("offline since"), "{said}");
    // A request that waits for the line does so for 10 s.
    assert!(took < seconds(10), "{took:?}: {said}");
    until("the line is back", seconds(120), || world.line_is_up());
    eventually("kubectl works again", seconds(30), || match get(&world) {
        (true, ..) => Ok(()),
        (false, said, _) => Err(said),
    });
}

/// L47: the owner's kill switch, and the way back.
#[test]
#[ignore = "needs a real cluster: make test"]
fn deleting_the_bind_secret_ends_access_until_it_is_made_again() {
    let world = world::adopted();
    ready(&world);
    let (worked, said, _) = get(&world);
    assert!(worked, "{said}");
    let mut watch = Protocol::WebSocket.kubectl(
        &world,
        &["get", "pods", "--watch-only", "-o", "name", "-v=0"],
    );
    let mut session = Protocol::WebSocket.kubectl(
        &world,
        &["exec", "-i", "box", "--", "sh", "-c", "echo in; sleep 300"],
    );
    let (mut session, lines) = Running::start(&mut session);
    line(&lines, "the session runs", |line| line == "in");
    let (mut watch, _) = Running::start(&mut watch);

    let secret = ["secret", "linesman-line-bind"];
    let linesman = |args: &[&str]| run(world.place.kubectl().args(["-n", "linesman"]).args(args));
    linesman(&[&["delete"], &secret[..]].concat());
    let began = Instant::now();
    let (said, took) = eventually("access ends", seconds(60), || match get(&world) {
        (false, said, _) => Ok(said),
        (true, ..) => Err("it still works"),
    });
    figure(
        "L47",
        "Secret deleted → requests refused",
        "≤ 15 s",
        shown(took),
    );
    let way_back = "kubectl -n linesman create secret generic linesman-line-bind";
    assert!(said.contains(way_back), "{said}");
    for (what, running) in [("exec session", &mut session), ("watch", &mut watch)] {
        until(&format!("the {what} ends"), seconds(60), || running.over());
        let took = began.elapsed();
        figure(
            "L47",
            &format!("Secret deleted → running {what} over"),
            "",
            shown(took),
        );
    }
    // Healing needs no line.
    let service = "/api/v1/namespaces/flux-system/services/source-controller";
    let before = world.uid(service);
    assert!(world.api.delete(service));
    until("the deleted Service is healed", seconds(60), || {
        world.uid(service).is_some_and(|uid| Some(uid) != before)
    });
    assert!(!get(&world).0, "access came back by itself");
    linesman(&["create", "secret", "generic", "linesman-line-bind"]);
    let ((), took) = eventually("access is back", seconds(60), || match get(&world) {
        (true, ..) => Ok(()),
        (false, said, _) => Err(said),
    });
    figure("L47", "Secret made again → kubectl works", "", shown(took));
}
