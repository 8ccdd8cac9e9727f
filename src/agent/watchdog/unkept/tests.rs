use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::agent::plan::history::STALE;
use crate::agent::plan::tests::{Cluster, install};
use crate::agent::plan::{self, Action, Step};
use crate::agent::saves::{Left, Saves};
use crate::agent::watchdog::tests::watchdog;
use crate::bundle::Kind;

mod again;
mod tries;

fn crd(name: &str) -> ObjectId {
    ObjectId::new(Kind::CustomResourceDefinition, "", name)
}

/// A cluster whose CRD serves since then.
fn serving(crd: &ObjectId, since: OffsetDateTime) -> Observed {
    let mut observed = Cluster::working().observed();
    let of_kustomizations = ObjectId::crd_of(Kind::Kustomization);
    let mut live = observed.objects[&of_kustomizations].as_ref().clone();
    live.created = Some(since);
    observed.objects.insert(crd.clone(), Arc::new(live));
    observed
}

/// Saved in this minute.
fn saved(name: &str) -> Saved {
    let object = json!({"metadata": {"namespace": "team-a", "name": name}});
    Saved::new(object, clock::now().truncate_to_minute())
}

/// An API server, and the ConfigMaps that it has.
#[derive(Default)]
struct Server {
    maps: BTreeMap<String, Value>,
    /// So many of the next writes of ConfigMaps are answered with 500.
    refuses: usize,
    /// What is refused of ConfigMaps.
    denied: Vec<Method>,
    /// Whether a ConfigMap that is sent is never answered for.
    silent: bool,
    /// ConfigMaps that were sent.
    writes: usize,
    /// Other objects that were made.
    made: Vec<Value>,
}

impl Server {
    /// None = there is no answer.
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let failed = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "x" };
            json!({"kind": "Status", "code": code, "reason": reason})
        };
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        let name = path.rsplit('/').next().unwrap().to_owned();
        if !path.contains("/configmaps") {
            if *method == Method::GET {
                return Some((404, failed(404)));
            }
            self.made.push(sent());
            return Some((200, sent()));
        }
        if *method == Method::PATCH {
            self.writes += 1;
            if self.silent {
                return None;
            }
        }
        if self.denied.contains(method) {
            return Some((403, failed(403)));
        }
        if *method == Method::GET {
            let items: Vec<&Value> = self.maps.values().collect();
            let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": items});
            return Some((200, list));
        }
        if self.refuses > 0 {
            self.refuses -= 1;
            return Some((500, failed(500)));
        }
        if *method == Method::DELETE {
            self.maps.remove(&name);
            return Some((200, json!({"kind": "Status", "status": "Success"})));
        }
        self.maps.insert(name, sent());
        Some((200, sent()))
    }
}

fn kube(server: &Arc<Mutex<Server>>) -> kube::Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (method, path) = (&parts.method, parts.uri.path());
            let said = server.lock().unwrap().answer(method, path, &body);
            let Some((code, said)) = said else {
                return pending().await;
            };
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    kube::Client::new(service, "linesman")
}

fn saves(server: &Arc<Mutex<Server>>) -> Saves {
    Saves::new(&kube(server), "linesman")
}

/// W44: what is back is not brought back once more by the next agent, and what is not back yet is, although the API server took
/// the record of neither at first.
#[tokio::test(start_paused = true)]
async fn a_record_that_could_not_be_written_or_deleted_is_so_in_a_later_round() {
    let (back, lost) = (
        crd("applications.argoproj.io"),
        crd("appprojects.argoproj.io"),
    );
    let server = Arc::new(Mutex::new(Server::default()));
    let store = saves(&server);
    let mut watchdog = watchdog();
    watchdog.saves = store.clone();
    let objects = vec![saved("a")];
    watchdog.history.saved.insert(back.clone(), objects.clone());
    watchdog.keep_saves(&back).await;
    assert_eq!(watchdog.unkept, Unkept::default());
    // All of it is back, and the API server takes three writes less than it is asked for.
    server.lock().unwrap().refuses = 3;
    watchdog.history.restored(clock::now(), &back, Vec::new());
    watchdog.keep_saves(&back).await;
    watchdog.history.saved.insert(lost.clone(), objects.clone());
    watchdog.keep_saves(&lost).await;
    let left = store.load(clock::now()).await.unwrap();
    assert_eq!(left.objects, [(back, objects.clone())].into());
    let mut rounds = 0;
    while let Some(next) = watchdog.unkept.next() {
        rounds += 1;
        // Nothing is tried before its time.
        let refuses = server.lock().unwrap().refuses;
        watchdog.keep_the_rest().await;
        assert_eq!(server.lock().unwrap().refuses, refuses);
        tokio::time::sleep_until(next).await;
        watchdog.keep_the_rest().await;
    }
    assert_eq!(rounds, 3);
    let expected = Left {
        objects: [(lost, objects)].into(),
        wrong: Vec::new(),
    };
    assert_eq!(store.load(clock::now()).await.unwrap(), expected);
}

