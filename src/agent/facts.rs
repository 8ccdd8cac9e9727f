//! Facts about the cluster: collected here, summarised by a pure function.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::agent::Desired;
use crate::agent::engine::argocd::{self, signers};
use crate::agent::engine::flux;
use crate::lifetime::hearts::Heart;
use crate::manifests;
use crate::wire::api::{EngineKind, Via};
use crate::wire::id::Digest;
use crate::wire::report::{
    BUNDLES_IN_FORCE, ENGINE_IN_FORCE, Facts, GIT_IN_FORCE, PATHS_IN_FORCE, REPLACES_ENGINES,
    VERIFIES, VERIFIES_SSH,
};

const EVERY: Duration = Duration::from_mins(1);
/// How many facts a cluster's owner may add, and how long a value may be.
const OWNER_FACTS: usize = 64;
const LONGEST_VALUE: usize = 4 << 10;
/// Nodes are listed in pages of this size.
const PAGE: u32 = 250;

/// What was read of the cluster; a part that could not be read is empty, and its facts are absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    /// `gitVersion`, `minor` and `platform` of `/version`.
    pub version: Option<(String, String, String)>,
    /// UID of the namespace `kube-system`.
    pub incarnation: Option<String>,
    pub nodes: Option<Vec<NodeFacts>>,
    pub openshift: Option<String>,
    /// Data of ConfigMap `linesman-facts`.
    pub owner: BTreeMap<String, String>,
    pub agent_version: String,
    pub setup: Option<Setup>,
    /// Whether the engine was told to look at no signature.
    pub unverified: Option<bool>,
}

/// What is in force; none = nothing is installed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    pub engine: EngineKind,
    /// The bundle in force, then the one that a change goes back to, where that is another one.
    pub bundles: Vec<Digest>,
    /// What of the catalog the engine in force follows, then the one that a change goes back to, where that is the other one.
    pub paths: Vec<(EngineKind, String)>,
    /// The engine's way to the Git host.
    pub git: Via,
    /// Where it lives.
    pub namespace: String,
    /// Whether its version can verify who signed a commit.
    pub verifies: bool,
    /// Whether also with SSH keys.
    pub verifies_ssh: bool,
}

impl Setup {
    fn of(desired: &Desired) -> Self {
        let install = &desired.install;
        let before = install.change.as_ref().map(|change| &change.from.bundle);
        let before = before.filter(|before| **before != install.form.bundle);
        let bundles = [Some(&install.form.bundle), before].into_iter().flatten();
        let engine = desired.kind();
        let follows = (engine, desired.assignment.catalog.path.clone());
        let before = install.change.as_ref().map(|change| &change.from);
        let before = before.filter(|from| !from.path.is_empty());
        let before = before.and_then(|from| Some((from.kind?, from.path.clone())));
        let before = before.filter(|(kind, _)| *kind != engine);
        Self {
            engine,
            bundles: bundles.cloned().collect(),
            paths: [Some(follows), before].into_iter().flatten().collect(),
            git: desired.assignment.catalog.via,
            namespace: install.bundle.namespace.clone(),
            verifies: engine != EngineKind::Argocd || signers::knows(&install.bundle),
            verifies_ssh: engine == EngineKind::Flux && flux::verifies_ssh(&install.bundle),
        }
    }
}

/// What counts of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub ready: bool,
    pub arch: String,
    pub provider_id: String,
    pub region: String,
    pub zone: String,
    /// Label keys, for the distribution.
    pub labels: BTreeSet<String>,
}

