//! What the planner's tests want of a cluster: an install of each engine, cut down to one object of a kind or two.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::agent::engine::domain::Domain;
use crate::agent::engine::flux::HELM;
use crate::agent::engine::{Install, is_workload};
use crate::agent::gate::policy::Mending;
use crate::agent::plan::change::Form;
use crate::agent::{DeployKey, Desired, Engine, EngineKeys, InForce};
use crate::bundle::{Bundle, Kind};
use crate::secret::Secret;
use crate::wire::api::{EngineKind, SignerRef};

pub(in crate::agent) fn install() -> Install {
    install_of(EngineKind::Flux)
}

pub(in crate::agent) fn install_of(kind: EngineKind) -> Install {
    install_for(&desired_of(kind))
}

/// Of Flux, with these objects in the bundle.
pub(in crate::agent::plan) fn install_with(objects: Vec<(Kind, &'static str)>) -> Install {
    install_for(&desired_with(EngineKind::Flux, objects))
}

/// With nothing known of what is Git's, and all left to the agent to mend.
pub(in crate::agent::plan) fn install_for(desired: &Desired) -> Install {
    Install::new(desired, &BTreeMap::new(), Some(Mending::default()))
}

/// With the head verified by one key.
pub(in crate::agent) fn install_signed() -> Install {
    install_signed_of(EngineKind::Flux)
}

pub(in crate::agent::plan) fn install_signed_of(kind: EngineKind) -> Install {
    let mut desired = desired_of(kind);
    desired.assignment.catalog.signers = vec![SignerRef {
        fingerprint: "A8".repeat(20),
        public_key: "armor".to_owned(),
        subkeys: Vec::new(),
    }];
    install_for(&desired)
}

/// With these objects in the bundle.
pub(in crate::agent::plan) fn desired_with(
    kind: EngineKind,
    objects: Vec<(Kind, &'static str)>,
) -> Desired {
    let mut desired = desired_of(kind);
    desired.install.bundle = Arc::new(bundle_of(kind, objects));
    desired
}

pub(in crate::agent) fn desired_of(kind: EngineKind) -> Desired {
    let bundle = bundle(kind);
    let engine = match kind {
        EngineKind::Flux => Engine::Flux,
        EngineKind::Argocd => Engine::Argocd(EngineKeys {
            session: Secret::new("session".to_owned()),
            redis: Secret::new("redis".to_owned()),
        }),
    };
    let assignment = json!({
        "cluster": {"name": "eu1", "id": "1"},
        "hub": {"id": "h", "urls": [], "ca": "", "keyset": []},
        "catalog": {
            "url": "ssh://git@git/catalog.git", "via": "direct", "branch": "main", "path": "clusters/eu1",
            "knownHosts": "git ssh-ed25519 AAAA", "deployKey": {"state": "registered"},
        },
        "engine": {"kind": kind, "version": "1", "bundle": bundle.digest, "size": 1},
        "revision": 1,
    });
    Desired {
        assignment: serde_json::from_value(assignment).unwrap(),
        install: InForce {
            form: Form {
                kind: Some(kind),
                path: String::new(),
                version: bundle.version.clone(),
                bundle: bundle.digest.clone(),
                registry: None,
                pull_secret: None,
            },
            bundle: Arc::new(bundle),
            change: None,
            since: None,
        },
        deploy_key: DeployKey {
            unsettled: false,
            private: Secret::new("private".to_owned()),
            public: "public".to_owned(),
        },
        engine,
        domain: Domain::default(),
        prunes: true,
        rests: false,
    }
}

fn bundle(engine: EngineKind) -> Bundle {
    let install = match engine {
        EngineKind::Flux => flux(),
        EngineKind::Argocd => argocd(),
    };
    bundle_of(engine, install)
}

fn bundle_of(engine: EngineKind, install: Vec<(Kind, &'static str)>) -> Bundle {
    let (registry, part_of) = match engine {
        EngineKind::Flux => ("ghcr.io/fluxcd", "flux"),
        EngineKind::Argocd => ("quay.io/argoproj/argocd", "argocd"),
    };
    let objects = install.into_iter().map(|(kind, name)| {
        let mut object = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": part_of}},
            "spec": {"some": "field"},
        });
        if is_workload(kind) {
            let image = match engine {
                EngineKind::Flux => format!("{registry}/{name}:v1"),
                EngineKind::Argocd => format!("{registry}:v1"),
            };
            let containers = json!([{"name": "manager", "image": image, "args": ["--a"]}]);
            object["spec"] =
                json!({"replicas": 1, "template": {"spec": {"containers": containers}}});
            if engine == EngineKind::Argocd {
                object["spec"].as_object_mut().unwrap().remove("replicas");
            }
        }
        if kind == Kind::ClusterRoleBinding {
            object["roleRef"] = json!({"kind": "ClusterRole", "name": "cluster-admin"});
        }
        object
    });
    Bundle::from_objects(objects.collect()).unwrap()
}

pub(in crate::agent::plan) fn flux() -> Vec<(Kind, &'static str)> {
    vec![
        (Kind::Namespace, "flux-system"),
        (
            Kind::CustomResourceDefinition,
            "gitrepositories.source.toolkit.fluxcd.io",
        ),
        (
            Kind::CustomResourceDefinition,
            "kustomizations.kustomize.toolkit.fluxcd.io",
        ),
        (Kind::ClusterRole, "crd-controller-flux-system"),
        (Kind::ClusterRoleBinding, "cluster-reconciler-flux-system"),
        (Kind::ClusterRoleBinding, "crd-controller-flux-system"),
        (Kind::ServiceAccount, "source-controller"),
        (Kind::ServiceAccount, "kustomize-controller"),
        (Kind::Service, "source-controller"),
        (Kind::NetworkPolicy, "allow-egress"),
        (Kind::Deployment, "source-controller"),
        (Kind::Deployment, "kustomize-controller"),
    ]
}

/// The same with helm-controller.
pub(in crate::agent::plan) fn flux_with_helm() -> Vec<(Kind, &'static str)> {
    let mut objects = flux();
    objects.extend([
        (
            Kind::CustomResourceDefinition,
            "helmreleases.helm.toolkit.fluxcd.io",
        ),
        (Kind::ServiceAccount, HELM),
        (Kind::Deployment, HELM),
    ]);
    objects
}

pub(in crate::agent::plan) fn argocd() -> Vec<(Kind, &'static str)> {
    vec![
        (Kind::CustomResourceDefinition, "applications.argoproj.io"),
        (
            Kind::CustomResourceDefinition,
            "applicationsets.argoproj.io",
        ),
        (Kind::CustomResourceDefinition, "appprojects.argoproj.io"),
        (Kind::ClusterRole, "argocd-application-controller"),
        (Kind::ClusterRoleBinding, "argocd-application-controller"),
        (Kind::ServiceAccount, "argocd-application-controller"),
        (Kind::ServiceAccount, "argocd-redis"),
        (Kind::ServiceAccount, "argocd-repo-server"),
        (Kind::Role, "argocd-redis"),
        (Kind::RoleBinding, "argocd-redis"),
        (Kind::ConfigMap, "argocd-cm"),
        (Kind::ConfigMap, "argocd-cmd-params-cm"),
        (Kind::Service, "argocd-redis"),
        (Kind::Service, "argocd-repo-server"),
        (Kind::Secret, "argocd-secret"),
        (Kind::NetworkPolicy, "argocd-redis-network-policy"),
        (Kind::Deployment, "argocd-redis"),
        (Kind::Deployment, "argocd-repo-server"),
        (Kind::StatefulSet, "argocd-application-controller"),
    ]
}
