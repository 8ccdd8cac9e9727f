use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::advance;

use super::*;
use crate::agent::apply::Hands;
use crate::agent::observe::View;
use crate::agent::plan::history::{Outcome, STALE};
use crate::agent::plan::tests::{Cluster, install};
use crate::agent::plan::{self, Action, Step};
use crate::agent::saves::{Left, Saves};
use crate::agent::watchdog::tests::watchdog;
use crate::bundle::Kind;

fn crd(name: &str) -> ObjectId {
    ObjectId::new(Kind::CustomResourceDefinition, "", name)
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
    let away = Observed::default();
    assert_eq!(watchdog.give_up(at(83), &away), BTreeSet::new());
    let day = at(60) + STALE;
    assert_eq!(watchdog.give_up(day, &away), [crd.clone()].into());
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
    let all = vec![Saved::new(old.object, old.since - days)];
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
    let all = vec![Saved::new(saved("x").object, then)];
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
    let (install, observed) = (install(), Cluster::working().observed());
    // Before anything is planned.
    let changed = next.mourn(clock::now(), &install, &observed);
    assert_eq!(changed, [crd.clone()].into());
    assert!(next.history.saved.is_empty());
    next.keep_saves(&crd).await;
    assert_eq!(server.lock().unwrap().maps, BTreeMap::new());
}

/// W44: an agent that ended in between would leave a record that says that nobody had tried, and the next one would bring back what
/// somebody deleted since.
#[tokio::test(start_paused = true)]
async fn nothing_is_brought_back_before_it_is_on_record_that_it_is_tried() {
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let server = Arc::new(Mutex::new(Server::default()));
    let mut watchdog = watchdog();
    watchdog.saves = saves(&server);
    let lost = saved("x");
    let all = vec![lost.clone()];
    watchdog.history.saved.insert(crd.clone(), all.clone());
    watchdog.history.adopted = true;
    watchdog.keep_saves(&crd).await;
    server.lock().unwrap().refuses = 2;
    let (install, observed) = (install(), Cluster::working().observed());
    let mut now = observed.pods_at.unwrap();
    let is_planned = |watchdog: &Watchdog, now| {
        let plan = plan::plan(now, &install, &observed, &watchdog.history);
        let mut steps = plan.steps.iter();
        let planned = steps.any(|step| step.action == Action::Restore && step.target == crd);
        (planned, plan.next_look <= now + time::Duration::seconds(2))
    };
    assert!(is_planned(&watchdog, now).0);
    for _ in 0..2 {
        assert!(!watchdog.records_try(now, &crd).await);
        assert_eq!(is_planned(&watchdog, now), (false, true));
        // Nobody has tried, here or on record.
        assert_eq!(watchdog.history.saved[&crd], all);
        let left = watchdog.saves.load(clock::now()).await.unwrap();
        assert_eq!(left.objects[&crd], all);
        now += time::Duration::seconds(2);
        advance(Duration::from_secs(2)).await;
        assert!(is_planned(&watchdog, now).0);
    }
    assert!(watchdog.records_try(now, &crd).await);
    assert!(watchdog.history.saved[&crd][0].tried.is_some());
    let left = watchdog.saves.load(clock::now()).await.unwrap();
    assert!(left.objects[&crd][0].tried.is_some());
    assert!(is_planned(&watchdog, now).0);
    // What was kept before goes with the rest.
    watchdog.history.restored(now, &crd, Vec::new());
    watchdog.keep_saves(&crd).await;
    assert_eq!(server.lock().unwrap().maps, BTreeMap::new());
    assert_eq!(watchdog.unkept, Unkept::default());
}

