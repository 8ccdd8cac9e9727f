use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;

use super::*;
use crate::agent::plan::tests::desired_of;

const SYNC: &str = "/apis/apps/v1/namespaces/flux-system/deployments/kustomize-controller";
const RIGHT: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-reconciler-flux-system";
const APP: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/apps/kustomizations/shop";
const LIST: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations";

/// A cluster by its paths, and what was written to it.
#[derive(Default)]
struct Cluster {
    objects: Mutex<BTreeMap<String, Value>>,
    written: Mutex<Vec<(String, Value)>>,
    /// Whether sync objects that are let go do go.
    stuck: bool,
}

impl Cluster {
    /// All of Flux' install is there.
    fn working(bundle: &Bundle) -> Self {
        let mut objects = BTreeMap::new();
        for id in places(bundle) {
            let (group, version, plural) = id.kind.resource();
            let root = if group.is_empty() { "/api" } else { "/apis/" };
            let at = match id.namespace.as_str() {
                "" => String::new(),
                namespace => format!("/namespaces/{namespace}"),
            };
            let path = format!("{root}{group}/{version}{at}/{plural}/{}", id.name);
            let spec = if id.kind == Kind::CustomResourceDefinition {
                let (plural, group) = id.name.split_once('.').unwrap();
                json!({
                    "group": group, "names": {"kind": "Kustomization", "plural": plural},
                    "versions": [{"name": "v1", "storage": true}],
                })
            } else {
                json!({"replicas": 1})
            };
            let object = json!({
                "apiVersion": id.kind.api_version(), "kind": id.kind.as_str(),
                "metadata": {"name": id.name, "namespace": id.namespace, "uid": "u"}, "spec": spec,
            });
            objects.insert(path, object);
        }
        Self {
            objects: Mutex::new(objects),
            ..Self::default()
        }
    }

    /// The guard took the right to change the cluster, and stopped the controller.
    fn guarded(bundle: &Bundle) -> Self {
        let cluster = Self::working(bundle);
        let mut objects = cluster.objects.lock().unwrap();
        assert!(objects.remove(RIGHT).is_some());
        let sync = objects.get_mut(SYNC).unwrap();
        sync["spec"]["replicas"] = json!(0);
        sync["metadata"]["managedFields"] = json!([{
            "manager": GUARD, "operation": "Update", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}},
        }]);
        drop(objects);
        cluster
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let mut objects = self.objects.lock().unwrap();
        if *method == Method::GET {
            if let Some(object) = objects.get(path) {
                return (200, object.clone());
            }
            let of = |(at, _): &(&String, &Value)| path == LIST && at.as_str() == APP;
            let items: Vec<&Value> = objects.iter().filter(of).map(|(_, o)| o).collect();
            if path
                .rsplit('/')
                .next()
                .is_some_and(|last| last.ends_with('s'))
                && !path.contains("bindings/")
            {
                return (
                    200,
                    json!({"metadata": {"resourceVersion": "1"}, "items": items}),
                );
            }
            let missing = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "",
            });
            return (404, missing);
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if path == APP && !self.stuck {
            objects.remove(APP);
        }
        if !path.contains("/events") {
            self.written
                .lock()
                .unwrap()
                .push((path.to_owned(), body.clone()));
        }
        (200, body)
    }
}

