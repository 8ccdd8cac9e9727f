use serde_json::json;

use super::*;
use crate::agent::engine::Install;
use crate::agent::engine::flux::WITNESSES;
use crate::agent::plan::fault::Class;
use crate::agent::plan::tests::{Cluster, flux, install_with};
use crate::agent::plan::{Plan, plan};
use crate::clock::rfc3339;

mod applicationsets;
mod diagnosis;
mod read;

const SECOND: Duration = Duration::SECOND;

/// Flux with these controllers, too.
fn install(names: &[&'static str]) -> Install {
    let crds = [
        "receivers.notification.toolkit.fluxcd.io",
        "imagerepositories.image.toolkit.fluxcd.io",
        "imageupdateautomations.image.toolkit.fluxcd.io",
    ];
    let mut objects = flux();
    objects.extend(crds.map(|crd| (Kind::CustomResourceDefinition, crd)));
    for name in names {
        objects.extend([(Kind::ServiceAccount, *name), (Kind::Deployment, *name)]);
    }
    install_with(objects)
}

fn all() -> Vec<&'static str> {
    WITNESSES.iter().map(|(_, name)| *name).collect()
}

fn id(kind: Kind, name: &str) -> ObjectId {
    ObjectId::new(kind, "apps", name)
}

/// One that may be asked, and was `ago`, without an answer or with one.
fn asked(now: OffsetDateTime, ago: Duration, answered: bool) -> Witness {
    Witness {
        fit: true,
        probe: Some(Probe {
            sent: now - ago,
            answered,
        }),
        ..Witness::default()
    }
}

/// The plan at this moment with these to ask.
fn planned(cluster: &Cluster, witnesses: Vec<(ObjectId, Witness)>) -> Plan {
    let mut observed = cluster.observed();
    observed.witnesses = witnesses.into_iter().collect();
    plan(cluster.now, &cluster.install, &observed, &cluster.history)
}

fn steps(plan: &Plan) -> Vec<(&str, String)> {
    let steps = plan.steps.iter();
    steps
        .map(|step| (step.action.as_str(), step.target.to_string()))
        .collect()
}

