//! Argo CD's install, core or full: what it needs beyond its manifest, its secrets, its root, and what its health is read from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::install::Parts;
use super::wanted::{Body, Wanted, comparable, entry, of_bundle, own};
use super::{Traits, labels, one_key_per_line};
use crate::agent::{Desired, EngineKeys};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::wire::api::EngineKind;

pub mod signers;

pub use signers::KEYRING;

/// What its objects are part of; its usual namespace has the same name.
const PART_OF: &str = "argocd";
/// The root Application.
pub const ROOT: &str = "linesman";
/// What the root refers to; else only Argo CD's API server would make it, which core lacks.
pub const PROJECT: &str = "default";
/// The Secret that names the catalog and holds the key to it.
pub const REPOSITORY: &str = "linesman-catalog";
pub const SESSION: &str = "argocd-secret";
pub const REDIS: &str = "argocd-redis";
/// Makes Applications of `ApplicationSet`s.
pub const APPLICATIONSETS: &str = "argocd-applicationset-controller";
/// What that is asked with: an `ApplicationSet` without generators, of which nothing is made. Those of the catalog are others'.
pub const CANARY: &str = "linesman-probe";
/// Makes manifests of what is in Git.
pub const REPO_SERVER: &str = "argocd-repo-server";
pub const KNOWN_HOSTS: &str = "argocd-ssh-known-hosts-cm";
/// What its programs are started with.
pub const PARAMS: &str = "argocd-cmd-params-cm";
/// The settings of all of it.
pub const CONFIG: &str = "argocd-cm";
/// Argo CD's name of the cluster that it runs in.
pub const HERE: &str = "https://kubernetes.default.svc";

/// Asks Argo CD to look at an Application now; its controller takes the annotation away when it has done so.
pub const REFRESH: &str = "argocd.argoproj.io/refresh";
/// Asks it to look at an `ApplicationSet` now; its controller takes the annotation away when it has come to the end of that.
pub const REFRESH_SET: &str = "argocd.argoproj.io/application-set-refresh";
/// When we asked: Argo CD's own annotation has no time in it.
pub const PROBED_AT: &str = "linesman.dev/probed-at";
/// When Argo CD had looked last as we asked, by its own clock, which is another one than ours; empty = it had not looked yet.
pub const PROBED_FROM: &str = "linesman.dev/probed-from";
/// The finalizer of an Application whose end takes with it what it brought; a suffix says how.
pub const PRUNES: &str = "resources-finalizer.argocd.argoproj.io";
/// Stops all that is done with an Application.
pub const SKIP: &str = "argocd.argoproj.io/skip-reconcile";

/// How often Argo CD looks at the catalog by itself, and how much later than that it may be.
pub const RECONCILES: time::Duration = time::Duration::seconds(60);
pub const JITTER: time::Duration = time::Duration::seconds(60);

pub const TRAITS: Traits = Traits {
    kind: EngineKind::Argocd,
    applier: "argocd-controller",
    part_of: PART_OF,
    rights: &["argocd-application-controller"],
    pruners: &[
        (Kind::StatefulSet, "argocd-application-controller"),
        (Kind::Deployment, APPLICATIONSETS),
    ],
    pruning_crds: &["applications.argoproj.io", "applicationsets.argoproj.io"],
    finalizers: &[PRUNES, "post-delete-finalizer.argocd.argoproj.io"],
    children: &[Kind::Application, Kind::ApplicationSet, Kind::AppProject],
    // The controllers read their settings at the start; a Pod hangs without what it mounts or reads.
    before_pods: &[Kind::Role, Kind::RoleBinding, Kind::ConfigMap, Kind::Secret],
    controllers: [(Kind::StatefulSet, "argocd-application-controller"); 2],
    answers_with: &[REPO_SERVER, REDIS],
    follows: ["/spec/source/repoURL", "/spec/source/path"],
    // In the manifests it has neither a probe of the kubelet's nor a Lease.
    witnesses: &[(Kind::ApplicationSet, APPLICATIONSETS)],
};