/// Sources become the whole set of facts.
pub fn summarize(sources: &Sources) -> Facts {
    let mut facts = Facts::new();
    let mut set = |key: &str, value: String| {
        if !value.is_empty() {
            facts.insert(key.to_owned(), clip(&value));
        }
    };
    set("agent.version", sources.agent_version.clone());
    if !sources.agent_version.is_empty() {
        set(REPLACES_ENGINES, "true".to_owned());
    }
    if let Some(Setup {
        engine,
        bundles,
        paths,
        git,
        namespace: _,
        verifies,
        verifies_ssh,
    }) = &sources.setup
    {
        let ssh = verifies_ssh.then(|| "true".to_owned());
        set(VERIFIES_SSH, ssh.unwrap_or_default());
        if *verifies && sources.unverified == Some(false) {
            set(VERIFIES, "true".to_owned());
        }
        let paths = paths.iter().map(|(kind, path)| format!("{kind}={path}"));
        set(PATHS_IN_FORCE, paths.collect::<Vec<_>>().join(","));
        let bundles: Vec<&str> = bundles.iter().map(Digest::as_str).collect();
        set(BUNDLES_IN_FORCE, bundles.join(","));
        set(ENGINE_IN_FORCE, engine.to_string());
        set(GIT_IN_FORCE, git.as_str().to_owned());
    }
    set(
        "incarnation",
        sources.incarnation.clone().unwrap_or_default(),
    );
    set(
        "openshift.version",
        sources.openshift.clone().unwrap_or_default(),
    );
    let git_version = sources.version.as_ref().map_or("", |v| v.0.as_str());
    if let Some((version, minor, platform)) = &sources.version {
        set("kubernetes.version", version.clone());
        // Some providers write `33+`.
        set(
            "kubernetes.minor",
            minor.chars().take_while(char::is_ascii_digit).collect(),
        );
        set("kubernetes.platform", platform.clone());
    }
    let nodes = sources.nodes.as_deref().unwrap_or_default();
    if sources.nodes.is_some() {
        set("nodes.count", nodes.len().to_string());
        set(
            "nodes.ready",
            nodes.iter().filter(|n| n.ready).count().to_string(),
        );
    }
    set("nodes.arch", joined(nodes.iter().map(|n| n.arch.as_str())));
    set("region", joined(nodes.iter().map(|n| n.region.as_str())));
    set("zone", joined(nodes.iter().map(|n| n.zone.as_str())));
    set("cloud", joined(nodes.iter().map(|n| cloud(&n.provider_id))));
    let distribution = distribution(git_version, nodes, sources.openshift.is_some());
    set("distribution", distribution.to_owned());
    for (key, value) in sources.owner.iter().take(OWNER_FACTS) {
        // The prefix keeps an owner's word apart from what was measured.
        set(&format!("owner/{key}"), value.clone());
    }
    facts
}

/// Distinct, sorted, comma-separated.
fn joined<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let distinct: BTreeSet<_> = values.filter(|v| !v.is_empty()).collect();
    distinct.into_iter().collect::<Vec<_>>().join(",")
}

/// `aws:///eu-west-1a/i-0` → `aws`.
fn cloud(provider_id: &str) -> &str {
    let (scheme, _) = provider_id.split_once("://").unwrap_or_default();
    match scheme {
        "gce" => "gcp",
        other => other,
    }
}

fn distribution(version: &str, nodes: &[NodeFacts], openshift: bool) -> &'static str {
    let label = |prefix: &str| {
        nodes
            .iter()
            .any(|n| n.labels.iter().any(|l| l.starts_with(prefix)))
    };
    let provider = |scheme: &str| nodes.iter().any(|n| n.provider_id.starts_with(scheme));
    match () {
        () if openshift => "openshift",
        () if version.contains("+k3s") => "k3s",
        () if version.contains("+rke2") => "rke2",
        () if version.contains("+k0s") => "k0s",
        () if version.contains("-eks-") || label("eks.amazonaws.com/") => "eks",
        () if version.contains("-gke.") || label("cloud.google.com/gke") => "gke",
        () if label("kubernetes.azure.com/") => "aks",
        () if label("microk8s.io/") => "microk8s",
        () if label("minikube.k8s.io/") => "minikube",
        () if provider("kind://") => "kind",
        () => "",
    }
}

fn clip(value: &str) -> String {
    let mut end = value.len().min(LONGEST_VALUE);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value[..end].to_owned()
}

