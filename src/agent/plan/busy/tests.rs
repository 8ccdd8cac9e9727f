use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::plan::shard::Shard;
use crate::agent::plan::state::{Child, OwnLook, OwnRead};
use crate::agent::plan::tests::{Cluster, start};
use crate::agent::plan::{Class, plan};
use crate::bundle::ObjectId;
use crate::clock::rfc3339;

mod turns;

const MINUTE: Duration = Duration::minutes(1);

fn kustomization(ready: &str, spec: &Value) -> DynamicObject {
    let live = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "shop", "namespace": "apps"},
        "spec": spec,
        "status": {"conditions": [
            {"type": "Reconciling", "status": "True", "lastTransitionTime": rfc3339(start() - MINUTE)},
            {"type": "Ready", "status": ready, "lastTransitionTime": rfc3339(start())},
        ]},
    });
    serde_json::from_value(live).unwrap()
}

/// A cluster whose root was asked at the start, with so many Kustomizations at work since then.
fn asked(at_work: usize, ends: Duration, concurrent: Option<&str>) -> (Cluster, Observed) {
    let mut cluster = Cluster::working();
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(cluster.now));
    if let Some(flag) = concurrent {
        let controller = cluster.install.controller(&root);
        let live = cluster.objects.get_mut(&controller).unwrap();
        live.fields["spec"]["template"]["spec"]["containers"][0]["args"] =
            json!(["--log-level=info", flag]);
    }
    let began = cluster.now;
    let turn = Turn {
        began,
        ends: began + ends,
    };
    let children = (0..at_work).map(|n| {
        let id = ObjectId::new(Kind::Kustomization, "apps", &n.to_string());
        let child = Child {
            turn: Some(turn),
            ..Child::default()
        };
        (id, child)
    });
    let children = Arc::new(children.collect());
    let observed = Observed {
        children,
        ..cluster.observed()
    };
    (cluster, observed)
}

/// Whether the root's controller counts as wedged after each of these seconds.
fn wedged(cluster: &mut Cluster, observed: &Observed, looks: &[i64]) -> Vec<bool> {
    let began = cluster.now;
    let looks = looks.iter().map(|seconds| {
        let now = began + Duration::seconds(*seconds);
        let mut observed = observed.clone();
        for scope in observed.scopes.values_mut() {
            scope.answered = Some(now);
        }
        observed.pods_at = Some(now);
        cluster.history.noted(now, &cluster.install, &observed);
        let plan = plan(now, &cluster.install, &observed, &cluster.history);
        plan.findings.iter().any(|f| f.class == Class::QueueWedged)
    });
    looks.collect()
}

/// W12: what is asked waits for a worker, and has its whole time from when one is free.
#[test]
fn a_controller_without_a_free_worker_is_not_wedged() {
    let ends = Duration::seconds(300);
    for (at_work, concurrent, expected) in [
        (0, None, [false, true, true, true, true]),
        (3, None, [false, true, true, true, true]),
        (4, None, [false, false, false, false, true]),
        (4, Some("--concurrent=5"), [false, true, true, true, true]),
        // None is at work, however few there are to be.
        (0, Some("--concurrent=0"), [false, true, true, true, true]),
        (
            1,
            Some("--concurrent=1"),
            [false, false, false, false, true],
        ),
        (
            4,
            Some("--concurrent=many"),
            [false, false, false, false, true],
        ),
    ] {
        let (mut cluster, observed) = asked(at_work, ends, concurrent);
        let seen = wedged(&mut cluster, &observed, &[90, 91, 299, 389, 390]);
        assert_eq!(seen, expected, "{at_work} {concurrent:?}");
    }
}

fn of_shard(name: Option<&str>) -> Shard {
    let mut live = kustomization("True", &json!({}));
    let label = |name: &str| [("sharding.fluxcd.io/key".to_owned(), name.to_owned())].into();
    live.metadata.labels = name.map(label);
    Shard::of(&live)
}

