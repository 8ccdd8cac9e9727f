//! Flux: its install, its Git Secret, its root objects, and what their health means.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{Body, Install, Policy, Wanted, comparable, guard};
use crate::agent::Desired;
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::keys::sha256;
use crate::manifests;
use crate::wire::id::Digest;

/// The namespace of the install, and the name of its Secret, source and sync object: those of `flux bootstrap`.
pub const NAME: &str = "flux-system";

/// The binding that lets the sync controllers change (and prune) the whole cluster.
pub const RIGHTS: [&str; 2] = [
    "cluster-reconciler-flux-system",
    "crd-controller-flux-system",
];
/// The controllers that prune.
pub const PRUNERS: [&str; 2] = ["kustomize-controller", "helm-controller"];
/// CRDs whose deletion makes a controller prune what their objects brought.
pub const PRUNING_CRDS: [&str; 2] = [
    "kustomizations.kustomize.toolkit.fluxcd.io",
    "helmreleases.helm.toolkit.fluxcd.io",
];
/// The finalizer of all Flux objects.
pub const FINALIZER: &str = "finalizers.fluxcd.io";

pub(super) fn install(desired: &Desired, paused_until: Option<OffsetDateTime>) -> Install {
    let bundle = Arc::clone(&desired.bundle);
    let mut wanted = BTreeMap::new();
    for (index, object) in bundle.objects.iter().enumerate() {
        if let Some(id) = place(object) {
            let expect = comparable(id.kind, adjusted(&bundle, object.clone()));
            wanted.insert(id, entry(expect, Body::Bundle(index)));
        }
    }
    let secret = ObjectId::new(Kind::Secret, NAME, NAME);
    let source = ObjectId::new(Kind::GitRepository, NAME, NAME);
    let sync = ObjectId::new(Kind::Kustomization, NAME, NAME);
    let expect = comparable(Kind::Secret, git_secret(desired));
    wanted.insert(secret.clone(), entry(expect, Body::Secret));
    let rights = ObjectId::new(Kind::RoleBinding, NAME, manifests::ENGINE_ROLE);
    let own = [
        (&rights, agent_rights()),
        (&source, git_repository(desired)),
        (&sync, kustomization(desired)),
    ];
    for (id, object) in own {
        wanted.insert(
            id.clone(),
            entry(object.clone(), Body::Own(Arc::new(object))),
        );
    }
    let guard = guard::objects(wanted.keys(), [&source, &sync], &labels());
    for (id, object) in guard {
        wanted.insert(id, entry(object.clone(), Body::Own(Arc::new(object))));
    }
    let policy = &desired.assignment.policy;
    let known: String = wanted.values().map(|w| w.expect.to_string()).collect();
    Install {
        wanted,
        namespace: NAME.to_owned(),
        source,
        sync,
        secret,
        rights,
        policy: Policy {
            probe_every: time::Duration::seconds(policy.probe_every.max(30).into()),
            snapshot_after: time::Duration::seconds(policy.snapshot_after.into()),
            paused_until,
            pause_reason: policy.pause_reason.clone().unwrap_or_default(),
        },
        cluster: desired.assignment.cluster.name.as_str().to_owned(),
        digest: Digest::from_bytes(sha256(known.as_bytes())),
        bundle,
        desired: desired.clone(),
    }
}

fn entry(expect: Value, body: Body) -> Wanted {
    Wanted {
        expect: Arc::new(expect),
        git_owned: false,
        body,
    }
}

/// Where an install object lives; none for what is no kind of an install.
pub fn place(object: &Value) -> Option<ObjectId> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = Kind::parse(text("/apiVersion")?, text("/kind")?)?;
    let namespace = text("/metadata/namespace").unwrap_or_default();
    Some(ObjectId::new(kind, namespace, text("/metadata/name")?))
}

/// Install values: without a notification-controller every event would be posted in vain inside each
/// reconciliation and stall it for 15 to 40 s, so the address is emptied.
pub(super) fn adjusted(bundle: &Bundle, mut object: Value) -> Value {
    let receiver = |o: &Value| {
        o.pointer("/metadata/name").and_then(Value::as_str) == Some("notification-controller")
            && o.get("kind").and_then(Value::as_str) == Some(Kind::Deployment.as_str())
    };
    if bundle.objects.iter().any(receiver) {
        return object;
    }
    let containers = object.pointer_mut("/spec/template/spec/containers");
    for container in containers
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let args = container.get_mut("args").and_then(Value::as_array_mut);
        for arg in args.into_iter().flatten() {
            if arg
                .as_str()
                .is_some_and(|a| a.starts_with("--events-addr="))
            {
                *arg = json!("--events-addr=");
            }
        }
    }
    object
}

/// Key and host keys as Flux reads them.
pub(super) fn git_secret(desired: &Desired) -> Value {
    let known_hosts = one_key_per_line(&desired.assignment.catalog.known_hosts);
    let encoded = |text: &str| STANDARD.encode(text);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": NAME, "namespace": NAME, "labels": labels()},
        "data": {
            "identity": encoded(desired.deploy_key.private.expose()),
            "identity.pub": encoded(&desired.deploy_key.public),
            "known_hosts": encoded(&known_hosts),
        },
    })
}

fn one_key_per_line(known_hosts: &str) -> String {
    let lines = known_hosts.lines().map(str::trim);
    let kept = lines.filter(|l| !l.is_empty() && !l.starts_with('#'));
    kept.fold(String::new(), |text, line| text + line + "\n")
}

fn git_repository(desired: &Desired) -> Value {
    let catalog = &desired.assignment.catalog;
    json!({
        "apiVersion": Kind::GitRepository.api_version(), "kind": Kind::GitRepository.as_str(),
        "metadata": {"name": NAME, "namespace": NAME, "labels": labels()},
        "spec": {
            "interval": "1m0s",
            "url": catalog.source(),
            "ref": {"branch": catalog.branch},
            "secretRef": {"name": NAME},
        },
    })
}

/// Unlike the stock root: an end to each attempt, quick retries, and nothing pruned when the root is deleted.
fn kustomization(desired: &Desired) -> Value {
    let path = desired.assignment.catalog.path.trim_matches('/');
    let path = path.trim_start_matches("./");
    json!({
        "apiVersion": Kind::Kustomization.api_version(), "kind": Kind::Kustomization.as_str(),
        "metadata": {"name": NAME, "namespace": NAME, "labels": labels()},
        "spec": {
            "interval": "10m0s",
            "path": format!("./{path}"),
            "prune": true,
            "sourceRef": {"kind": Kind::GitRepository.as_str(), "name": NAME},
            "timeout": "5m0s",
            "retryInterval": "1m0s",
            "deletionPolicy": "Orphan",
        },
    })
}

/// What the agent may do in the engine's namespace; the adoption YAML cannot hold it, because the namespace comes
/// and goes with the install.
fn agent_rights() -> Value {
    json!({
        "apiVersion": Kind::RoleBinding.api_version(), "kind": Kind::RoleBinding.as_str(),
        "metadata": {"name": manifests::ENGINE_ROLE, "namespace": NAME, "labels": labels()},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": Kind::ClusterRole.as_str(),
            "name": manifests::ENGINE_ROLE,
        },
        "subjects": [{
            "kind": Kind::ServiceAccount.as_str(), "name": manifests::AGENT,
            "namespace": manifests::NAMESPACE,
        }],
    })
}

fn labels() -> Value {
    json!({"app.kubernetes.io/managed-by": "linesman"})
}
