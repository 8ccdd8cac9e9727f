use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::agent::fault::Faults;
use crate::manifests::{EngineNamespaces, scope::Extent};
use crate::wire::api::AgentBuild;

const NAME: &str = "linesman-state";
const RIVAL: &str = "some-operator";

/// An API server that has the Secret, and somebody who may write it again at once.
struct Server {
    version: watch::Sender<u64>,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    value: String,
    /// When the agent wrote it.
    writes: Vec<Instant>,
    events: Vec<Value>,
    /// Until when each write is answered with another one.
    fights: Option<Instant>,
}

type Shared = Arc<Server>;

impl Server {
    fn secret(&self) -> Value {
        let said = self.said.lock().unwrap();
        let version = self.version.borrow().to_string();
        let by = json!([
            {"manager": FIELD_MANAGER, "operation": "Apply", "time": "2027-01-15T08:00:00Z"},
            {"manager": RIVAL, "operation": "Update", "time": "2027-01-15T08:00:01Z"},
        ]);
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": NAME, "resourceVersion": version, "managedFields": by},
            "data": {"a": said.value},
        })
    }

    async fn answer(&self, request: Request<Body>) -> Value {
        let (path, query) = (request.uri().path().to_owned(), request.uri().query());
        let seen = query.and_then(|q| {
            let mut parts = q.split('&');
            parts.find_map(|part| part.strip_prefix("resourceVersion=")?.parse::<u64>().ok())
        });
        let watches = query.is_some_and(|q| q.contains("watch=true"));
        let method = request.method().clone();
        let body = request.into_body().collect_bytes().await.unwrap();
        if path.ends_with("/events") {
            let event: Value = serde_json::from_slice(&body).unwrap();
            self.said.lock().unwrap().events.push(event.clone());
            return event;
        }
        if method == Method::GET && watches {
            let mut version = self.version.subscribe();
            let newer = |version: &u64| seen.is_none_or(|seen| *version > seen);
            version.wait_for(newer).await.unwrap();
            return json!({"type": "MODIFIED", "object": self.secret()});
        }
        if method == Method::GET {
            let version = self.version.borrow().to_string();
            return json!({
                "apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": version},
                "items": [self.secret()],
            });
        }
        let written: Value = serde_json::from_slice(&body).unwrap();
        {
            let mut said = self.said.lock().unwrap();
            let now = Instant::now();
            said.writes.push(now);
            if said.fights.is_none_or(|until| now >= until) {
                said.value = written["data"]["a"].as_str().unwrap().to_owned();
            }
        }
        self.version.send_modify(|version| *version += 1);
        self.secret()
    }

    fn writes(&self) -> usize {
        self.said.lock().unwrap().writes.len()
    }
}

/// With the value that "x" has there.
fn server(fights: Option<Duration>) -> Shared {
    let said = Said {
        value: "eA==".to_owned(),
        fights: fights.map(|time| Instant::now() + time),
        ..Said::default()
    };
    Arc::new(Server {
        version: watch::Sender::new(1),
        said: Mutex::new(said),
    })
}

fn context(server: &Shared) -> Context {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let answer = server.answer(request).await;
            let body = Body::from(format!("{answer}\n").into_bytes());
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let (news, _told) = mpsc::channel(8);
    Context {
        kube: kube::Client::new(service, "linesman"),
        namespace: "linesman".to_owned(),
        engines: EngineNamespaces::default(),
        extent: Extent::Cluster,
        pod: "pod-a".to_owned(),
        cluster: "eu1".parse().unwrap(),
        build: AgentBuild {
            version: "1".to_owned(),
            image: "linesman:1".to_owned(),
            arch: "amd64".to_owned(),
            features: Vec::new(),
        },
        faults: Faults::default(),
        news,
        heart: None,
    }
}

fn content(value: &str) -> SecretData {
    BTreeMap::from([("a".to_owned(), value.as_bytes().to_vec())])
}

/// A leader reads its state, and says `value` later: what was written by then, and in the end.
async fn writes_where_it_has_to_be(values: [Option<&str>; 2]) -> [usize; 2] {
    let server = server(None);
    let [first, second] = values.map(|value| value.map(content));
    let (wanted_out, wanted) = watch::channel(first);
    let known = wanted.clone();
    let same = move |data: &SecretData| known.borrow().as_ref() == Some(data);
    let stop = CancellationToken::new();
    let keeping = secret(context(&server), NAME, wanted, same, stop.clone());
    let told = async {
        tokio::time::sleep(RETRY / 2).await;
        let before = server.writes();
        wanted_out.send_replace(second);
        tokio::time::sleep(RETRY * 4).await;
        stop.cancel();
        before
    };
    let (kept, before) = tokio::join!(keeping, told);
    kept.unwrap();
    [before, server.writes()]
}