/// W12: what a shard's own controllers are at keeps none of the install's workers, and is no excuse for them.
#[test]
fn work_of_shards_keeps_no_worker_of_the_installs() {
    let ours = Some("--watch-label-selector=!sharding.fluxcd.io/key");
    let theirs = Some("shard1");
    for (shard, flag, busy) in [
        (None, None, true),
        (theirs, None, true),
        (None, ours, true),
        (theirs, ours, false),
    ] {
        let (mut cluster, mut observed) = asked(4, Duration::seconds(300), flag);
        for child in Arc::make_mut(&mut observed.children).values_mut() {
            child.shard = of_shard(shard);
        }
        let seen = wedged(&mut cluster, &observed, &[91]);
        assert_eq!(seen, [!busy], "{shard:?} {flag:?}");
    }
}

/// W14: with the Git host away the source answers late, and started again it would have nothing of what was fetched.
#[test]
fn a_source_that_waits_for_a_host_that_is_away_is_not_wedged() {
    let dial = "failed to list refs: dial tcp 192.0.2.1:22: i/o timeout";
    for (message, read, expected) in [
        (dial, None, false),
        (dial, Some(()), true),
        ("couldn't find remote ref", None, true),
    ] {
        let (mut cluster, _) = asked(0, MINUTE, None);
        let id = cluster.install.source.clone();
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(cluster.now));
        live.fields["status"]["conditions"] = json!([{
            "type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": message,
            "lastTransitionTime": rfc3339(cluster.now),
        }]);
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["status"]["lastHandledReconcileAt"] = json!(rfc3339(cluster.now));
        let mut observed = cluster.observed();
        let read = read.map(|()| OwnRead {
            since: cluster.now,
            last: cluster.now,
        });
        observed.own_look = read.map_or(OwnLook::Failed, OwnLook::Read);
        assert_eq!(
            wedged(&mut cluster, &observed, &[331]),
            [expected],
            "{message} {read:?}"
        );
    }
}

fn repository(spec: &Value, ready: Option<(&str, &str)>) -> DynamicObject {
    let said = ready
        .map(|(status, message)| json!({"type": "Ready", "status": status, "message": message}));
    let live = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "shop", "namespace": "apps"},
        "spec": spec,
        "status": {"conditions": Vec::from_iter(said)},
    });
    serde_json::from_value(live).unwrap()
}

#[test]
fn a_fetch_takes_its_time_where_nobody_has_answered_yet() {
    let silent = "failed to list remotes: dial tcp 192.0.2.1:22: i/o timeout";
    let (plain, long) = (json!({}), json!({"timeout": "5m"}));
    for (spec, ready, seconds) in [
        (&plain, None, Some(60)),
        (&plain, Some(("Unknown", "building artifact")), Some(60)),
        (&plain, Some(("True", "stored artifact")), None),
        (&plain, Some(("False", silent)), Some(60)),
        (&plain, Some(("False", "couldn't find remote ref")), None),
        (&long, Some(("False", silent)), Some(300)),
        (&json!({"timeout": "later"}), None, Some(60)),
        (&json!({"timeout": "240h"}), None, Some(7200)),
        (&json!({"suspend": true}), None, None),
    ] {
        let live = repository(spec, ready);
        let expected = seconds.map(Duration::seconds);
        assert_eq!(
            fetch(Kind::GitRepository, &live),
            expected,
            "{spec} {ready:?}"
        );
        assert_eq!(fetch(Kind::Bucket, &live), None, "another queue");
    }
}

/// W12: the source's probe waits until repositories whose host is silent have had their time; restarted, the controller
/// would have lost all that was fetched.
#[test]
fn a_source_behind_slow_ones_is_not_wedged() {
    for (slow, concurrent, over) in [
        (0, None, 90),
        (1, None, 120),
        (10, None, 390),
        (10, Some("--concurrent=10"), 150),
        (10, Some("--concurrent=0"), 690),
        (1000, None, 990),
    ] {
        let mut cluster = Cluster::working();
        let root = cluster.install.source.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(cluster.now));
        if let Some(flag) = concurrent {
            let controller = cluster.install.controller(&root);
            let live = cluster.objects.get_mut(&controller).unwrap();
            live.fields["spec"]["template"]["spec"]["containers"][0]["args"] = json!([flag]);
        }
        let child = Child {
            fetch: Some(MINUTE),
            ..Child::default()
        };
        let id = |n: i32| ObjectId::new(Kind::GitRepository, "apps", &n.to_string());
        let observed = Observed {
            children: Arc::new((0..slow).map(|n| (id(n), child.clone())).collect()),
            ..cluster.observed()
        };
        let seen = wedged(&mut cluster, &observed, &[over, over + 1]);
        assert_eq!(seen, [false, true], "{slow} {concurrent:?}");
    }
}

