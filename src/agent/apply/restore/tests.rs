use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, Uri};
use kube::client::Body;
use tokio::time::sleep;

use super::*;
use crate::agent::apply::tests::{crd_of_kustomizations, done_by, status};
use crate::agent::observe::View;
use crate::agent::plan::{self, Action, Observed, Step};
use crate::agent::saves::Saves;
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

/// So many of team-a, by number.
fn many(count: usize) -> Vec<Saved> {
    let one = |number: usize| {
        let object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": number.to_string(), "namespace": "team-a"}, "spec": {"path": "./"},
        });
        Saved::new(object, clock::now())
    };
    (0..count).map(one).collect()
}

fn step() -> Step {
    Step {
        action: Action::Restore,
        target: crd_of_kustomizations(),
        cause: None,
    }
}

fn names(left: &[Saved]) -> Vec<String> {
    left.iter().map(Saved::place).collect()
}

fn places(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|number| format!("team-a/{number}")).collect()
}

/// Hundreds of objects, and an API server that says no word to one of the first: the others that were begun with it come back, and the
/// next try begins with those that this one did not come to.
#[tokio::test(start_paused = true)]
async fn where_no_answer_comes_the_next_try_begins_with_the_others() {
    let answer = |method: &Method, uri: &Uri| match *method {
        Method::GET if uri.path().ends_with("/3") => None,
        Method::GET => Some(status(404, "gone")),
        _ => Some((200, json!({"metadata": {"name": "x"}}))),
    };
    let begun = Instant::now();
    let (_, done) = done_by(&step(), &Observed::default(), &many(300), answer).await;
    assert_eq!(begun.elapsed().as_secs(), CALL.as_secs());
    let expected = places((AT_ONCE..300).chain([3]));
    assert_eq!(names(&done.saved), expected);
    let why = "restore team-a/3: the API server did not answer in 15 s".to_owned();
    assert_eq!(done.outcome, Outcome::Unserved(why));
}

/// A webhook that says no after 10 s, to each of hundreds.
#[tokio::test(start_paused = true)]
async fn a_step_that_brings_hundreds_back_ends_in_time() {
    const SLOW: Duration = Duration::from_secs(10);
    let service = tower::service_fn(|_: Request<Body>| async {
        sleep(SLOW).await;
        let (code, said) = status(500, "failed calling webhook");
        let answer = Response::builder().status(code);
        let answer = answer.body(Body::from(said.to_string().into_bytes()));
        Ok::<_, Infallible>(answer.unwrap())
    });
    let kube = kube::Client::new(service, "default");
    let install = plan::tests::install();
    let hands = Hands {
        kube: &kube,
        install: &install,
        view: &View::new(&install),
        observed: &Observed::default(),
        saves: &Saves::new(&kube, "linesman"),
    };
    let begun = Instant::now();
    let done = hands.act(&step(), &many(300)).await;
    assert_eq!(begun.elapsed().as_secs(), ATTEMPT.as_secs());
    let tried = 3 * AT_ONCE;
    assert_eq!(names(&done.saved), places((tried..300).chain(0..tried)));
    let why = "restore team-a/0: failed calling webhook".to_owned();
    assert_eq!(done.outcome, Outcome::Failed(why));
}
