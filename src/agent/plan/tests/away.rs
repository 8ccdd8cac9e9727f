//! The guard, and no agent for a day: it ends after any step of the guard's, and another one goes on with what is in the cluster. See
//! `docs/decisions/0044-the-guard-outlives-its-agent.md`.

use super::*;
use crate::agent::plan::state::Saved;

/// So many rounds somebody else's finalizer holds the CRD.
const HELD: usize = 4;
/// All is done long before.
const ROUNDS: usize = 300;

/// What goes by until the next look at a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// A day without an agent; then another one begins, which knows of the cut only where that was put on record.
    Away { on_record: bool },
    /// The agent goes on, by a clock that was set forward by a day.
    ClockSet,
}

const GAPS: [Gap; 3] = [
    Gap::Away { on_record: true },
    Gap::Away { on_record: false },
    Gap::ClockSet,
];

fn crd_of(engine: EngineKind) -> ObjectId {
    ObjectId::crd_of(match engine {
        EngineKind::Flux => Kind::Kustomization,
        EngineKind::Argocd => Kind::Application,
    })
}

fn dies(cluster: &Cluster, crd: &ObjectId) -> bool {
    let live = cluster.objects.get(crd);
    live.is_some_and(|live| live.deleting.is_some())
}

/// It goes on to die.
fn hold(cluster: &mut Cluster, crd: &ObjectId) {
    let now = cluster.now;
    let live = cluster.objects.get_mut(crd);
    if let Some(live) = live.filter(|live| live.deleting.is_some()) {
        live.deleting = Some(now);
    }
}

/// What is let go for the first time is kept, as the agent does it.
fn keep(cluster: &mut Cluster) {
    let Some((now, step)) = cluster.steps.last().cloned() else {
        return;
    };
    if step.action == Action::Release && !cluster.history.saved.contains_key(&step.target) {
        let object = json!({"metadata": {"namespace": "teams", "name": "by-hand"}});
        let saved = vec![Saved::new(object, now)];
        cluster.history.died(&step.target, saved);
    }
}

fn copy(of: &Cluster) -> Cluster {
    let mut copy = Cluster::empty_with(of.install.clone());
    copy.history = of.history.clone();
    copy.objects.clone_from(&of.objects);
    copy.pods.clone_from(&of.pods);
    (copy.now, copy.serial) = (of.now, of.serial);
    copy
}

/// A cluster whose CRD of sync objects was just deleted, and the same after each step, until all is back.
fn stages(engine: EngineKind) -> Vec<Cluster> {
    let mut cluster = Cluster::working_of(engine);
    let crd = crd_of(engine);
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let mut stages = vec![copy(&cluster)];
    for round in 0..ROUNDS {
        if round < HELD {
            hold(&mut cluster, &crd);
        }
        let plan = cluster.round_with(|cluster| {
            keep(cluster);
            stages.push(copy(cluster));
        });
        if plan.findings.is_empty() && plan.steps.is_empty() {
            return stages;
        }
    }
    panic!("does not end: {:#?}", cluster.plan());
}

/// Lets the gap go by. Where the CRD is not `held`, it is gone by then.
fn pass(cluster: &mut Cluster, gap: Gap, (crd, held): (&ObjectId, bool)) {
    let day = Duration::days(1);
    cluster.now += day;
    match gap {
        Gap::ClockSet => cluster.history.set_by(day),
        Gap::Away { on_record } => {
            let before = std::mem::take(&mut cluster.history);
            let cut = before.cut.into_keys().filter(|_| on_record);
            cluster.history = History {
                adopted: true,
                cut: cut.map(|id| (id, String::new())).collect(),
                saved: before.saved,
                ..History::default()
            };
            let now = cluster.now;
            cluster.history.tries_on(now);
        }
    }
    if held {
        hold(cluster, crd);
    }
    cluster.controllers();
}

/// Goes on until nothing is left to be done: while the CRD dies, the engine gets nothing, and nothing that is kept is given up.
fn ends(cluster: &mut Cluster, crd: &ObjectId, what: &str) {
    let rights = cluster.install.traits.rights.iter();
    let rights = rights.map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
    let rights: Vec<ObjectId> = rights.collect();
    for round in 0..ROUNDS {
        if round < HELD {
            hold(cluster, crd);
        }
        let (now, observed) = (cluster.now, cluster.observed());
        let given_up = cluster.history.give_up(now, &observed);
        assert_eq!(given_up, BTreeMap::new(), "{what}");
        let dying = dies(cluster, crd);
        let plan = cluster.round_with(|cluster| {
            let (_, step) = cluster.steps.last().unwrap();
            let guards = is_guards(&step.action);
            assert!(guards || !dies(cluster, crd), "{what}: {step:?}");
            keep(cluster);
        });
        let mut there = rights.iter().filter(|id| cluster.objects.contains_key(id));
        // Of one that goes on, the next step may be due two seconds later.
        let may = !dying || round == 0;
        assert!(may || there.next().is_none(), "{what}");
        if plan.findings.is_empty() && plan.steps.is_empty() {
            return;
        }
    }
    panic!("{what}: does not end: {:#?}", cluster.plan());
}

fn assert_whole(cluster: &Cluster, crd: &ObjectId, what: &str) {
    let there = |id: &ObjectId| {
        let live = cluster.objects.get(id);
        live.is_some_and(|live| live.deleting.is_none())
    };
    let wanted = cluster.install.wanted.keys();
    let lacks: Vec<&ObjectId> = wanted.filter(|id| !there(id)).collect();
    assert_eq!(lacks, [] as [&ObjectId; 0], "{what}");
    let stopped = cluster.install.workloads().filter(|id| {
        let live = &cluster.objects[*id];
        live.number("/spec/replicas") == 0
    });
    assert_eq!(stopped.count(), 0, "{what}");
    assert!(!dies(cluster, crd), "{what}");
    assert_eq!(cluster.history.saved, BTreeMap::new(), "{what}");
}

/// W44, W11: whichever step was the last one, and whether the CRD is still held or is gone a day later. Where it is held, what is kept was
/// `tried` in the last moment.
#[test]
fn a_day_after_any_step_of_the_guard_nothing_is_pruned_or_forgotten_and_all_comes_back() {
    for engine in [EngineKind::Flux, EngineKind::Argocd] {
        let crd = crd_of(engine);
        let count = stages(engine).len();
        // Deleted, cut, let go, made anew, given back, brought back.
        assert!(count > 6, "{count}");
        for gap in GAPS {
            for (held, tried) in [(true, true), (false, false)] {
                for (number, mut cluster) in stages(engine).into_iter().enumerate() {
                    let what = format!("{engine:?} {gap:?} held {held}, step {number}");
                    let now = cluster.now;
                    let kept = cluster.history.saved.contains_key(&crd);
                    if tried {
                        cluster.history.tries(now, &crd);
                    }
                    pass(&mut cluster, gap, (&crd, held));
                    ends(&mut cluster, &crd, &what);
                    assert_whole(&cluster, &crd, &what);
                    let mut steps = cluster.steps.iter();
                    let restored = steps.any(|(_, step)| step.action == Action::Restore);
                    assert!(restored || !kept, "{what}");
                }
            }
        }
    }
}