/// W11: a quota, a webhook that is away or one that never answers keeps no sync object away. Until then nobody has tried.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_put_on_record_is_brought_back_all_the_same() {
    let target = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let lost = Saved::new(
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"namespace": "team-a", "name": "x"},
        }),
        clock::now(),
    );
    let step = Step {
        action: Action::Restore,
        target: target.clone(),
        cause: None,
    };
    for (silent, tries) in [(false, 3), (true, 1)] {
        let server = Arc::new(Mutex::new(Server {
            denied: vec![Method::PATCH],
            silent,
            ..Server::default()
        }));
        let mut watchdog = watchdog();
        let (kube, store) = (kube(&server), saves(&server));
        watchdog.saves = store.clone();
        let all = vec![lost.clone()];
        watchdog.history.saved.insert(target.clone(), all.clone());
        let (install, observed) = (install(), Cluster::working().observed());
        let hands = Hands {
            kube: &kube,
            install: &install,
            view: &View::new(&install),
            observed: &observed,
            saves: &store,
        };
        let begin = Instant::now();
        for _ in 1..tries {
            let outcome = Box::pin(watchdog.step(hands, &install, &step)).await;
            assert!(matches!(outcome, Outcome::Unserved(_)), "{outcome:?}");
            assert_eq!(watchdog.history.saved[&target], all);
            advance(Duration::from_secs(2)).await;
        }
        let outcome = Box::pin(watchdog.step(hands, &install, &step)).await;
        assert_eq!(outcome, Outcome::Done, "{silent}");
        assert!(begin.elapsed() < PATIENCE + LAST, "{:?}", begin.elapsed());
        let server = server.lock().unwrap();
        assert_eq!(server.made, std::slice::from_ref(&lost.object));
        assert_eq!(server.writes, tries);
        assert_eq!(watchdog.history.saved, BTreeMap::new());
        // There is no record any more to be written.
        assert_eq!(watchdog.unkept, Unkept::default());
    }
}

/// What is on record as tried, or was tried, needs no other record, and none that is to go stands in the way of a first try.
#[tokio::test(start_paused = true)]
async fn a_record_holds_up_nothing_but_the_first_try() {
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let now = clock::now();
    for denied in [Method::DELETE, Method::GET] {
        let server = Arc::new(Mutex::new(Server::default()));
        let mut watchdog = watchdog();
        watchdog.saves = saves(&server);
        let all = vec![saved("x"), saved("y")];
        let before = now - time::Duration::hours(1);
        let stored = watchdog.saves.store(&crd, &all[..1], before).await;
        assert!(matches!(stored, Ok(Stored::Alone)), "{stored:?}");
        watchdog.history.saved.insert(crd.clone(), all);
        // That of before can neither be found nor deleted.
        server.lock().unwrap().denied = vec![denied.clone()];
        watchdog.keep_saves(&crd).await;
        assert!(watchdog.unkept.next().is_some(), "{denied}");
        assert!(watchdog.records_try(now, &crd).await, "{denied}");
        server.lock().unwrap().denied = Vec::new();
        let left = watchdog.saves.load(now).await.unwrap();
        assert!(left.objects[&crd].iter().all(|one| one.tried.is_some()));
        // Some are not back, which is not on record.
        server.lock().unwrap().denied = vec![Method::PATCH];
        let some = watchdog.history.saved[&crd][..1].to_vec();
        watchdog.history.restored(now, &crd, some);
        watchdog.keep_saves(&crd).await;
        assert!(watchdog.unkept.next().is_some(), "{denied}");
        let writes = server.lock().unwrap().writes;
        assert!(watchdog.records_try(now, &crd).await, "{denied}");
        assert_eq!(server.lock().unwrap().writes, writes);
        assert_eq!(watchdog.unkept.waited, BTreeMap::new());
    }
}

/// The record was written: it is not written once more.
#[tokio::test(start_paused = true)]
async fn an_inventory_that_is_not_kept_is_told_and_nothing_is_tried_again_for_it() {
    let mut watchdog = watchdog();
    let crd = crd("kustomizations.kustomize.toolkit.fluxcd.io");
    let told = |text: &str| Some(text.to_owned());
    let bare = Told {
        bare: told("the inventories of 1 objects"),
        unrecorded: None,
    };
    watchdog.tell_of(&crd, &bare);
    assert_eq!(watchdog.unkept, Unkept::default());
    let both = Told {
        unrecorded: told("1 objects are known to this process alone"),
        ..bare
    };
    watchdog.tell_of(&crd, &both);
    assert!(watchdog.unkept.next().is_some());
}

