//! What is read of an `ApplicationSet`.

use super::*;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH_SET};

fn live(generators: &Value, conditions: &Value) -> DynamicObject {
    let live = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "a", "namespace": "argocd"},
        "spec": {"generators": generators}, "status": {"conditions": conditions},
    });
    serde_json::from_value(live).unwrap()
}

fn read(live: &DynamicObject) -> Witness {
    Witness::of(Kind::ApplicationSet, live)
}

/// What its controller says of one that came to its end.
fn done() -> Value {
    json!([
        {"type": "ErrorOccurred", "status": "False"},
        {"type": "ResourcesUpToDate", "status": "True"},
    ])
}

/// How long a worker may be with another set.
#[test]
fn a_look_takes_as_long_as_those_whom_it_asks() {
    let (list, of_git) = (json!({"list": {}}), json!({"git": {}}));
    let nested = json!({"matrix": {"generators": [of_git, of_git]}});
    for (generators, takes) in [
        (json!([]), 0),
        (json!([list]), 0),
        (json!([{"clusters": {}, "selector": {"git": {}}}]), 0),
        (json!([{"clusterDecisionResource": {}}]), 0),
        (json!([of_git]), 3),
        (json!([{"merge": {"generators": [list, nested]}}]), 6),
        (json!([list, {"scmProvider": {}}]), 10),
        (json!([{"pullRequest": {}}, of_git]), 13),
        (
            json!([{"matrix": {"generators": [list, {"plugin": {}}]}}]),
            10,
        ),
    ] {
        let said = read(&live(&generators, &done()));
        assert_eq!(said.takes, Duration::minutes(takes), "{generators}");
    }
}

/// Others' would be written over with the answer. Of ours, while its looks fail, it cannot be told whether there was another one.
#[test]
fn only_ours_is_asked_and_not_while_its_looks_fail() {
    let says = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let (error, done_with) = ("ErrorOccurred", "ResourcesUpToDate");
    for (conditions, fit) in [
        (done(), true),
        // Its controller may have hung before it was made.
        (json!([]), true),
        (
            json!([says(error, "True"), says(done_with, "False")]),
            false,
        ),
        (json!([says(error, "False")]), true),
    ] {
        let mut set = live(&json!([]), &conditions);
        assert!(!read(&set).fit, "{conditions}");
        set.metadata.name = Some(CANARY.to_owned());
        assert_eq!(read(&set).fit, fit, "{conditions}");
        set.metadata.deletion_timestamp =
            serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
        assert!(!read(&set).fit);
    }
}

/// Its controller takes away the question and leaves the time. A person asks in the same way, and says no time.
#[test]
fn the_answer_is_that_the_question_is_gone() {
    const ASKED: &str = "2027-01-15T08:00:00Z";
    const LATER: &str = "2027-01-15T08:04:00Z";
    let (none, time): (&[&str], &[&str]) = (&[], &[PROBED_AT]);
    let (ours, theirs): (&[&str], &[&str]) = (&[REFRESH_SET, PROBED_AT], &[REFRESH_SET]);
    for (what, carries, writers, expected) in [
        ("not asked", none, vec![], None),
        ("answered", time, vec![time], Some((ASKED, true))),
        ("not answered", ours, vec![ours], Some((ASKED, false))),
        (
            "a person's, later",
            ours,
            vec![time, theirs],
            Some((LATER, false)),
        ),
        (
            "a person's alone",
            theirs,
            vec![theirs],
            Some((LATER, false)),
        ),
        ("nobody's", ours, vec![], Some((ASKED, false))),
    ] {
        let mut set = live(&json!([]), &done());
        let annotations = carries.iter().map(|name| {
            let value = if *name == PROBED_AT { ASKED } else { "true" };
            ((*name).to_owned(), value.to_owned())
        });
        set.metadata.annotations = Some(annotations.collect());
        let entries = writers.iter().map(|names| {
            let names = names.iter().map(|name| (format!("f:{name}"), json!({})));
            let names: serde_json::Map<String, Value> = names.collect();
            json!({
                "manager": "m", "operation": "Update", "time": LATER, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:annotations": names}},
            })
        });
        let entries = serde_json::from_value(entries.collect()).unwrap();
        set.metadata.managed_fields = Some(entries);
        let expected = expected.map(|(at, answered)| Probe {
            sent: parse_rfc3339(at).unwrap(),
            answered,
        });
        assert_eq!(read(&set).probe, expected, "{what}");
    }
}

/// It writes only what is new.
#[test]
fn what_its_controller_said_last_shows_that_it_works() {
    let at = |minute: u8| format!("2027-01-15T08:0{minute}:00Z");
    let mut set = live(
        &json!([]),
        &json!([
            {"type": "ErrorOccurred", "lastTransitionTime": at(1)},
            {"type": "ResourcesUpToDate", "lastTransitionTime": at(2)},
        ]),
    );
    assert_eq!(read(&set).served, parse_rfc3339(&at(2)));
    set.data["status"]["applicationStatus"] = json!([
        {"application": "a", "lastTransitionTime": at(3)},
        {"application": "b"},
    ]);
    assert_eq!(read(&set).served, parse_rfc3339(&at(3)));
}
