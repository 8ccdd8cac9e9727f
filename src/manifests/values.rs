//! What an owner and the hub say with one adoption.

use super::NAMESPACE;
use super::scope::{self, Scope};
use crate::bundle::check;
use crate::secret::Secret;
use crate::wire::api::{AccessLevel, EngineKind, HubKey};
use crate::wire::id::ClusterName;

/// All that differs from one adoption to the next.
#[derive(Debug, Clone)]
pub struct AdoptionValues {
    pub cluster: ClusterName,
    pub engine: EngineKind,
    pub engines: EngineNamespaces,
    pub hub_url: String,
    /// The keys that the agent trusts from the start; they sign later changes of CA and URL.
    pub hub_keys: Vec<HubKey>,
    /// PEM; empty where the hub's certificate is publicly trusted.
    pub hub_ca: String,
    pub token: Secret<String>,
    pub image: String,
    /// The most that access groups get.
    pub access: AccessLevel,
    /// None = the whole cluster.
    pub scope: Option<Scope>,
    /// Empty = none.
    pub image_pull_secret: String,
    /// Empty = none.
    pub https_proxy: String,
    /// Empty = none.
    pub no_proxy: String,
}

impl AdoptionValues {
    /// What `linesman manifests` prints: everything real but the cluster's name, hub and token.
    pub fn placeholders() -> Self {
        Self {
            cluster: "example".parse().expect("the word is a cluster name"),
            engine: EngineKind::Flux,
            engines: EngineNamespaces::default(),
            hub_url: "https://hub.example.com".to_owned(),
            hub_keys: vec![HubKey {
                kid: "KEY-ID".to_owned(),
                key: "HUB-PUBLIC-KEY".to_owned(),
                not_after: None,
            }],
            hub_ca: String::new(),
            token: Secret::new("JOIN-TOKEN".to_owned()),
            image: "IMAGE".to_owned(),
            access: AccessLevel::Admin,
            scope: None,
            image_pull_secret: String::new(),
            https_proxy: String::new(),
            no_proxy: String::new(),
        }
    }
}

/// Where the engines live: what the cluster's owner said with the YAML, and nobody else has a say in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineNamespaces {
    argocd: String,
}

impl Default for EngineNamespaces {
    fn default() -> Self {
        Self {
            argocd: check::namespace(EngineKind::Argocd).to_owned(),
        }
    }
}

impl EngineNamespaces {
    /// `argocd` is what [`engine_namespace`] takes.
    pub fn new(argocd: String) -> Self {
        Self { argocd }
    }

    pub fn of(&self, engine: EngineKind) -> &str {
        match engine {
            EngineKind::Flux => check::namespace(EngineKind::Flux),
            EngineKind::Argocd => &self.argocd,
        }
    }

    pub fn all(&self) -> [&str; 2] {
        [EngineKind::Flux, EngineKind::Argocd].map(|engine| self.of(engine))
    }

    /// The one that was chosen; none = the usual one.
    pub(super) fn chosen(&self) -> Option<&str> {
        let usual = check::namespace(EngineKind::Argocd);
        Some(self.argocd.as_str()).filter(|chosen| *chosen != usual)
    }
}

/// A name for Argo CD's namespace: a DNS label (RFC 1123) that is not the cluster's own, ours or Flux'.
///
/// # Errors
/// Says what is wrong with it.
pub fn engine_namespace(name: &str) -> Result<String, String> {
    if !scope::fits(name) {
        return Err(format!(
            "'{name}' is no name of a namespace: a-z, 0-9 and '-' inside, at most 63"
        ));
    }
    let taken = [NAMESPACE, check::namespace(EngineKind::Flux), "default"];
    if taken.contains(&name) || name.starts_with("kube-") {
        return Err(format!(
            "'{name}' is not for an engine, which gets all rights in its namespace; choose another, such as gitops"
        ));
    }
    Ok(name.to_owned())
}
