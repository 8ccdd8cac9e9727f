use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, Uri};
use kube::client::Body;

use super::*;
use crate::agent::apply::tests::{crd_of_kustomizations, done_by, status};
use crate::agent::observe::View;
use crate::agent::plan::{self, Action, Observed, Step};
use crate::agent::saves::Saves;

const ALL: usize = 30;

/// One that dies, and that Git brings.
fn from_git(name: &str) -> Value {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {
            "name": name, "namespace": "teams", "uid": name, "deletionTimestamp": "2026-01-01T00:00:10Z",
            "finalizers": ["finalizers.fluxcd.io", "example.org/mine"],
            "labels": {"kustomize.toolkit.fluxcd.io/name": "flux-system"},
        },
        "spec": {"path": "./"},
    })
}

/// A Release at an API server with so many objects, which brings no more than ten in time, and of them only those before `end`:
/// how many were asked for each time, which UIDs were let go, and what came of it.
async fn released(end: usize) -> (Vec<usize>, Vec<String>, Outcome) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let limits = Arc::clone(&asked);
    let answer = move |method: &Method, uri: &Uri| {
        if *method != Method::GET {
            return Some((200, json!({"metadata": {"name": "x"}})));
        }
        let query = uri.query().unwrap_or_default();
        let field = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(key, _)| *key == name)?;
            value.parse::<usize>().ok()
        };
        let (limit, from) = (field("limit").unwrap(), field("continue").unwrap_or(0));
        limits.lock().unwrap().push(limit);
        if limit > 10 || from >= end {
            return None;
        }
        let to = (from + limit).min(ALL);
        let items: Vec<Value> = (from..to).map(|n| from_git(&n.to_string())).collect();
        let next = if to < ALL {
            to.to_string()
        } else {
            String::new()
        };
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": next}, "items": items});
        Some((200, list))
    };
    let step = Step {
        action: Action::Release,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let (calls, done) = done_by(&step, &Observed::default(), &[], answer).await;
    let patches = calls.iter().filter(|(method, _)| *method == Method::PATCH);
    let uids = patches.map(|(_, body)| body["metadata"]["uid"].as_str().unwrap().to_owned());
    let mut uids: Vec<String> = uids.collect();
    // Many are begun with at any of them.
    uids.sort_by_key(|uid| uid.parse::<usize>().unwrap());
    let limits = asked.lock().unwrap().clone();
    (limits, uids, done.outcome)
}

fn uids(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// Hundreds of large objects neither fill the agent's memory nor hold their CRD for good.
#[tokio::test(start_paused = true)]
async fn what_does_not_come_in_time_is_read_in_smaller_pages() {
    assert_eq!(
        released(ALL).await,
        (vec![50, 10, 10, 10], uids(ALL), Outcome::Done)
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_an_answer_failed_to_come_is_let_go() {
    let late = "list kustomizations: the API server did not answer in 15 s";
    assert_eq!(
        released(10).await,
        (
            vec![50, 10, 10, 2],
            uids(10),
            Outcome::Unserved(late.to_owned())
        )
    );
}

/// A hundred that Git brings, at an API server that takes so long for each of them and refuses it then; none = it never answers. How many
/// were begun with, how long that took, and what came of it.
async fn refused_by(webhook: Option<Duration>) -> (usize, u64, Outcome) {
    let items: Vec<Value> = (0..100).map(|n| from_git(&n.to_string())).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
    let patches = Arc::new(Mutex::new(0));
    let count = Arc::clone(&patches);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (list, count) = (list.clone(), Arc::clone(&count));
        async move {
            let (code, said) = if *request.method() == Method::GET {
                (200, list)
            } else {
                *count.lock().unwrap() += 1;
                match webhook {
                    Some(slow) => sleep(slow).await,
                    None => std::future::pending().await,
                }
                status(500, "failed calling webhook")
            };
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
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
    let step = Step {
        action: Action::Release,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let begun = Instant::now();
    let done = hands.act(&step, &[]).await;
    let patches = *patches.lock().unwrap();
    (patches, begun.elapsed().as_secs(), done.outcome)
}

#[tokio::test(start_paused = true)]
async fn a_step_that_lets_hundreds_go_ends_in_time() {
    let slow = Duration::from_secs(10);
    let (patches, took, outcome) = refused_by(Some(slow)).await;
    assert_eq!((patches, took), (3 * AT_ONCE, ATTEMPT.as_secs()));
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    // Of one that never answers it is enough once.
    let (patches, took, outcome) = refused_by(None).await;
    assert_eq!((patches, took), (AT_ONCE, CALL.as_secs()));
    assert!(matches!(outcome, Outcome::Unserved(_)), "{outcome:?}");
}

/// W44: a webhook that keeps each ConfigMap for as long as a call may take is asked once.
#[tokio::test(start_paused = true)]
async fn a_record_that_hangs_is_tried_once_before_its_objects_are_let_go() {
    let answer = |method: &Method, uri: &Uri| {
        if *method != Method::GET {
            let hangs = uri.path().contains("/configmaps/");
            return (!hangs).then(|| (200, json!({"metadata": {"name": "x"}})));
        }
        let mut item = from_git("held");
        item["metadata"]["labels"] = json!({});
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [item]});
        Some((200, list))
    };
    let step = Step {
        action: Action::Release,
        target: crd_of_kustomizations(),
        cause: None,
    };
    let begun = Instant::now();
    let (calls, done) = done_by(&step, &Observed::default(), &[], answer).await;
    assert_eq!(begun.elapsed().as_secs(), CALL.as_secs());
    // What was never answered is not among them.
    let methods = calls.iter().map(|(method, _)| method.clone());
    assert_eq!(methods.collect::<Vec<_>>(), [Method::GET, Method::PATCH]);
    assert!(done.told.unrecorded.is_some());
    assert_eq!(done.outcome, Outcome::Done);
}

/// Nothing of an object that Git brings but what its finalizers are taken by; and of another one what is applied again.
#[test]
fn no_more_of_an_object_is_kept_than_is_needed() {
    let served = ApiResource {
        group: "kustomize.toolkit.fluxcd.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
        kind: "Kustomization".to_owned(),
        plural: "kustomizations".to_owned(),
    };
    let inventory = json!({"entries": [{"id": "shop_settings__ConfigMap", "v": "v1"}]});
    let status = json!({"inventory": inventory, "conditions": ["x".repeat(200 << 10)]});
    let managed = json!([{"manager": "kubectl", "operation": "Update"}]);
    let live = |mut object: Value, by_hand: bool| -> DynamicObject {
        object["status"] = status.clone();
        object["metadata"]["managedFields"] = managed.clone();
        if by_hand {
            object["metadata"]["labels"] = json!({});
        }
        serde_json::from_value(object).unwrap()
    };
    let traits = plan::tests::install().traits;
    let mut found = Found::nothing(&served, traits, &[]);
    found.add(live(from_git("a"), false), false);
    found.add(live(from_git("b"), true), false);
    let pinned = |name: &str| Pinned {
        name: name.to_owned(),
        namespace: "teams".to_owned(),
        uid: Some(name.to_owned()),
        others: vec!["example.org/mine".to_owned()],
    };
    assert_eq!(found.pinned, [pinned("a"), pinned("b")]);
    let kept = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "b", "namespace": "teams", "labels": {}, "annotations": {}},
        "spec": {"path": "./"}, "status": {"inventory": inventory},
    });
    assert_eq!(found.new, [kept]);
}
