use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Method, Request, Response};
use http_body_util::Full;

use super::*;
use crate::agent::engine::Site;
use crate::manifests::EngineNamespaces;
use crate::wire::api::EngineKind;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/";

/// Sync objects of two kinds, two a page, and what was deleted of them.
fn handle(
    request: &Request<kube::client::Body>,
    deleted: &Mutex<Vec<String>>,
) -> Response<Full<Bytes>> {
    let answer = |code: u16, body: &Value| {
        let body = Full::new(Bytes::from(body.to_string()));
        Response::builder().status(code).body(body).unwrap()
    };
    let path = request.uri().path();
    if *request.method() == Method::DELETE {
        deleted.lock().unwrap().push(path.to_owned());
        return answer(200, &json!({"kind": "Status", "status": "Success"}));
    }
    if let Some(name) = path.strip_prefix(CRDS) {
        let (plural, group) = name.split_once('.').unwrap();
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": group, "names": {"kind": "Any", "plural": plural},
                "versions": [{"name": "v1beta1", "storage": false}, {"name": "v1", "storage": true}],
            },
        });
        return answer(200, &crd);
    }
    let accept = request.headers()[ACCEPT].to_str().unwrap();
    assert!(accept.contains("PartialObjectMetadataList"), "{accept}");
    let second = request.uri().query().unwrap().contains("continue=next");
    let object = |namespace: &str, name: &str, git: bool| {
        let owner = ("kustomize.toolkit.fluxcd.io/name", "flux-system");
        let labels = if git {
            json!({owner.0: owner.1})
        } else {
            json!({})
        };
        json!({"metadata": {"namespace": namespace, "name": name, "uid": "u", "labels": labels}})
    };
    let (items, next) = if second {
        (vec![object("team", "elsewhere", true)], "")
    } else {
        let first = object("flux-system", "ours", true);
        (vec![first, object("flux-system", "by-hand", false)], "next")
    };
    let list = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": {"resourceVersion": "1", "continue": next}, "items": items,
    });
    answer(200, &list)
}

/// The rights of the adoption YAML reach no further (`manifests::is_inventory`).
#[tokio::test]
async fn removed_is_what_git_brought_and_elsewhere_only_what_has_an_inventory() {
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let seen = deleted.clone();
    let service = tower::service_fn(move |request| {
        let deleted = seen.clone();
        async move { Ok::<_, std::convert::Infallible>(handle(&request, &deleted)) }
    });
    let kube = Client::new(service, "flux-system");
    let crds = [
        "kustomizations.kustomize.toolkit.fluxcd.io",
        "gitrepositories.source.toolkit.fluxcd.io",
    ];
    let crds = crds.map(|name| ObjectId::new(Kind::CustomResourceDefinition, "", name));
    remove_brought(
        &kube,
        &Site::of(EngineKind::Flux, &EngineNamespaces::default()),
        &crds,
    )
    .await
    .unwrap();
    let of = |group: &str, namespace: &str, plural: &str, name: &str| {
        format!("/apis/{group}.toolkit.fluxcd.io/v1/namespaces/{namespace}/{plural}/{name}")
    };
    let expected = [
        of("kustomize", "flux-system", "kustomizations", "ours"),
        of("kustomize", "team", "kustomizations", "elsewhere"),
        of("source", "flux-system", "gitrepositories", "ours"),
    ];
    assert_eq!(*deleted.lock().unwrap(), expected);
}

