//! Who has the label of the Pod that leads, where requests for it are given up and served later (L51).

use std::future::pending;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::{BoxError, service_fn};

use super::label::{LOOK, Unmarked, mark, unmark};
use super::*;
use crate::agent::fault::Faults;
use crate::manifests::{EngineNamespaces, LEADS, scope::Extent};
use crate::wire::api::AgentBuild;

mod told;

const POD: &str = "pod-a";
/// When a request that nobody waits for any more is served.
const LATER: Duration = Duration::from_secs(7);

/// An API server that has the Pod.
#[derive(Default)]
struct Server {
    label: Option<String>,
    /// Other Pods that have it.
    others: Vec<String>,
    /// Whether the next write is served [`LATER`], and not answered before that.
    slow: bool,
    under_way: Vec<(Instant, Option<String>)>,
    looks: usize,
}

impl Server {
    fn served(&mut self) {
        let now = Instant::now();
        for (_, label) in self.under_way.extract_if(.., |(at, _)| *at <= now) {
            self.label = label;
        }
    }

    /// The answer; none = later.
    fn answer(&mut self, method: &Method, body: &[u8]) -> Option<Value> {
        self.served();
        self.looks += usize::from(*method == Method::GET);
        if *method == Method::PATCH {
            let patch: Value = serde_json::from_slice(body).unwrap();
            let label = patch["metadata"]["labels"][LEADS].as_str();
            let label = label.map(str::to_owned);
            if std::mem::take(&mut self.slow) {
                self.under_way.push((Instant::now() + LATER, label));
                return None;
            }
            self.label = label;
        }
        let labels = self.label.iter().map(|value| (LEADS, value));
        let labels: std::collections::BTreeMap<_, _> = labels.collect();
        let mut pod = metadata(POD);
        pod["metadata"]["labels"] = json!(labels);
        Some(pod)
    }

    /// The Pods that have the label.
    fn marked(&mut self) -> Value {
        self.served();
        let own = self.label.iter().map(|_| POD);
        let names = own.chain(self.others.iter().map(String::as_str));
        let items: Vec<Value> = names.map(metadata).collect();
        json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items,
        })
    }

    /// Another Pod loses it.
    fn unmarked(&mut self, name: &str) -> Value {
        self.others.retain(|other| other != name);
        metadata(name)
    }
}

fn metadata(name: &str) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name},
    })
}

type Shared = Arc<Mutex<Server>>;

fn client(server: &Shared) -> kube::Client {
    let server = Arc::clone(server);
    let service = service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let path = request.uri().path().to_owned();
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let pod = path.rsplit_once("/pods").map(|(_, name)| name);
            let answer = match pod.map(|name| name.trim_matches('/')) {
                Some("") => server.lock().unwrap().marked(),
                Some(POD) => {
                    let answer = server.lock().unwrap().answer(&method, &body);
                    match answer {
                        Some(answer) => answer,
                        None => return pending().await,
                    }
                }
                Some(other) => server.lock().unwrap().unmarked(other),
                None => {
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": GIT_SERVICE}})
                }
            };
            Ok::<_, BoxError>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    kube::Client::new(service, "linesman")
}

fn relay(kube: kube::Client) -> Relay {
    let (news, _told) = mpsc::channel(8);
    let build = AgentBuild {
        version: "1".to_owned(),
        image: "linesman:1".to_owned(),
        arch: "amd64".to_owned(),
        features: Vec::new(),
    };
    let down = LinkState::Down {
        since: crate::clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    };
    Relay {
        context: Context {
            kube,
            namespace: "linesman".to_owned(),
            engines: EngineNamespaces::default(),
            extent: Extent::Cluster,
            pod: POD.to_owned(),
            cluster: "eu1".parse().unwrap(),
            build,
            faults: Faults::default(),
            news,
            heart: None,
        },
        joined: watch::channel(None).1,
        desired: watch::channel(None).1,
        link: watch::channel(down).1,
        carried: watch::Sender::new(Carried::Nothing),
    }
}

/// Whether the Pod has the label by now.
fn is_marked(server: &Shared) -> bool {
    let mut server = server.lock().unwrap();
    server.served();
    server.label.is_some()
}

/// It led until a moment ago: what gave it the label was cut in the middle, and comes after what takes the label away.
#[tokio::test(start_paused = true)]
async fn a_label_that_comes_late_does_not_stay_at_a_pod_that_stands_by() {
    let server = Shared::default();
    let (kube, stop) = (client(&server), CancellationToken::new());
    server.lock().unwrap().slow = true;
    let cut = timeout(
        Duration::from_secs(1),
        mark(&kube, "linesman", POD, Some("true")),
    );
    assert!(cut.await.is_err(), "given up");
    let (mut label, mut marked) = (Unmarked::default(), Vec::new());
    for _ in 0..30 {
        label.keep(&kube, ("linesman", POD), &stop).await;
        sleep(Duration::from_secs(2)).await;
        marked.push(is_marked(&server));
    }
    assert!(marked.contains(&true), "the request was served");
    let long = marked.iter().filter(|marked| **marked).count();
    assert!(long <= 6, "{marked:?}");
    let looks = server.lock().unwrap().looks;
    assert!(looks <= 7, "{looks} looks in a minute");
}

/// The same the other way round: the one that leads goes on without what the engine looks for.
#[tokio::test(start_paused = true)]
async fn a_label_that_is_taken_away_late_is_given_again_to_the_pod_that_leads() {
    let server = Shared::default();
    let (kube, stop) = (client(&server), CancellationToken::new());
    server.lock().unwrap().slow = true;
    let cut = timeout(
        Duration::from_secs(1),
        unmark(&kube, "linesman", POD, &stop),
    );
    assert!(cut.await.is_err(), "given up");
    let relay = relay(kube);
    let mut lacks = Vec::new();
    let looks = async {
        for _ in 0..15 {
            sleep(Duration::from_secs(2)).await;
            lacks.push(!is_marked(&server));
        }
    };
    tokio::select! {
        () = relay.keep() => {}
        () = looks => {}
    }
    assert!(lacks.contains(&true), "the request was served");
    let long = lacks.iter().filter(|lacks| **lacks).count();
    assert!(
        LOOK * 2 > Duration::from_secs(2) * u32::try_from(long).unwrap(),
        "{lacks:?}"
    );
    assert_eq!(lacks.last(), Some(&false));
}

/// A Pod whose node is gone keeps its label for as long as it is there, and so does one that ends.
#[tokio::test(start_paused = true)]
async fn the_pod_that_leads_takes_the_label_from_every_other_one() {
    let server = Shared::default();
    server.lock().unwrap().others = ["pod-b", "pod-c"].map(str::to_owned).to_vec();
    let relay = relay(client(&server));
    tokio::select! {
        () = relay.keep() => {}
        () = sleep(Duration::from_secs(1)) => {}
    }
    assert!(is_marked(&server));
    assert_eq!(server.lock().unwrap().others, [""; 0]);
}
