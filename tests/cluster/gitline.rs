//! L51, on a lab of its own: a cluster that reaches nothing but the hub's HTTPS port is adopted, follows the catalog, and
//! is healed. Its engine gets Git over the line.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::keys::host::changed_and_accepted;
use crate::support::api::deployment;
use crate::support::argocd;
use crate::support::place::{lab, output, run};
use crate::support::world::{ARGOCD, CLUSTER, FLUX, World, git_repository};
use crate::support::{eventually, figure, seconds, shown, until};

mod whole;

/// The catalog's URL at the agent's Service.
const LINE: &str = "ssh://git@linesman-git.linesman.svc/catalog.git";

/// Of what goes to this machine, only answers and the hub's HTTPS port get out of the lab: from Pods and from the node.
fn wall_in(world: &World) {
    let (host, port) = (world.place.host.clone(), world.hub.https_port().to_string());
    for chain in ["FORWARD", "OUTPUT"] {
        for rule in [
            &[
                "-m",
                "conntrack",
                "--ctstate",
                "ESTABLISHED,RELATED",
                "-j",
                "ACCEPT",
            ][..],
            &["-p", "tcp", "--dport", &port, "-j", "ACCEPT"],
            &["-j", "DROP"],
        ] {
            let mut command = lab();
            command.args([
                "exec",
                world.place.lab(),
                "iptables",
                "-w",
                "-A",
                chain,
                "-d",
                &host,
            ]);
            run(command.args(rule));
        }
    }
}

/// What a Pod of the cluster gets when it dials this machine.
fn reaches(world: &World, port: u16) -> bool {
    let target = format!("{}/{port}", world.place.host);
    let dial = format!("exec 3<>/dev/tcp/{target}");
    let mut command = lab();
    command.args([
        "exec",
        world.place.lab(),
        "timeout",
        "3",
        "bash",
        "-c",
        &dial,
    ]);
    output(&mut command).status.success()
}

fn told(world: &World, what: &str, bar: &str, took: Duration) {
    figure("L51", &world.said(what), bar, shown(took));
}

/// L51, W1, H30, W5.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_cluster_that_reaches_nothing_but_the_hub_is_adopted_synced_and_healed() {
    let mut world = lives_behind_a_wall(World::open("gitline"));
    the_way_is_found_by_itself(&world);
    a_changed_host_key_is_refused(&mut world);
    adopted_without_a_word_of_the_line(&world);
    world.close();
}

/// L51, W1, H30, W5, W2, with Argo CD.
#[test]
#[ignore = "needs a real cluster: make test"]
fn with_argo_cd_too_nothing_but_the_hub_is_needed() {
    let mut world = lives_behind_a_wall(World::open_with("gitargo", ARGOCD));
    a_changed_host_key_is_refused(&mut world);
    world.close();
}

fn lives_behind_a_wall(mut world: World) -> World {
    wall_in(&world);
    assert!(reaches(&world, world.hub.https_port()));
    assert!(
        !reaches(&world, world.hub.git_port()),
        "the wall has a hole"
    );
    adopted_over_the_line(&mut world);
    a_push_arrives(&world, "first");
    a_deleted_controller_is_back(&world);
    world
}

fn adopted_over_the_line(world: &mut World) {
    world.add_with(&["--git-over-line"]);
    let began = Instant::now();
    world.apply(&world.adopt);
    eventually("the first revision is applied", seconds(240), || {
        world.synced()
    });
    told(
        world,
        "no route but to the hub: adoption YAML applied → first revision applied",
        "≤ 45 s",
        began.elapsed(),
    );
    let wait = ["cluster", "wait", CLUSTER, "--timeout", "2m"];
    world.hub.linesman(&wait);
    let (source, url) = match world.engine {
        ARGOCD => (argocd::root(), "/spec/source/repoURL"),
        _ => (git_repository(FLUX), "/spec/url"),
    };
    assert_eq!(
        world.api.get(&source).unwrap().pointer(url),
        Some(&json!(LINE))
    );
    until("the way is shown", seconds(30), || {
        way(world) == (json!("line"), json!("line")) && over_line(world) == json!("True")
    });
}

