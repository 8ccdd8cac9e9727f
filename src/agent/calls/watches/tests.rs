use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::agent::calls::is_watch;

/// What an API server has, and what it was asked for.
struct Server {
    /// Its resourceVersion.
    at: u64,
    /// What is in its one ConfigMap.
    value: Option<&'static str>,
    /// When it was listed, in seconds.
    lists: Vec<u64>,
    /// When watches began, and from where.
    watches: Vec<(u64, String)>,
}

type Shared = Arc<Mutex<Server>>;

fn server(at: u64, value: Option<&'static str>) -> Shared {
    Arc::new(Mutex::new(Server {
        at,
        value,
        lists: Vec::new(),
        watches: Vec::new(),
    }))
}

/// Its watches say nothing and have no end: as over a connection that died, or in numbers that are to come.
fn maps(shared: &Shared) -> Api<ConfigMap> {
    let (shared, start) = (Arc::clone(shared), Instant::now());
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let mut server = shared.lock().unwrap();
        let now = start.elapsed().as_secs();
        let body = if is_watch(&request) {
            let mut pairs = request.uri().query().unwrap_or_default().split('&');
            let from = pairs.find_map(|pair| pair.strip_prefix("resourceVersion="));
            server.watches.push((now, from.unwrap().to_owned()));
            let silence = stream::pending::<Result<Bytes, Infallible>>();
            Body::from_stream(silence)
        } else {
            server.lists.push(now);
            let at = server.at.to_string();
            let map = |value: &str| {
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value},
                    "metadata": {"name": "m", "namespace": "linesman", "resourceVersion": "7"},
                })
            };
            let items: Vec<Value> = server.value.map(map).into_iter().collect();
            let list = json!({
                "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": at}, "items": items,
            });
            Body::from(list.to_string())
        };
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    Api::namespaced(kube::Client::new(service, "linesman"), "linesman")
}

/// Of the one object that is told next.
async fn value(told: impl Future<Output = Option<Result<Option<ConfigMap>, Error>>>) -> Value {
    let told = timeout(RARELY + Duration::from_secs(1), told).await;
    let map = told.expect("it is heard").unwrap().unwrap();
    map.map_or(Value::Null, |map| json!(map.data.unwrap()))
}

/// W5: what the owner says is heard although the connection of its watch died without a word, and where the store was put back from a
/// backup, with numbers that are lower than before; W23: at two requests each time.
#[tokio::test(start_paused = true)]
async fn what_becomes_of_one_object_is_heard_although_its_watch_is_silent() {
    let shared = server(5_000, Some("b"));
    let mut told = object(maps(&shared), "m").boxed();
    assert_eq!(value(told.next()).await, json!({"a": "b"}));
    for (at, now, expected) in [
        (1_010, Some("a"), json!({"a": "a"})),
        (1_020, None, Value::Null),
        (1_030, Some("c"), json!({"a": "c"})),
    ] {
        {
            let mut server = shared.lock().unwrap();
            (server.at, server.value) = (at, now);
        }
        assert_eq!(value(told.next()).await, expected);
    }
    // What is as it was is not told again.
    let long = Duration::from_secs(400);
    assert!(timeout(long, told.next()).await.is_err());
    let server = shared.lock().unwrap();
    assert_eq!(server.lists, [0, 150, 300, 450, 600, 750]);
    let froms = ["5000", "1010", "1020", "1030", "1030", "1030"];
    let began = server.lists.iter().copied();
    let began: Vec<(u64, String)> = began.zip(froms.map(str::to_owned)).collect();
    assert_eq!(server.watches, began);
}

/// W5: what the owner says is heard sooner.
#[tokio::test(start_paused = true)]
async fn what_the_owner_says_is_listed_anew_each_minute() {
    let shared = server(7, None);
    let mut events = pin!(named(maps(&shared), "m"));
    let hears = async { while events.next().await.is_some() {} };
    drop(timeout(Duration::from_secs(150), hears).await);
    assert_eq!(shared.lock().unwrap().lists, [0, 60, 120]);
}

/// W5: the same of many objects, of which a dead connection is noticed within a minute, and lists are rare.
#[tokio::test(start_paused = true)]
async fn a_watch_of_many_objects_is_begun_anew_after_a_minute_and_with_a_list_after_five() {
    let shared = server(7, None);
    let mut events = pin!(watched(maps(&shared), Config::default()));
    let hears = async {
        while let Some(event) = events.next().await {
            assert!(event.is_ok(), "{event:?}");
        }
    };
    drop(timeout(Duration::from_secs(400), hears).await);
    let server = shared.lock().unwrap();
    assert_eq!(server.lists, [0, 300]);
    let began: Vec<u64> = server.watches.iter().map(|(at, _)| *at).collect();
    assert_eq!(began, [0, 65, 130, 195, 260, 300, 365]);
}
