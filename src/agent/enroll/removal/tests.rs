use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tower::service_fn;

use super::*;

const OURS: &str = "/api/v1/namespaces/linesman";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/linesman/deployments/linesman-agent";

/// A cluster of which a removal finds this much; what it is asked to do is done.
struct Cluster {
    secrets: &'static [&'static str],
    maps: &'static [&'static str],
    deployment: Option<&'static str>,
    /// Where the engine was installed, as the agent kept it.
    installed: Option<&'static str>,
    /// What is said of our cluster roles.
    roles: StatusCode,
    /// New adoption YAML is there when this was deleted; empty = from the start on.
    applied: Option<&'static str>,
    /// The join token at the beginning.
    known: Option<&'static str>,
    /// What changes something: method, path, and on whose end it makes something depend.
    done: Mutex<Vec<(Method, String, Value)>>,
    /// The Pod is ended with its Deployment.
    stop: CancellationToken,
}

impl Cluster {
    fn new(deployment: Option<&'static str>, roles: StatusCode) -> Self {
        Self {
            secrets: &[
                "linesman-join",
                "linesman-keys",
                "linesman-line-bind",
                "linesman-state",
                "somebody's",
            ],
            maps: &[
                "linesman-bundle",
                "linesman-hub",
                "linesman-policy",
                "kube-root-ca.crt",
            ],
            deployment,
            installed: None,
            roles,
            applied: None,
            known: None,
            done: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    fn read(&self, path: &str) -> (StatusCode, Value) {
        let list = |names: &[&str]| {
            let named = |name: &&str| json!({"metadata": {"name": name}});
            let items: Vec<_> = names.iter().map(named).collect();
            (StatusCode::OK, json!({"metadata": {}, "items": items}))
        };
        if path == format!("{OURS}/secrets") {
            return list(self.secrets);
        }
        if path == format!("{OURS}/configmaps") {
            return list(self.maps);
        }
        if path == format!("{OURS}/secrets/linesman-join") {
            return self.joins();
        }
        if let Some(namespace) = self.installed
            && path == format!("{OURS}/configmaps/linesman-bundle")
        {
            let data = json!({"namespace": namespace});
            let metadata = json!({"name": "linesman-bundle"});
            return (StatusCode::OK, json!({"metadata": metadata, "data": data}));
        }
        if path == DEPLOYMENT {
            let Some(uid) = self.deployment else {
                return status(StatusCode::NOT_FOUND);
            };
            let metadata = json!({"name": AGENT, "uid": uid});
            return (StatusCode::OK, json!({"metadata": metadata}));
        }
        if let Some(name) = path.strip_prefix(ROLES)
            && self.roles == StatusCode::OK
        {
            let metadata = json!({"name": name.trim_start_matches('/'), "uid": "role"});
            return (StatusCode::OK, json!({"metadata": metadata, "rules": []}));
        }
        if path.starts_with(ROLES) {
            return status(self.roles);
        }
        status(StatusCode::NOT_FOUND)
    }

    fn joins(&self) -> (StatusCode, Value) {
        let done = self.done.lock().unwrap();
        let waits = self.applied.filter(|after| {
            let is_it = |path: &str| path == format!("{OURS}/{after}");
            after.is_empty() || done.iter().any(|(_, path, _)| is_it(path))
        });
        if waits.is_none() {
            return status(StatusCode::NOT_FOUND);
        }
        // lmj1.new.x
        let data = json!({"token": "bG1qMS5uZXcueA=="});
        (
            StatusCode::OK,
            json!({"metadata": {"name": "linesman-join"}, "data": data}),
        )
    }

    fn answer(&self, method: Method, path: String, body: &[u8]) -> (StatusCode, Value) {
        if method == Method::GET {
            return self.read(&path);
        }
        if method == Method::DELETE && path == DEPLOYMENT {
            self.stop.cancel();
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let owner = body.pointer("/metadata/ownerReferences/0/uid");
        let owner = owner.cloned().unwrap_or_default();
        self.done.lock().unwrap().push((method, path, owner));
        (StatusCode::OK, json!({"metadata": {"name": "x"}}))
    }
}

fn status(code: StatusCode) -> (StatusCode, Value) {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let said = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": "",
    });
    (code, said)
}

/// Removes: how that went, and what was done to Secrets, `ConfigMap`s and the Deployment.
async fn removed(cluster: Cluster) -> (Result<(), String>, Vec<(Method, String, Value)>) {
    let (ended, mut done) = whole(cluster).await;
    done.retain(|(_, path, _)| {
        path.contains("/secrets/") || path.contains("/configmaps/") || path == DEPLOYMENT
    });
    (ended, done)
}

/// The same with all that was done.
async fn whole(cluster: Cluster) -> (Result<(), String>, Vec<(Method, String, Value)>) {
    let cluster = Arc::new(cluster);
    let seen = Arc::clone(&cluster);
    let service = service_fn(move |request: Request<Body>| {
        let cluster = Arc::clone(&seen);
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let (code, said) = cluster.answer(method, path, &body);
            let body = Body::from(said.to_string().into_bytes());
            let answer = Response::builder().status(code).body(body).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let kube = kube::Client::new(service, "linesman");
    let places = ("linesman", &EngineNamespaces::default());
    let ended = remove(&kube, places, Extent::Cluster, cluster.known, &cluster.stop);
    let ended = ended.await;
    let ended = ended.map_err(|error| format!("{error:#}"));
    let done = cluster.done.lock().unwrap().clone();
    (ended, done)
}

fn deletes(name: &str) -> (Method, String, Value) {
    (Method::DELETE, format!("{OURS}/{name}"), Value::Null)
}

fn depends(name: &str) -> (Method, String, Value) {
    (Method::PATCH, format!("{OURS}/{name}"), json!("uid"))
}

fn the_deployment() -> (Method, String, Value) {
    (Method::DELETE, DEPLOYMENT.to_owned(), Value::Null)
}

/// What goes at once, and what an agent that starts again in the midst of it goes by.
fn as_it_should() -> Vec<(Method, String, Value)> {
    vec![
        deletes("configmaps/linesman-bundle"),
        deletes("secrets/linesman-line-bind"),
        depends("secrets/linesman-join"),
        depends("secrets/linesman-keys"),
        depends("secrets/linesman-state"),
        depends("configmaps/linesman-hub"),
        depends("configmaps/linesman-policy"),
        the_deployment(),
    ]
}

/// W27: an agent that ends before its Deployment does can hear once more that its cluster was removed.
#[tokio::test(start_paused = true)]
async fn what_the_agent_needs_to_go_on_ends_with_its_deployment() {
    let cluster = Cluster::new(Some("uid"), StatusCode::OK);
    assert_eq!(removed(cluster).await, (Ok(()), as_it_should()));
}

/// A binding that stays is for whoever makes the agent's namespace and account anew, and the agent may not delete it.
#[tokio::test(start_paused = true)]
async fn the_bindings_in_the_engines_namespaces_end_with_the_agents_rights() {
    // Argo CD that was installed elsewhere is there, whatever the YAML in force says.
    for (installed, argocd) in [(None, "argocd"), (Some("gitops"), "gitops")] {
        let cluster = Cluster {
            installed,
            ..Cluster::new(Some("uid"), StatusCode::OK)
        };
        let (ended, mut done) = whole(cluster).await;
        assert_eq!(ended, Ok(()));
        done.retain(|(_, path, _)| path.ends_with("/linesman-engine"));
        let group = "/apis/rbac.authorization.k8s.io/v1";
        let bound = |of: &str| {
            let path = format!("{group}/namespaces/{of}/rolebindings/linesman-engine");
            (Method::PATCH, path, json!("role"))
        };
        let role = format!("{ROLES}/linesman-engine");
        let wanted = [
            bound("flux-system"),
            bound(argocd),
            (Method::DELETE, role, Value::Null),
        ];
        assert_eq!(done, wanted);
    }
}

/// W27: what engines are asked with goes with the last of the agent's roles, in which the right to write it is.
#[tokio::test(start_paused = true)]
async fn what_engines_are_asked_with_goes_with_the_agent() {
    let (ended, mut done) = whole(Cluster::new(Some("uid"), StatusCode::OK)).await;
    assert_eq!(ended, Ok(()));
    done.retain(|(_, path, _)| path.ends_with("/linesman-probe"));
    let release = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases";
    let set = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applicationsets";
    let depends = |all: &str| {
        let path = format!("{all}/linesman-probe");
        (Method::PATCH, path, json!("role"))
    };
    assert_eq!(done, [release, set].map(depends));
}

/// W27: an API server may let nobody name an owner who may not delete what that is to own (`OwnerReferencesPermissionEnforcement`). In
/// an engine's namespace the agent may by this role alone.
#[tokio::test(start_paused = true)]
async fn the_rights_in_the_engines_namespaces_are_there_until_all_of_it_depends() {
    let (ended, done) = whole(Cluster::new(Some("uid"), StatusCode::OK)).await;
    assert_eq!(ended, Ok(()));
    let role = |name: &str| format!("{ROLES}/{name}");
    let is_it = |path: &str| path == role("linesman-engine");
    let at = done.iter().position(|(_, path, _)| is_it(path)).unwrap();
    let rest: Vec<&str> = done[at..]
        .iter()
        .map(|(_, path, _)| path.as_str())
        .collect();
    let wanted = [
        role("linesman-engine"),
        role("linesman-agent"),
        DEPLOYMENT.to_owned(),
    ];
    assert_eq!(rest, wanted);
}

/// W27: the roles of which the one before got rid, or the right to look at them, are no reason to stop.
#[tokio::test(start_paused = true)]
async fn a_removal_that_was_cut_is_gone_on_with() {
    for roles in [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN] {
        let cluster = Cluster::new(Some("uid"), roles);
        let wanted = (Ok(()), as_it_should());
        assert_eq!(removed(cluster).await, wanted, "{roles}");
    }
}

/// W27: a role that cannot be read for another reason is left to another try, by an agent that has all that it needs.
#[tokio::test(start_paused = true)]
async fn a_removal_that_fails_leaves_the_deployment_for_the_next_try() {
    let cluster = Cluster::new(Some("uid"), StatusCode::INTERNAL_SERVER_ERROR);
    let (ended, done) = removed(cluster).await;
    let mut wanted = as_it_should();
    wanted.pop();
    assert_eq!(done, wanted);
    let said = ended.unwrap_err();
    assert!(
        said.starts_with("read ClusterRole linesman-read: "),
        "{said}"
    );
}

/// W27: on nothing they can depend then.
#[tokio::test(start_paused = true)]
async fn without_a_deployment_the_keys_are_deleted() {
    let (ended, done) = removed(Cluster::new(None, StatusCode::OK)).await;
    let wanted = vec![
        deletes("configmaps/linesman-bundle"),
        deletes("secrets/linesman-line-bind"),
        deletes("secrets/linesman-join"),
        deletes("secrets/linesman-keys"),
        deletes("secrets/linesman-state"),
        deletes("configmaps/linesman-hub"),
        deletes("configmaps/linesman-policy"),
        the_deployment(),
    ];
    assert_eq!((ended, done), (Ok(()), wanted));
}

/// A cluster that is removed is often added again at once, and its new YAML applied while the agent leaves.
#[tokio::test(start_paused = true)]
async fn yaml_that_is_applied_meanwhile_is_left_to_the_agent_that_joins_with_it() {
    let way_is_made = || {
        vec![
            deletes("configmaps/linesman-bundle"),
            deletes("configmaps/linesman-hub"),
            deletes("secrets/linesman-keys"),
            deletes("secrets/linesman-line-bind"),
            deletes("secrets/linesman-state"),
        ]
    };
    let begun = vec![
        deletes("configmaps/linesman-bundle"),
        deletes("secrets/linesman-line-bind"),
    ];
    for (after, before, again) in [
        ("", Vec::new(), ""),
        (
            "secrets/linesman-line-bind",
            begun,
            "; some of it may be gone: apply it once more",
        ),
    ] {
        let mut cluster = Cluster::new(Some("uid"), StatusCode::OK);
        cluster.applied = Some(after);
        let why = format!("new adoption YAML was applied: starting again to join with it{again}");
        let wanted = [before, way_is_made()].concat();
        assert_eq!(removed(cluster).await, (Err(why), wanted));
    }
}

/// The hub has refused it, or hears of it from nobody any more.
#[tokio::test(start_paused = true)]
async fn a_token_that_waited_before_keeps_no_agent() {
    let mut cluster = Cluster::new(Some("uid"), StatusCode::OK);
    (cluster.applied, cluster.known) = (Some(""), Some("new"));
    assert_eq!(removed(cluster).await, (Ok(()), as_it_should()));
}