/// What was chosen, and what is in force.
fn way(world: &World) -> (serde_json::Value, serde_json::Value) {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    (view["git"]["route"].clone(), view["git"]["via"].clone())
}

fn over_line(world: &World) -> serde_json::Value {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let conditions = view["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|c| c["type"] == "GitOverLine");
    found.map_or_else(|| json!(null), |c| c["status"].clone())
}

fn a_push_arrives(world: &World, name: &str) {
    let content = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: gitline-{name}, namespace: default}}\n"
    );
    world.push(&format!("clusters/{CLUSTER}/gitline-{name}.yaml"), &content);
    let path = format!("/api/v1/namespaces/default/configmaps/gitline-{name}");
    let took = until("the pushed object is in the cluster", seconds(120), || {
        world.uid(&path).is_some()
    });
    told(
        world,
        &format!("no route but to the hub: push → object in the cluster ({name})"),
        "≤ 10 s",
        took,
    );
}

fn a_deleted_controller_is_back(world: &World) {
    // What fetches.
    let name = match world.engine {
        ARGOCD => "argocd-repo-server",
        _ => "source-controller",
    };
    let path = deployment(world.namespace(), name);
    let before = world.uid(&path).unwrap();
    assert!(world.api.delete(&path));
    let took = until("the Deployment is back", seconds(60), || {
        world.uid(&path).is_some_and(|now| now != before)
    });
    told(
        world,
        "no route but to the hub: what fetches deleted → object back",
        "≤ 5 s",
        took,
    );
    let took = world.function(seconds(120));
    told(
        world,
        "no route but to the hub: object back → function back",
        "≤ 60 s",
        took,
    );
    a_push_arrives(world, "after-heal");
}

/// The Git host behind the line shows another key: SSH runs end to end, so it is the engine that refuses it.
fn a_changed_host_key_is_refused(world: &mut World) {
    world.hub.linesman(&["cluster", "git", CLUSTER, "line"]);
    until("the way is the line", seconds(60), || {
        way(world) == (json!("line"), json!("line"))
    });
    changed_and_accepted(world, true, ["L51", "no route but to the hub: "]);
    a_push_arrives(world, "new-host-key");
}

/// Added without `--git-over-line`: in the midst of its adoption the agent finds no route, and has the line from there on.
fn adopted_without_a_word_of_the_line(world: &World) {
    world.hub.linesman(&["cluster", "remove", CLUSTER, "--yes"]);
    let agent = deployment("linesman", "linesman-agent");
    until("the agent is gone", seconds(120), || {
        world.api.get(&agent).is_none()
    });
    let began = found_in_an_adoption(world);
    told(
        world,
        "no route, added without --git-over-line: adoption YAML applied → adopted",
        "",
        began.elapsed(),
    );
    a_push_arrives(world, "adopted-by-itself");
}

/// Gives the moment in which the YAML was applied.
fn found_in_an_adoption(world: &World) -> Instant {
    world.add();
    assert_eq!(way(world), (json!("auto"), json!("direct")));
    let began = Instant::now();
    world.apply(&world.adopt);
    until("the agent finds no route", seconds(180), || {
        way(world) == (json!("auto"), json!("line"))
    });
    told(
        world,
        "no route, added without --git-over-line: adoption YAML applied → Git over the line by itself",
        "",
        began.elapsed(),
    );
    let wait = ["cluster", "wait", CLUSTER, "--timeout", "3m"];
    world.hub.linesman(&wait);
    began
}

/// Told to try the direct way, the agent finds none and gets the line again; the engine has it all the while.
fn the_way_is_found_by_itself(world: &World) {
    world.hub.linesman(&["cluster", "git", CLUSTER, "auto"]);
    let took = until("the agent finds no route", seconds(180), || {
        way(world) == (json!("auto"), json!("line"))
    });
    told(
        world,
        "no route: left to the agent → Git over the line by itself",
        "≤ 60 s",
        took,
    );
    a_push_arrives(world, "by-itself");
}
