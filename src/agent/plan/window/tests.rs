use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::agent::gate::policy::Mending;
use crate::agent::plan::tests::{Cluster, Damage};
use crate::agent::plan::{Action, Plan};
use crate::clock::rfc3339;

mod objects;

fn annotate(cluster: &mut Cluster, id: &ObjectId, name: &str, until: OffsetDateTime) {
    let object = cluster.objects.get_mut(id).unwrap();
    object.fields["metadata"]["annotations"][name] = json!(rfc3339(until));
}

fn actions(plan: &Plan) -> Vec<(&str, &str)> {
    let named = plan
        .steps
        .iter()
        .filter(|s| s.action != Action::Nudge)
        .map(|s| (s.action.as_str(), s.target.name.as_str()));
    named.collect()
}

/// W26: what is missing comes back, what was changed stays as it is, until the hub's wish is over.
#[test]
fn while_many_clusters_fail_alike_only_what_is_missing_is_put_back() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Image("source-controller"));
    let gone = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    cluster.objects.remove(&gone);
    let all = [
        ("create", "kustomize-controller"),
        ("apply", "source-controller"),
    ];
    let end = cluster.now + Duration::minutes(10);
    cluster.install.policy.safe_until = Some(end);
    let plan = cluster.plan();
    assert_eq!((plan.mode, actions(&plan)), (Mode::Act, all[..1].to_vec()));
    assert_eq!(plan.findings.len(), 2, "{:?}", plan.findings);
    cluster.now = end;
    let plan = cluster.plan();
    let both: BTreeSet<_> = actions(&plan).into_iter().collect();
    assert_eq!(both, all.into());
    // A hub cannot keep an agent from its work for longer.
    cluster.install.policy.safe_until = Some(end + Duration::minutes(66));
    assert_eq!(actions(&cluster.plan()).len(), 2);
}

#[test]
fn the_hub_opens_a_window_and_one_of_more_than_a_day_counts_for_nothing() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Image("source-controller"));
    for (ahead, paused) in [
        (Duration::hours(24), true),
        (Duration::seconds(1), true),
        // A day by the hub's clock, which is ahead.
        (Duration::hours(24) + Duration::minutes(5), true),
        (Duration::hours(24) + Duration::minutes(6), false),
        (Duration::seconds(-1), false),
    ] {
        let until = cluster.now + ahead;
        cluster.install.policy.paused_until = Some(until);
        let plan = cluster.plan();
        let expected = if paused {
            Mode::Paused(Window::at(until, By::Hub))
        } else {
            Mode::Act
        };
        assert_eq!((plan.mode, plan.steps.is_empty()), (expected, paused));
    }
}

fn owner(heal: Heal, paused_until: Option<OffsetDateTime>) -> Mending {
    Mending { heal, paused_until }
}

/// Each of them can narrow, and none can widen what another one said.
#[test]
fn of_all_windows_the_one_that_lasts_longest_is_in_force_whoever_opened_it() {
    let mut cluster = Cluster::working();
    let now = cluster.now;
    let at = |hours| Some(now + Duration::hours(hours));
    let until = |hours, by| Mode::Paused(Window::at(now + Duration::hours(hours), by));
    let open = |by| Mode::Paused(Window { end: End::Open, by });
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let never = now - Duration::HOUR;
    for (hub, here, said, mode) in [
        (None, None, Some(owner(Heal::On, None)), Mode::Act),
        (at(1), None, Some(owner(Heal::On, None)), until(1, By::Hub)),
        (
            None,
            None,
            Some(owner(Heal::On, at(2))),
            until(2, By::PausedUntil),
        ),
        (at(3), None, Some(owner(Heal::On, at(2))), until(3, By::Hub)),
        (
            at(1),
            None,
            Some(owner(Heal::On, at(2))),
            until(2, By::PausedUntil),
        ),
        (
            at(1),
            at(3),
            Some(owner(Heal::On, at(2))),
            until(3, By::Namespace),
        ),
        (
            at(1),
            at(2),
            Some(owner(Heal::On, at(3))),
            until(3, By::PausedUntil),
        ),
        // What reaches too far, and what is over.
        (at(25), None, Some(owner(Heal::On, at(25))), Mode::Act),
        (at(-1), None, Some(owner(Heal::On, at(0))), Mode::Act),
        (None, None, Some(owner(Heal::Safe, None)), Mode::Act),
        (
            at(1),
            None,
            Some(owner(Heal::Safe, at(2))),
            until(2, By::PausedUntil),
        ),
        (
            at(24),
            at(24),
            Some(owner(Heal::Off, at(24))),
            open(By::Heal),
        ),
        (
            at(24),
            None,
            Some(owner(Heal::Unclear, None)),
            open(By::Invalid),
        ),
        (at(1), None, None, Mode::Learning),
    ] {
        cluster.install.policy.paused_until = hub;
        cluster.install.policy.owner = said;
        annotate(&mut cluster, &namespace, MAINTENANCE, here.unwrap_or(never));
        assert_eq!(cluster.plan().mode, mode, "{hub:?} {here:?} {said:?}");
    }
}

#[test]
fn only_safe_heals_are_allowed_by_either_and_without_an_end_by_the_owner() {
    let mut policy = Cluster::working().install.policy;
    let now = Cluster::working().now;
    let soon = now + Duration::minutes(10);
    let (hub, own) = (
        Some(Window::at(soon, By::Hub)),
        Some(Window {
            end: End::Open,
            by: By::Heal,
        }),
    );
    for (safe_until, said, window) in [
        (None, Some(owner(Heal::On, None)), None),
        (None, None, None),
        (Some(soon), Some(owner(Heal::On, None)), hub),
        (Some(soon), Some(owner(Heal::Off, None)), hub),
        (None, Some(owner(Heal::Safe, Some(soon))), own),
        (Some(soon), Some(owner(Heal::Safe, None)), own),
        (
            Some(now + Duration::HOUR * 2),
            Some(owner(Heal::On, None)),
            None,
        ),
    ] {
        policy.safe_until = safe_until;
        policy.owner = said;
        assert_eq!(careful(now, &policy), window, "{safe_until:?} {said:?}");
    }
}

