//! What takes as long as the acceptance says: an hour without the hub, half of it without Git either (W25, W14), twenty
//! minutes in which nothing happens (W23), and the ten of an incident in the fleet (W26). `tests/run hours` has them, `tests/run hours 60 argocd` those with
//! Argo CD, and `make test` has shorter ones of each.

use std::process::Command;
use std::time::{Duration, Instant};

use linesman::clock;
use serde_json::{Value, json};

use crate::blocked::pods_of_engine;
use crate::chaos::{faults, suffered};
use crate::figures::small_and_quiet;
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::keys::host::reads;
use crate::line::agent_pids;
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::place::{run, var};
use crate::support::world::{self, ARGOCD, CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};

mod argocd;
mod fleet;

/// Of the agent's records as many fit into the cluster while the hub is away.
const RECORDS: usize = 150;
/// Of the list: what has the smallest budget is mended so often in an hour.
const ROUNDS: usize = 3;
/// As often as the catalog's Kustomizations look by themselves, and some time to do it.
const INTERVAL: Duration = Duration::from_mins(11);
const HELLO: &str = "/apis/apps/v1/namespaces/hello/deployments/hello";

fn hour() -> Duration {
    let minutes = var("LINESMAN_HOURS_MINUTES").map_or(60, |text| text.parse().unwrap());
    Duration::from_mins(minutes)
}

/// W25, W14, H49: for half an hour each fault of the list is done and mended; for the next one Git is away, too, and nobody mends
/// anything. The agent is killed and its Pod deleted in both. Then the hub has each record once, in their order.
#[test]
#[ignore = "takes more than an hour: tests/run hours"]
fn an_hour_without_the_hub_and_half_of_it_without_git() {
    away_and_on_record(&mut world::adopted());
}

fn away_and_on_record(world: &mut World) {
    settle(world);
    let (before, mut workloads) = (recorded(world), workloads(world));
    world.lose_hub();
    let began = Instant::now();
    broken_and_mended(world, hour() / 2);
    let kept = without_git(world, hour() / 2);
    if corrects_without_git(world) {
        // Deleted by the test itself, and brought back by Flux.
        workloads.extend(world.uid(HELLO).map(|uid| (HELLO.to_owned(), uid)));
    }
    let away = began.elapsed();
    world.hub_back();
    let took = until("each is on record", seconds(LIMIT), || {
        let all = recorded(world);
        kept.iter().all(|id| all.contains(id))
    });
    let what = format!(
        "hub away for {} min, {} heals, agent begun anew meanwhile: hub back → all on record",
        away.as_secs() / 60,
        kept.len()
    );
    figure("W25", &world.said(&what), "", shown(took));
    let mut all = recorded(world);
    all.retain(|id| !before.contains(id));
    all.truncate(kept.len());
    assert_eq!(all, kept, "each once, in their order");
    unchanged(world, &workloads);
    settle(world);
}

/// Whether what was fetched is applied while Git is away: Argo CD applies nothing that it cannot compare with Git.
fn corrects_without_git(world: &World) -> bool {
    world.engine != ARGOCD
}

/// W23: nothing is written but the Lease and probes, no more is asked than once a second, and the agent's memory stays.
/// `LINESMAN_IDLE_MINUTES` names another length.
#[test]
#[ignore = "takes twenty minutes: tests/run hours"]
fn twenty_healthy_minutes_cost_next_to_nothing() {
    idles(&world::adopted());
}

fn idles(world: &World) {
    settle(world);
    // Not so while the hub was away for the test before this one, and its readiness is written to its Deployment.
    let agent = deployment("linesman", "linesman-agent");
    until("the agent is ready", seconds(LIMIT), || {
        let live = world.api.get(&agent);
        live.is_some_and(|d| world::condition(&d, "Available"))
    });
    let before = written(world);
    small_and_quiet(world, 20);
    assert_eq!(written(world), before, "somebody wrote to a workload");
}

/// The workloads of the engine and of the catalog, as they were written last by anybody.
fn written(world: &World) -> Vec<String> {
    let of_kind = |kind: &str| {
        let all = world.api.get(&format!("/apis/apps/v1/{kind}")).unwrap();
        all["items"].as_array().unwrap().clone()
    };
    let told = |workload: Value| {
        let meta = &workload["metadata"];
        json!([meta["namespace"], meta["name"], meta["resourceVersion"]]).to_string()
    };
    let kinds = ["deployments", "statefulsets"].into_iter();
    kinds.flat_map(of_kind).map(told).collect()
}

