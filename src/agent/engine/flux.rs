//! Flux: its install, its Git Secret, its root objects, and what their health means.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::domain::Domain;
use super::install::Parts;
use super::wanted::{Body, Wanted, comparable, entry, of_bundle, own};
use super::{Traits, labels, one_key_per_line};
use crate::agent::Desired;
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::wire::api::{EngineKind, SignerRef};

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
        let (id, keys) = signers(desired, verifies_ssh(&desired.install.bundle));
        wanted.insert(id, keys);
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

/// Whether the source-controller of this version verifies signatures of SSH keys, too.
pub fn verifies_ssh(bundle: &Bundle) -> bool {
    bundle.images().iter().any(|image| is_with_ssh(image))
}

/// The same of one that is there, or that Git brings.
pub fn reads_ssh(controller: &Value) -> bool {
    let containers = controller.pointer("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let mut images = containers.filter_map(|c| c.get("image")?.as_str());
    images.any(is_with_ssh)
}

/// Since v1.9.0, which is in Flux 2.9. Nothing in the CRD says so; of an image without such a tag it is not known.
fn is_with_ssh(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    let tag = name.strip_prefix("source-controller:v").unwrap_or_default();
    let numbers = tag.split('.');
    let mut numbers = numbers.map_while(|number| number.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    version.is_some_and(|version| version >= (1, 9))
}

/// Public keys as source-controller reads them: by the end of its name a value is a key ring of OpenPGP or a line of OpenSSH's. One that
/// knows no SSH keys takes each for a ring, and refuses every head for one that is none: those are left out. Where nothing is left, it
/// refuses every head as well.
pub(super) fn signers(desired: &Desired, ssh: bool) -> (ObjectId, Wanted) {
    let keys = &desired.assignment.catalog.signers;
    let read = keys.iter().filter(|key| ssh || !key.is_ssh());
    let data: serde_json::Map<String, Value> = read
        .map(|key| (file_of(key), json!(STANDARD.encode(&key.public_key))))
        .collect();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": SIGNERS, "namespace": NAME, "labels": labels()},
        "data": data,
    });
    let expect = comparable(Kind::Secret, secret.clone());
    let id = ObjectId::new(Kind::Secret, NAME, SIGNERS);
    (id, entry(expect, Body::Own(secret.into())))
}

/// The name of a signer's key in the Secret, where `:`, `/` and `+` cannot be.
fn file_of(key: &SignerRef) -> String {
    if !key.is_ssh() {
        return format!("{}.asc", key.fingerprint);
    }
    let plain = key.fingerprint.chars().map(|c| match c {
        ':' | '/' => '_',
        '+' => '-',
        c => c,
    });
    format!("{}.sshpub", plain.collect::<String>())
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
