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
use crate::wire::api::{AgentBuild, SignerRef};

/// The ConfigMap that an API server has, and the answers to the writes of it that come next: what it does not take, it answers
/// with 500.
#[derive(Default)]
struct Server {
    map: Option<Value>,
    /// What Flux' root follows; none = there is no root.
    root: Option<&'static str>,
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
            let (code, said) = if parts.uri.path().contains("/kustomizations/") {
                let named = json!({"name": "flux-system"});
                let root = |path: &str| json!({"metadata": named, "spec": {"path": path}});
                server.root.map_or((404, missing), |path| (200, root(path)))
            } else if parts.method == Method::GET {
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

fn wish(assignment: &Assignment) -> Wish<'_> {
    Wish {
        assignment,
        told: None,
        rest: None,
    }
}

/// Led elsewhere, it would prune what that place lacks, whoever named it and why.
#[tokio::test]
async fn the_engine_in_force_follows_what_it_did_whatever_the_hub_names() {
    let server = Arc::new(Mutex::new(Server::default()));
    let mut keeper = keeper(&server);
    let mut assignment = desired_of(EngineKind::Flux).assignment;
    // An agent of before kept none: it is the one that is named first.
    for named in ["clusters/eu1", "base"] {
        named.clone_into(&mut assignment.catalog.path);
        assert_eq!(keeper.turn(&wish(&assignment)).await.unwrap(), Turn::Done);
        assert_eq!(keeper.held().unwrap().form.path, "clusters/eu1", "{named}");
    }
    assert_eq!(server.lock().unwrap().writes, 1);
}

/// An agent of before led the root elsewhere, and did not keep that: there it stays.
#[tokio::test]
async fn an_agent_that_starts_goes_on_where_the_root_is() {
    for (root, expected) in [
        (Some("./base"), "base"),
        (Some("./clusters/eu1"), "clusters/eu1"),
        (None, "clusters/eu1"),
    ] {
        let server = Arc::new(Mutex::new(Server::default()));
        let mut assignment = desired_of(EngineKind::Flux).assignment;
        "clusters/eu1".clone_into(&mut assignment.catalog.path);
        keeper(&server).turn(&wish(&assignment)).await.unwrap();
        server.lock().unwrap().root = root;
        let mut started = keeper(&server);
        started.held = None;
        "base".clone_into(&mut assignment.catalog.path);
        started.turn(&wish(&assignment)).await.unwrap();
        assert_eq!(started.held().unwrap().form.path, expected, "{root:?}");
    }
}

/// An agent of before kept of what is to come back neither the engine nor the path, or a path that it led the engine away from.
#[tokio::test]
async fn what_comes_back_follows_what_the_engine_follows() {
    for (kind, path) in [(None, ""), (Some(EngineKind::Flux), "base")] {
        let mut keeper = keeper(&Arc::default());
        let assignment = desired_of(EngineKind::Flux).assignment;
        let mut held = keeper.held.clone().unwrap();
        held.form = Form::of(&assignment.engine).following("clusters/eu1");
        let mut from = held.form.clone().following(path);
        (from.kind, from.registry) = (kind, Some("registry.example.org".to_owned()));
        held.change = Some(Change {
            from: from.clone(),
            to: held.form.clone(),
            number: assignment.engine.change,
            since: clock::rfc3339(clock::now()),
            within: 300,
            both: false,
            objects: Vec::new(),
            failed: Some("it did not work".to_owned()),
            ending: None,
        });
        keeper.held = Some(held);
        assert_eq!(keeper.turn(&wish(&assignment)).await.unwrap(), Turn::Done);
        let form = &keeper.held().unwrap().form;
        assert_eq!(*form, from);
        let led = (form.kind, form.path.as_str());
        assert_eq!(led, (Some(EngineKind::Flux), "clusters/eu1"), "{path}");
        assert!(keeper.is_settled(&assignment.engine, None), "{path}");
    }
}

/// W43: a version whose projects cannot name keys would apply what nobody signed, also in the place of another version.
#[tokio::test]
async fn no_version_comes_that_looks_at_no_signature() {
    let mut desired = desired_of(EngineKind::Argocd);
    let objects = desired.install.bundle.objects.iter().map(|o| {
        let mut object = o.whole().into_owned();
        if object["metadata"]["name"] == "appprojects.argoproj.io" {
            let fields = json!({"sourceIntegrity": {"type": "object"}});
            let schema =
                json!({"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}});
            object["spec"] = json!({"versions": [{"name": "v1alpha1", "schema": schema}]});
        }
        object
    });
    let bundle = Bundle::from_objects(objects.collect()).unwrap();
    desired.install.form.bundle = bundle.digest.clone();
    desired.assignment.engine.bundle = bundle.digest.clone();
    desired.install.bundle = Arc::new(bundle);
    let mut assignment = desired.assignment;
    assignment.catalog.signers = vec![SignerRef {
        fingerprint: "A8".repeat(20),
        public_key: "armor".to_owned(),
        subkeys: Vec::new(),
    }];
    let mut keeper = keeper(&Arc::default());
    keeper.held = Some(desired.install);
    assert_eq!(keeper.turn(&wish(&assignment)).await.unwrap(), Turn::Done);
    assignment.engine.registry = Some("registry.example.org".to_owned());
    let refused = keeper.turn(&wish(&assignment)).await.unwrap_err();
    assert_eq!(refused.to_string(), plan::replace::UNVERIFIED);
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
