//! H50, F49: another image for the agent by the hub's wish. One that works takes over, one that does not goes back, and the
//! agent serves meanwhile.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::keys::load::Loop;
use crate::line::agent_pids;
use crate::support::api::{deployment, path};
use crate::support::place::{binary, lab, output, root, run};
use crate::support::world::{CLUSTER, FLUX, World};
use crate::support::{closely, eventually, figure, seconds, shown, until};

mod whole;

/// The same program under another name.
const NEXT: &str = "lab.invalid/linesman:next";
/// No registry has it.
const NOWHERE: &str = "lab.invalid/linesman:nowhere";
/// It starts, and does nothing.
pub(crate) const SILENT: &str = "lab.invalid/silent:1";
/// It takes over and lives, and the hub does not hear it.
const MUTE: &str = "lab.invalid/linesman:mute";
/// From the wish to the image of before, with what a busy machine adds.
const LIMIT: u64 = 150;

fn opened(name: &str) -> World {
    let mut world = World::open(name);
    let mut image = Command::new(root().join("tests/image"));
    run(image.arg(world.place.lab()).arg(binary()).arg(NEXT));
    silent(&world);
    world.adopt();
    world
}

/// An image that starts, and does nothing.
pub(crate) fn silent(world: &World) {
    let tool = run(lab().args(["path", "tools"]));
    let tool = format!("{}:/pause", tool.trim());
    let silent = ["-user", "65532:65532", "-entrypoint", "/pause,pause"];
    let mut image = lab();
    image.args(["image", world.place.lab(), SILENT]);
    run(image.args(silent).arg(tool));
}

/// The same program, which asks for routes that no hub has.
fn mute(world: &World) {
    let mut program = std::fs::read(binary()).unwrap();
    for route in ["/v1/line", "/v1/clusters/", "/v1/join"] {
        let found: Vec<usize> = program
            .windows(route.len())
            .enumerate()
            .filter(|(_, bytes)| *bytes == route.as_bytes())
            .map(|(at, _)| at)
            .collect();
        assert!(!found.is_empty(), "{route} is in the program");
        for at in found {
            program[at + 2] = b'0';
        }
    }
    let file = std::env::temp_dir().join(format!("linesman-mute-{}", world.place.lab()));
    std::fs::write(&file, program).unwrap();
    let mut image = Command::new(root().join("tests/image"));
    run(image.arg(world.place.lab()).arg(&file).arg(MUTE));
    std::fs::remove_file(file).unwrap();
}

fn agent() -> String {
    deployment("linesman", "linesman-agent")
}

fn wish(world: &World, image: &str) {
    let args = [
        "cluster",
        "upgrade",
        CLUSTER,
        "--allow-tag",
        "--image",
        image,
    ];
    run(&mut world.hub.cli(&args));
}

fn withdraw(world: &World) {
    run(&mut world
        .hub
        .cli(&["cluster", "upgrade", CLUSTER, "--withdraw"]));
    until("what was remembered is gone", seconds(60), || {
        annotations(world).is_empty()
    });
}

