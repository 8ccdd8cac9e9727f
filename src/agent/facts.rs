//! Facts about the cluster: collected here, summarised by a pure function.
//!
//! The whole set is replaced with each report, so that a source that is gone takes its facts along.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, ListParams};

use crate::wire::report::Facts;

/// Facts of the owner's ConfigMap beyond this many are left out.
const OWNER_FACTS: usize = 64;
/// Bytes of one fact's value.
const VALUE: usize = 4096;
/// Nodes that are asked for at once.
const PAGE: u32 = 250;

/// What the cluster said, before anything is made of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// `v1.35.4`
    pub version: String,
    /// `linux/amd64`
    pub platform: String,
    /// UID of the namespace `kube-system`.
    pub incarnation: String,
    pub nodes: Vec<NodeFacts>,
    /// The owner's ConfigMap `linesman-facts`.
    pub owner: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub ready: bool,
    pub arch: String,
    pub provider: String,
    pub region: String,
    pub zone: String,
    pub openshift: bool,
}

/// Asks the API server. `namespace` is the agent's own.
pub async fn collect(client: &kube::Client, namespace: &str) -> Result<Sources> {
    let version = client
        .apiserver_version()
        .await
        .context("get the API server's version")?;
    let owner = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .get_opt("linesman-facts")
        .await
        .context("get ConfigMap linesman-facts")?
        .and_then(|map| map.data)
        .unwrap_or_default();
    Ok(Sources {
        version: version.git_version,
        platform: version.platform,
        incarnation: incarnation(client).await?,
        nodes: nodes(client).await?,
        owner,
    })
}

/// The UID of the namespace `kube-system`: it names this life of the cluster.
pub async fn incarnation(client: &kube::Client) -> Result<String> {
    let namespace = Api::<Namespace>::all(client.clone())
        .get("kube-system")
        .await
        .context("get Namespace kube-system")?;
    namespace
        .metadata
        .uid
        .context("Namespace kube-system has no UID")
}

async fn nodes(client: &kube::Client) -> Result<Vec<NodeFacts>> {
    let api = Api::<Node>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut nodes = Vec::new();
    loop {
        let page = api.list(&params).await.context("list nodes")?;
        nodes.extend(page.items.iter().map(node));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(nodes),
        }
    }
}

fn node(node: &Node) -> NodeFacts {
    let label = |key: &str| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|l| l.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let status = node.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_ref());
    NodeFacts {
        ready: conditions
            .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True")),
        arch: status
            .and_then(|s| s.node_info.as_ref())
            .map(|i| i.architecture.clone())
            .unwrap_or_default(),
        provider: node
            .spec
            .as_ref()
            .and_then(|s| s.provider_id.clone())
            .unwrap_or_default(),
        region: label("topology.kubernetes.io/region"),
        zone: label("topology.kubernetes.io/zone"),
        openshift: !label("node.openshift.io/os_id").is_empty(),
    }
}

/// The facts that sources give. Keys that the agent itself sets win over the owner's.
pub fn summarize(sources: &Sources) -> Facts {
    let mut facts = Facts::new();
    for (key, value) in sources.owner.iter().take(OWNER_FACTS) {
        facts.insert(key.clone(), cut(value));
    }
    let mut set = |key: &str, value: String| {
        if !value.is_empty() {
            facts.insert(key.to_owned(), cut(&value));
        }
    };
    let (major, minor) = major_minor(&sources.version);
    set("kubernetes.version", sources.version.clone());
    set("kubernetes.major", major);
    set("kubernetes.minor", minor);
    set("kubernetes.platform", sources.platform.clone());
    set("kubernetes.distribution", distribution(sources).to_owned());
    set("cluster.incarnation", sources.incarnation.clone());
    set("nodes.count", sources.nodes.len().to_string());
    set(
        "nodes.ready",
        sources.nodes.iter().filter(|n| n.ready).count().to_string(),
    );
    set(
        "nodes.arch",
        joined(sources.nodes.iter().map(|n| n.arch.as_str())),
    );
    set(
        "cloud.provider",
        joined(
            sources
                .nodes
                .iter()
                .filter_map(|n| n.provider.split_once("://").map(|p| p.0)),
        ),
    );
    set(
        "cloud.region",
        joined(sources.nodes.iter().map(|n| n.region.as_str())),
    );
    set(
        "cloud.zones",
        joined(sources.nodes.iter().map(|n| n.zone.as_str())),
    );
    facts
}

/// `v1.35.4+k3s1` is 1 and 35.
fn major_minor(version: &str) -> (String, String) {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || {
        let part = numbers.next().unwrap_or_default();
        part.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    };
    (next(), next())
}

fn distribution(sources: &Sources) -> &'static str {
    let version = sources.version.as_str();
    let marks = [
        ("+k3s", "k3s"),
        ("+rke2", "rke2"),
        ("-eks-", "eks"),
        ("-gke.", "gke"),
        ("+k0s", "k0s"),
    ];
    if let Some((_, name)) = marks.iter().find(|(mark, _)| version.contains(mark)) {
        return name;
    }
    if sources.nodes.iter().any(|n| n.openshift) {
        return "openshift";
    }
    if sources
        .nodes
        .iter()
        .any(|n| n.provider.starts_with("azure://"))
    {
        return "aks";
    }
    if sources
        .nodes
        .iter()
        .any(|n| n.provider.starts_with("kind://"))
    {
        return "kind";
    }
    "kubernetes"
}

/// The distinct values in order, with commas.
fn joined<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let distinct: BTreeSet<_> = values.filter(|v| !v.is_empty()).collect();
    distinct.into_iter().collect::<Vec<_>>().join(",")
}

fn cut(value: &str) -> String {
    let mut end = value.len().min(VALUE);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn nodes_are_counted_and_their_places_named_once() {
        let node = |ready, zone: &str| NodeFacts {
            ready,
            arch: "amd64".into(),
            provider: format!("aws:///{zone}/i-1"),
            region: "eu-west-1".into(),
            zone: zone.into(),
            openshift: false,
        };
        let sources = Sources {
            version: "v1.33.2-eks-abc".into(),
            platform: "linux/amd64".into(),
            incarnation: "u".into(),
            nodes: vec![node(true, "b"), node(false, "a"), node(true, "b")],
            owner: BTreeMap::new(),
        };
        let expected = facts(&[
            ("cloud.provider", "aws"),
            ("cloud.region", "eu-west-1"),
            ("cloud.zones", "a,b"),
            ("cluster.incarnation", "u"),
            ("kubernetes.distribution", "eks"),
            ("kubernetes.major", "1"),
            ("kubernetes.minor", "33"),
            ("kubernetes.platform", "linux/amd64"),
            ("kubernetes.version", "v1.33.2-eks-abc"),
            ("nodes.arch", "amd64"),
            ("nodes.count", "3"),
            ("nodes.ready", "2"),
        ]);
        assert_eq!(summarize(&sources), expected);
    }

    #[test]
    fn the_owner_adds_facts_but_does_not_replace_ours() {
        let owner = [
            ("team".to_owned(), "é".repeat(3000)),
            ("nodes.count".to_owned(), "99".to_owned()),
        ];
        let sources = Sources {
            owner: owner.into(),
            ..Sources::default()
        };
        let summary = summarize(&sources);
        assert_eq!(summary["nodes.count"], "0");
        assert_eq!(summary["team"], "é".repeat(2048));
    }
}