#[test]
fn what_the_owner_switched_off_is_reported_and_left_until_he_switches_it_on() {
    let mut cluster = Cluster::working();
    let gone = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    cluster.objects.remove(&gone);
    cluster.damage(&Damage::Image("source-controller"));
    cluster.install.policy.owner = Some(owner(Heal::Off, None));
    let both = ["kustomize-controller", "source-controller"];
    for _ in 0..200 {
        let plan = cluster.round();
        let named = plan.findings.iter().map(|f| f.object.name.as_str());
        let named: BTreeSet<&str> = named.collect();
        assert_eq!((named, plan.steps), (both.into(), Vec::new()));
    }
    cluster.install.policy.owner = Some(owner(Heal::Safe, None));
    let create = ("create", "kustomize-controller");
    assert_eq!(actions(&cluster.plan()), [create]);
    cluster.install.policy.owner = Some(owner(Heal::On, None));
    let plan = cluster.plan();
    let apply = ("apply", "source-controller");
    assert_eq!(
        actions(&plan).into_iter().collect::<BTreeSet<_>>(),
        [create, apply].into()
    );
    cluster.settle(100);
}

/// The alarm is for the end of the last of them.
#[test]
fn nothing_is_overdue_while_another_window_is_open() {
    let mut cluster = Cluster::working();
    let [first, last] = [1, 2].map(|hours| cluster.now + Duration::hours(hours));
    cluster.install.policy.paused_until = Some(first);
    cluster.install.policy.owner = Some(owner(Heal::On, Some(last)));
    cluster.damage(&Damage::Image("source-controller"));
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    let late = |cluster: &Cluster| {
        let (install, observed) = (&cluster.install, cluster.observed());
        let plan = cluster.plan();
        overdue(cluster.now, install, &observed, &cluster.history, &plan)
    };
    cluster.now = first;
    assert_eq!(late(&cluster), []);
    cluster.now = last;
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let fault = (plan.findings[0].class, id);
    assert_eq!(late(&cluster), [(fault, last)]);
    cluster.install.policy.owner = Some(owner(Heal::Off, Some(last)));
    assert_eq!(late(&cluster), []);
}

/// W24: untouched to the end of the window, then an alarm.
#[test]
fn a_fault_that_outlasts_its_window_is_overdue_and_one_that_came_later_is_not() {
    let mut cluster = Cluster::working();
    let names = |cluster: &Cluster, plan: &Plan| -> Vec<String> {
        let observed = cluster.observed();
        let history = &cluster.history;
        let all = overdue(cluster.now, &cluster.install, &observed, history, plan);
        all.into_iter().map(|((_, id), _)| id.name).collect()
    };
    let end = cluster.now + Duration::hours(1);
    cluster.install.policy.paused_until = Some(end);
    cluster.damage(&Damage::Image("source-controller"));
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    assert_eq!(names(&cluster, &plan), [""; 0], "the window is open");
    cluster.now = end;
    cluster.damage(&Damage::Image("kustomize-controller"));
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    assert_eq!(plan.mode, Mode::Act);
    assert_eq!(names(&cluster, &plan), ["source-controller"]);
    assert_eq!(actions(&plan).len(), 2, "both are mended");
    cluster.now = end + TOLD;
    assert_eq!(names(&cluster, &plan), [""; 0], "it is an old story");
    cluster.now = end;
    cluster.install.policy.paused_until = None;
    assert_eq!(names(&cluster, &plan), [""; 0], "somebody ended it");
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    annotate(&mut cluster, &id, MAINTENANCE, end);
    let plan = cluster.plan();
    assert_eq!(
        names(&cluster, &plan),
        ["source-controller"],
        "its own window"
    );
}

#[test]
fn the_guard_works_in_a_window_unless_the_deletion_was_allowed() {
    let mut cluster = Cluster::working();
    let crd = "kustomizations.kustomize.toolkit.fluxcd.io";
    let crd = ObjectId::new(Kind::CustomResourceDefinition, "", crd);
    let end = cluster.now + Duration::hours(1);
    cluster.install.policy.paused_until = Some(end);
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let plan = cluster.plan();
    let kinds: Vec<&str> = actions(&plan).iter().map(|(a, _)| *a).collect();
    assert_eq!(
        kinds,
        ["cut-rights", "cut-rights", "scale-to-zero", "release"]
    );
    annotate(&mut cluster, &crd, ALLOW_DELETE, end);
    assert_eq!(actions(&cluster.plan()), Vec::new());
    cluster.install.policy.paused_until = None;
    assert_eq!(actions(&cluster.plan()).len(), 4);
}

/// A word counts from before its end, and for so far ahead.
#[test]
fn a_word_counts_until_its_end_and_within_its_reach() {
    let mut cluster = Cluster::working();
    let now = cluster.now;
    let second = Duration::SECOND;
    let mut safe = |ahead| {
        cluster.install.policy.safe_until = Some(now + ahead);
        careful(now, &cluster.install.policy).is_some()
    };
    assert_eq!(
        [Duration::ZERO, second, SAFE + AHEAD, SAFE + AHEAD + second].map(&mut safe),
        [false, true, true, false]
    );
    let far = |ahead| counts(now, now + ahead);
    assert_eq!(
        [Duration::ZERO, second, LONGEST, LONGEST + second].map(far),
        [false, true, true, false]
    );
}
