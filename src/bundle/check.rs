//! What an install manifest must be, before anything of it is stored: known kinds, one namespace, nothing twice,
//! nothing missing, every image pinned.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde_json::Value;

use super::kind::{Kind, ObjectId};
use super::sorted;
use crate::wire::api::EngineKind;

/// Flux' controllers, all of which its release manifest holds.
pub const FLUX_COMPONENTS: [&str; 7] = [
    "source-controller",
    "kustomize-controller",
    "helm-controller",
    "notification-controller",
    "image-reflector-controller",
    "image-automation-controller",
    "source-watcher",
];
/// Those that are kept where nobody chose.
pub const USUAL: [&str; 4] = [
    FLUX_COMPONENTS[0],
    FLUX_COMPONENTS[1],
    FLUX_COMPONENTS[2],
    FLUX_COMPONENTS[3],
];

/// Which of Flux' controllers an install has; Argo CD's manifests leave no choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components(Vec<&'static str>);

impl Default for Components {
    fn default() -> Self {
        Self(USUAL.to_vec())
    }
}

impl Components {
    /// Whatever is in the manifest and known.
    pub(super) fn all() -> Self {
        Self(FLUX_COMPONENTS.to_vec())
    }
}

impl FromStr for Components {
    type Err = CheckError;

    /// Names with commas between them.
    fn from_str(text: &str) -> Result<Self, CheckError> {
        let names = text.split(',').map(str::trim).filter(|n| !n.is_empty());
        let known = names.map(|name| {
            let found = FLUX_COMPONENTS.into_iter().find(|c| *c == name);
            found.ok_or_else(|| CheckError::UnknownComponent(name.chars().take(60).collect()))
        });
        let chosen = known.collect::<Result<Vec<_>, _>>()?;
        if chosen.is_empty() {
            return Err(CheckError::UnknownComponent(String::new()));
        }
        Ok(Self(chosen))
    }
}

/// Roles of Argo CD's installs, core and full, which the agent may therefore give.
pub const ARGOCD_ROLES: [&str; 6] = [
    "argocd-application-controller",
    "argocd-applicationset-controller",
    "argocd-dex-server",
    "argocd-notifications-controller",
    "argocd-redis",
    "argocd-server",
];
/// The same for the whole cluster.
pub const ARGOCD_CLUSTER_ROLES: [&str; 3] = [
    "argocd-application-controller",
    "argocd-applicationset-controller",
    "argocd-server",
];

const COMPONENT: &str = "app.kubernetes.io/component";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    #[error("neither a Flux nor an Argo CD install: no CRD of theirs is in it")]
    NoEngine,
    #[error("document {index} has no {field}")]
    Incomplete { index: usize, field: &'static str },
    #[error(
        "{kind} ({api_version}) named '{name}' is not part of an install that is known; remove it"
    )]
    UnknownKind {
        kind: String,
        api_version: String,
        name: String,
    },
    #[error("{object} is outside of the engine's namespace '{expected}'")]
    ForeignNamespace { object: ObjectId, expected: String },
    #[error("{0} is there twice")]
    Duplicate(ObjectId),
    #[error(
        "{0} is no role of Argo CD's install; give 'manifests/core-install.yaml' or 'manifests/install.yaml' of its release"
    )]
    UnknownRole(ObjectId),
    #[error("{0} is missing; give the engine's whole install manifest")]
    Missing(String),
    #[error("image '{image}' of {object} has neither tag nor digest")]
    Untagged { object: ObjectId, image: String },
    #[error(
        "the engine's version is not to be found: no label app.kubernetes.io/version, no image tag"
    )]
    NoVersion,
    #[error("'{0}' is none of Flux' controllers: {known}", known = FLUX_COMPONENTS.join(", "))]
    UnknownComponent(String),
    #[error(
        "the manifest has no {0}, which was chosen; leave it out or give the release's whole manifest"
    )]
    NoComponent(&'static str),
    #[error(
        "Argo CD's install has no components to choose from: give the core or the full manifest"
    )]
    NoChoice,
}

pub(super) struct Checked {
    pub(super) engine: EngineKind,
    pub(super) version: String,
    pub(super) objects: Vec<Value>,
}

/// The engine's own namespace, the only one that its objects may be in.
pub fn namespace(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Flux => "flux-system",
        EngineKind::Argocd => "argocd",
    }
}