fn kube(cluster: &Arc<Cluster>) -> kube::Client {
    let cluster = Arc::clone(cluster);
    let service = tower::service_fn(move |request: Request<Body>| {
        let cluster = Arc::clone(&cluster);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (code, said) = cluster.answer(&parts.method, parts.uri.path(), &body);
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    kube::Client::new(service, "linesman")
}

fn site() -> Site {
    Site::of(EngineKind::Flux, &EngineNamespaces::default())
}

/// A Kustomization that somebody deletes, and that the engine would prune by.
fn dying() -> Value {
    json!({"metadata": {
        "namespace": "apps", "name": "shop", "uid": "u", "finalizers": ["finalizers.fluxcd.io"],
        "deletionTimestamp": "2027-01-15T08:00:00Z",
    }})
}

/// W27: the agent went while the guard was at it, and the engine never got back what was taken from it.
#[tokio::test(start_paused = true)]
async fn what_the_guard_took_is_given_back_before_the_agent_goes() {
    let bundle = desired_of(EngineKind::Flux).install.bundle;
    for (what, cluster, given) in [
        ("as it should be", Cluster::working(&bundle), &[][..]),
        ("guarded", Cluster::guarded(&bundle), &[RIGHT, SYNC]),
        (
            "still dying",
            {
                let cluster = Cluster::guarded(&bundle);
                cluster
                    .objects
                    .lock()
                    .unwrap()
                    .insert(APP.to_owned(), dying());
                cluster
            },
            &[APP, RIGHT, SYNC],
        ),
        (
            "uninstalled",
            {
                let cluster = Cluster::guarded(&bundle);
                cluster.objects.lock().unwrap().remove(SYNC);
                cluster
            },
            &[],
        ),
    ] {
        let cluster = Arc::new(cluster);
        let stop = CancellationToken::new();
        let left = give_back(&kube(&cluster), &site(), (&bundle, false), &stop).await;
        assert_eq!(left, None, "{what}");
        let written = cluster.written.lock().unwrap();
        let paths: Vec<&str> = written.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, given, "{what}");
        if let Some((_, body)) = written.iter().find(|(path, _)| path == SYNC) {
            assert_eq!(*body, json!({"spec": {"replicas": 1}}));
        }
    }
}

/// W27: an engine that somebody else manages may have other bindings, and is given none that it never had.
#[tokio::test(start_paused = true)]
async fn rights_that_the_guard_did_not_take_are_not_given() {
    let bundle = desired_of(EngineKind::Flux).install.bundle;
    for (cut, given) in [(false, &[][..]), (true, &[RIGHT])] {
        let cluster = Cluster::working(&bundle);
        cluster.objects.lock().unwrap().remove(RIGHT);
        let heals = json!([{"steps": [{"action": "cut-rights"}]}]).to_string();
        let map = json!({"metadata": {"name": OPEN_HEALS_MAP}, "data": {"heals.json": heals}});
        if cut {
            let path = format!("/api/v1/namespaces/linesman/configmaps/{OPEN_HEALS_MAP}");
            cluster.objects.lock().unwrap().insert(path, map);
        }
        let cluster = Arc::new(cluster);
        let kube = kube(&cluster);
        assert_eq!(super::cut(&kube, "linesman").await, cut);
        let stop = CancellationToken::new();
        let left = give_back(&kube, &site(), (&bundle, cut), &stop).await;
        assert_eq!(left, None);
        let written = cluster.written.lock().unwrap();
        let paths: Vec<&str> = written.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, given, "{cut}");
    }
}

/// W27: with its rights the engine would prune what it is kept from; so they stay away, and people are told.
#[tokio::test(start_paused = true)]
async fn rights_stay_away_while_something_is_being_deleted() {
    let bundle = desired_of(EngineKind::Flux).install.bundle;
    let mut cluster = Cluster::guarded(&bundle);
    cluster.stuck = true;
    cluster
        .objects
        .get_mut()
        .unwrap()
        .insert(APP.to_owned(), dying());
    let cluster = Arc::new(cluster);
    let stop = CancellationToken::new();
    let left = give_back(&kube(&cluster), &site(), (&bundle, false), &stop)
        .await
        .unwrap();
    assert!(
        left.text.contains("Kustomization shop is being deleted"),
        "{}",
        left.text
    );
    let written = cluster.written.lock().unwrap();
    assert!(written.iter().all(|(path, _)| path == APP), "{written:?}");
}

/// W27
#[tokio::test(start_paused = true)]
async fn what_is_held_back_is_told_with_what_ends_it() {
    let bundle = desired_of(EngineKind::Flux).install.bundle;
    let note = |lifted: Option<&str>| {
        let hold = Hold {
            revision: "main@sha1:2".to_owned(),
            since: "2027-01-15T08:00:00Z".to_owned(),
            reason: "is scaled to 0 by Git".to_owned(),
            attempt: 1,
            lifted: lifted.map(str::to_owned),
            order: None,
            removal: false,
        };
        serde_json::to_string(&hold).unwrap()
    };
    for (lifted, told) in [(None, true), (Some("2027-01-15T09:00:00Z"), false)] {
        let cluster = Cluster::working(&bundle);
        let annotations = json!({HELD: note(lifted)});
        cluster.objects.lock().unwrap().get_mut(SYNC).unwrap()["metadata"]["annotations"] =
            annotations;
        let cluster = Arc::new(cluster);
        let left = held(&kube(&cluster), &site(), &bundle).await;
        let text: Vec<&str> = left.iter().map(|l| l.text.as_str()).collect();
        let expected = "stays as it was mended, and held back from Git, for the agent goes: commit main@sha1:2: is scaled to \
                        0 by Git; when the catalog has it right: kubectl -n flux-system annotate deployments \
                        kustomize-controller kustomize.toolkit.fluxcd.io/reconcile- linesman.dev/held-";
        let expected: &[&str] = if told { &[expected] } else { &[] };
        assert_eq!(text, expected);
        assert!(cluster.written.lock().unwrap().is_empty());
    }
}
