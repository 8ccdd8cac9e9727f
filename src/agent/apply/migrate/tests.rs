use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Uri};

use super::*;
use crate::agent::apply::tests::{crd_of_kustomizations, done_by, status};
use crate::agent::plan::{Action, Observed, Step};

const TODAY: &str = "kustomize.toolkit.fluxcd.io/v1";
const GONE: &str = "kustomize.toolkit.fluxcd.io/v1beta2";

#[test]
fn field_managers_of_a_version_that_is_gone_are_renamed() {
    let live = |versions: &[&str]| -> DynamicObject {
        let entries: Vec<Value> = versions
            .iter()
            .map(|v| json!({"manager": "m", "apiVersion": v}))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "x/v1", "kind": "X",
            "metadata": {"name": "a", "resourceVersion": "7", "managedFields": entries},
        }))
        .unwrap()
    };
    assert_eq!(renewed(&live(&["x/v1", "x/v1"]), "x/v1"), json!({}));
    assert_eq!(
        renewed(&live(&["x/v1beta1", "x/v1"]), "x/v1"),
        json!({"metadata": {
            "managedFields": [{"manager": "m", "apiVersion": "x/v1"}, {"manager": "m", "apiVersion": "x/v1"}],
            "resourceVersion": "7",
        }})
    );
}

#[test]
fn only_what_somebody_else_wrote_meanwhile_is_tried_again_and_not_for_ever() {
    let answer = |code: u16| {
        let status = Status {
            code,
            ..Status::default()
        };
        Refused::Status(Box::new(status))
    };
    for (tries, refused, then) in [
        (1, answer(404), Then::Gone),
        (1, answer(409), Then::Again),
        (AGAIN, answer(409), Then::Again),
        (AGAIN + 1, answer(409), Then::Fail),
        (1, answer(422), Then::Fail),
        (1, answer(503), Then::Fail),
        (1, Refused::Late, Then::Fail),
    ] {
        assert_eq!(after(tries, &refused), then, "{tries} {refused}");
    }
}

/// As the API server has it, with what the field manager `m` speaks of.
fn kustomization(version: usize, speaks_of: &str) -> Value {
    json!({
        "apiVersion": TODAY, "kind": "Kustomization",
        "metadata": {
            "name": "a", "namespace": "teams", "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "m", "apiVersion": speaks_of}],
        },
    })
}

/// The patch of one that was seen in that version.
fn patch(version: usize) -> (Method, Value) {
    let mut seen = kustomization(version, TODAY);
    let meta = seen["metadata"].as_object_mut().unwrap();
    meta.retain(|field, _| ["managedFields", "resourceVersion"].contains(&field.as_str()));
    (Method::PATCH, json!({"metadata": meta}))
}

/// A migration of one object, which is in version 7 when it is listed, and which somebody else writes again before each of the first
/// `conflicts` patches: what was sent, and what came of it.
async fn migrated(conflicts: usize) -> (Vec<(Method, Value)>, Outcome) {
    let writes = AtomicUsize::new(0);
    let answer = move |method: &Method, uri: &Uri| {
        let path = uri.path();
        let now = 7 + writes.load(Ordering::Relaxed);
        Some(if path.contains("/customresourcedefinitions/") {
            (200, json!({"metadata": {"name": "x"}}))
        } else if path.ends_with("/kustomizations") {
            let items = [kustomization(now, GONE)];
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            (200, list)
        } else if *method == Method::GET {
            (200, kustomization(now, GONE))
        } else if writes.fetch_add(1, Ordering::Relaxed) < conflicts {
            status(409, "the object has been modified")
        } else {
            (200, kustomization(99, TODAY))
        })
    };
    let (calls, done) = done_by(&step_to_v1(), &Observed::default(), &[], answer).await;
    (calls, done.outcome)
}

/// F17, W15: else its field managers would speak of a version that is gone, with nothing left to show it.
#[tokio::test]
async fn an_object_that_its_controller_writes_meanwhile_is_read_and_written_again() {
    let asked = || (Method::GET, Value::Null);
    let forgets = json!({"status": {"storedVersions": ["v1"]}});
    let (calls, outcome) = migrated(1).await;
    let expected = [
        asked(),
        patch(7),
        asked(),
        patch(8),
        (Method::PATCH, forgets),
    ];
    assert_eq!(calls, expected);
    assert_eq!(outcome, Outcome::Done);
}

/// F17, W15: what is not written anew is there for the next attempt, and the version is remembered until then.
#[tokio::test]
async fn no_version_is_forgotten_while_an_object_could_not_be_written() {
    let (calls, outcome) = migrated(usize::MAX).await;
    let mut expected = Vec::new();
    for version in 7..=12 {
        expected.extend([(Method::GET, Value::Null), patch(version)]);
    }
    assert_eq!(calls, expected);
    let why = "write teams/a anew: the object has been modified".to_owned();
    assert_eq!(outcome, Outcome::Failed(why));
}

fn step_to_v1() -> Step {
    Step {
        action: Action::Migrate {
            to: "v1".to_owned(),
            named: Vec::new(),
        },
        target: crd_of_kustomizations(),
        cause: None,
    }
}