/// `components` that were chosen have to be there; none = the usual ones that are.
pub(super) fn check(
    documents: Vec<Value>,
    components: Option<&Components>,
) -> Result<Checked, CheckError> {
    let engine = engine_of(&documents).ok_or(CheckError::NoEngine)?;
    if let Some(Components(names)) = components {
        if engine == EngineKind::Argocd {
            return Err(CheckError::NoChoice);
        }
        let deployed = |name: &str| {
            documents
                .iter()
                .any(|d| text(d, "/kind") == "Deployment" && text(d, "/metadata/name") == name)
        };
        if let Some(absent) = names.iter().find(|name| !deployed(name)) {
            return Err(CheckError::NoComponent(absent));
        }
    }
    let usual = Components::default();
    checked(engine, documents, components.unwrap_or(&usual))
}

/// A bundle as it was stored: nothing is chosen any more.
pub(super) fn recheck(documents: Vec<Value>) -> Result<Checked, CheckError> {
    let engine = engine_of(&documents).ok_or(CheckError::NoEngine)?;
    checked(engine, documents, &Components::all())
}

fn checked(
    engine: EngineKind,
    documents: Vec<Value>,
    components: &Components,
) -> Result<Checked, CheckError> {
    let mut objects = Vec::with_capacity(documents.len());
    let mut seen = BTreeSet::new();
    for (index, document) in documents.into_iter().enumerate() {
        if !chosen(engine, components, &document) {
            continue;
        }
        let (id, object) = normalise(engine, index + 1, document)?;
        if engine == EngineKind::Argocd && !may_give(&id) {
            return Err(CheckError::UnknownRole(id));
        }
        if let Some(image) = images(&object).into_iter().find(|i| !pinned(i)) {
            return Err(CheckError::Untagged { object: id, image });
        }
        if !seen.insert(id.clone()) {
            return Err(CheckError::Duplicate(id));
        }
        objects.push((id, object));
    }
    complete(engine, &seen)?;
    objects.sort_by(|a, b| (a.0.kind.stage(), &a.0).cmp(&(b.0.kind.stage(), &b.0)));
    let objects: Vec<Value> = objects.into_iter().map(|(_, object)| object).collect();
    let version = version(engine, &objects).ok_or(CheckError::NoVersion)?;
    Ok(Checked {
        engine,
        version,
        objects,
    })
}

fn engine_of(documents: &[Value]) -> Option<EngineKind> {
    let name = |d: &Value| text(d, "/metadata/name").to_owned();
    let crds = documents
        .iter()
        .filter(|d| text(d, "/kind") == Kind::CustomResourceDefinition.as_str());
    for crd in crds {
        match name(crd).as_str() {
            "kustomizations.kustomize.toolkit.fluxcd.io" => return Some(EngineKind::Flux),
            "applications.argoproj.io" => return Some(EngineKind::Argocd),
            _ => {}
        }
    }
    None
}

fn chosen(engine: EngineKind, components: &Components, document: &Value) -> bool {
    let component = document
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(COMPONENT))
        .and_then(Value::as_str);
    match (engine, component) {
        (EngineKind::Argocd, _) | (EngineKind::Flux, None) => true,
        (EngineKind::Flux, Some(component)) => components.0.contains(&component),
    }
}

/// Whether the agent has the rights to install it: a role gives nothing that its giver may not give.
fn may_give(id: &ObjectId) -> bool {
    let name = id.name.as_str();
    match id.kind {
        Kind::ClusterRole | Kind::ClusterRoleBinding => ARGOCD_CLUSTER_ROLES.contains(&name),
        Kind::Role | Kind::RoleBinding => ARGOCD_ROLES.contains(&name),
        _ => true,
    }
}

