use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::agent::plan::history::STALE;
use crate::agent::saves::{Left, Saves};
use crate::agent::watchdog::tests::watchdog;
use crate::bundle::Kind;

fn crd(name: &str) -> ObjectId {
    ObjectId::new(Kind::CustomResourceDefinition, "", name)
}

/// Saved in this minute.
fn saved(name: &str) -> Saved {
    Saved {
        object: json!({"metadata": {"namespace": "team-a", "name": name}}),
        since: clock::now().truncate_to_minute(),
    }
}

/// ConfigMaps at an API server which answers so many of the next writes with 500.
#[derive(Default)]
struct Server {
    maps: BTreeMap<String, Value>,
    refuses: usize,
}

fn saves(server: &Arc<Mutex<Server>>) -> Saves {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
            let mut server = server.lock().unwrap();
            let (code, said) = if parts.method == Method::GET {
                let items: Vec<&Value> = server.maps.values().collect();
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": items}),
                )
            } else if server.refuses > 0 {
                server.refuses -= 1;
                (500, json!({"kind": "Status", "code": 500, "reason": "x"}))
            } else if parts.method == Method::DELETE {
                server.maps.remove(&name);
                (200, json!({"kind": "Status", "status": "Success"}))
            } else {
                let map: Value = serde_json::from_slice(&body).unwrap();
                server.maps.insert(name, map.clone());
                (200, map)
            };
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    Saves::new(&kube::Client::new(service, "linesman"), "linesman")
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

/// However often it is put on record, and by whichever agent: a day after the first try that failed it is given up, by name, and the record goes.
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
    for hours in [0, 10, 20] {
        watchdog.history.restored(at(hours), &crd, all.clone());
        watchdog.keep_saves(&crd).await;
        let left = watchdog.saves.load(at(23)).await.unwrap();
        assert_eq!(left.objects, [(crd.clone(), all.clone())].into());
        watchdog.history.saved = left.objects;
    }
    let left = watchdog.saves.load(at(25)).await.unwrap();
    assert_eq!((left.objects, left.wrong.len()), (BTreeMap::new(), 1));
    assert_eq!(watchdog.give_up(at(23)), BTreeSet::new());
    assert_eq!(watchdog.give_up(lost.since + STALE), [crd.clone()].into());
    watchdog.keep_saves(&crd).await;
    assert_eq!(server.lock().unwrap().maps, BTreeMap::new());
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
        let due = unkept.0.get(crd).map(|again| (again.due - now).as_secs());
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
    assert_eq!(unkept.0[&one].due, now + RETRY.cap);
    assert_eq!(unkept.due(now + Duration::from_secs(1)), [other]);
}

#[test]
fn no_more_are_kept_in_mind_than_an_install_has() {
    let mut unkept = Unkept::default();
    for n in 0..1_000 {
        unkept.note(&crd(&n.to_string()), false, 0.5, Instant::now());
    }
    assert_eq!(unkept.0.len(), MOST);
}
