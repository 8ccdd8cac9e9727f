use std::sync::{Arc, Mutex};

use http::{Method, Uri};

use super::*;
use crate::agent::apply::tests::{crd_of_kustomizations, done_by, status};
use crate::agent::plan::{Action, Observed, Step};
use crate::clock;

/// What is asked, by method and query, and what is left to be brought back, where this is found under the name of a saved
/// Kustomization; none = nothing.
async fn asked(there: Option<&Value>) -> (Vec<String>, Outcome, usize) {
    let object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "x", "namespace": "team-a"}, "spec": {"path": "./old"},
        "status": {"inventory": {"entries": [{"id": "shop_settings__ConfigMap", "v": "v1"}]}},
    });
    let since = clock::now();
    let step = Step {
        action: Action::Restore,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let (there, lines) = (there.cloned(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&lines);
    let answer = move |method: &Method, uri: &Uri| {
        let place = uri.path().rsplit('/').next().unwrap_or_default();
        let query = uri.query().unwrap_or_default().trim_start_matches('&');
        seen.lock()
            .unwrap()
            .push(format!("{method} {place}?{query}"));
        Some(match (method, &there) {
            (&Method::GET, None) => status(404, "gone"),
            (&Method::GET, Some(there)) => (200, there.clone()),
            _ => (200, json!({"metadata": {"name": "x"}})),
        })
    };
    let saved = [Saved::new(object, since)];
    let (_, done) = done_by(&step, &Observed::default(), &saved, answer).await;
    let lines = lines.lock().unwrap().clone();
    (lines, done.outcome, done.saved.len())
}

fn found(manager: &str, deleted: &Value) -> Value {
    json!({"metadata": {
        "name": "x", "namespace": "team-a", "uid": "another", "deletionTimestamp": deleted,
        "managedFields": [{"manager": manager, "operation": "Apply"}],
    }})
}

/// Whoever has the namespace by now does not get the former owner's workload.
#[tokio::test]
async fn what_somebody_has_made_meanwhile_is_left_as_it_is() {
    let there = found("kubectl", &Value::Null);
    let only_looked = vec!["GET x?".to_owned()];
    assert_eq!(asked(Some(&there)).await, (only_looked, Outcome::Done, 0));
}

#[tokio::test]
async fn what_is_not_there_is_made_and_forces_nobody() {
    let (lines, outcome, left) = asked(None).await;
    assert_eq!(
        lines,
        [
            "GET x?",
            "PATCH x?fieldManager=linesman-restore",
            "PATCH status?fieldManager=linesman-guard",
        ]
    );
    assert_eq!((outcome, left), (Outcome::Done, 0));
}

/// A try before may have ended between the object and its inventory.
#[tokio::test]
async fn what_is_back_without_its_inventory_gets_it() {
    let (lines, outcome, left) = asked(Some(&found(RESTORER, &Value::Null))).await;
    assert_eq!(
        lines,
        ["GET x?", "PATCH status?fieldManager=linesman-guard"]
    );
    assert_eq!((outcome, left), (Outcome::Done, 0));
}

#[tokio::test]
async fn what_still_goes_is_waited_for() {
    let there = found("kubectl", &json!("2026-01-01T00:00:10Z"));
    let (lines, outcome, left) = asked(Some(&there)).await;
    assert_eq!((lines, left), (vec!["GET x?".to_owned()], 1));
    let why = "restore team-a/x: it is still being deleted".to_owned();
    assert_eq!(outcome, Outcome::Failed(why));
}
