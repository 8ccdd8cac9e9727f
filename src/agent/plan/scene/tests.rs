use serde_json::json;

use super::*;
use crate::agent::plan::tests::{Cluster, source, start};

fn event(kind: &str, name: &str, minutes: i64, message: &str) -> Event {
    let at = rfc3339(start() - Duration::minutes(minutes));
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": "x", "namespace": "flux-system"},
        "involvedObject": {"kind": kind, "name": name}, "type": "Warning", "reason": "BackOff",
        "message": message, "lastTimestamp": at, "count": 3,
    }))
    .unwrap()
}

fn events(now: OffsetDateTime, id: &ObjectId, all: &[Event]) -> Vec<ObjectEvent> {
    let about = all.iter().filter_map(|event| about(now, id, event));
    newest(about.collect())
}

#[test]
fn events_about_an_object_and_its_pods_are_told_newest_first() {
    let all = [
        event("Pod", "source-controller-7f-x", 5, "older"),
        event("Deployment", "source-controller", 1, "newer"),
        event("ReplicaSet", "source-controller-7f", 9, "oldest"),
        event("Pod", "source-controller-7f-x", 11, "too old"),
        event("Pod", "source-controllers-7f", 1, "of another"),
        event("Service", "source-controller", 1, "another kind"),
        event("Pod", "kustomize-controller-7f", 1, "of another"),
        Event {
            reporting_component: Some("linesman-agent".to_owned()),
            ..event("Deployment", "source-controller", 1, "our own")
        },
    ];
    let told = events(start(), &source(), &all);
    let named: Vec<_> = told
        .iter()
        .map(|e| (e.object.as_str(), e.message.as_str()))
        .collect();
    assert_eq!(
        named,
        [
            ("Deployment source-controller", "newer"),
            ("Pod source-controller-7f-x", "older"),
            ("ReplicaSet source-controller-7f", "oldest"),
        ]
    );
    let expected = ObjectEvent {
        at: rfc3339(start() - Duration::minutes(1)),
        kind: "Warning".to_owned(),
        object: "Deployment source-controller".to_owned(),
        reason: "BackOff".to_owned(),
        message: "newer".to_owned(),
        count: 3,
    };
    assert_eq!(told[0], expected);
}

/// F2: an account has Pods by the name that it shares with its controller; no other kind has any.
#[test]
fn events_of_pods_are_told_of_controllers_and_of_accounts() {
    let all = [event("Pod", "source-controller-7f-x", 1, "x")];
    for (kind, expected) in [
        (Kind::Deployment, 1),
        (Kind::StatefulSet, 1),
        (Kind::ServiceAccount, 1),
        (Kind::Service, 0),
    ] {
        let id = ObjectId::new(kind, "flux-system", "source-controller");
        assert_eq!(events(start(), &id, &all).len(), expected, "{kind}");
    }
}

#[test]
fn what_is_told_is_bounded() {
    let long = "x".repeat(2_000);
    let many: Vec<Event> = (0..50)
        .map(|_| event("Deployment", "source-controller", 1, &long))
        .collect();
    let told = events(start(), &source(), &many);
    assert_eq!(told.len(), MAX_ALL / MAX_TEXT);
    assert!(told.iter().all(|e| e.message.len() == MAX_TEXT));
    let short: Vec<Event> = (0..50)
        .map(|_| event("Deployment", "source-controller", 1, "x"))
        .collect();
    assert_eq!(events(start(), &source(), &short).len(), MAX_EVENTS);
}

#[test]
fn an_object_is_told_with_its_uid_and_its_conditions() {
    let mut cluster = Cluster::working();
    let live = cluster.objects.get_mut(&source()).unwrap();
    live.uid = "u1".to_owned();
    let one = json!({
        "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable",
        "message": "no minimum", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "x",
    });
    live.fields["status"]["conditions"] = json!([one]);
    let expected = Scene {
        uid: "u1".to_owned(),
        conditions: vec![ObjectCondition {
            kind: "Available".to_owned(),
            status: "False".to_owned(),
            reason: "MinimumReplicasUnavailable".to_owned(),
            message: "no minimum".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        }],
        ..Scene::default()
    };
    assert_eq!(of(cluster.objects.get(&source())), expected);
    assert_eq!(of(None), Scene::default());
}

/// F39: Flux ends what it says of an object that is refused with a newline, and the next action stood alone in a line.
#[test]
fn words_of_an_engine_are_one_line() {
    for (text, told) in [
        (
            "expected map, got &{[1]}\n; mend it",
            "expected map, got &{[1]}; mend it",
        ),
        (
            "ReconciliationFailed: a\n\n  b\r\n",
            "ReconciliationFailed: a b",
        ),
        ("a\tb", "a b"),
        ("BuildFailed: ", "BuildFailed: "),
        ("", ""),
    ] {
        assert_eq!(line(text), told, "{text:?}");
    }
}

#[test]
fn no_password_of_a_url_is_told() {
    for (text, shown) in [
        (
            "clone 'https://ann:secret@git.test/a.git': EOF",
            "clone 'https://ann:***@git.test/a.git': EOF",
        ),
        ("https://ann:se@cret@git.test", "https://ann:***@git.test"),
        ("ssh://git@git.test/a", "ssh://git@git.test/a"),
        ("GET https://token@git.test/a", "GET https://***@git.test/a"),
        ("a\nb://c", "a b://c"),
        ("mail ann@git.test", "mail ann@git.test"),
        ("http://a:b@c http://d:e@f", "http://a:***@c http://d:***@f"),
    ] {
        assert_eq!(safe(text), shown);
    }
}
