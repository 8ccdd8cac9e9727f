use proptest::prelude::*;

use super::*;
use crate::agent::plan::steps::{Action, Step};
use crate::agent::plan::tests::{Cluster, Damage, start};
use crate::agent::plan::{Class, Mode, Plan, find, plan};
use crate::bundle::{Kind, ObjectId};

fn at(milliseconds: i64) -> OffsetDateTime {
    start() + Duration::milliseconds(milliseconds)
}

/// Calls a second apart, the last one at 0: whether each failed, and how long it took.
fn calls(all: &[(bool, i64)]) -> Calls {
    let mut calls = Calls::default();
    let count = i64::try_from(all.len()).unwrap();
    for (n, (failed, took)) in (0..).zip(all) {
        calls.note(Call {
            at: at((n + 1 - count) * 100),
            failed: *failed,
            took: Some(Duration::milliseconds(*took)),
        });
    }
    calls
}

fn mixed(well: usize, failed: usize, late: usize) -> Calls {
    let mut all = vec![(false, 10); well];
    all.extend(vec![(true, 10); failed]);
    all.extend(vec![(false, 2_001); late]);
    calls(&all)
}

/// F14: a share of errors, a late percentile, or `/readyz`; a few of either are an accident.
#[test]
fn the_gate_is_shut_by_errors_by_late_answers_and_by_readyz() {
    for (well, failed, late, shut) in [
        (0, 0, 0, false),
        (100, 0, 0, false),
        (12, 3, 0, false),
        (11, 3, 0, true),
        (0, 2, 0, false),
        (0, 3, 0, true),
        (100, 0, 2, false),
        (100, 0, 3, true),
        (297, 0, 3, false),
        (296, 0, 3, true),
    ] {
        let gate = mixed(well, failed, late).gate(at(0));
        assert_eq!(gate.is_shut(), shut, "{well} {failed} {late}: {gate:?}");
    }
    let just_in_time = calls(&[(false, 2_000); 3]).gate(at(0));
    assert_eq!(just_in_time, Gate::Open);
    for (said, shut) in [
        (&[Some(false)][..], false),
        (&[Some(false), Some(false)], true),
        (&[Some(false), Some(true), Some(false)], false),
        (&[Some(false), Some(false), None], false),
    ] {
        let mut calls = mixed(10, 0, 0);
        for ready in said {
            calls.readyz(*ready);
        }
        assert_eq!(calls.gate(at(0)).is_shut(), shut, "{said:?}");
    }
}

#[test]
fn the_symptoms_are_told() {
    let mut calls = mixed(60, 30, 10);
    calls.readyz(Some(false));
    calls.readyz(Some(false));
    let Gate::Shut(symptoms) = calls.gate(at(0)) else {
        panic!("it is open");
    };
    let expected = Symptoms {
        calls: 100,
        failed: 30,
        p99: Duration::milliseconds(2_001),
        unready: true,
    };
    assert_eq!(symptoms, expected);
    assert_eq!(
        symptoms.text(),
        "of 100 calls in 30 s 30 (30 %) were answered with 5xx; the 99th percentile took 2001 ms; /readyz fails"
    );
}

/// F14: nobody has to open it.
#[test]
fn the_gate_opens_by_itself_when_the_errors_are_half_a_minute_old() {
    let mut calls = mixed(0, 10, 0);
    assert!(calls.gate(at(29_000)).is_shut());
    assert_eq!(calls.gate(at(30_001)), Gate::Open);
}

/// F14: calls of a time that the clock has not reached again count for half a minute, as others do.
#[test]
fn a_clock_that_is_set_back_does_not_keep_the_gate_shut() {
    let back = -2 * 3_600_000;
    let mut calls = mixed(0, 10, 0);
    let shut = calls.gate(at(back));
    assert_eq!(shut, mixed(0, 10, 0).gate(at(0)));
    assert_eq!(calls.gate(at(back + 30_000)), shut);
    assert_eq!(calls.gate(at(back + 30_001)), Gate::Open);
    // The same where another call is what comes next.
    let mut calls = mixed(0, 10, 0);
    for later in [0, 30_001] {
        calls.note(Call {
            at: at(back + later),
            failed: false,
            took: None,
        });
    }
    assert_eq!(calls.gate(at(back + 30_001)), Gate::Open);
}

