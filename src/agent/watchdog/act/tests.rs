use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::*;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::plan::tests::{Cluster, install};
use crate::agent::saves::Saves;
use crate::agent::watchdog::open::OpenHeals;
use crate::agent::watchdog::tell::Teller;
use crate::agent::watchdog::tests::watchdog;
use crate::bundle::Kind;

/// An API server that has what is left to the next agent, once that is written, and nothing else; and what it was asked for.
#[derive(Default)]
struct Server {
    left: Option<Value>,
    asked: Vec<String>,
    /// Whether what is sent is never answered for.
    silent: bool,
}

impl Server {
    /// None = there is no answer.
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        self.asked.push(format!("{method} {path}"));
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []});
        let gone = json!({"kind": "Status", "code": 404, "reason": "NotFound"});
        if *method == Method::PATCH {
            if self.silent {
                return None;
            }
            self.left = Some(serde_json::from_slice(body).unwrap());
        }
        Some(match &self.left {
            Some(left) if path.ends_with("/linesman-open-heals") => (200, left.clone()),
            None if path.ends_with("/linesman-open-heals") => (404, gone),
            _ => (200, list),
        })
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

/// W44: an agent that ends while objects are let go, which takes a while, leaves to the next one whose doing it is that the engine has
/// no rights, also where no heal was open yet.
#[tokio::test(start_paused = true)]
async fn what_the_guard_took_is_on_record_before_anything_is_let_go() {
    let record = "PATCH /api/v1/namespaces/linesman/configmaps/linesman-open-heals";
    let list = "GET /apis/kustomize.toolkit.fluxcd.io/v1/kustomizations";
    let right = ObjectId::new(Kind::ClusterRoleBinding, "", "cluster-reconciler");
    let step = Step {
        action: Action::Release,
        target: ObjectId::crd_of(Kind::Kustomization),
        cause: None,
    };
    let (install, observed) = (install(), Cluster::working().observed());
    for (cut, asked) in [(true, vec![record, list]), (false, vec![list])] {
        let server = Arc::new(Mutex::new(Server::default()));
        let kube = kube(&server);
        let mut before = watchdog();
        before.open_heals = OpenHeals::new(&kube, "linesman");
        if cut {
            let uid = "uid".to_owned();
            before.history.cut.insert(right.clone(), uid);
        }
        let hands = Hands {
            kube: &kube,
            install: &install,
            view: &View::new(&install),
            observed: &observed,
            saves: &Saves::new(&kube, "linesman"),
        };
        let outcome = Box::pin(before.step(hands, &install, &step)).await;
        assert_eq!(outcome, Outcome::Unchanged);
        assert_eq!(server.lock().unwrap().asked, asked);
        drop(before);

        let mut next = watchdog();
        next.open_heals = OpenHeals::new(&kube, "linesman");
        next.saves = Saves::new(&kube, "linesman");
        next.resume().await;
        let known: BTreeMap<ObjectId, String> = if cut {
            [(right.clone(), String::new())].into()
        } else {
            BTreeMap::new()
        };
        assert_eq!(next.history.cut, known);
    }
}

/// W44: with a webhook that keeps each ConfigMap, what dies is let go a moment later than without, however many kinds of it there are.
#[tokio::test(start_paused = true)]
async fn a_record_that_hangs_is_waited_for_once_and_not_for_long() {
    let silent = Server {
        silent: true,
        ..Server::default()
    };
    let kube = kube(&Arc::new(Mutex::new(silent)));
    let (install, observed) = (install(), Cluster::working().observed());
    let step = Step {
        action: Action::Release,
        target: ObjectId::crd_of(Kind::Kustomization),
        cause: None,
    };
    let mut agent = watchdog();
    agent.open_heals = OpenHeals::new(&kube, "linesman");
    let right = ObjectId::new(Kind::ClusterRoleBinding, "", "cluster-reconciler");
    agent.history.cut.insert(right, "uid".to_owned());
    let hands = Hands {
        kube: &kube,
        install: &install,
        view: &View::new(&install),
        observed: &observed,
        saves: &Saves::new(&kube, "linesman"),
    };
    let begun = Instant::now();
    let mut took = Vec::new();
    for _ in 0..2 {
        let outcome = Box::pin(agent.step(hands, &install, &step)).await;
        assert_eq!(outcome, Outcome::Unchanged);
        took.push(begun.elapsed().as_secs());
    }
    assert_eq!(took, [2, 2]);
}

/// An API server that takes what is patched, and each Event; it counts those.
fn taking(events: &Arc<AtomicUsize>) -> kube::Client {
    let events = Arc::clone(events);
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_event = request.uri().path().ends_with("/events");
        events.fetch_add(usize::from(is_event), Ordering::Relaxed);
        async move {
            let sent = request.into_body().collect_bytes().await.unwrap();
            let live = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "flux-system", "resourceVersion": "4000000000"},
            });
            let said = if is_event {
                sent.to_vec()
            } else {
                live.to_string().into_bytes()
            };
            Ok::<_, Infallible>(Response::new(Body::from(said)))
        }
    });
    kube::Client::new(service, "linesman")
}

/// Somebody who tries in a loop what the guard does not let him makes no Event of each try.
#[tokio::test(start_paused = true)]
async fn words_that_allow_nothing_are_not_an_event_each() {
    let events = Arc::default();
    let kube = taking(&events);
    let mut agent = watchdog();
    agent.context.kube = kube.clone();
    agent.teller = Teller::new(&agent.context, mpsc::channel(8).0);
    let (install, seen) = (install(), Cluster::working().observed());
    let step = Step {
        action: Action::Lock,
        target: ObjectId::new(Kind::Namespace, "", "flux-system"),
        cause: None,
    };
    for word in ["1h", "2h", "3h"] {
        let mut observed = seen.clone();
        let live = Arc::make_mut(observed.objects.get_mut(&step.target).unwrap());
        live.fields["metadata"]["annotations"][ALLOW_DELETE] = json!(word);
        let hands = Hands {
            kube: &kube,
            install: &install,
            view: &View::new(&install),
            observed: &observed,
            saves: &Saves::new(&kube, "linesman"),
        };
        let outcome = Box::pin(agent.step(hands, &install, &step)).await;
        assert_eq!(outcome, Outcome::Done, "{word}");
    }
    // They are written beside that.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(events.load(Ordering::Relaxed), 1);
}
