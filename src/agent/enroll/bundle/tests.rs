use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::agent::fault::Faults;
use crate::agent::identity::Identity;
use crate::agent::link::LinkState;
use crate::agent::plan::replace::REFUSED;
use crate::agent::plan::tests::desired_of;
use crate::manifests::{EngineNamespaces, scope::Extent};
use crate::wire::api::AgentBuild;

/// The ConfigMap that an API server has, and the answers to the writes of it that come next: what it does not take, it answers
/// with 500.
#[derive(Default)]
struct Server {
    map: Option<Value>,
    refuses: usize,
    writes: usize,
}

fn kube(server: &Arc<Mutex<Server>>) -> kube::Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let mut server = server.lock().unwrap();
            let missing =
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            let (code, said) = if parts.method == Method::GET {
                server.map.clone().map_or((404, missing), |map| (200, map))
            } else {
                server.writes += 1;
                if server.refuses > 0 {
                    server.refuses -= 1;
                    (
                        500,
                        json!({"kind": "Status", "status": "Failure", "code": 500}),
                    )
                } else {
                    let map: Value = serde_json::from_slice(&body).unwrap();
                    server.map = Some(map.clone());
                    (200, map)
                }
            };
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    kube::Client::new(service, "linesman")
}

fn keeper(server: &Arc<Mutex<Server>>) -> Keeper {
    keeper_with(kube(server))
}

fn keeper_with(kube: kube::Client) -> Keeper {
    let context = Context {
        kube,
        namespace: "linesman".to_owned(),
        engines: EngineNamespaces::default(),
        extent: Extent::Cluster,
        pod: "linesman-agent-0".to_owned(),
        cluster: "eu1".parse().unwrap(),
        build: AgentBuild::default(),
        faults: Faults::default(),
        news: mpsc::channel(8).0,
        heart: None,
    };
    let down = LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    };
    let identity = Identity::from_seeds(&[1; 32], &[2; 32]);
    let caller = Caller::new(
        watch::channel(identity).1,
        watch::channel(None).1,
        watch::channel(down).1,
    );
    let mut keeper = Keeper::new(context, caller, watch::channel(None).1);
    keeper.held = Some(desired_of(EngineKind::Flux).install);
    keeper
}

/// W5: somebody deletes what the next start without hub needs, and the API server does not take it at once.
#[tokio::test]
async fn a_bundle_that_could_not_be_written_again_is_not_called_stored() {
    let server = Arc::new(Mutex::new(Server {
        refuses: 2,
        ..Server::default()
    }));
    let keeper = keeper(&server);
    let mut kept = Vec::new();
    for _ in 0..4 {
        let stored = keeper.keep().await;
        kept.push((stored, server.lock().unwrap().writes));
    }
    assert_eq!(kept, [(false, 1), (false, 2), (true, 3), (true, 3)]);
    server.lock().unwrap().map = None;
    assert!(keeper.keep().await);
    assert_eq!(server.lock().unwrap().writes, 4);
}

/// An API server with one Kustomization, whose finalizer it lets nobody take away; of the rest of Flux nothing is left but its
/// CRDs.
fn pinning() -> kube::Client {
    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/";
    let service = tower::service_fn(|request: Request<Body>| async move {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let path = parts.uri.path();
        let failure = |reason: &str, code: u16| {
            let said = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
                "message": "denied by policy keep-finalizers",
            });
            (code, said)
        };
        let list = |items: Value| {
            (
                200,
                json!({"metadata": {"resourceVersion": "1"}, "items": items}),
            )
        };
        let pinned = json!({"metadata": {
            "namespace": "apps", "name": "shop", "uid": "u", "finalizers": ["finalizers.fluxcd.io"],
        }});
        let (code, said) = if let Some(name) = path.strip_prefix(CRDS) {
            let (plural, group) = name.split_once('.').unwrap();
            let crd = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name},
                "spec": {
                    "group": group, "names": {"kind": "Kustomization", "plural": plural},
                    "versions": [{"name": "v1", "storage": true}],
                },
            });
            (200, crd)
        } else if parts.method == Method::PATCH && path.contains("/configmaps/") {
            (200, serde_json::from_slice(&body).unwrap())
        } else if parts.method == Method::PATCH {
            failure("Forbidden", 403)
        } else if path.ends_with("/kustomizations") {
            list(json!([pinned]))
        } else if parts
            .uri
            .query()
            .is_some_and(|query| query.contains("limit="))
            || path.ends_with("/pods")
        {
            list(json!([]))
        } else {
            failure("NotFound", 404)
        };
        let answer = Response::builder().status(code);
        let answer = answer.body(Body::from(said.to_string().into_bytes()));
        Ok::<_, Infallible>(answer.unwrap())
    });
    kube::Client::new(service, "linesman")
}

/// W25: no engine worked for as long as an admission policy refused what frees a sync object of the one that failed.
#[tokio::test(start_paused = true)]
async fn what_was_in_force_comes_back_beside_a_sync_object_that_nobody_may_free() {
    let mut keeper = keeper_with(pinning());
    let mut held = keeper.held.clone().unwrap();
    held.change = Some(Change {
        from: desired_of(EngineKind::Argocd).install.form,
        to: held.form.clone(),
        number: 7,
        since: clock::rfc3339(clock::now()),
        within: 300,
        both: true,
        objects: Vec::new(),
        failed: Some("it did not work".to_owned()),
        ending: None,
    });
    let rest = Some((7, EngineKind::Flux));
    let mut said = Vec::new();
    let second = std::time::Duration::from_secs(1);
    for wait in [
        std::time::Duration::ZERO,
        REFUSED.saturating_sub(second),
        second,
    ] {
        tokio::time::advance(wait).await;
        said.push(
            keeper
                .stills_on_the_way_back(&mut held, rest)
                .await
                .unwrap(),
        );
    }
    let why = "Kustomization apps/shop keeps the finalizer of flux: the API server refuses to take it away";
    let next = "kubectl -n apps edit kustomizations shop";
    for waits in &said[..2] {
        let waits = waits.as_deref().unwrap();
        assert!(waits.contains(why) && waits.contains(next), "{waits}");
    }
    assert_eq!(said[2], None);
    let failed = held.change.unwrap().failed.unwrap();
    assert!(failed.starts_with("it did not work; "), "{failed}");
    assert!(failed.contains(why) && failed.contains(next), "{failed}");
    assert_eq!(failed.matches(next).count(), 1, "{failed}");
}
