//! How far a change is, and when its time is over.

use super::*;
use crate::agent::plan::tests::{Cluster, Damage};
use crate::agent::plan::{self, Class};
use crate::clock::rfc3339;

#[test]
fn what_is_not_as_wanted_is_waited_for_and_then_given_up() {
    let mut cluster = Cluster::working();
    let began = cluster.now;
    let mut running = change(1, 2, false);
    running.since = rfc3339(began);
    let judge = |cluster: &Cluster, running: &Change, adopted: bool| {
        let plan = cluster.plan();
        let observed = cluster.observed();
        let seen = Seen {
            now: cluster.now,
            followed: began,
            held: None,
            install: &cluster.install,
            observed: &observed,
            plan: &plan,
            ailing: &cluster.history.ailing,
            adopted,
        };
        progress(running, &seen)
    };
    assert_eq!(judge(&cluster, &running, true), Progress::Rolled);
    // What may stay for good is no matter of the new version's.
    let mut beside = cluster.observed();
    beside.elsewhere.insert("elsewhere".to_owned());
    let plan = plan::plan(cluster.now, &cluster.install, &beside, &cluster.history);
    let classes: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
    assert_eq!(classes, [Class::TwoInstalls]);
    let seen = Seen {
        now: cluster.now,
        followed: began,
        held: None,
        install: &cluster.install,
        observed: &beside,
        plan: &plan,
        ailing: &Ailing::default(),
        adopted: true,
    };
    assert_eq!(progress(&running, &seen), Progress::Rolled);
    cluster.damage(&Damage::Image("source-controller"));
    let Progress::Going(text) = judge(&cluster, &running, true) else {
        panic!("it has time");
    };
    assert!(text.contains("source-controller"), "{text}");
    cluster.now += running.limit();
    assert!(matches!(
        judge(&cluster, &running, true),
        Progress::Failed(_)
    ));
    // Nothing worked before; it is the way back itself.
    assert!(matches!(
        judge(&cluster, &running, false),
        Progress::Going(_)
    ));
    let back = Change {
        to: running.from.clone(),
        ..running
    };
    assert!(matches!(judge(&cluster, &back, true), Progress::Going(_)));
}

/// No time passes while nothing may be done, nor before a new agent has looked.
#[test]
fn the_time_of_a_change_runs_from_the_last_moment_in_which_it_could_not_go_on() {
    let cluster = Cluster::working();
    let began = cluster.now;
    let mut running = change(1, 2, false);
    running.since = rfc3339(began);
    let limit = running.limit();
    let second = Duration::SECOND;
    let late = |now, followed, held: Option<Duration>, mode, since: &str| {
        let change = Change {
            since: since.to_owned(),
            ..running.clone()
        };
        let plan = Plan {
            mode,
            ..cluster.plan()
        };
        is_late(
            &change,
            &Seen {
                now: began + now,
                followed: began + followed,
                held: held.map(|at| began + at),
                install: &cluster.install,
                observed: &cluster.observed(),
                plan: &plan,
                ailing: &Ailing::default(),
                adopted: true,
            },
        )
    };
    let none = Duration::ZERO;
    let since = running.since.as_str();
    for (now, followed, held, expected) in [
        (limit - second, none, None, false),
        (limit, none, None, true),
        (limit + LOOK - second, limit, None, false),
        (limit + LOOK, limit, None, true),
        (limit + second * 9, none, Some(second * 10), false),
        (limit + second * 10, none, Some(second * 10), true),
    ] {
        let said = late(now, followed, held, Mode::Act, since);
        assert_eq!(said, expected, "{now} {followed} {held:?}");
        assert!(!late(now, followed, held, Mode::Learning, since));
    }
    // Of a time that cannot be read, the agent's own counts.
    assert!(late(limit, none, None, Mode::Act, "soon"));
    assert!(!late(limit, second, None, Mode::Act, "soon"));
}

#[test]
fn a_workload_is_rolled_when_every_pod_is_of_the_present_template_and_available() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let live = Cluster::working().objects[&id].clone();
    let status = |generation: i64, all, updated, available, missing| {
        let mut live = live.clone();
        live.fields["status"] = serde_json::json!({
            "observedGeneration": live.generation + generation, "replicas": all, "updatedReplicas": updated,
            "availableReplicas": available, "unavailableReplicas": missing,
        });
        is_rolled(&live)
    };
    assert!(status(0, 1, 1, 1, 0) && status(1, 2, 2, 1, 0));
    assert!(!status(-1, 1, 1, 1, 0));
    assert!(!status(0, 0, 0, 1, 0));
    assert!(!status(0, 1, 1, 0, 0));
    assert!(!status(0, 2, 1, 1, 0));
    assert!(!status(0, 1, 1, 1, 1));
}