/// Working for so long that each Pod has had the time to answer, and with nothing else to ask.
fn working(names: &[&'static str]) -> Cluster {
    let mut cluster = Cluster::working_with(install(names));
    cluster.now += Duration::hours(1);
    let now = rfc3339(cluster.now);
    for root in [cluster.install.source.clone(), cluster.install.sync.clone()] {
        let root = cluster.objects.get_mut(&root).unwrap();
        root.fields["metadata"]["annotations"][REQUESTED_AT] = json!(now);
        root.fields["status"]["lastHandledReconcileAt"] = json!(now);
    }
    cluster
}

/// F12: each controller that the install has is asked with one object of its kind, every five minutes.
#[test]
fn each_controller_is_asked_with_one_object_where_there_is_one() {
    let objects = || {
        let kinds = WITNESSES
            .iter()
            .flat_map(|(kind, _)| [(*kind, "a"), (*kind, "b")]);
        let fit = Witness {
            fit: true,
            ..Witness::default()
        };
        let all = kinds.map(|(kind, name)| (id(kind, name), fit));
        all.collect::<Vec<_>>()
    };
    let asks = |kind: Kind| ("nudge", format!("{kind} apps/a"));
    assert_eq!(
        steps(&planned(&working(&all()), objects())),
        WITNESSES.map(|(kind, _)| asks(kind))
    );
    // Of which the install has no controller, nothing is asked; nor where there is nothing to ask with.
    let one = working(&["notification-controller"]);
    assert_eq!(steps(&planned(&one, objects())), [asks(Kind::Receiver)]);
    assert_eq!(steps(&planned(&working(&all()), Vec::new())), []);
    let unfit = vec![(id(Kind::Receiver, "a"), Witness::default())];
    assert_eq!(steps(&planned(&working(&all()), unfit)), []);
}

#[test]
fn one_is_asked_again_after_its_answer_and_five_minutes() {
    for (ago, answered, again) in [(299, true, false), (300, true, true), (80, false, false)] {
        let cluster = working(&["notification-controller"]);
        let witness = asked(cluster.now, SECOND * ago, answered);
        let plan = planned(&cluster, vec![(id(Kind::Receiver, "a"), witness)]);
        assert_eq!(steps(&plan).len(), usize::from(again), "{ago} {answered}");
    }
    // The question may not have come back with the watch.
    let mut cluster = working(&["notification-controller"]);
    let target = id(Kind::Receiver, "a");
    let witness = asked(cluster.now, SECOND * 300, true);
    cluster
        .history
        .nudged
        .insert(target.clone(), cluster.now - SECOND);
    assert_eq!(steps(&planned(&cluster, vec![(target, witness)])), []);
}

/// A question from a time that a clock which was set back has yet to reach is asked anew. An answer is looked for when it is late.
#[test]
fn what_was_asked_ahead_of_the_clock_is_asked_anew_and_an_answer_looked_for_once() {
    let cluster = working(&["notification-controller"]);
    let (now, target) = (cluster.now, id(Kind::Receiver, "a"));
    for (ago, answered, asks, missed) in [
        (-1, false, 1, Some(92)),
        (-1, true, 1, None),
        (0, false, 0, Some(91)),
        (0, true, 0, None),
        (90, false, 0, Some(1)),
        (91, false, 0, None),
    ] {
        let mut observed = cluster.observed();
        let witness = asked(now, SECOND * ago, answered);
        observed.witnesses.insert(target.clone(), witness);
        let (steps, at) = probes(now, &cluster.install, &observed, &cluster.history);
        let missed = missed.map(|seconds: i32| now + SECOND * seconds);
        assert_eq!((steps.len(), at), (asks, missed), "{ago} {answered}");
    }
}

/// F18: it answers for none of them, and a new Pod of it would not come up. What the roots' controllers read is another matter.
#[test]
fn a_controller_that_can_read_none_of_its_kind_is_not_restarted_for_its_silence() {
    let cluster = working(&["notification-controller"]);
    let silent = asked(cluster.now, SECOND * 91, false);
    for (blinds, class, name) in [
        (None, Class::QueueWedged, "a"),
        (Some("/interval"), Class::UndecodableObject, "b"),
    ] {
        let other = Witness {
            blinds,
            ..Witness::default()
        };
        let both = [("a", silent), ("b", other)];
        let both = both.map(|(name, one)| (id(Kind::Receiver, name), one));
        let plan = planned(&cluster, both.into());
        let found = plan.findings.iter().map(|f| (f.class, &*f.object.name));
        assert_eq!(found.collect::<Vec<_>>(), [(class, name)]);
        let steps = steps(&plan);
        let restarts = steps.iter().any(|(action, _)| *action == "restart");
        assert_eq!(restarts, blinds.is_none(), "{steps:?}");
        let mut history = cluster.history.clone();
        history.saw(cluster.now, &plan);
        assert_eq!(history.blind_until(cluster.now), None);
    }
}

/// On a cluster that is shared, what is not on the owner's list is not touched.
#[test]
fn what_is_not_covered_is_not_asked() {
    for (covered, asks) in [(vec![], 0), (vec!["apps"], 1)] {
        let mut cluster = working(&["notification-controller"]);
        cluster.covered = Some(covered.into_iter().map(str::to_owned).collect());
        let fit = Witness {
            fit: true,
            ..Witness::default()
        };
        let plan = planned(&cluster, vec![(id(Kind::Receiver, "a"), fit)]);
        assert_eq!(steps(&plan).len(), asks);
    }
}

/// F12, W12: a controller that runs and does not answer gets another Pod; one of images has the time that a registry takes.
#[test]
fn one_that_does_not_answer_is_restarted() {
    let source = |takes| Witness {
        takes,
        ..Witness::default()
    };
    let minutes = Duration::minutes;
    for (kind, others, limit) in [
        (Kind::Receiver, source(minutes(9)), 90),
        (Kind::ImageRepository, source(Duration::ZERO), 330),
        (Kind::ImageRepository, source(minutes(9)), 600),
        (Kind::ImageRepository, source(Duration::hours(9)), 1860),
        (Kind::ImageUpdateAutomation, source(Duration::ZERO), 330),
    ] {
        let cluster = working(&all());
        for (ago, wedged) in [(limit, false), (limit + 1, true)] {
            let witness = asked(cluster.now, SECOND * ago, false);
            let plan = planned(
                &cluster,
                vec![(id(kind, "a"), witness), (id(kind, "b"), others)],
            );
            let controller = cluster.install.controller(&id(kind, "a"));
            let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
            if wedged {
                assert_eq!(
                    found,
                    [(Class::QueueWedged, &id(kind, "a"))],
                    "{kind} {ago}"
                );
                assert_eq!(steps(&plan), [("restart", controller.to_string())]);
            } else {
                assert_eq!((found, steps(&plan)), (vec![], vec![]), "{kind} {ago}");
                assert!(
                    plan.next_look <= cluster.now + SECOND,
                    "its lack is seen then"
                );
            }
        }
    }
}

/// A queue that moves is long, and not stuck; and where the Git host is away, each of its runs takes its whole time.
#[test]
fn one_that_is_busy_with_others_is_left_alone() {
    let mut cluster = working(&all());
    let repository = Kind::ImageRepository;
    let of = |cluster: &Cluster, kind: Kind, served: Option<Duration>| {
        let witness = asked(cluster.now, SECOND * 400, false);
        let other = Witness {
            served: served.map(|ago| cluster.now - ago),
            ..Witness::default()
        };
        let all = vec![(id(kind, "a"), witness), (id(kind, "b"), other)];
        planned(cluster, all)
            .findings
            .iter()
            .any(|f| f.class == Class::QueueWedged)
    };
    assert!(of(&cluster, repository, None));
    assert!(of(&cluster, repository, Some(SECOND * 331)));
    assert!(!of(&cluster, repository, Some(SECOND * 330)));
    let source = cluster.install.source.clone();
    cluster.objects.get_mut(&source).unwrap().fields["status"]["conditions"] = json!([{
        "type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": "dial tcp 192.0.2.1:22: i/o timeout",
    }]);
    assert!(of(&cluster, repository, None));
    assert!(!of(&cluster, Kind::ImageUpdateAutomation, None));
}

/// F12: what is of a shard another controller answers for, and is busy with.
#[test]
fn objects_of_shards_are_neither_asked_nor_an_excuse() {
    let kind = Kind::ImageRepository;
    let labels = json!({"sharding.fluxcd.io/key": "shard1"});
    let live = json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(),
        "metadata": {"name": "b", "namespace": "apps", "labels": labels},
    });
    let live: DynamicObject = serde_json::from_value(live).unwrap();
    let shard = Witness::of(kind, &live).shard;
    for (args, own) in [
        (json!([]), true),
        (
            json!(["--watch-label-selector=!sharding.fluxcd.io/key"]),
            false,
        ),
    ] {
        let mut cluster = working(&all());
        let controller = cluster.install.controller(&id(kind, "a"));
        let fields = &mut cluster.objects.get_mut(&controller).unwrap().fields;
        fields["spec"]["template"]["spec"]["containers"][0]["args"] = args.clone();
        let now = cluster.now;
        let of_shard = |fit: bool, served: Option<i32>, takes: i32| Witness {
            fit,
            served: served.map(|ago| now - SECOND * ago),
            takes: SECOND * takes,
            shard,
            ..Witness::default()
        };
        let with = |all: &[(&str, Witness)]| Observed {
            witnesses: all
                .iter()
                .map(|(name, one)| (id(kind, name), *one))
                .collect(),
            ..cluster.observed()
        };
        let theirs = with(&[("b", of_shard(true, None, 0))]);
        let (steps, _) = probes(now, &cluster.install, &theirs, &cluster.history);
        assert_eq!(steps.len(), usize::from(own), "{args}");
        for busy in [of_shard(false, Some(1), 0), of_shard(false, None, 600)] {
            let sent = asked(now, SECOND * 400, false);
            let both = with(&[("a", sent), ("b", busy)]);
            let mut found = Vec::new();
            silent(now, &cluster.install, &both, &mut found);
            assert_eq!(found.is_empty(), own, "{args} {busy:?}");
        }
    }
}

