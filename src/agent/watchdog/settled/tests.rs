use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::advance;

use super::*;
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE};
use crate::agent::plan::tests::{Cluster, desired_of, install};
use crate::agent::watchdog::tests::watchdog;
use crate::bundle::{Kind, compress};
use crate::keys::sha256_hex;
use crate::wire::api::EngineKind;

/// An API server that has one snapshot, and takes what is written in its place.
struct Server {
    snapshot: Value,
    /// It says of each write that it failed, and whether that is so.
    fails: Option<bool>,
    /// How often that one was read or written.
    asked: usize,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        if path.ends_with("/configmaps") {
            let list = json!({
                "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": [self.snapshot],
            });
            return (200, list);
        }
        self.asked += 1;
        if *method == Method::PATCH {
            if self.fails != Some(true) {
                self.snapshot = serde_json::from_slice(body).unwrap();
            }
            if self.fails.is_some() {
                let status = json!({
                    "kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError",
                    "message": "etcdserver: request timed out",
                });
                return (500, status);
            }
        }
        (200, self.snapshot.clone())
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
            let (code, said) = server.lock().unwrap().answer(method, path, &body);
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    kube::Client::new(service, "linesman")
}

/// An agent that begins there.
async fn begins(server: &Arc<Mutex<Server>>) -> Watchdog {
    let mut agent = watchdog();
    agent.context.kube = kube(server);
    agent.snapshot = agent.load().await;
    agent
}

/// What Flux' inventory has no more, and what it still has.
fn both() -> [ObjectId; 2] {
    let names = ["source-controller", "kustomize-controller"];
    names.map(|name| ObjectId::new(Kind::Deployment, "flux-system", name))
}

/// With the snapshot that has both of them as Git's.
fn server() -> Arc<Mutex<Server>> {
    let install = install();
    let marked = |id: ObjectId| {
        let mut body = install.body(&id).unwrap();
        body["metadata"]["labels"][GIT_OWNER] = json!(install.sync.name);
        body["metadata"]["labels"][GIT_OWNER_NAMESPACE] = json!(install.sync.namespace);
        body
    };
    let plain = json!(both().map(marked)).to_string();
    let snapshot = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "linesman-snapshot-1"},
        "data": {
            "number": "1", "taken": "2026-01-02T03:04:05Z", "sha256": sha256_hex(plain.as_bytes()),
        },
        "binaryData": {"objects.zst": STANDARD.encode(compress(plain.as_bytes()))},
    });
    Arc::new(Mutex::new(Server {
        snapshot,
        fails: None,
        asked: 0,
    }))
}

/// A cluster in which neither carries Flux' marks.
fn observed(install: &Install) -> Observed {
    let mut seen = Cluster::working().observed();
    let [_, listed] = both();
    let entry = json!({"id": format!("flux-system_{}_apps_Deployment", listed.name)});
    let root = seen.objects.get_mut(&install.sync).unwrap();
    Arc::make_mut(root).fields["status"]["inventory"] = json!({"entries": [entry]});
    seen
}

fn gits(install: &Install) -> [bool; 2] {
    both().map(|id| install.wanted[&id].git_owned)
}

/// W5: when it is gone, only the snapshot tells whose an object was; also to an agent that begins then.
#[tokio::test]
async fn what_is_the_agents_again_is_so_in_the_last_snapshot() {
    let (server, desired) = (server(), desired_of(EngineKind::Flux));
    let mut agent = begins(&server).await;
    let install = agent.install(&desired);
    assert_eq!(gits(&install), [true, true]);
    let of = |agent: &Watchdog| agent.snapshot.as_ref().map(|s| (s.number, s.taken));
    let before = of(&agent);
    let seen = observed(&install);
    assert!(agent.keep_regained(&install, &seen).await);
    let next = begins(&server).await;
    for mut agent in [agent, next] {
        let install = agent.install(&desired);
        assert_eq!(gits(&install), [false, true]);
        assert_eq!(of(&agent), before, "what is in it is no younger");
        let again = agent.keep_regained(&install, &seen).await;
        assert!(!again, "it is said once");
    }
    assert_eq!(server.lock().unwrap().asked, 2);
}

/// Rounds follow each other within moments. A write that is not answered for may have been done all the same.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_not_written_is_tried_again_a_while_later() {
    let desired = desired_of(EngineKind::Flux);
    for failed in [true, false] {
        let server = server();
        server.lock().unwrap().fails = Some(failed);
        let mut agent = begins(&server).await;
        let install = agent.install(&desired);
        let seen = observed(&install);
        for _ in 0..3 {
            assert!(!agent.keep_regained(&install, &seen).await);
        }
        assert_eq!(server.lock().unwrap().asked, 2);
        assert_eq!(gits(&agent.install(&desired)), [true, true]);
        server.lock().unwrap().fails = None;
        advance(AGAIN).await;
        assert!(agent.keep_regained(&install, &seen).await, "{failed}");
        for agent in [agent, begins(&server).await] {
            assert_eq!(gits(&agent.install(&desired)), [false, true], "{failed}");
        }
    }
}
