//! Flux: its install, its Git Secret, its root objects, and what their health means.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::domain::Domain;
use super::install::Parts;
use super::wanted::{Body, comparable, entry, of_bundle, own};
use super::{Traits, labels, one_key_per_line};
use crate::agent::Desired;
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::wire::api::EngineKind;

/// The namespace of the install, and the name of its Secret, source and sync object: those of `flux bootstrap`.
pub const NAME: &str = "flux-system";

/// What helm-controller is asked with: a `HelmRelease` of nothing, suspended, which it answers for all the same and never installs.
/// The releases of the catalog are others', and asked, they would be reconciled.
pub const CANARY: &str = "linesman-probe";

/// The Secret with the public keys of which one has to have signed the head.
pub const SIGNERS: &str = "linesman-signers";

/// The controller of releases, which a bundle may do without.
pub const HELM: &str = "helm-controller";

/// What the controllers are asked with that no root is asked of. Alerts and Providers have no status to answer in, and an
/// `ImagePolicy` is of the controller of repositories.
pub const WITNESSES: [(Kind, &str); 3] = [
    (Kind::Receiver, "notification-controller"),
    (Kind::ImageRepository, "image-reflector-controller"),
    (Kind::ImageUpdateAutomation, "image-automation-controller"),
];

/// The field manager of what Git brings.
pub const APPLIER: &str = "kustomize-controller";

pub const TRAITS: Traits = Traits {
    kind: EngineKind::Flux,
    applier: APPLIER,
    part_of: "flux",
    rights: &[
        "cluster-reconciler-flux-system",
        "crd-controller-flux-system",
    ],
    pruners: &[
        (Kind::Deployment, "kustomize-controller"),
        (Kind::Deployment, HELM),
    ],
    pruning_crds: &[
        "kustomizations.kustomize.toolkit.fluxcd.io",
        "helmreleases.helm.toolkit.fluxcd.io",
    ],
    finalizers: &["finalizers.fluxcd.io"],
    children: &[
        Kind::Kustomization,
        Kind::HelmRelease,
        Kind::GitRepository,
        Kind::HelmRepository,
        Kind::OciRepository,
        Kind::Bucket,
        Kind::HelmChart,
    ],
    before_pods: &[],
    controllers: [
        (Kind::Deployment, "source-controller"),
        (Kind::Deployment, "kustomize-controller"),
    ],
    // Each event is posted inside a reconciliation, and tried again for as long as a minute.
    answers_with: &["notification-controller"],
    follows: ["/spec/url", "/spec/path"],
    witnesses: &WITNESSES,
};

pub(super) fn parts(desired: &Desired) -> Parts {
    let mut wanted = of_bundle(desired);
    let secret = ObjectId::new(Kind::Secret, NAME, NAME);
    let source = ObjectId::new(Kind::GitRepository, NAME, NAME);
    let sync = ObjectId::new(Kind::Kustomization, NAME, NAME);
    let expect = comparable(Kind::Secret, git_secret(desired));
    wanted.insert(secret.clone(), entry(expect, Body::Secret));
    if !desired.assignment.catalog.signers.is_empty() {
        let keys = signers(desired);
        let expect = comparable(Kind::Secret, keys.clone());
        let id = ObjectId::new(Kind::Secret, NAME, SIGNERS);
        wanted.insert(id, entry(expect, Body::Own(keys.into())));
    }
    wanted.insert(source.clone(), own(git_repository(desired)));
    wanted.insert(sync.clone(), own(kustomization(desired)));
    let controller = ObjectId::new(Kind::Deployment, NAME, HELM);
    if wanted.contains_key(&controller) {
        wanted.insert(canary(NAME), own(helm_release()));
    }
    Parts {
        traits: &TRAITS,
        wanted,
        source,
        sync,
        secret,
    }
}

/// Where the [`CANARY`] is.
pub fn canary(namespace: &str) -> ObjectId {
    ObjectId::new(Kind::HelmRelease, namespace, CANARY)
}

/// Install values: without a notification-controller every event would be posted in vain inside each
/// reconciliation and stall it for 15 to 40 s, so the address is emptied. Other addresses are below the cluster's domain.
pub(super) fn adjusted(bundle: &Bundle, domain: &Domain, mut object: Value) -> Value {
    let receiver = |o: &Value| {
        o.pointer("/metadata/name").and_then(Value::as_str) == Some("notification-controller")
            && o.get("kind").and_then(Value::as_str) == Some(Kind::Deployment.as_str())
    };
    let heard = bundle.objects.iter().any(|o| receiver(o.head()));
    let containers = object.pointer_mut("/spec/template/spec/containers");
    for container in containers
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let args = container.get_mut("args").and_then(Value::as_array_mut);
        for arg in args.into_iter().flatten() {
            let text = arg.as_str().unwrap_or_default();
            if !heard && text.starts_with("--events-addr=") {
                *arg = json!("--events-addr=");
            } else if let Some(moved) = domain.moved(text) {
                *arg = json!(moved);
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

/// Public keys as source-controller reads them: every value is one key ring.
fn signers(desired: &Desired) -> Value {
    let keys = &desired.assignment.catalog.signers;
    let data: serde_json::Map<String, Value> = keys
        .iter()
        .map(|key| {
            let name = format!("{}.asc", key.fingerprint);
            (name, json!(STANDARD.encode(&key.public_key)))
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": SIGNERS, "namespace": NAME, "labels": labels()},
        "data": data,
    })
}

fn git_repository(desired: &Desired) -> Value {
    let catalog = &desired.assignment.catalog;
    let mut repository = json!({
        "apiVersion": Kind::GitRepository.api_version(), "kind": Kind::GitRepository.as_str(),
        "metadata": {"name": NAME, "namespace": NAME, "labels": labels()},
        "spec": {
            "interval": "1m0s",
            "url": catalog.source(),
            "ref": {"branch": catalog.branch},
            "secretRef": {"name": NAME},
        },
    });
    if !catalog.signers.is_empty() {
        repository["spec"]["verify"] = json!({"mode": "HEAD", "secretRef": {"name": SIGNERS}});
    }
    repository
}

fn helm_release() -> Value {
    const WHY: &str =
        "Linesman asks helm-controller with it whether it works; nothing is installed";
    json!({
        "apiVersion": Kind::HelmRelease.api_version(), "kind": Kind::HelmRelease.as_str(),
        "metadata": {
            "name": CANARY, "namespace": NAME, "labels": labels(),
            "annotations": {"linesman.dev/purpose": WHY},
        },
        "spec": {
            "interval": "24h0m0s",
            "suspend": true,
            "chart": {"spec": {
                "chart": CANARY,
                "sourceRef": {"kind": Kind::HelmRepository.as_str(), "name": CANARY},
            }},
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
            "prune": desired.prunes,
            "sourceRef": {"kind": Kind::GitRepository.as_str(), "name": NAME},
            "timeout": "5m0s",
            "retryInterval": "1m0s",
            "deletionPolicy": "Orphan",
        },
    })
}

#[cfg(test)]
mod tests;