/// Leases as Flux with a shard leaves them, its Deployments, and whose were deleted.
fn led(
    request: &Request<kube::client::Body>,
    deleted: &Mutex<Vec<String>>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let (dir, name) = path.rsplit_once('/').unwrap();
    let lease = |name: &str| json!({"metadata": {"name": name, "uid": "u"}});
    let body = if *request.method() == Method::DELETE {
        deleted.lock().unwrap().push(name.to_owned());
        json!({"kind": "Status", "status": "Success"})
    } else if name == "leases" {
        let names = [
            "helm-controller-leader-election",
            "helm-controller-leader-election-73fdc1be",
            "kustomize-controller-leader-election",
            "kustomize-controller-leader-election-42da7484",
            "kustomize-controller-leader-election-73fdc1be",
            "other",
        ];
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {},
            "items": names.map(lease),
        })
    } else {
        assert!(dir.ends_with("/deployments"), "{path}");
        let args = if name == "kustomize-controller" {
            json!(["--watch-label-selector=!sharding.fluxcd.io/key"])
        } else {
            json!([])
        };
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "flux-system", "name": name},
            "spec": {"template": {"spec": {"containers": [{"name": "manager", "args": args}]}}},
        })
    };
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder().status(200).body(body).unwrap()
}

/// The controllers of shards are the catalog's, and whether they ended is not known.
#[tokio::test]
async fn only_leases_of_the_engines_own_controllers_are_deleted() {
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let seen = deleted.clone();
    let service = tower::service_fn(move |request| {
        let deleted = seen.clone();
        async move { Ok::<_, std::convert::Infallible>(led(&request, &deleted)) }
    });
    let kube = Client::new(service, "flux-system");
    let site = Site::of(EngineKind::Flux, &EngineNamespaces::default());
    let controllers = ["helm-controller", "kustomize-controller"];
    let controllers = controllers.map(|name| ObjectId::new(Kind::Deployment, "flux-system", name));
    forget(&kube, &site, &controllers).await.unwrap();
    let expected = [
        "helm-controller-leader-election",
        "kustomize-controller-leader-election-42da7484",
    ];
    assert_eq!(*deleted.lock().unwrap(), expected);
}

/// The only controller that these tests ask for.
const CONTROLLER: &str = "Deployment flux-system/source-controller";

/// An agent that covers some namespaces only, on its way from Argo CD to Flux: its rights come with the Namespace of Flux, which
/// `there` says is made.
fn bounded(path: &str, there: bool) -> (u16, Value) {
    let said = |code: u16, reason: &str, message: &str| {
        let said = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message});
        (code, said)
    };
    if path.ends_with("/selfsubjectaccessreviews") {
        return (
            201,
            json!({"metadata": {}, "spec": {}, "status": {"allowed": true}}),
        );
    }
    if path.contains("/namespaces/flux-system/") {
        return said(403, "Forbidden", "User \"agent\" may not");
    }
    if there && path.ends_with("/namespaces/flux-system") {
        return (
            200,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flux-system"}}),
        );
    }
    said(404, "NotFound", "not found")
}

fn on_the_way(there: bool) -> Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| async move {
        let (code, said) = bounded(request.uri().path(), there);
        let body = Full::new(Bytes::from(said.to_string()));
        Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
    });
    Client::new(service, "linesman")
}

fn site(kind: EngineKind) -> Site {
    Site::of(kind, &EngineNamespaces::default())
}

/// The hand-over makes it: nobody else would.
#[tokio::test]
async fn nothing_hinders_an_engine_whose_namespace_is_yet_to_be_made() {
    let (flux, argocd) = (site(EngineKind::Flux), site(EngineKind::Argocd));
    let hindered = hindered(&on_the_way(false), &flux, &argocd).await;
    assert_eq!(hindered.unwrap(), None);
}

/// On the way back from one that never came so far.
#[tokio::test]
async fn an_engine_without_its_namespace_stands_still() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let stands = still(&on_the_way(false), &site(EngineKind::Flux), &[id], false).await;
    assert_eq!(stands.unwrap(), Next::Still);
}

/// Without the rest of the Status, and once.
#[tokio::test]
async fn what_the_api_server_refuses_is_told_in_its_words() {
    let (flux, argocd) = (site(EngineKind::Flux), site(EngineKind::Argocd));
    let refused = hindered(&on_the_way(true), &flux, &argocd).await;
    let said = format!("{:#}", refused.unwrap_err());
    assert_eq!(said, format!("read {CONTROLLER}: User \"agent\" may not"));
}