#[test]
fn a_watch_that_waits_is_not_late() {
    let mut calls = Calls::default();
    for _ in 0..50 {
        calls.note(Call {
            at: at(0),
            failed: false,
            took: None,
        });
    }
    assert_eq!(calls.gate(at(0)), Gate::Open);
}

fn shut() -> Gate {
    mixed(0, 10, 0).gate(at(0))
}

fn judged(cluster: &Cluster, gate: Gate) -> Plan {
    let mut observed = cluster.observed();
    observed.gate = gate;
    plan(cluster.now, &cluster.install, &observed, &cluster.history)
}

/// W25: what the API server said while it was not well makes no fault, and nothing is written.
#[test]
fn no_fault_is_found_and_nothing_is_written_while_the_gate_is_shut() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    cluster.objects.remove(&id).unwrap();
    let told = |plan: &Plan| plan.findings.iter().map(|f| f.class).collect::<Vec<_>>();
    let plan = judged(&cluster, shut());
    assert_eq!(
        (told(&plan), plan.mode),
        (vec![Class::ApiUnhealthy], Mode::Learning)
    );
    assert_eq!(plan.steps, []);
    assert!(plan.findings[0].evidence.contains("were answered with 5xx"));
    assert!(plan.next_look <= cluster.now + Duration::seconds(5));
    let plan = judged(&cluster, Gate::Open);
    assert_eq!(told(&plan), [Class::ObjectMissing]);
    let expected = Step {
        action: Action::Create,
        target: id.clone(),
        cause: Some((Class::ObjectMissing, id)),
    };
    assert_eq!(plan.steps, [expected]);
}

/// F14: the guard cannot wait, also while the gate is shut.
#[test]
fn the_guard_acts_while_the_gate_is_shut() {
    let mut cluster = Cluster::working();
    let crd = "kustomizations.kustomize.toolkit.fluxcd.io";
    let crd = ObjectId::new(Kind::CustomResourceDefinition, "", crd);
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let (open, shut) = (judged(&cluster, Gate::Open), judged(&cluster, shut()));
    let actions =
        |plan: &Plan| -> Vec<&str> { plan.steps.iter().map(|s| s.action.as_str()).collect() };
    assert_eq!(
        actions(&shut),
        ["cut-rights", "cut-rights", "scale-to-zero", "release"]
    );
    assert_eq!(actions(&shut), actions(&open));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// W25: whatever is broken, and however often it is looked at; when the gate opens, it is mended.
    #[test]
    fn whatever_is_broken_waits_for_the_gate(damage in prop::collection::vec(any::<usize>(), 1..8)) {
        let mut cluster = Cluster::working();
        for (n, one) in damage.iter().enumerate() {
            cluster.damage(&if n % 2 == 0 { Damage::Delete(*one) } else { Damage::Field(*one) });
        }
        for _ in 0..20 {
            let plan = judged(&cluster, shut());
            // The guard alone goes on, where a Namespace or a CRD was deleted.
            let guards = |s: &Step| matches!(
                s.action,
                Action::CutRights { .. } | Action::ScaleToZero | Action::Release
            );
            prop_assert!(plan.steps.iter().all(guards), "{:?}", plan.steps);
            prop_assert!(plan.steps.is_empty() || plan.findings.iter().any(find::dies));
            cluster.history.saw(cluster.now, &plan);
            cluster.now = plan.next_look;
        }
        cluster.settle(400);
    }

    /// However many calls there are, so many are remembered.
    #[test]
    fn what_is_remembered_is_bounded(times in prop::collection::vec(0_i64..90_000, 0..1_500)) {
        let mut times = times;
        times.sort_unstable();
        let mut calls = Calls::default();
        for time in times {
            calls.note(Call { at: at(time), failed: false, took: None });
            prop_assert!(calls.last.len() <= MAX_CALLS);
            prop_assert!(calls.last.iter().all(|c| at(time) - c.at <= WINDOW));
        }
    }
}