#[test]
fn a_first_try_waits_for_a_few_writes_or_seconds_and_no_longer() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let crd = crd("a");
    // When each write begins and ends, whether it is done, and whether the first try is made then.
    let rows: [&[(u64, u64, bool, bool)]; 6] = [
        &[(0, 0, true, true)],
        &[(0, 0, false, false), (2, 2, true, true)],
        &[
            (0, 0, false, false),
            (2, 2, false, false),
            (4, 4, false, true),
        ],
        &[(0, 10, false, true)],
        &[(0, 3, false, false), (5, 10, false, true)],
        &[(0, 0, false, false), (60, 61, false, true)],
    ];
    for row in rows {
        let mut unkept = Unkept::default();
        for (begun, end, written, goes_on) in row {
            let took = (at(*begun), at(*end));
            let said = unkept.lets_go(&crd, *written, took);
            assert_eq!(said, *goes_on, "{row:?}");
        }
        assert_eq!(unkept, Unkept::default(), "{row:?}");
    }
    let mut unkept = Unkept::default();
    assert_eq!(unkept.patience(&crd, start), PATIENCE);
    unkept.lets_go(&crd, false, (start, start));
    let patience = [0, 4, 9, 10, 600].map(|second| unkept.patience(&crd, at(second)).as_secs());
    assert_eq!(patience, [10, 6, 1, 1, 1]);
}

#[test]
fn what_is_given_up_is_named_as_far_as_it_can_be_read() {
    let crd = crd("helmreleases.helm.toolkit.fluxcd.io");
    let many: Vec<Saved> = (0..25).map(|n| saved(&n.to_string())).collect();
    let one = told(&crd, &many[..1]);
    assert!(
        one.starts_with("1 objects") && one.ends_with(": team-a/0"),
        "{one}"
    );
    assert!(one.contains("two days"), "{one}");
    let tried = Saved {
        tried: Some(clock::now()),
        ..saved("a")
    };
    let of_tried = told(&crd, &[tried]);
    assert!(of_tried.contains("for a day"), "{of_tried}");
    let all = told(&crd, &many);
    assert!(all.ends_with("team-a/18, team-a/19 and 5 more"), "{all}");
}

#[test]
fn a_failure_is_told_once_in_a_row_and_tried_again_ever_later() {
    let mut unkept = Unkept::default();
    let now = Instant::now();
    let (one, other) = (crd("a"), crd("b"));
    let mut told = Vec::new();
    for (crd, kept) in [
        (&one, true),
        (&one, false),
        (&one, false),
        (&other, false),
        (&one, false),
        (&one, true),
        (&one, false),
    ] {
        let tell = unkept.note(crd, kept, 1.0, now);
        let due = unkept
            .again
            .get(crd)
            .map(|again| (again.due - now).as_secs());
        told.push((tell, due));
    }
    assert_eq!(
        told,
        [
            (false, None),
            (true, Some(1)),
            (false, Some(2)),
            (true, Some(1)),
            (false, Some(4)),
            (false, None),
            (true, Some(1)),
        ]
    );
    for _ in 0..100 {
        unkept.note(&one, false, 1.0, now);
    }
    assert_eq!(unkept.again[&one].due, now + RETRY.cap);
    assert_eq!(unkept.due(now + Duration::from_secs(1)), [other]);
}

#[test]
fn no_more_are_kept_in_mind_than_an_install_has() {
    let mut unkept = Unkept::default();
    for n in 0..1_000 {
        unkept.note(&crd(&n.to_string()), false, 0.5, Instant::now());
    }
    assert_eq!(unkept.again.len(), MOST);
}
