//! Questions without an answer.

use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::plan::state::Lease;
use crate::clock::rfc3339;

/// A question to a controller that is up, and since when.
fn asked(engine: EngineKind, seconds: i64) -> Cluster {
    let mut cluster = Cluster::working_of(engine);
    let sync = cluster.install.sync.clone();
    let sent = rfc3339(cluster.now);
    let live = cluster.objects.get_mut(&sync).unwrap();
    match engine {
        EngineKind::Flux => live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(sent),
        EngineKind::Argocd => {
            live.fields["metadata"]["annotations"][PROBED_AT] = json!(sent);
            live.fields["metadata"]["annotations"][REFRESH] = json!("normal");
        }
    }
    cluster.now += Duration::seconds(seconds);
    cluster
}

#[test]
fn a_question_without_an_answer_is_a_wedged_queue_after_its_time() {
    for (seconds, progress, wedged) in [
        (90, false, false),
        (91, false, true),
        (91, true, false),
        (330, true, false),
        (331, true, true),
    ] {
        let mut cluster = asked(EngineKind::Flux, seconds);
        let sync = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&sync).unwrap();
        let status = if progress { "True" } else { "False" };
        live.fields["status"]["conditions"] = json!([{"type": "Reconciling", "status": status}]);
        let expected: &[_] = if wedged {
            &[(Class::QueueWedged, sync)]
        } else {
            &[]
        };
        let found = of_roots(&cluster, &cluster.observed());
        assert_eq!(found, expected, "{seconds} {progress}");
    }
}

/// F12: whoever waits within a root's own timeout is slow, as long as he renews his Lease; with a shorter one nobody has more time for that.
#[test]
fn a_root_that_is_waited_for_has_its_own_timeout_where_its_controller_is_alive() {
    const CHECKS: &str = "Running health checks";
    for (timeout, words, renewed, longest) in [
        ("10m0s", CHECKS, Some(0), 630),
        ("10m0s", CHECKS, Some(180), 630),
        ("10m0s", CHECKS, Some(181), 330),
        ("10m0s", CHECKS, None, 330),
        ("10m0s", "Detecting drift", Some(0), 630),
        ("10m0s", "Building manifests", Some(0), 330),
        ("10m0s", "Other words", Some(0), 330),
        ("5m0s", CHECKS, Some(0), 330),
        ("1m0s", CHECKS, Some(0), 330),
        ("24h0m0s", CHECKS, Some(0), 7_200),
    ] {
        for (seconds, wedged) in [(longest, 0), (longest + 1, 1)] {
            let mut cluster = asked(EngineKind::Flux, seconds);
            let sync = cluster.install.sync.clone();
            let live = cluster.objects.get_mut(&sync).unwrap();
            live.fields["spec"]["timeout"] = json!(timeout);
            live.fields["status"]["conditions"] = json!([
                {"type": "Ready", "status": "Unknown", "reason": "Progressing"},
                {
                    "type": "Reconciling", "status": "True", "reason": "Progressing",
                    "message": format!("{words} for revision main@sha1:1 with a timeout of {timeout}"),
                },
            ]);
            let mut observed = cluster.observed();
            let lease = renewed.map(|ago| Lease {
                uid: "u".to_owned(),
                holder: "kustomize-controller".to_owned(),
                acquired: None,
                renewed: cluster.now - Duration::seconds(ago),
                seen: cluster.now,
            });
            let name = "kustomize-controller-leader-election".to_owned();
            observed.leases.extend(lease.map(|lease| (name, lease)));
            let found = of_roots(&cluster, &observed);
            let expected = vec![(Class::QueueWedged, sync); wedged];
            assert_eq!(found, expected, "{timeout} {words} {renewed:?} {seconds}");
        }
    }
}

/// Its time runs from when it could answer: when it was asked, when its Pod runs, when nothing blinded it.
#[test]
fn a_controller_has_the_whole_time_from_when_it_could_answer() {
    let silent = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = asked(EngineKind::Flux, 91);
        change(&mut cluster);
        !of_roots(&cluster, &cluster.observed()).is_empty()
    };
    let app = "kustomize-controller";
    assert!(silent(&|_| ()));
    assert!(!silent(&|cluster| {
        let young = Some(cluster.now - Duration::seconds(90));
        cluster.pods.get_mut(app).unwrap().running = young;
    }));
    assert!(!silent(&|cluster| {
        let pod = cluster.pods.get_mut(app).unwrap();
        (pod.running, pod.created) = (None, Some(cluster.now - Duration::seconds(90)));
    }));
    assert!(!silent(&|cluster| {
        cluster.history.blinded = Some(cluster.now - Duration::seconds(90));
    }));
    assert!(!silent(&|cluster| {
        let live = cluster.objects.get_mut(&deployment(app)).unwrap();
        live.fields["status"]["availableReplicas"] = json!(0);
    }));
    assert!(!silent(&|cluster| {
        let sync = cluster.install.sync.clone();
        cluster.objects.get_mut(&sync).unwrap().deleting = Some(cluster.now);
    }));
    // Flux answers for what is suspended, too.
    assert!(silent(&|cluster| {
        let sync = cluster.install.sync.clone();
        cluster.objects.get_mut(&sync).unwrap().fields["spec"]["suspend"] = json!(true);
    }));
    assert!(!silent(&|cluster| {
        let sync = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.fields["metadata"]["annotations"][SKIP] = json!("true");
    }));
}

/// F29: what a suspended root said before it was suspended is old; that it owes an answer is not.
#[test]
fn a_suspended_root_is_asked_and_its_old_words_are_not_heard() {
    let said = |suspended: bool, answered: bool| {
        let mut cluster = Cluster::working();
        let roots = [cluster.install.source.clone(), cluster.install.sync.clone()];
        let at = rfc3339(cluster.now);
        for id in &roots {
            let live = cluster.objects.get_mut(id).unwrap();
            live.fields["spec"]["suspend"] = json!(suspended);
            live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(at);
            if answered {
                live.fields["status"]["lastHandledReconcileAt"] = json!(at);
            }
            live.fields["status"]["conditions"] = json!([
                {"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "bad"},
            ]);
        }
        cluster.now += Duration::seconds(91);
        let found = of_roots(&cluster, &cluster.observed());
        let class = |id: &ObjectId| {
            let of = found.iter().filter(|(_, object)| object == id);
            of.map(|(class, _)| *class).collect::<Vec<_>>()
        };
        [class(&roots[0]), class(&roots[1])]
    };
    let both = |classes: &[Class]| [classes.to_vec(), classes.to_vec()];
    assert_eq!(
        [
            said(false, true),
            said(false, false),
            said(true, true),
            said(true, false),
        ],
        [
            both(&[Class::BuildFailed]),
            both(&[Class::BuildFailed, Class::QueueWedged]),
            both(&[]),
            both(&[Class::QueueWedged]),
        ]
    );
}