/// However often it is put on record, and by whichever agent: a day after the first try that failed it is given up, by name, and the
/// record goes.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_brought_back_goes_from_the_record_after_a_day() {
    let crd = crd("helmreleases.helm.toolkit.fluxcd.io");
    let server = Arc::new(Mutex::new(Server::default()));
    let mut watchdog = watchdog();
    watchdog.saves = saves(&server);
    let lost = saved("x");
    let at = |hours: i64| lost.since + time::Duration::hours(hours);
    let all = vec![lost.clone()];
    watchdog.history.saved.insert(crd.clone(), all.clone());
    // It hung for a while before anybody could try.
    let tried = Saved {
        tried: Some(at(60)),
        ..lost.clone()
    };
    for hours in [60, 70, 80] {
        let saved = watchdog.history.saved[&crd].clone();
        watchdog.history.restored(at(hours), &crd, saved);
        watchdog.keep_saves(&crd).await;
        let left = watchdog.saves.load(at(hours)).await.unwrap();
        let expected = [(crd.clone(), vec![tried.clone()])].into();
        assert_eq!(left.objects, expected, "{hours}");
        // As the next agent has it.
        watchdog.history.saved = left.objects;
    }
    let there = serving(&crd, lost.since);
    assert_eq!(watchdog.give_up(at(83), &there), BTreeSet::new());
    let day = at(60) + STALE;
    assert_eq!(watchdog.give_up(day, &there), [crd.clone()].into());
    watchdog.keep_saves(&crd).await;
    assert_eq!(server.lock().unwrap().maps, BTreeMap::new());
}

/// W44: a CRD that hangs over a weekend is not there yet when the next agent begins.
#[tokio::test(start_paused = true)]
async fn what_was_saved_days_ago_is_brought_back_by_the_next_agent_once_its_crd_serves() {
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let server = Arc::new(Mutex::new(Server::default()));
    let days = time::Duration::hours(60);
    let old = saved("x");
    let all = vec![Saved::new(Value::clone(&old.object), old.since - days)];
    let store = saves(&server);
    let then = clock::now() - days;
    store.store(&crd, &all, then).await.unwrap();
    let mut watchdog = watchdog();
    watchdog.saves = store;
    watchdog.resume().await;
    assert_eq!(watchdog.history.saved, [(crd.clone(), all)].into());
    watchdog.history.adopted = true;
    let (install, mut observed) = (install(), Cluster::working().observed());
    let now = observed.pods_at.unwrap();
    let restores = |watchdog: &Watchdog, observed: &Observed| {
        let plan = plan::plan(now, &install, observed, &watchdog.history);
        let of_it = |step: &&Step| step.action == Action::Restore && step.target == crd;
        plan.steps.iter().filter(of_it).count()
    };
    let live = observed.objects.remove(&crd).unwrap();
    let changed = watchdog.mourn(now, &install, &observed);
    assert_eq!(changed, BTreeSet::new());
    assert_eq!(restores(&watchdog, &observed), 0);
    observed.objects.insert(crd.clone(), live);
    assert_eq!(restores(&watchdog, &observed), 1);
}

/// W44: the record outlived what it is of, for it could not be deleted, nor could this agent say so later. What somebody deleted
/// since stays so.
#[tokio::test(start_paused = true)]
async fn what_was_brought_back_long_ago_is_not_brought_back_once_more() {
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let server = Arc::new(Mutex::new(Server::default()));
    let mut before = watchdog();
    before.saves = saves(&server);
    let then = clock::now() - time::Duration::hours(60);
    let all = vec![Saved::new(Value::clone(&saved("x").object), then)];
    before.history.saved.insert(crd.clone(), all);
    before.history.tries(then, &crd);
    before.keep_saves(&crd).await;
    before.history.restored(then, &crd, Vec::new());
    server.lock().unwrap().refuses = 1;
    before.keep_saves(&crd).await;
    drop(before);
    let mut next = watchdog();
    next.saves = saves(&server);
    next.resume().await;
    assert_eq!(next.history.saved.len(), 1);
    let (install, observed) = (install(), serving(&crd, then));
    // Before anything is planned.
    let changed = next.mourn(clock::now(), &install, &observed);
    assert_eq!(changed, [crd.clone()].into());
    assert!(next.history.saved.is_empty());
    next.keep_saves(&crd).await;
    assert_eq!(server.lock().unwrap().maps, BTreeMap::new());
}

/// W44: the first try is on record, and its end is not: the agent ended in the midst of it, and its node was away for a day. The next one
/// tries it before it gives anything up.
#[tokio::test(start_paused = true)]
async fn what_was_tried_before_a_day_without_an_agent_is_tried_again() {
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let server = Arc::new(Mutex::new(Server::default()));
    let mut before = watchdog();
    before.saves = saves(&server);
    let then = clock::now() - time::Duration::hours(25);
    let lost = Saved::new(Value::clone(&saved("x").object), then);
    before.history.saved.insert(crd.clone(), vec![lost.clone()]);
    assert!(before.records_try(then, &crd).await);
    drop(before);
    // As a node that was away for so long has it.
    for map in server.lock().unwrap().maps.values_mut() {
        map["data"]["tried"] = json!(format!("{} 1", clock::rfc3339(then)));
    }
    let mut next = watchdog();
    next.saves = saves(&server);
    next.resume().await;
    next.history.adopted = true;
    let (install, observed) = (install(), serving(&crd, then));
    let changed = next.mourn(clock::now(), &install, &observed);
    assert_eq!(changed, BTreeSet::new());
    let left: Vec<&Value> = next.history.saved[&crd]
        .iter()
        .map(|s| &*s.object)
        .collect();
    assert_eq!(left, [&*lost.object]);
    let now = observed.pods_at.unwrap();
    let plan = plan::plan(now, &install, &observed, &next.history);
    let of_it = |step: &&Step| step.action == Action::Restore && step.target == crd;
    assert_eq!(plan.steps.iter().filter(of_it).count(), 1);
}