pub(super) fn parts(desired: &Desired, keys: &EngineKeys) -> Parts {
    let mut wanted = of_bundle(desired);
    let place = desired.install.bundle.namespace.as_str();
    let id = |kind, name: &str| ObjectId::new(kind, place, name);
    wanted.insert(id(Kind::Namespace, place), own(namespace(place)));
    wanted.insert(id(Kind::ConfigMap, KNOWN_HOSTS), own(known_hosts(desired)));
    let bundled = |name: &str| {
        let mut objects = desired.install.bundle.objects.iter();
        let map = objects.find(|o| is_map(o.head(), name));
        map.map(|map| map.whole().into_owned())
    };
    if let Some(config) = bundled(CONFIG) {
        wanted.insert(id(Kind::ConfigMap, CONFIG), shared(configured(config)));
    }
    let signed = desired.assignment.catalog.signers.as_slice();
    if let Some(keyring) = signers::keyring(bundled(KEYRING), place, signed) {
        wanted.insert(id(Kind::ConfigMap, KEYRING), shared(keyring));
    }
    for name in [SESSION, REDIS, REPOSITORY] {
        let expect = secret(desired, keys, name).unwrap_or_default();
        let expect = comparable(Kind::Secret, expect);
        wanted.insert(id(Kind::Secret, name), entry(expect, Body::Secret));
    }
    let root = id(Kind::Application, ROOT);
    let project = signers::project(project(place), signed);
    wanted.insert(id(Kind::AppProject, PROJECT), own(project));
    let sets = ObjectId::crd_of(Kind::ApplicationSet);
    if wanted.contains_key(&id(Kind::Deployment, APPLICATIONSETS)) && wanted.contains_key(&sets) {
        wanted.insert(canary(place), own(application_set(place)));
    }
    wanted.insert(root.clone(), own(application(desired)));
    Parts {
        traits: &TRAITS,
        wanted,
        source: root.clone(),
        sync: root,
        secret: id(Kind::Secret, REPOSITORY),
    }
}

/// Where the [`CANARY`] is.
pub fn canary(namespace: &str) -> ObjectId {
    ObjectId::new(Kind::ApplicationSet, namespace, CANARY)
}

/// Only the subjects of bindings for the whole cluster name a namespace in the manifest.
pub(super) fn adjusted(bundle: &Bundle, mut object: Value) -> Value {
    let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        if subject.get("namespace").is_some() {
            subject["namespace"] = json!(bundle.namespace);
        }
    }
    object
}

/// A ConfigMap that nobody else has a say in.
pub(super) fn is_ours(id: &ObjectId) -> bool {
    id.name == KNOWN_HOSTS
}

fn is_map(object: &Value, name: &str) -> bool {
    super::place(object).is_some_and(|id| id.kind == Kind::ConfigMap && id.name == name)
}

/// Of which only our keys are kept once it is there.
fn shared((whole, keys): (Value, Value)) -> Wanted {
    let body = Body::Shared {
        whole: whole.into(),
        keys: keys.clone().into(),
    };
    entry(keys, body)
}

/// The ConfigMap of all settings, whole and as the patch of our keys: what people add or change beside them is theirs.
fn configured(mut whole: Value) -> (Value, Value) {
    let ours = json!({
        "timeout.reconciliation": format!("{}s", RECONCILES.whole_seconds()),
        // The health of an Application is not looked at by default; the root's is that of what it brought.
        "resource.customizations.health.argoproj.io_Application": HEALTH,
    });
    let keys = json!({
        "metadata": {"labels": {"app.kubernetes.io/part-of": PART_OF}},
        "data": ours,
    });
    if let (Some(map), Value::Object(ours)) = (whole.as_object_mut(), ours) {
        let data = map
            .entry("data")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(data) = data.as_object_mut() {
            data.extend(ours);
        }
    }
    (whole, keys)
}

const HEALTH: &str = "\
local seen = obj.status and obj.status.health or {}
local health = {}
health.status = seen.status or \"Progressing\"
health.message = seen.message or \"\"
return health
";

/// The Secrets by name, none for another: key and address of the catalog, and what Argo CD's parts share.
pub(super) fn secret(desired: &Desired, keys: &EngineKeys, name: &str) -> Option<Value> {
    let encoded = |text: &str| STANDARD.encode(text);
    let place = &desired.install.bundle.namespace;
    let mut labels = labels();
    labels["app.kubernetes.io/part-of"] = json!(PART_OF);
    let data = match name {
        REPOSITORY => {
            labels["argocd.argoproj.io/secret-type"] = json!("repository");
            json!({
                "type": encoded("git"),
                "url": encoded(desired.assignment.catalog.source()),
                "sshPrivateKey": encoded(desired.deploy_key.private.expose()),
            })
        }
        // Else only Argo CD's API server would make it, which keeps users' passwords beside it: those are its own.
        // Without it no Application is looked at.
        SESSION => json!({"server.secretkey": encoded(keys.session.expose())}),
        // Else made by the Redis Pod itself, after the Pods that need it.
        REDIS => json!({"auth": encoded(keys.redis.expose())}),
        _ => return None,
    };
    Some(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": place, "labels": labels},
        "data": data,
    }))
}