fn image(world: &World) -> String {
    let live = world.api.try_get(&agent()).ok().flatten();
    let live = live.unwrap_or_default();
    let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

/// What the agent keeps of a change.
fn annotations(world: &World) -> Vec<String> {
    let live = world.api.get(&agent()).unwrap();
    let all = live["metadata"]["annotations"].as_object().cloned();
    let all = all.unwrap_or_default().into_iter();
    let ours = all.filter(|(key, _)| key.starts_with("linesman.dev/"));
    ours.map(|(key, value)| format!("{key}={value}")).collect()
}

/// Name and image of each agent Pod that is ready.
fn ready(world: &World) -> Vec<(String, String)> {
    let path =
        "/api/v1/namespaces/linesman/pods?labelSelector=app.kubernetes.io%2Fname%3Dlinesman-agent";
    let pods = world.api.get(path).unwrap();
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ready = pods.iter().filter(|pod| {
        pod["metadata"]["deletionTimestamp"].is_null()
            && crate::support::world::condition(pod, "Ready")
    });
    ready
        .map(|pod| {
            (
                text(&pod["metadata"]["name"]),
                text(&pod["spec"]["containers"][0]["image"]),
            )
        })
        .collect()
}

/// Reason and message of `AgentCurrent`, without the number of the wish.
fn says(world: &World) -> (String, String) {
    let view = world.hub.try_json(&["cluster", "show", CLUSTER]);
    let view = view.unwrap_or_default();
    let mut all = view["conditions"].as_array().into_iter().flatten();
    let said = all.find(|c| c["type"] == json!("AgentCurrent"));
    let said = said.cloned().unwrap_or_default();
    let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
    let message = text("message");
    let without = message.split_once(": wish ").and_then(|(image, rest)| {
        let (_, rest) = rest.split_once(": ")?;
        Some(format!("{image}: {rest}"))
    });
    (text("reason"), without.unwrap_or(message))
}

fn settled(world: &World) {
    until("the line is up", seconds(90), || world.line_is_up());
    until("the cluster is healthy", seconds(120), || {
        world.phase() == "Healthy"
    });
    // The kubelet hears of that with its next probe.
    until("one Pod of the agent is ready", seconds(60), || {
        ready(world).len() == 1
    });
}

/// Requests through the line, one after the other.
fn load(world: &World) -> Loop {
    let mut get = world.through_line();
    get.args(["get", "namespaces", "-o", "name"]);
    Loop::start(get)
}

fn forwards(world: &World) {
    settled(world);
    assert_eq!(says(world).0, "AsInstalled");
    let load = load(world);
    let began = Instant::now();
    let args = [
        "cluster",
        "upgrade",
        "--all",
        "--allow-tag",
        "--wait=3m",
        "--image",
        NEXT,
    ];
    run(&mut world.hub.cli(&args));
    figure(
        "F49",
        "cluster upgrade → the hub hears the agent's new image",
        "≤ 120 s",
        shown(began.elapsed()),
    );
    until("the old Pod is gone", seconds(90), || {
        let pods = ready(world);
        pods.len() == 1 && pods.iter().all(|(_, image)| image == NEXT)
    });
    let (good, bad) = load.stop();
    assert!(good > 3 && bad.is_empty(), "{good} went well, not {bad:?}");
    figure(
        "F49",
        "requests through the line while the agent's image changes, none failed",
        "0 failed",
        good,
    );
    assert_eq!(image(world), NEXT);
    let told = ("InForce".to_owned(), format!("{NEXT}: the agent runs it"));
    eventually("the trial is over, and it is told", seconds(60), || {
        let now = (annotations(world), says(world));
        let right = now.0.is_empty() && now.1 == told;
        right.then_some(()).ok_or_else(|| format!("{now:?}"))
    });
    settled(world);
}

/// A change that cannot work: the agent heals all the while, and the image of before is back.
fn goes_back(world: &mut World, bad: &str, what: &str, hub: &str) {
    settled(world);
    let (before, old, leader) = (image(world), ready(world), holder(world));
    // To one that leads, the line is given up with the Lease.
    let leads = bad == MUTE;
    let requests = (hub == "hub there" && !leads).then(|| load(world));
    let began = Instant::now();
    wish(world, bad);
    until("the image is on trial", seconds(30), || image(world) == bad);
    if leads {
        let took = until("it has the Lease", seconds(60), || holder(world) != leader);
        figure("H50", &format!("{what}: it has the Lease"), "", shown(took));
    }
    if hub == "hub stopped" {
        world.hub.stop();
    }
    let by = if leads { "bad" } else { "old" };
    heals_meanwhile(world, &format!("{what}, {hub}"), by);
    let limit = seconds(LIMIT).saturating_sub(began.elapsed());
    until("the image of before is back", limit, || {
        image(world) == before
    });
    figure(
        "H50",
        &format!("{what}, {hub}: cluster upgrade → the image of before is back"),
        "≤ 120 s",
        shown(began.elapsed()),
    );
    let kept = annotations(world);
    assert!(
        kept.len() == 1 && kept[0].contains("upgrade-failed"),
        "{kept:?}"
    );
    if let Some(requests) = requests {
        none_failed(requests, what);
    } else if leads {
        let limit = seconds(LIMIT).saturating_sub(began.elapsed());
        until("the line is up", limit, || world.line_is_up());
        let told = format!("{what}: cluster upgrade → the line of the image of before is up");
        figure("H50", &told, "≤ 120 s", shown(began.elapsed()));
    } else {
        world.hub.up();
    }
    stays(world, (bad, what, hub), &old);
}

fn none_failed(requests: Loop, what: &str) {
    let (good, failed) = requests.stop();
    assert!(
        good > 3 && failed.is_empty(),
        "{good} went well, not {failed:?}"
    );
    figure(
        "H50",
        &format!("{what}: requests through the line meanwhile, none failed"),
        "0 failed",
        good,
    );
}

/// It is said why, the Pods of before go on alone, and the image is not tried again.
fn stays(world: &World, (bad, what, hub): (&str, &str, &str), old: &[(String, String)]) {
    eventually("it says that it went back", seconds(60), || {
        let (reason, text) = says(world);
        let right = reason == "Returned" && text.starts_with(&format!("{bad}: "));
        if right {
            Ok(())
        } else {
            Err(format!("{reason} {text}"))
        }
    });
    println!("{what}, {hub}: {}", says(world).1);
    // Ready is what the hub hears, so that takes a moment after its return.
    until("the Pod of before goes on, alone", seconds(60), || {
        ready(world) == *old
    });
    let args = [
        "cluster",
        "upgrade",
        CLUSTER,
        "--allow-tag",
        "--wait=20s",
        "--image",
        bad,
    ];
    let again = output(&mut world.hub.cli(&args));
    assert_eq!(
        again.status.code(),
        Some(1),
        "it is not tried again: {again:?}"
    );
    withdraw(world);
}

/// Its process is killed as soon as the Lease is its own: what starts again finds that, and goes back without waiting.
fn dies(world: &World) {
    settled(world);
    let (before, old) = (image(world), agent_pids(world));
    let leader = holder(world);
    // The first one, by now.
    wish(world, &world.place.image);
    let limit = seconds(60);
    closely("the new one has the Lease", limit, || {
        holder(world) != leader
    });
    let new = agent_pids(world);
    let new = new.iter().find(|pid| !old.contains(pid)).unwrap();
    run(Command::new("kill").arg("-KILL").arg(new.to_string()));
    let back = until("the image of before is back", seconds(LIMIT), || {
        image(world) == before
    });
    let told = "new image killed as it takes over → the image of before is back";
    figure("H50", told, "≤ 120 s", shown(back));
    let leads = until("the old one leads again", limit, || holder(world) == leader);
    let told = "… and its Pod leads again";
    figure("H50", told, "≤ 120 s", shown(back + leads));
    until("the line is up", limit, || world.line_is_up());
    eventually("it says why", limit, || {
        let (reason, text) = says(world);
        let right = reason == "Returned" && text.contains("it took over and ended");
        if right {
            Ok(())
        } else {
            Err(format!("{reason} {text}"))
        }
    });
    withdraw(world);
}

fn holder(world: &World) -> String {
    let lease = path(
        "coordination.k8s.io/v1",
        "Lease",
        "linesman",
        "linesman-agent",
    );
    let lease = world.api.try_get(&lease).ok().flatten().unwrap_or_default();
    let holder = &lease["spec"]["holderIdentity"];
    holder.as_str().unwrap_or_default().to_owned()
}

fn heals_meanwhile(world: &World, told: &str, by: &str) {
    let victim = deployment(FLUX, "source-controller");
    let uid = world.uid(&victim);
    assert!(world.api.delete(&victim));
    let healed = until("it is healed meanwhile", seconds(60), || {
        world.uid(&victim).is_some_and(|now| Some(now) != uid)
    });
    figure(
        "H50",
        &format!("{told}: Deployment deleted → back, by the {by} image"),
        "≤ 120 s",
        shown(healed),
    );
}

/// H50, F49; what else may be wrong with an image, and without the hub: `make chaos`.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_image_that_works_takes_over_and_one_that_does_not_goes_back() {
    let mut world = opened("upgrade");
    forwards(&world);
    dies(&world);
    goes_back(&mut world, NOWHERE, "image that nobody has", "hub there");
    world.close();
}