/// F12: a controller that is busy with objects that are over the bound is busy all the same.
#[test]
fn who_goes_on_with_objects_that_are_not_known_one_by_one_is_not_called_deaf() {
    let kind = Kind::ImageRepository;
    let mut cluster = working(&all());
    let is_deaf = |cluster: &Cluster, crowd: Option<Witness>| {
        let mut observed = cluster.observed();
        let sent = asked(cluster.now, SECOND * 400, false);
        observed.witnesses.insert(id(kind, "a"), sent);
        let crowd = crowd.map(|one| (kind, Crowd::default().with(&one)));
        observed.crowds.extend(crowd);
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        plan.findings.iter().any(|f| f.class == Class::QueueWedged)
    };
    let one = |served: Option<i32>, takes: i32| {
        Some(Witness {
            served: served.map(|ago| cluster.now - SECOND * ago),
            takes: SECOND * takes,
            ..Witness::default()
        })
    };
    for (crowd, deaf) in [
        (None, true),
        (one(None, 0), true),
        (one(Some(331), 0), true),
        (one(Some(330), 0), false),
        (one(None, 339), true),
        (one(None, 340), false),
    ] {
        assert_eq!(is_deaf(&cluster, crowd), deaf, "{crowd:?}");
    }
    cluster.now += SECOND;
    let late = Some(Witness {
        served: Some(cluster.now - SECOND * 331),
        ..Witness::default()
    });
    assert!(is_deaf(&cluster, late));
}

/// While its controller does not run, or came up a moment ago, no answer is missed.
#[test]
fn a_controller_that_is_down_is_not_called_deaf() {
    let mut cluster = working(&["notification-controller"]);
    let witness = asked(cluster.now, Duration::minutes(10), false);
    let all = || vec![(id(Kind::Receiver, "a"), witness)];
    let deaf = |cluster: &Cluster| {
        let plan = planned(cluster, all());
        plan.findings.iter().any(|f| f.class == Class::QueueWedged)
    };
    assert!(deaf(&cluster));
    let pod = cluster.pods.get_mut("notification-controller").unwrap();
    pod.running = Some(cluster.now - SECOND * 90);
    assert!(!deaf(&cluster));
    let controller = cluster.install.controller(&id(Kind::Receiver, "a"));
    cluster
        .pods
        .get_mut("notification-controller")
        .unwrap()
        .running = None;
    let live = cluster.objects.get_mut(&controller).unwrap();
    live.fields["status"]["availableReplicas"] = json!(0);
    assert!(!deaf(&cluster));
}