fn namespace(place: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": Kind::Namespace.as_str(),
        "metadata": {"name": place, "labels": labels()},
    })
}

/// This host's keys and no others: the manifest's own list would be trusted, too.
fn known_hosts(desired: &Desired) -> Value {
    let place = &desired.install.bundle.namespace;
    json!({
        "apiVersion": "v1", "kind": Kind::ConfigMap.as_str(),
        "metadata": {"name": KNOWN_HOSTS, "namespace": place, "labels": {
            "app.kubernetes.io/name": KNOWN_HOSTS, "app.kubernetes.io/part-of": PART_OF,
        }},
        "data": {"ssh_known_hosts": one_key_per_line(&desired.assignment.catalog.known_hosts)},
    })
}

fn project(place: &str) -> Value {
    json!({
        "apiVersion": Kind::AppProject.api_version(), "kind": Kind::AppProject.as_str(),
        "metadata": {"name": PROJECT, "namespace": place, "labels": labels()},
        "spec": {
            "sourceRepos": ["*"],
            "destinations": [{"namespace": "*", "server": "*"}],
            "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
        },
    })
}

/// Without a generator, for its controller writes each of them anew with every answer, and not every version in the same way. Should
/// somebody give it one, its Applications are refused: there is no such project.
fn application_set(place: &str) -> Value {
    const WHY: &str = "Linesman asks the applicationset-controller with it whether it works; nothing is made of it";
    json!({
        "apiVersion": Kind::ApplicationSet.api_version(), "kind": Kind::ApplicationSet.as_str(),
        "metadata": {
            "name": CANARY, "namespace": place, "labels": labels(),
            "annotations": {"linesman.dev/purpose": WHY},
        },
        "spec": {
            "generators": [],
            "template": {
                "metadata": {"name": CANARY},
                "spec": {
                    "project": CANARY,
                    "destination": {"server": HERE, "namespace": place},
                },
            },
        },
    })
}

/// Without a finalizer: its deletion takes nothing with it.
fn application(desired: &Desired) -> Value {
    let place = &desired.install.bundle.namespace;
    let catalog = &desired.assignment.catalog;
    let path = catalog.path.trim_start_matches("./").trim_matches('/');
    let path = if path.is_empty() { "." } else { path };
    // Without `refresh`, a retry is of the revision that failed, whatever was committed since.
    let (limit, refresh) = if refreshes(desired) {
        (-1, json!(true))
    } else {
        (10, Value::Null)
    };
    let mut retry = json!({
        "limit": limit,
        "backoff": {"duration": "5s", "factor": 2, "maxDuration": "1m0s"},
    });
    if !refresh.is_null() {
        retry["refresh"] = refresh;
    }
    json!({
        "apiVersion": Kind::Application.api_version(), "kind": Kind::Application.as_str(),
        "metadata": {"name": ROOT, "namespace": place, "labels": labels()},
        "spec": {
            "project": PROJECT,
            "source": {"repoURL": catalog.source(), "targetRevision": catalog.branch, "path": path},
            "destination": {"server": HERE, "namespace": place},
            "syncPolicy": {
                "automated": {"prune": desired.prunes, "selfHeal": true},
                "syncOptions": ["RespectIgnoreDifferences=true"],
                "retry": retry,
            },
            // What is asked of an Application, by whomever, is no drift.
            "ignoreDifferences": [{
                "group": "argoproj.io", "kind": Kind::Application.as_str(),
                "jsonPointers": ["/operation", "/metadata/annotations/argocd.argoproj.io~1refresh"],
            }],
        },
    })
}

/// Whether this version's retries look at the branch anew: a field that the API server does not know is dropped.
fn refreshes(desired: &Desired) -> bool {
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "applications.argoproj.io",
    );
    let mut objects = desired.install.bundle.objects.iter();
    let crd = objects.find(|o| super::place(o.head()).as_ref() == Some(&crd));
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/syncPolicy/properties/retry/properties/refresh";
    crd.is_some_and(|crd| crd.whole().pointer(field).is_some())
}