/// W27: a process that only begins to lead writes nothing that is there already.
#[tokio::test(start_paused = true)]
async fn what_is_wanted_later_and_is_there_is_not_written() {
    assert_eq!(writes_where_it_has_to_be([None, Some("x")]).await, [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_later_and_is_not_there_is_written_once() {
    assert_eq!(writes_where_it_has_to_be([None, Some("y")]).await, [0, 1]);
}

/// W25: whoever changed it could not write it, and the Secret tells nothing new.
#[tokio::test(start_paused = true)]
async fn a_change_that_could_not_be_written_is_written_later() {
    assert_eq!(
        writes_where_it_has_to_be([Some("x"), Some("y")]).await,
        [0, 1]
    );
}

/// The numbers of a store that was put back from a backup are lower than the ones that a watch goes on from.
#[tokio::test(start_paused = true)]
async fn a_secret_that_a_restored_store_has_otherwise_is_written_again() {
    let (server, stop) = (server(None), CancellationToken::new());
    let (_wanted, wanted) = watch::channel(Some(content("y")));
    let same = |data: &SecretData| *data == content("y");
    server.version.send_replace(5_000);
    let keeping = secret(context(&server), NAME, wanted, same, stop.clone());
    let restored = async {
        tokio::time::sleep(RETRY).await;
        let before = server.writes();
        server.said.lock().unwrap().value = "eA==".to_owned();
        server.version.send_replace(1_000);
        tokio::time::sleep(Duration::from_mins(3)).await;
        stop.cancel();
        [before, server.writes()]
    };
    let (kept, writes) = tokio::join!(keeping, restored);
    kept.unwrap();
    assert_eq!(writes, [1, 2]);
    assert_eq!(server.said.lock().unwrap().value, "eQ==");
}

/// W41: whatever writes the Secret anew at once is answered at a pace, people are told once, and what is ours stays in the end.
#[tokio::test(start_paused = true)]
async fn a_secret_that_somebody_changes_at_once_is_written_at_a_pace() {
    let minutes = Duration::from_mins;
    let (server, begun) = (server(Some(minutes(10))), Instant::now());
    let (_wanted, wanted) = watch::channel(Some(content("y")));
    let same = |data: &SecretData| *data == content("y");
    let stop = CancellationToken::new();
    let keeping = secret(context(&server), NAME, wanted, same, stop.clone());
    let ends = async {
        tokio::time::sleep(minutes(12)).await;
        stop.cancel();
    };
    let (kept, ()) = tokio::join!(keeping, ends);
    kept.unwrap();
    let said = server.said.lock().unwrap();
    let early = said.writes.iter().filter(|at| **at - begun < minutes(1));
    assert!((5..=12).contains(&early.count()), "{:?}", said.writes);
    assert!(
        (40..=90).contains(&said.writes.len()),
        "{}",
        said.writes.len()
    );
    let gaps = said.writes.windows(2).map(|pair| pair[1] - pair[0]);
    let gaps: Vec<Duration> = gaps.collect();
    assert!(
        gaps.iter()
            .all(|gap| *gap >= RETRY && *gap <= Duration::from_secs(31)),
        "{gaps:?}"
    );
    assert_eq!(said.value, "eQ==");
    let told: Vec<&Value> = said.events.iter().collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["reason"], FOUGHT);
    let note = told[0]["note"].as_str().unwrap();
    assert!(note.contains(&format!("changed by '{RIVAL}'")), "{note}");
}

/// Nothing of it counts against what happens once in a while.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_changed_now_and_then_is_back_at_once() {
    let (server, stop) = (server(None), CancellationToken::new());
    let (_wanted, wanted) = watch::channel(Some(content("y")));
    let same = |data: &SecretData| *data == content("y");
    let keeping = secret(context(&server), NAME, wanted, same, stop.clone());
    let changes = async {
        let mut back = Vec::new();
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_mins(1)).await;
            server.said.lock().unwrap().value = "eA==".to_owned();
            server.version.send_modify(|version| *version += 1);
            tokio::time::sleep(Duration::from_millis(100)).await;
            back.push(server.said.lock().unwrap().value == "eQ==");
        }
        stop.cancel();
        back
    };
    let (kept, back) = tokio::join!(keeping, changes);
    kept.unwrap();
    assert_eq!(back, [true; 10]);
    assert!(server.said.lock().unwrap().events.is_empty());
}
