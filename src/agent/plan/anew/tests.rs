use serde_json::{Value, json};

use super::*;
use crate::agent::engine::argocd::{REFRESH, SKIP};
use crate::agent::plan::quarantine::HELD;
use crate::agent::plan::state::Past;
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{MAINTENANCE, plan};
use crate::bundle::Kind;
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

const DENIED: &str = "failed calling webhook \"nobody.test\"";

fn working() -> Cluster {
    Cluster::working_of(EngineKind::Argocd)
}

fn root(cluster: &mut Cluster) -> &mut Value {
    let id = &cluster.install.sync;
    &mut cluster.objects.get_mut(id).unwrap().fields
}

/// An operation of the root has just failed with these words, and Argo CD says that it begins none.
fn fails(cluster: &mut Cluster, message: &str) {
    let now = rfc3339(cluster.now);
    let fields = root(cluster);
    let annotations = fields["metadata"]["annotations"].as_object_mut();
    annotations.unwrap().remove(REFRESH);
    fields["status"] = json!({
        "reconciledAt": now, "sync": {"status": "OutOfSync", "revision": "2"},
        "operationState": {
            "phase": "Failed", "startedAt": now, "finishedAt": now, "message": message,
            "syncResult": {"revision": "2"},
        },
        "conditions": [{
            "type": "SyncError", "message": format!("Failed last sync attempt to [2]: {message}"),
        }],
    });
}

fn retry(cluster: &Cluster) -> Step {
    let root = cluster.install.sync.clone();
    Step {
        action: Action::Retry,
        target: root.clone(),
        cause: Some((Class::ApplyFailed, root)),
    }
}

/// F39: whatever was in the way may be gone, and nobody else would try again before the next commit.
#[test]
fn what_argo_cd_tries_no_more_is_begun_anew_less_and_less_often() {
    let mut cluster = working();
    let (began, expected) = (cluster.now, retry(&cluster));
    fails(&mut cluster, DENIED);
    let mut asked = Vec::new();
    for tick in 0..750 {
        cluster.now = began + Duration::seconds(10) * tick;
        let observed = cluster.observed();
        let now = cluster.now;
        cluster.history.noted(now, &cluster.install, &observed);
        let plan = cluster.plan();
        cluster.history.saw(now, &plan);
        for step in plan.steps.iter().filter(|s| s.action == Action::Retry) {
            assert_eq!(step, &expected);
            let outcome = cluster.act(step);
            assert_eq!(root(&mut cluster)["status"]["operationState"], Value::Null);
            cluster.history.acted(now, step, &outcome, &observed);
            asked.push((now - began).whole_minutes());
            fails(&mut cluster, DENIED);
        }
    }
    assert_eq!(asked, [1, 6, 21, 51, 81, 111]);
}

/// A minute after an operation failed; `change` is made of what is there by then.
fn is_asked(change: impl Fn(&mut Cluster)) -> bool {
    let mut cluster = working();
    fails(&mut cluster, DENIED);
    let past = Past {
        since: Some(cluster.now),
        ..Past::default()
    };
    let id = cluster.install.sync.clone();
    cluster
        .history
        .faults
        .insert((Class::ApplyFailed, id), past);
    cluster.now += Duration::seconds(61);
    change(&mut cluster);
    let observed = cluster.observed();
    let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
    plan.steps.contains(&retry(&cluster))
}

#[test]
fn only_what_argo_cd_itself_says_it_tries_no_more_is_begun_anew() {
    let says = |field: &'static str, value: Value| {
        is_asked(|cluster| root(cluster)["status"][field] = value.clone())
    };
    let condition = |message: &str| json!([{"type": "SyncError", "message": message}]);
    let older = condition("Failed sync attempt to 2: denied");
    let wipes = "Skipping sync attempt to [2]: auto-sync will wipe out all resources";
    for (field, value, expected) in [
        ("health", json!({}), true),
        ("conditions", older, true),
        ("conditions", condition(wipes), false),
        ("conditions", json!([]), false),
        ("sync", json!({"status": "Unknown"}), false),
        ("sync", json!({"status": "Synced", "revision": "2"}), false),
    ] {
        assert_eq!(says(field, value.clone()), expected, "{field} {value}");
    }
    for (phase, expected) in [("Error", true), ("Running", false), ("Succeeded", false)] {
        let asked = is_asked(|cluster| {
            root(cluster)["status"]["operationState"]["phase"] = json!(phase);
        });
        assert_eq!(asked, expected, "{phase}");
    }
}

#[test]
fn what_somebody_has_stopped_is_not_begun_anew() {
    let hour = Duration::HOUR;
    let annotated = |name: &'static str, value: String| {
        is_asked(|cluster| root(cluster)["metadata"]["annotations"][name] = json!(value))
    };
    assert!(!annotated(SKIP, "true".to_owned()));
    let until = rfc3339(working().now + hour);
    assert!(!annotated(MAINTENANCE, until));
    assert!(!is_asked(|cluster| {
        root(cluster)["spec"]["syncPolicy"]["automated"] = Value::Null;
    }));
    assert!(!is_asked(|cluster| {
        cluster.install.policy.paused_until = Some(cluster.now + hour);
    }));
    assert!(!is_asked(|cluster| {
        let now = cluster.now;
        let id = cluster.install.sync.clone();
        cluster.objects.get_mut(&id).unwrap().deleting = Some(now);
    }));
}