/// Ids of the heals at the hub, the oldest first.
fn recorded(world: &World) -> Vec<Value> {
    let list = ["heal", "list", CLUSTER, "--limit", "500"];
    let list = world.hub.json(&list);
    let all = list.as_array().unwrap().iter().rev();
    all.map(|heal| heal["id"].clone()).collect()
}

/// The faults of the list in turn for so long, the agent begun anew before some of them.
fn broken_and_mended(world: &World, length: Duration) {
    let began = Instant::now();
    let faults = if world.engine == ARGOCD {
        faults::argo_cd()
    } else {
        faults::flux()
    };
    let rounds = faults.iter().cycle().take(ROUNDS * faults.len());
    for (n, fault) in rounds.enumerate() {
        if began.elapsed() >= length || on_record(world).len() > RECORDS {
            break;
        }
        match n {
            3 | 17 => killed(world),
            9 => deleted(world),
            _ => {}
        }
        settle(world);
        let before = workloads(world);
        let came = suffered(world, fault);
        figure(
            fault.row,
            &world.case(&format!("an hour of it: {} → function", fault.what)),
            fault.goal,
            shown(came.function),
        );
        assert_eq!(came.forbidden, [""; 0], "{}", fault.what);
        unchanged(world, &before);
    }
    over(began, length);
}

/// Waits for the rest of it.
fn over(began: Instant, length: Duration) {
    until("the time is over", length, || began.elapsed() >= length);
}

/// Nothing is healed, the workloads are still corrected from what was fetched where the engine does that, and it is told of once.
/// Returns the ids of all that the agent keeps for the hub.
fn without_git(world: &mut World, length: Duration) -> Vec<Value> {
    settle(world);
    let (known, pods) = (on_record(world), pods_of_engine(world));
    let mark = Mark::now(&world.audit);
    let git = world.lose_git();
    let began = Instant::now();
    killed(world);
    deleted(world);
    while corrects_without_git(world) && began.elapsed() + INTERVAL < length {
        let uid = world.uid(HELLO);
        assert!(world.api.delete(HELLO));
        let took = until("the workload is back, unasked", INTERVAL, || {
            world.uid(HELLO).is_some_and(|new| Some(new) != uid)
        });
        figure(
            "W14",
            "hub and Git away: deleted workload back, by the interval of 10 min",
            "",
            shown(took),
        );
    }
    over(began, length);
    // That it leads the agent writes on its own Pod.
    let written = mark.written_in(world.namespace());
    let after = pods_of_engine(world);
    // Argo CD's times have whole seconds.
    let since_then = clock::now().replace_nanosecond(0).unwrap();
    world.git_back(git);
    let ((), back) = eventually("the catalog is fetched, unasked", seconds(LIMIT), || {
        reads(world, since_then)
    });
    let what = format!(
        "Git away for {} min: Git back → fetched, unasked",
        length.as_secs() / 60
    );
    figure("W14", &world.said(&what), "≤ 90 s", shown(back));
    assert_eq!(written, [""; 0], "something was mended while Git was away");
    assert_eq!(after, pods);
    settle(world);
    let mut new = since(world, &known);
    // Of what was deleted above: the health check of the moment waits for it in vain.
    let own = |heal: &Value| {
        heal["class"] == "HealthCheckFailed"
            && heal["object"] == "Kustomization flux-system/app-hello"
            && heal["result"] == "reported"
    };
    new.retain(|heal| !own(heal));
    let classes: Vec<&Value> = new.iter().map(|h| &h["class"]).collect();
    assert_eq!(classes, ["GitUnreachable"], "{new:#?}");
    assert_eq!(new[0]["result"], json!("reported"), "{new:#?}");
    on_record(world)
}

/// The agent's process is killed; the kubelet begins it anew.
fn killed(world: &World) {
    let [pid] = agent_pids(world)[..] else {
        panic!("one agent runs in the lab");
    };
    run(Command::new("kill").args(["-KILL", &pid.to_string()]));
    another(world, pid);
}

/// The agent's Pod is deleted.
fn deleted(world: &World) {
    let [pid] = agent_pids(world)[..] else {
        panic!("one agent runs in the lab");
    };
    let pods = "/api/v1/namespaces/linesman/pods";
    let of_agent = format!("{pods}?labelSelector=app.kubernetes.io/name%3Dlinesman-agent");
    let list = world.api.get(&of_agent).unwrap();
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    assert!(world.api.delete(&format!("{pods}/{name}")));
    another(world, pid);
}

fn another(world: &World, pid: u32) {
    until(
        "another agent runs",
        seconds(LIMIT),
        || matches!(agent_pids(world)[..], [new] if new != pid),
    );
}
