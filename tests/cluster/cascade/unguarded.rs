//! The policy and its binding are really gone when the CRD is deleted, and not only told to allow it: what the second line saves
//! by itself, and, where there is no agent either, what it saves that from (in `make chaos`).

use std::process::Command;
use std::time::{Duration, Instant};

use super::{OBJECTS, Sync, assert_kept, cut, gone, kept, runs, whole_again, workloads};
use crate::guard::{BINDING, POLICY};
use crate::healing::{LIMIT, on_record, settle, since};
use crate::keys::{start_agent, stop_agent};
use crate::line::agent_pid;
use crate::support::audit::Mark;
use crate::support::place::run;
use crate::support::world::World;
use crate::support::{eventually, figure, seconds, shown, until};

/// What the runs without the policy came to.
pub(super) struct Outcome {
    lost: usize,
    with_loss: usize,
    /// Of one run without an agent.
    unaided: Option<usize>,
}

impl Outcome {
    pub(super) fn judged(&self) {
        let (lost, with_loss) = (self.lost, self.with_loss);
        let runs = runs();
        let told = format!("{lost} objects were lost in {with_loss} of {runs} runs");
        if let Some(unaided) = self.unaided {
            let told = format!("{told}, {unaided} without an agent");
            // Else all of this proves nothing.
            assert!(unaided * 2 > OBJECTS, "{told}");
        }
        assert_kept(lost, with_loss, &told);
    }
}

/// W11, guard policy off, over what the catalog has brought. That all would be lost without an agent is not shown each time.
pub(super) fn second_line(world: &World, crd: &str, sync: &Sync) -> Outcome {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}");
    let unaided = (runs() > 1).then(|| without_an_agent(world, &path, sync));
    let all: Vec<Run> = (1..=runs())
        .map(|n| without_the_policy(world, &path, sync, n))
        .collect();
    tell(world, crd, unaided, &all);
    Outcome {
        lost: all.iter().map(|run| run.lost).sum(),
        with_loss: all.iter().filter(|run| run.lost > 0).count(),
        unaided,
    }
}

/// Takes policy and binding away while the agent cannot make them again, until the API server has none in force: it would let
/// the CRD be deleted.
pub(crate) fn disarmed(world: &World, crd: &str) {
    for path in [BINDING, POLICY] {
        world.api.delete(path);
    }
    until("the CRD may be deleted", seconds(60), || {
        world.api.dry_delete(crd).is_ok()
    });
    assert_eq!(
        (world.uid(BINDING), world.uid(POLICY)),
        (None, None),
        "the guard policy is there again"
    );
}

/// How many objects the engine prunes where nobody keeps it from that.
fn without_an_agent(world: &World, crd: &str, sync: &Sync) -> usize {
    whole_again(world, sync);
    let before = workloads(world);
    stop_agent(world);
    disarmed(world, crd);
    world.api.try_delete(crd).unwrap();
    // It stays until its last object has no finalizer any more, by when the engine has pruned what it would.
    until("the CRD is gone", seconds(LIMIT), || {
        world.api.get(crd).is_none()
    });
    let lost = gone(&before, &workloads(world)).len();
    println!("without an agent: {lost} of {OBJECTS} lost");
    start_agent(world);
    until("another CRD is there", seconds(LIMIT), || {
        world.uid(crd).is_some()
    });
    settle(world);
    lost
}

struct Run {
    lost: usize,
    cut: Duration,
    back: Duration,
}

/// The agent stands still while policy and binding go, and runs on when the CRD is deleted.
fn without_the_policy(world: &World, crd: &str, sync: &Sync, number: usize) -> Run {
    whole_again(world, sync);
    settle(world);
    let (before, uid) = (workloads(world), world.uid(crd).unwrap());
    let known = on_record(world);
    let stands_still = StandsStill::begin(world);
    disarmed(world, crd);
    let mark = Mark::now(&world.audit);
    drop(stands_still);
    let began = Instant::now();
    world.api.try_delete(crd).unwrap();
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
    until("policy and binding are back", seconds(LIMIT), || {
        [BINDING, POLICY]
            .iter()
            .all(|path| world.uid(path).is_some())
    });
    settle(world);
    let lost = gone(&before, &workloads(world)).len();
    println!(
        "run {number} without the policy: {lost} of {OBJECTS} lost, rights cut after {:.3} s, all back {}",
        cut.as_secs_f64(),
        shown(back)
    );
    let told = since(world, &known);
    assert!(
        told.iter().any(|heal| heal["class"] == "CrdTerminating"),
        "{told:?}"
    );
    Run { lost, cut, back }
}

/// The agent's process, stopped for as long as the value is kept: shorter than its Lease runs, and than the kubelet has patience.
pub(crate) struct StandsStill(u32);

impl StandsStill {
    pub(crate) fn begin(world: &World) -> Self {
        let pid = agent_pid(world);
        signal("-STOP", pid);
        Self(pid)
    }
}

impl Drop for StandsStill {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

fn signal(name: &str, pid: u32) {
    run(Command::new("kill").args([name, &pid.to_string()]));
}

fn tell(world: &World, crd: &str, unaided: Option<usize>, all: &[Run]) {
    let count = all.len();
    let kind = crd.split('.').next().unwrap();
    let lost: usize = all.iter().map(|run| run.lost).sum();
    let with_loss = all.iter().filter(|run| run.lost > 0).count();
    let sorted = |of: fn(&Run) -> Duration| {
        let mut of: Vec<Duration> = all.iter().map(of).collect();
        of.sort_unstable();
        (of[count / 2], of[count - 1])
    };
    let said = |what: &str, bar: &str, value: String| figure("W11", &world.case(what), bar, value);
    if let Some(unaided) = unaided {
        said(
            &format!(
                "CRD {kind} deleted under {OBJECTS} objects, neither guard policy nor agent: objects lost"
            ),
            "",
            unaided.to_string(),
        );
    }
    said(
        &format!(
            "{count} times CRD {kind} deleted under {OBJECTS} objects, guard policy removed first: objects lost"
        ),
        "",
        lost.to_string(),
    );
    let what = "… policy removed, CRD deleted → runs in which each UID stayed";
    kept(&world.case(what), with_loss);
    let (median, slowest) = sorted(|run| run.cut);
    said(
        "… policy removed, CRD deleted → the engine has no rights to prune: median, slowest",
        "",
        format!("{} ms, {} ms", median.as_millis(), slowest.as_millis()),
    );
    let (median, slowest) = sorted(|run| run.back);
    said(
        "… policy removed, CRD deleted → all sync objects back: median, slowest",
        "≤ 120 s",
        format!("{}, {}", shown(median), shown(slowest)),
    );
}