/// Reads all sources; one that fails leaves its facts out.
pub async fn collect(kube: &kube::Client, namespace: &str, setup: Option<Setup>) -> Facts {
    let (version, incarnation, nodes, openshift, owner, unverified, ssh) = tokio::join!(
        kube.apiserver_version(),
        incarnation(kube),
        nodes(kube),
        openshift(kube),
        owner(kube, namespace),
        unverified(kube, setup.as_ref()),
        reads_ssh(kube, setup.as_ref()),
    );
    let ssh = found("verification with SSH keys", ssh).unwrap_or_default();
    summarize(&Sources {
        version: found("version", version.map_err(Into::into))
            .map(|v| (v.git_version, v.minor, v.platform)),
        incarnation: found("incarnation", incarnation),
        nodes: found("nodes", nodes),
        openshift: found("openshift", openshift).flatten(),
        owner: found("owner", owner).unwrap_or_default(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        setup: setup.map(|setup| Setup {
            verifies_ssh: ssh,
            ..setup
        }),
        unverified: found("verification", unverified),
    })
}

fn found<T>(source: &str, result: Result<T>) -> Option<T> {
    result
        .inspect_err(|error| debug!(source, error = format!("{error:#}"), "fact not collected"))
        .ok()
}

/// The UID of the namespace `kube-system`: another one is another cluster.
pub async fn incarnation(kube: &kube::Client) -> Result<String> {
    let namespace = Api::<Namespace>::all(kube.clone())
        .get("kube-system")
        .await
        .context("read namespace kube-system")?;
    namespace
        .metadata
        .uid
        .context("namespace kube-system has no UID")
}

async fn nodes(kube: &kube::Client) -> Result<Vec<NodeFacts>> {
    let api = Api::<Node>::all(kube.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut nodes = Vec::new();
    loop {
        let page = api.list(&params).await.context("list nodes")?;
        nodes.extend(page.items.iter().map(node_facts));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(nodes),
        }
    }
}

fn node_facts(node: &Node) -> NodeFacts {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    let status = node.status.as_ref();
    let ready = status
        .and_then(|s| s.conditions.as_ref())
        .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    NodeFacts {
        ready,
        arch: status
            .and_then(|s| s.node_info.as_ref())
            .map(|info| info.architecture.clone())
            .unwrap_or_default(),
        provider_id: node
            .spec
            .as_ref()
            .and_then(|s| s.provider_id.clone())
            .unwrap_or_default(),
        region: label("topology.kubernetes.io/region"),
        zone: label("topology.kubernetes.io/zone"),
        labels: labels.into_keys().collect(),
    }
}

/// The desired version of an OpenShift cluster; `None` elsewhere.
async fn openshift(kube: &kube::Client) -> Result<Option<String>> {
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterVersion");
    let resource = ApiResource::from_gvk_with_plural(&kind, "clusterversions");
    let api = Api::<DynamicObject>::all_with(kube.clone(), &resource);
    let version = api
        .get_opt("version")
        .await
        .context("read clusterversion")?;
    let desired = |v: DynamicObject| {
        v.data["status"]["desired"]["version"]
            .as_str()
            .map(str::to_owned)
    };
    Ok(version.and_then(desired))
}

/// Whether Argo CD's controller was told to look at no signature; one that is not there applies nothing.
async fn unverified(kube: &kube::Client, setup: Option<&Setup>) -> Result<bool> {
    let Some(setup) = setup.filter(|setup| setup.engine == EngineKind::Argocd) else {
        return Ok(false);
    };
    let [_, (_, name)] = argocd::TRAITS.controllers;
    let api = Api::<StatefulSet>::namespaced(kube.clone(), &setup.namespace);
    let live = api.get_opt(name).await;
    let live = live.with_context(|| format!("read StatefulSet {name}"))?;
    let live = serde_json::to_value(live).context("read its environment")?;
    Ok(signers::is_off(&live))
}

/// Whether the source-controller that is there verifies with SSH keys, as its bundle's does: Git may have brought another version.
async fn reads_ssh(kube: &kube::Client, setup: Option<&Setup>) -> Result<bool> {
    let Some(setup) = setup.filter(|setup| setup.verifies_ssh) else {
        return Ok(false);
    };
    let [(_, name), _] = flux::TRAITS.controllers;
    let api = Api::<Deployment>::namespaced(kube.clone(), &setup.namespace);
    let live = api.get_opt(name).await;
    let live = live.with_context(|| format!("read Deployment {name}"))?;
    let live = serde_json::to_value(live).context("read its image")?;
    Ok(flux::reads_ssh(&live))
}

async fn owner(kube: &kube::Client, namespace: &str) -> Result<BTreeMap<String, String>> {
    let api = Api::<ConfigMap>::namespaced(kube.clone(), namespace);
    let map = api
        .get_opt(manifests::FACTS_MAP)
        .await
        .context("read ConfigMap linesman-facts")?;
    Ok(map.and_then(|m| m.data).unwrap_or_default())
}

/// Where facts come from.
pub struct Origin {
    pub kube: kube::Client,
    pub namespace: String,
    pub desired: watch::Receiver<Option<Desired>>,
}

/// Publishes the facts at once, every minute, and when another engine, bundle of it or way of it to the Git host is in force.
pub async fn run(
    mut origin: Origin,
    heart: Heart,
    facts: watch::Sender<Facts>,
    stop: CancellationToken,
) -> Result<()> {
    let setup = |desired: &Option<Desired>| desired.as_ref().map(Setup::of);
    loop {
        heart.beat();
        let now = setup(&origin.desired.borrow_and_update());
        let seen = collect(&origin.kube, &origin.namespace, now.clone()).await;
        facts.send_if_modified(|old| {
            let changed = *old != seen;
            *old = seen;
            changed
        });
        heart.rests(EVERY);
        let another = origin.desired.wait_for(|desired| setup(desired) != now);
        let waited = stop.run_until_cancelled(tokio::time::timeout(EVERY, another));
        match waited.await {
            Some(Ok(Ok(_)) | Err(_)) => {}
            // Who says so has ended, and with it the agent does.
            None | Some(Ok(Err(_))) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