/// W15: else each attempt would begin with the same page, and none come to an end.
#[tokio::test(start_paused = true)]
async fn what_does_not_come_in_time_is_read_in_smaller_pages_and_written() {
    const ALL: usize = 30;
    let (limits, written) = (Arc::new(Mutex::new(vec![])), Arc::new(Mutex::new(vec![])));
    let (asked, patched) = (Arc::clone(&limits), Arc::clone(&written));
    let answer = move |method: &Method, uri: &Uri| {
        let path = uri.path();
        if path.contains("/customresourcedefinitions/") {
            return Some((200, json!({"metadata": {"name": "x"}})));
        }
        if *method == Method::PATCH {
            let name = path.rsplit('/').next().unwrap_or_default();
            patched.lock().unwrap().push(name.parse::<usize>().unwrap());
            return Some((200, kustomization(99, TODAY)));
        }
        let query = uri.query().unwrap_or_default();
        let field = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(key, _)| *key == name)?;
            value.parse::<usize>().ok()
        };
        let (limit, from) = (field("limit").unwrap(), field("continue").unwrap_or(0));
        asked.lock().unwrap().push(limit);
        if limit > 20 {
            return None;
        }
        let to = (from + limit).min(ALL);
        let one = |n: usize| {
            let mut one = kustomization(7, GONE);
            one["metadata"]["name"] = json!(n.to_string());
            one
        };
        let items: Vec<Value> = (from..to).map(one).collect();
        let next = if to < ALL {
            to.to_string()
        } else {
            String::new()
        };
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": next}, "items": items});
        Some((200, list))
    };
    let (_, done) = done_by(&step_to_v1(), &Observed::default(), &[], answer).await;
    assert_eq!(done.outcome, Outcome::Done);
    assert_eq!(*limits.lock().unwrap(), [100, 20, 20]);
    let mut written = written.lock().unwrap().clone();
    written.sort_unstable();
    assert_eq!(written, (0..ALL).collect::<Vec<_>>());
}

/// An object that is more than the agent reads at once is no trouble of the API server's.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_too_large_to_be_read_is_named() {
    let lists = AtomicUsize::new(0);
    let answer = move |_: &Method, _: &Uri| {
        let mut one = kustomization(7, GONE);
        // The one after a single object is for its metadata.
        if lists.fetch_add(1, Ordering::Relaxed) < 4 {
            one["spec"] = json!({"path": "x".repeat(9 << 20)});
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [one]});
        Some((200, list))
    };
    let (calls, done) = done_by(&step_to_v1(), &Observed::default(), &[], answer).await;
    assert_eq!(calls.len(), 5);
    let why = "list the objects of CustomResourceDefinition kustomizations.kustomize.toolkit.fluxcd.io: \
        teams/a is larger than 8 MiB";
    assert_eq!(done.outcome, Outcome::Failed(why.to_owned()));
}

/// What is asked for and written where objects `a` and `b` are named, of which `b` is there; with another one of today beside it. What
/// came of it.
async fn renewed_where(speaks_of: &'static str) -> (Vec<(Method, Value)>, Outcome) {
    let answer = move |method: &Method, uri: &Uri| {
        let path = uri.path();
        Some(if *method == Method::PATCH {
            (200, kustomization(99, TODAY))
        } else if path.ends_with("/kustomizations") {
            let items = [kustomization(7, speaks_of), kustomization(8, TODAY)];
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            (200, list)
        } else if path.ends_with("/namespaces/teams/kustomizations/b") {
            (200, kustomization(7, speaks_of))
        } else {
            status(404, "not found")
        })
    };
    let named = ["a", "b"].map(|name| Named {
        namespace: "teams".to_owned(),
        name: name.to_owned(),
        version: "v1beta2".to_owned(),
    });
    let step = Step {
        action: Action::Migrate {
            to: "v1".to_owned(),
            named: named.to_vec(),
        },
        target: crd_of_kustomizations(),
        cause: None,
    };
    let (calls, done) = done_by(&step, &Observed::default(), &[], answer).await;
    (calls, done.outcome)
}

/// F17: just those that need it are written, and no version is forgotten, for nothing is stored in another one.
#[tokio::test]
async fn objects_are_renewed_where_a_named_one_speaks_of_a_gone_version() {
    let (calls, outcome) = renewed_where(GONE).await;
    let asked = || (Method::GET, Value::Null);
    assert_eq!(calls, [asked(), asked(), asked(), patch(7)]);
    assert_eq!(outcome, Outcome::Done);
}

/// What was said of an object may be old, or somebody's invention: then no other one is looked at.
#[tokio::test]
async fn nothing_is_listed_or_written_where_no_named_object_is_as_was_said() {
    let (calls, outcome) = renewed_where(TODAY).await;
    assert_eq!(
        calls,
        [(Method::GET, Value::Null), (Method::GET, Value::Null)]
    );
    let why = "no field manager of teams/a, teams/b speaks of a version that CustomResourceDefinition \
        kustomizations.kustomize.toolkit.fluxcd.io does not have: nothing was written";
    assert_eq!(outcome, Outcome::Failed(why.to_owned()));
}

/// Other heals wait for it.
#[tokio::test(start_paused = true)]
async fn a_renewal_takes_no_longer_than_a_call() {
    let began = tokio::time::Instant::now();
    let named = Named {
        namespace: "teams".to_owned(),
        name: "a".to_owned(),
        version: "v1beta2".to_owned(),
    };
    let step = Step {
        action: Action::Migrate {
            to: "v1".to_owned(),
            named: vec![named],
        },
        target: crd_of_kustomizations(),
        cause: None,
    };
    let answer = |_: &Method, uri: &Uri| {
        let one = uri.path().ends_with("/a");
        one.then(|| (200, kustomization(7, GONE)))
    };
    let (calls, done) = done_by(&step, &Observed::default(), &[], answer).await;
    assert_eq!(calls, [(Method::GET, Value::Null)]);
    assert!(done.outcome.is_vain(), "{:?}", done.outcome);
    assert!(began.elapsed() < CALL * 2, "{:?}", began.elapsed());
}
