//! The most important promise: no fault, and no repair, makes an engine prune what it brought (W11, W34). A CRD of the
//! sync objects is deleted over and over while 200 objects hang on them, each of which its sync object would prune:
//! with the admission policy in place, with the deletion allowed, and with the policy removed first, where only the agent's
//! second line is left. At last the sync objects themselves go. It takes minutes to bring them all, so one test of each engine does
//! all of that.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::healing::{LIMIT, on_record, settle, since};
use crate::line::{agent_pid, agent_pids};
use crate::support::api::path;
use crate::support::audit::{Answered, Mark};
use crate::support::place::{run, var};
use crate::support::world::{self, ARGOCD, World};
use crate::support::{eventually, figure, seconds, shown, until};

mod hangs;
mod numbers;
mod resumed;
mod sync;
mod tally;
mod unguarded;
mod whole;

use numbers::deleted_in_numbers;
pub(crate) use resumed::{goes_on, goes_on_a_day_later};
use sync::Sync;
use tally::{Tally, assert_kept, kept, tell};
use unguarded::second_line;
pub(crate) use unguarded::{StandsStill, disarmed};

const LABEL: &str = "linesman-test/cascade";
const MAPS: &str = "/api/v1/namespaces/default/configmaps?labelSelector=linesman-test/cascade";
const OBJECTS: usize = 200;
/// Deleted by hand while the engine has no rights: there is always one that it has to make again.
const BY_HAND: &str = "cascade-00-0";
const KUSTOMIZATIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kustomizations.kustomize.toolkit.fluxcd.io";

/// One in `make test`, twenty in `make chaos`, as many as it is told there (`RUNS=100` is what the acceptance has).
fn runs() -> usize {
    let runs = var("LINESMAN_CASCADE_RUNS").map_or(1, |text| text.parse().unwrap());
    assert!(runs > 0, "LINESMAN_CASCADE_RUNS is to be 1 at least");
    runs
}

/// Of sync objects: as many as the acceptance has, but for the one run of `make test`. The objects that hang on them are as many there,
/// too: what is lost in a race is by the time that it takes, and not by how many could be.
fn syncs() -> usize {
    if runs() > 1 { 50 } else { 20 }
}

/// W11: `kubectl delete crd kustomizations…` over 20 Kustomizations that prune, or 50 in `make chaos`, also without the guard policy; then
/// the Kustomizations are deleted in numbers.
#[test]
#[ignore = "needs a real cluster: make test"]
fn what_the_kustomizations_brought_stays_when_their_crd_or_they_are_deleted() {
    let world = world::adopted();
    let (crd, sync) = crd_of(&world);
    brought(&world, &sync);
    judged(&proof(&world, crd, &sync));
    second_line(&world, crd, &sync).judged();
    deleted_in_numbers(&world, "kustomizations", &sync);
}

/// W11, W34: the same with Argo CD, over 20 Applications whose finalizer prunes, or 50 in `make chaos`, which has them without the
/// guard policy, too.
#[test]
#[ignore = "needs a real cluster: make test"]
fn what_the_applications_brought_stays_when_their_crd_or_they_are_deleted() {
    let world = world::adopted_argocd();
    let (crd, sync) = crd_of(&world);
    brought(&world, &sync);
    judged(&proof(&world, crd, &sync));
    deleted_in_numbers(&world, "applications", &sync);
}

/// The CRD of the engine's sync objects, over as many of them as there are to be.
pub(crate) fn nothing_is_pruned(world: &World) {
    let (crd, sync) = crd_of(world);
    brought(world, &sync);
    let tally = proof(world, crd, &sync);
    removed(world, &sync);
    judged(&tally);
}

/// By one commit.
fn brought(world: &World, sync: &Sync) {
    settle(world);
    sync.push(world);
    until("200 workload objects are there", seconds(300), || {
        workloads(world).len() == OBJECTS
    });
}