/// W12: a repository of a shard is fetched by another source-controller.
#[test]
fn a_source_waits_for_no_repository_of_a_shard() {
    for (shard, over) in [(None, 120), (Some("shard1"), 90)] {
        let mut cluster = Cluster::working();
        let root = cluster.install.source.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(cluster.now));
        let controller = cluster.install.controller(&root);
        let live = cluster.objects.get_mut(&controller).unwrap();
        live.fields["spec"]["template"]["spec"]["containers"][0]["args"] =
            json!(["--watch-label-selector", "!sharding.fluxcd.io/key"]);
        let child = Child {
            fetch: Some(MINUTE),
            shard: of_shard(shard),
            ..Child::default()
        };
        let id = ObjectId::new(Kind::GitRepository, "apps", "one");
        let observed = Observed {
            children: Arc::new([(id, child)].into()),
            ..cluster.observed()
        };
        let seen = wedged(&mut cluster, &observed, &[over, over + 1]);
        assert_eq!(seen, [false, true], "{shard:?}");
    }
}

/// A drained node is over in a moment; what has not worked for a while is looked at more closely.
#[test]
fn it_is_known_since_when_a_workload_does_not_work() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let began = cluster.now;
    let mut seen = |available: i64, seconds: i64| {
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["status"]["availableReplicas"] = json!(available);
        let observed = cluster.observed();
        let now = began + Duration::seconds(seconds);
        cluster.history.noted(now, &cluster.install, &observed);
        cluster.history.down.clone()
    };
    let since = |seconds: i64| BTreeMap::from([(id.clone(), began + Duration::seconds(seconds))]);
    assert_eq!(seen(1, 0), BTreeMap::new());
    assert_eq!(seen(0, 1), since(1));
    assert_eq!(seen(0, 9), since(1));
    assert_eq!(seen(1, 10), BTreeMap::new());
    assert_eq!(seen(0, 11), since(11));
}

/// F12: Argo CD's controller goes from one Application to the next, and the root waits for its turn: for a quarter of an
/// hour, for a worker may hang while the others go on.
#[test]
fn an_argo_cd_that_goes_on_with_other_applications_does_not_hang() {
    let second = Duration::SECOND;
    let cases: [(Duration, Option<Duration>, bool); 6] = [
        (second * 91, None, true),
        // Before it was asked.
        (second * 91, Some(-second), true),
        (second * 91, Some(second), false),
        (second * 100, Some(second * 9), true),
        (MINUTE * 14, Some(MINUTE * 13), false),
        (MINUTE * 15, Some(MINUTE * 14), true),
    ];
    for (waited, done, expected) in cases {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        cluster.now += Duration::hours(1);
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        let annotations = &mut live.fields["metadata"]["annotations"];
        annotations[PROBED_AT] = json!(rfc3339(cluster.now));
        annotations[REFRESH] = json!("normal");
        let mut observed = cluster.observed();
        let shop = done.map(|after| {
            let status = json!({"reconciledAt": rfc3339(cluster.now + after)});
            let live = json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": "shop", "namespace": "argocd"}, "status": status,
            });
            let live = serde_json::from_value(live).unwrap();
            let child = Child {
                turn: Turn::of(Kind::Application, &live),
                ..Child::default()
            };
            (ObjectId::new(Kind::Application, "argocd", "shop"), child)
        });
        observed.children = Arc::new(shop.into_iter().collect());
        let found = wedged(&mut cluster, &observed, &[waited.whole_seconds()]);
        assert_eq!(
            found,
            [expected],
            "asked {waited} ago, done with another {done:?} after that"
        );
    }
}
