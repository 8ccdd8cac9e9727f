//! L17: the hub's own key and CA are replaced while people work through the line.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::load::{LEAST, Loop};
use crate::line::{agent_pid, watch_works};
use crate::support::place::{kubectl, output, run};
use crate::support::replicas::{Site, apart, has_line};
use crate::support::world::CLUSTER;
use crate::support::{figure, seconds, until};

/// What the agent keeps of the hub.
const JOINED: &str = "/api/v1/namespaces/linesman/secrets/linesman-state";

/// Long enough for each replica to be started again before what is new is used.
const LEAD: &str = "50s";

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

/// People work at one replica, `meanwhile` happens and the other one is started again, and then the other way round: how many
/// requests went well at each. None fails.
fn each_started_again(site: &mut Site, meanwhile: impl FnOnce(&Site)) -> [u32; 2] {
    let people = Loop::start(reads(site.through_line()));
    meanwhile(site);
    // It has the line.
    site.other.stop();
    site.other.up();
    until("kubectl works at the new replica", seconds(60), || {
        output(&mut reads(at_the_other(site))).status.success()
    });
    let (at_the_old, failed) = people.stop();
    assert_eq!(failed, [""; 0]);

    let people = Loop::start(reads(at_the_other(site)));
    site.hub.stop();
    until("the line is at the new replica", seconds(60), || {
        has_line(&site.other)
    });
    site.hub.up();
    let (at_the_new, failed) = people.stop();
    assert_eq!(failed, [""; 0]);
    assert!(at_the_old >= LEAST && at_the_new >= LEAST);
    [at_the_old, at_the_new]
}

/// Whether a key or a CA is told that is not used yet.
fn is_told(site: &Site) -> bool {
    let text = fs::read(site.hub.data().join("trust.json")).unwrap();
    let given: Value = serde_json::from_slice(&text).unwrap();
    !given["next"].is_null() || site.hub.data().join("ca.next").exists()
}

fn told(text: &str, [at_the_old, at_the_new]: [u32; 2]) {
    figure(
        "L17",
        text,
        "0 failed",
        format!("{at_the_old} + {at_the_new}"),
    );
}

/// L17, H16, H19: key and CA of a hub are replaced while people work through it. Each replica is started again while what is new
/// is told, and again once it is used: nobody's request fails, and the agent follows by itself.
#[test]
#[ignore = "needs a real cluster: make test"]
fn another_key_and_ca_of_a_hub_of_two_replicas_cost_no_request() {
    let mut site = apart();
    run(&mut reads(site.through_line()));
    let known = |site: &Site| site.api.get(JOINED).unwrap()["data"]["trust.json"].clone();
    let (before, pid, data) = (known(&site), agent_pid(&site), site.hub.data());
    let key = || fs::read(data.join("hub.key")).unwrap();
    let former = key();
    let good = each_started_again(&mut site, |site| {
        for what in ["key", "ca"] {
            let at = ["--in", LEAD, "--data", data.to_str().unwrap()];
            let rotate = [&["hub", "rotate", what], &at[..]].concat();
            site.other.linesman(&rotate);
        }
    });
    let text =
        "requests while each of two replicas was started with another key and CA, none failed";
    told(text, good);
    assert!(
        is_told(&site) && key() == former,
        "it was used before all were started again"
    );
    until("the agent keeps the new set", seconds(60), || {
        known(&site) != before
    });
    // People have the CA before in it, which ends with the time of the next one.
    fs::remove_file(site.line_kubeconfig()).unwrap();
    run(&mut reads(site.through_line()));

    let good = each_started_again(&mut site, |site| {
        until("what is new is used", seconds(120), || !is_told(site));
    });
    let text = "requests while another key and CA came to be used and then each of two replicas was started, none failed";
    told(text, good);
    assert_ne!(key(), former);
    assert_eq!(agent_pid(&site), pid, "the agent was started again");
    watch_works(&site, "after-a-rolling-rotation");
}