/// What a deletion would take is there, and each sync object knows what it brought: else it would leave that behind.
fn whole_again(world: &World, sync: &Sync) {
    until("200 workload objects are there", seconds(300), || {
        workloads(world).len() == OBJECTS
    });
    until(
        "all sync objects know what they brought",
        seconds(300),
        || sync.all_know(world),
    );
}

/// By one commit, too: what they brought goes with them.
fn removed(world: &World, sync: &Sync) {
    whole_again(world, sync);
    // Empty and valid.
    world.push(&sync.file(), "# nothing\n");
    until("the catalog's objects are gone", seconds(300), || {
        workloads(world).is_empty()
    });
    settle(world);
}

fn crd_of(world: &World) -> (&'static str, Sync) {
    let crd = if world.engine == ARGOCD {
        "applications.argoproj.io"
    } else {
        "kustomizations.kustomize.toolkit.fluxcd.io"
    };
    (crd, Sync { count: syncs() })
}

/// The agent's process, at once; then there is another one.
pub(crate) fn kill(world: &World) {
    let pid = agent_pid(world);
    run(Command::new("kill").args(["-KILL", &pid.to_string()]));
    until("another agent runs", seconds(LIMIT), || {
        agent_pids(world).iter().any(|new| *new != pid)
    });
}

/// UIDs of the workload objects by their names; one that is being deleted is lost.
fn workloads(world: &World) -> BTreeMap<String, String> {
    let list = world.api.get(MAPS).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let alive = items.filter(|o| o["metadata"]["deletionTimestamp"].is_null());
    let text = |o: &Value, field: &str| o["metadata"][field].as_str().unwrap().to_owned();
    alive.map(|o| (text(o, "name"), text(o, "uid"))).collect()
}

/// Those of `before` that are not there any more, or are others now.
fn gone(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> BTreeSet<String> {
    let all = before.iter();
    let gone = all.filter(|(name, uid)| now.get(*name) != Some(*uid));
    gone.map(|(name, _)| name.clone()).collect()
}

fn proof(world: &World, crd: &str, sync: &Sync) -> Tally {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}");
    refused(world, &path);
    let mut tally = Tally::default();
    for run in 1..=runs() {
        past_the_policy(world, &path, sync, run, &mut tally);
    }
    tell(world, crd, sync.count, &mut tally);
    tally
}

fn judged(tally: &Tally) {
    let (lost, with_loss) = (tally.lost, tally.runs_with_loss);
    let told = format!("{lost} objects were lost in {with_loss} of {} runs", runs());
    assert_kept(lost, with_loss, &told);
}

/// With the policy: nothing changes, however often.
fn refused(world: &World, crd: &str) {
    until("the guard policy is active", seconds(60), || {
        world
            .api
            .dry_delete(crd)
            .is_err_and(|(code, _)| code == 403)
    });
    let (before, uid) = (workloads(world), world.uid(crd));
    for _ in 0..runs() {
        assert_eq!(world.api.try_delete(crd).unwrap_err().0, 403);
    }
    assert_eq!((workloads(world), world.uid(crd)), (before, uid));
    figure(
        "W11",
        &world.case(&format!(
            "{} times CRD deleted under {OBJECTS} objects, guard policy on: objects lost",
            runs()
        )),
        "0",
        0,
    );
}

fn past_the_policy(world: &World, crd: &str, sync: &Sync, run: usize, tally: &mut Tally) {
    let (before, uid) = (workloads(world), world.uid(crd).unwrap());
    assert_eq!(before.len(), OBJECTS);
    let known = on_record(world);
    let mark = Mark::now(&world.audit);
    let began = Instant::now();
    world.delete_guarded(crd);
    world
        .api
        .delete(&path("v1", "ConfigMap", "default", BY_HAND));
    until("the CRD is a new one", seconds(LIMIT), || {
        world.uid(crd).is_some_and(|new| new != uid)
    });
    until("all sync objects are back", seconds(LIMIT), || {
        sync.all_there(world)
    });
    let back = began.elapsed();
    let (cut, _) = eventually("the audit log tells of both", seconds(30), || {
        cut(&mark, crd).ok_or("it does not")
    });
    // What was lost comes again before the next run, as another one; what was kept stays.
    settle(world);
    until("200 workload objects are there", seconds(300), || {
        workloads(world).len() == OBJECTS
    });
    let gone = gone(&before, &workloads(world));
    let lost = gone.iter().filter(|name| *name != BY_HAND).count();
    println!(
        "run {run}: {lost} of {OBJECTS} lost, rights cut after {:.3} s, all back {}",
        cut.as_secs_f64(),
        shown(back)
    );
    tally.runs_with_loss += usize::from(lost > 0);
    tally.lost += lost;
    tally.cuts.push(cut);
    tally.back.push(back);
    told_what_was_gone(world, &known, &gone, (began, &mark));
}