/// Drops what no install sets, and puts every object where the engine lives.
fn normalise(
    engine: EngineKind,
    index: usize,
    document: Value,
) -> Result<(ObjectId, Value), CheckError> {
    let required = |pointer: &str, field: &'static str| match text(&document, pointer) {
        "" => Err(CheckError::Incomplete { index, field }),
        found => Ok(found.to_owned()),
    };
    let api_version = required("/apiVersion", "apiVersion")?;
    let kind = required("/kind", "kind")?;
    let name = required("/metadata/name", "metadata.name")?;
    let known = Kind::parse(&api_version, &kind).filter(|k| k.installable());
    let Some(kind) = known else {
        return Err(CheckError::UnknownKind {
            kind,
            api_version,
            name,
        });
    };
    let expected = namespace(engine);
    let given = text(&document, "/metadata/namespace").to_owned();
    let id = ObjectId::new(
        kind,
        if given.is_empty() { expected } else { &given },
        &name,
    );
    let astray = kind.namespaced() && id.namespace != expected
        || kind == Kind::Namespace && name != expected;
    if astray {
        return Err(CheckError::ForeignNamespace {
            object: id,
            expected: expected.to_owned(),
        });
    }
    let mut object = document;
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "creationTimestamp",
            "managedFields",
            "resourceVersion",
            "uid",
            "generation",
        ] {
            metadata.remove(field);
        }
        if kind.namespaced() {
            metadata.insert("namespace".to_owned(), Value::from(expected));
        } else {
            metadata.remove("namespace");
        }
    }
    Ok((id, sorted(object)))
}

/// Without these the engine cannot work, whatever else there is.
fn complete(engine: EngineKind, seen: &BTreeSet<ObjectId>) -> Result<(), CheckError> {
    let required: &[(Kind, &str)] = match engine {
        EngineKind::Flux => &[
            (Kind::Namespace, "flux-system"),
            (
                Kind::CustomResourceDefinition,
                "gitrepositories.source.toolkit.fluxcd.io",
            ),
            (
                Kind::CustomResourceDefinition,
                "kustomizations.kustomize.toolkit.fluxcd.io",
            ),
            (Kind::ClusterRole, ""),
            (Kind::ClusterRoleBinding, ""),
            (Kind::ServiceAccount, "source-controller"),
            (Kind::ServiceAccount, "kustomize-controller"),
            (Kind::Service, "source-controller"),
            (Kind::Deployment, "source-controller"),
            (Kind::Deployment, "kustomize-controller"),
        ],
        EngineKind::Argocd => &[
            (Kind::CustomResourceDefinition, "applications.argoproj.io"),
            (Kind::CustomResourceDefinition, "appprojects.argoproj.io"),
            (Kind::ClusterRole, ""),
            (Kind::ClusterRoleBinding, ""),
            (Kind::ServiceAccount, "argocd-application-controller"),
            (Kind::ConfigMap, "argocd-cm"),
            (Kind::Service, "argocd-redis"),
            (Kind::Service, "argocd-repo-server"),
            (Kind::Deployment, "argocd-redis"),
            (Kind::Deployment, "argocd-repo-server"),
            (Kind::StatefulSet, "argocd-application-controller"),
        ],
    };
    for (kind, name) in required {
        let there = seen
            .iter()
            .any(|id| id.kind == *kind && (name.is_empty() || id.name == *name));
        if !there {
            return Err(CheckError::Missing(
                format!("{kind} {name}").trim().to_owned(),
            ));
        }
    }
    Ok(())
}

/// Flux says its version in a label, Argo CD in the tag of its image. A Flux install composed from the
/// controllers' sources may have no label: then it has the version of its source-controller.
fn version(engine: EngineKind, objects: &[Value]) -> Option<String> {
    let clean = |v: &str| v.trim_start_matches('v').to_owned();
    let label = || {
        objects.iter().find_map(|o| {
            let labels = o.pointer("/metadata/labels")?;
            labels.get("app.kubernetes.io/version")?.as_str().map(clean)
        })
    };
    let tag = |part: &str| {
        objects.iter().flat_map(images).find_map(|image| {
            let image = image.split('@').next().unwrap_or_default().to_owned();
            let (name, tag) = image.rsplit_once(':')?;
            name.ends_with(part).then(|| clean(tag))
        })
    };
    match engine {
        EngineKind::Flux => label().or_else(|| tag("/source-controller")),
        EngineKind::Argocd => tag("/argocd").or_else(label),
    }
}

/// The images of one workload.
pub(super) fn images(object: &Value) -> Vec<String> {
    let Some(pod) = object.pointer("/spec/template/spec") else {
        return Vec::new();
    };
    ["initContainers", "containers"]
        .iter()
        .filter_map(|list| pod.get(list).and_then(Value::as_array))
        .flatten()
        .filter_map(|container| container.get("image").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}

fn pinned(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    image.contains("@sha256:") || name.split_once(':').is_some_and(|(_, tag)| !tag.is_empty())
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
