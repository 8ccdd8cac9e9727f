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
    let context = Context {
        kube: kube(server),
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