/// The guard's last step: the heal of the collapse names what the engine had to make again, and nothing else. Where the race was
/// lost, objects of the catalog beside these were pruned, too, as the audit log tells.
fn told_what_was_gone(
    world: &World,
    known: &[Value],
    gone: &BTreeSet<String>,
    (began, mark): (Instant, &Mark),
) {
    let expected: BTreeSet<String> = gone
        .iter()
        .map(|name| format!("ConfigMap default/{name}"))
        .collect();
    let pruner = match world.engine {
        ARGOCD => ":argocd-application-controller",
        _ => ":kustomize-controller",
    };
    let others = || -> BTreeSet<String> {
        let pruned = mark
            .answered()
            .into_iter()
            .filter(|a| a.user.ends_with(pruner) && a.verb == "delete" && a.code == 200 && !a.dry);
        pruned.map(|a| a.name).collect()
    };
    eventually("the heal names what was gone", seconds(300), || {
        let new = since(world, known);
        let heal = new.iter().find(|h| h["class"] == "CrdTerminating");
        let remade = heal.map_or(Value::Null, |heal| heal["scene"]["remade"].clone());
        let named = remade["objects"].as_array().into_iter().flatten();
        let named: Vec<&str> = named.filter_map(Value::as_str).collect();
        let count = remade["count"].as_u64().unwrap_or_default();
        let told = |many: usize| count == u64::try_from(many).unwrap();
        let (ours, beside): (Vec<&str>, Vec<&str>) =
            named.iter().partition(|name| expected.contains(**name));
        let right = if beside.is_empty() {
            // Of many, the first are named.
            told(gone.len()) && !named.is_empty() && expected.iter().zip(&ours).all(|(a, b)| a == b)
        } else {
            let pruned = others();
            let was_pruned =
                |name: &&str| pruned.contains(name.rsplit(['/', ' ']).next().unwrap_or_default());
            let all = told(named.len()) && ours.len() == expected.len();
            beside.iter().all(was_pruned) && (all || count > u64::try_from(named.len()).unwrap())
        };
        if right {
            Ok(())
        } else {
            Err(format!("{remade}, and not {expected:?}"))
        }
    });
    figure(
        "W11",
        &world.case("… CRD deleted → the heal names what the engine had to make again"),
        "",
        shown(began.elapsed()),
    );
}

/// From the answer to the deletion of the CRD to the answer that took the engine's last right: by the API server's own
/// audit log, so that neither this process nor the agent is asked. Zero where the agent was the faster of the two.
fn cut(since: &Mark, crd: &str) -> Option<Duration> {
    let name = crd.rsplit('/').next().unwrap();
    cut_since(since, &|a| {
        a.resource == "customresourcedefinitions" && a.name == name
    })
}

fn cut_since(since: &Mark, began: &dyn Fn(&Answered) -> bool) -> Option<Duration> {
    let all = since.answered();
    let gone = |a: &&Answered| a.verb == "delete" && a.code == 200 && !a.dry;
    let mut deleted = all.iter().filter(gone);
    let began = deleted.clone().find(|a| began(a))?;
    let ended = deleted.rfind(|a| a.resource == "clusterrolebindings")?;
    let took = ended.at - began.at;
    Some(took.try_into().unwrap_or_default())
}