/// F54: an operation that stood still was ended by the agent, which is nobody's wish that it be over.
#[test]
fn an_operation_that_was_ended_is_begun_anew_unless_a_person_did_it() {
    let by_argocd = "Operation terminated, triggered by controller sync timeout (retried 1 times).";
    for (message, by_agent, expected) in [
        ("Operation terminated", None, false),
        ("Operation terminated (retried 3 times).", None, false),
        ("Operation terminated", Some(50), true),
        // That was the one before.
        ("Operation terminated", Some(70), false),
        (by_argocd, None, true),
    ] {
        let asked = is_asked(|cluster| {
            root(cluster)["status"]["operationState"]["message"] = json!(message);
            let past = |ago| Past {
                attempts: vec![cluster.now - Duration::seconds(ago)],
                ..Past::default()
            };
            let key = (Class::OperationStuck, cluster.install.sync.clone());
            let stuck = by_agent.map(|ago| (key, past(ago)));
            cluster.history.faults.extend(stuck);
        });
        assert_eq!(asked, expected, "{message} {by_agent:?}");
    }
}

/// What a commit did to the engine, what is held back from Git and what the guard took come first.
#[test]
fn nothing_is_begun_anew_while_the_engine_is_not_as_it_has_to_be() {
    let mut cluster = working();
    fails(&mut cluster, DENIED);
    let id = cluster.install.sync.clone();
    let past = Past {
        since: Some(cluster.now),
        ..Past::default()
    };
    let key = (Class::ApplyFailed, id.clone());
    cluster.history.faults.insert(key, past);
    let server = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
    let now = cluster.now + Duration::MINUTE;
    let asked = |cluster: &Cluster, found: &[(Class, &ObjectId)]| {
        let finding = |(class, id): &(Class, &ObjectId)| Finding::new(*class, id, "");
        let found: Vec<Finding> = found.iter().map(finding).collect();
        let (install, observed) = (&cluster.install, cluster.observed());
        let (steps, next) = asks(now, install, &observed, &cluster.history, &found);
        assert_eq!(next, None);
        !steps.is_empty()
    };
    let other = ObjectId::new(Kind::Application, "argocd", "shop");
    for (class, of, expected) in [
        (Class::ApplyFailed, &id, true),
        (Class::GitUnreachable, &other, true),
        (Class::BadEngineCommit, &server, false),
        (Class::SourceAltered, &id, false),
    ] {
        assert_eq!(asked(&cluster, &[(class, of)]), expected, "{class}");
    }
    let cut = ObjectId::new(
        Kind::ClusterRoleBinding,
        "",
        "argocd-application-controller",
    );
    cluster.history.cut.insert(cut, String::new());
    assert!(!asked(&cluster, &[]));
    cluster.history.cut.clear();
    assert!(asked(&cluster, &[]));
    // Nobody has told the root of this hold yet.
    let hold = json!({
        "revision": "2", "since": rfc3339(now), "reason": "", "attempt": 1,
    });
    let live = cluster.objects.get_mut(&server).unwrap();
    live.fields["metadata"]["annotations"][HELD] = json!(hold.to_string());
    assert!(!asked(&cluster, &[]));
    let live = cluster.objects.get_mut(&server).unwrap();
    live.fields["metadata"]["annotations"][HELD] = Value::Null;
    cluster.pods.clear();
    assert!(!asked(&cluster, &[]));
}

/// What came to nothing is no reason to ask at once, and by a controller's clock that is ahead an operation ends in what is to come.
#[test]
fn the_next_one_is_begun_so_long_after_the_last() {
    let mut cluster = working();
    fails(&mut cluster, DENIED);
    let (since, observed) = (cluster.now, cluster.observed());
    let key = (Class::ApplyFailed, cluster.install.sync.clone());
    let minutes = |all: &[i64]| {
        let at = |minute: &i64| since + Duration::minutes(*minute);
        all.iter().map(at).collect::<Vec<_>>()
    };
    for (attempts, unserved, expected) in [
        (&[][..], &[][..], 1),
        (&[2], &[], 7),
        (&[2, 3], &[], 18),
        (&[2, 10], &[], 34),
        (&[2, 30], &[], 60),
        (&[90], &[], 120),
        (&[], &[1], 1),
    ] {
        let past = Past {
            since: Some(since),
            attempts: minutes(attempts),
            unserved: minutes(unserved),
            ..Past::default()
        };
        cluster.history.faults.insert(key.clone(), past);
        let at = due(since, &cluster.install, &observed, &cluster.history).unwrap();
        assert_eq!((at - since).whole_minutes(), expected, "{attempts:?}");
    }
    let past = Past {
        since: Some(since),
        ..Past::default()
    };
    cluster.history.faults.insert(key, past);
    let before = since - Duration::minutes(3);
    let at = due(before, &cluster.install, &observed, &cluster.history);
    assert_eq!(at, Some(since + FIRST));
}
