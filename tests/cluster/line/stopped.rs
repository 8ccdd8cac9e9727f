//! L54, in a lab of its own: what the kubelet waits before it starts a container again that ended shortly before is no part of it.

use std::process::Command;
use std::time::Instant;

use super::{agent_pid, agent_pids, watch_works};
use crate::support::api::deployment;
use crate::support::place::run;
use crate::support::world::{FLUX, World, condition};
use crate::support::{figure, seconds, shown, until};

/// The agent's Pods.
const PODS: &str =
    "/api/v1/namespaces/linesman/pods?labelSelector=app.kubernetes.io/name%3Dlinesman-agent";

/// L54: an agent that stands still is not ready, and the kubelet starts it again; its line is back then, and it heals.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_agent_that_stands_still_is_started_again() {
    let mut world = World::open("stopped");
    world.adopt();
    until("the line is up", seconds(60), || world.line_is_up());
    until("the agent is ready", seconds(60), || is_ready(&world));
    let (epoch, pid) = (world.epoch(), agent_pid(&world));
    run(Command::new("kill").args(["-STOP", &pid.to_string()]));
    let began = Instant::now();
    let told = |what: &str, bar: &str| {
        let what = format!("agent stopped (SIGSTOP) → {what}");
        figure("L54", &what, bar, shown(began.elapsed()));
    };
    until("its Pod is not ready", seconds(60), || !is_ready(&world));
    told("its Pod not ready", "≤ 10 s");
    until("another process is there", seconds(120), || {
        agent_pids(&world).iter().any(|new| *new != pid)
    });
    told("started again by the kubelet", "≤ 60 s");
    until("a new line is up", seconds(120), || {
        world.line_is_up() && world.epoch() > epoch
    });
    told("line back", "");
    // The kubelet tells the API server of what it has done some time after it did it.
    until("the kubelet says that it was it, once", seconds(60), || {
        restarts(&world) == [1]
    });
    watch_works(&world, "after-stop");
    let path = deployment(FLUX, "source-controller");
    let uid = world.uid(&path);
    assert!(world.api.delete(&path), "{path} was not there");
    until("what is deleted then is back", seconds(60), || {
        let now = world.uid(&path);
        now.is_some() && now != uid
    });
    world.function(seconds(120));
    world.close();
}

fn pods(world: &World) -> Vec<serde_json::Value> {
    let list = world.api.get(PODS).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn is_ready(world: &World) -> bool {
    pods(world).iter().any(|pod| condition(pod, "Ready"))
}

/// Of each Pod's container.
fn restarts(world: &World) -> Vec<u64> {
    let count = |pod: &serde_json::Value| {
        pod["status"]["containerStatuses"][0]["restartCount"]
            .as_u64()
            .unwrap_or_default()
    };
    pods(world).iter().map(count).collect()
}
