//! L17: the hub's own key and CA are replaced while people work through the line.

use std::fs;
use std::process::Command;

use super::load::Loop;
use crate::line::{agent_pid, watch_works};
use crate::support::place::{kubectl, output, run};
use crate::support::replicas::{Site, apart, has_line};
use crate::support::world::CLUSTER;
use crate::support::{figure, seconds, until};

/// What the agent keeps of the hub.
const JOINED: &str = "/api/v1/namespaces/linesman/secrets/linesman-state";

/// As its admin, at the replica that people otherwise do not come to; with the CA that it has now.
fn at_the_other(site: &Site) -> Command {
    let file = site.directory.join("other.kubeconfig");
    if !file.exists() {
        let made = run(&mut site.other.cli(&["kubeconfig", CLUSTER]));
        fs::write(&file, made).unwrap();
    }
    let mut command = kubectl();
    command.arg("--kubeconfig").arg(file);
    site.other.environment(&mut command);
    command
}

fn reads(mut command: Command) -> Command {
    command.args(["get", "namespaces", "-o", "name"]);
    command
}

/// L17, H19: a replica is started again with another key and another CA while people work at the other one, and then that one:
/// nobody's request fails, and the agent follows by itself.
#[test]
#[ignore = "needs a real cluster: make test"]
fn another_key_and_ca_of_a_hub_of_two_replicas_cost_no_request() {
    let mut site = apart();
    run(&mut reads(site.through_line()));
    let known = |site: &Site| site.api.get(JOINED).unwrap()["data"]["trust.json"].clone();
    let (before, pid, data) = (known(&site), agent_pid(&site), site.hub.data());
    let people = Loop::start(reads(site.through_line()));
    for what in ["key", "ca"] {
        let rotate = ["hub", "rotate", what, "--data", data.to_str().unwrap()];
        site.other.linesman(&rotate);
    }
    // It has the line.
    site.other.stop();
    site.other.up();
    until("kubectl works at the new replica", seconds(60), || {
        output(&mut reads(at_the_other(&site))).status.success()
    });
    let (at_the_old, failed) = people.stop();
    assert_eq!(failed, [""; 0]);

    let people = Loop::start(reads(at_the_other(&site)));
    site.hub.stop();
    until("the line is at the new replica", seconds(60), || {
        has_line(&site.other)
    });
    site.hub.up();
    let (at_the_new, failed) = people.stop();
    assert_eq!(failed, [""; 0]);
    assert!(at_the_old > 3 && at_the_new > 3);
    figure(
        "L17",
        "requests while each of two replicas was started with another key and CA, none failed",
        "0 failed",
        format!("{at_the_old} + {at_the_new}"),
    );
    until("the agent keeps the new set", seconds(60), || {
        known(&site) != before
    });
    assert_eq!(agent_pid(&site), pid, "the agent was started again");
    // They have the CA before in them.
    for old in [
        site.line_kubeconfig(),
        site.directory.join("other.kubeconfig"),
    ] {
        fs::remove_file(old).unwrap();
    }
    watch_works(&site, "after-a-rolling-rotation");
}
