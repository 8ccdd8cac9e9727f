//! The YAML of the hub itself, for who runs it in Kubernetes: namespace first, StatefulSet last.
//!
//! The hub needs no rights in that cluster. What differs from one hub to the next is in its variables, so that whatever is applied
//! anew starts it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};

use super::{EngineNamespaces, restricted, scope};

mod pod;

/// Where the hub lives unless it is told otherwise. Not with an agent: that namespace goes when the agent does.
pub const NAMESPACE: &str = "linesman-hub";
/// The hub's StatefulSet, Service, ServiceAccount and NetworkPolicy, and what several replicas share.
pub const HUB: &str = "linesman-hub";
/// The ports in the Pod: those that the hub has without a flag.
pub const HTTPS_PORT: u16 = 8443;
pub const GIT_PORT: u16 = 2222;
pub const HEALTH_PORT: u16 = 8081;
/// Of one replica among several.
pub const PEER_PORT: u16 = 8444;

/// For so long a replica that is to end goes on as before: it takes nobody in from when it hears of its end, and the Service leads people
/// to it for a moment yet.
const PAUSE: Duration = Duration::from_secs(5);
/// The ports that a Service of type `NodePort` may have at the nodes, where the cluster was not told otherwise.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// All that differs from one hub to the next.
#[derive(Debug, Clone)]
pub struct HubValues {
    /// What [`namespace`] takes.
    pub namespace: String,
    pub image: String,
    /// Empty = none.
    pub image_pull_secret: String,
    pub agent_image: String,
    pub url: String,
    pub git_url: String,
    /// Those of the two URLs.
    pub ports: Ports,
    pub reach: Reach,
    pub service_annotations: BTreeMap<String, String>,
    /// None = a certificate of the hub's own CA.
    pub tls: Option<Tls>,
    /// The Secret with the database's URL, as `url`; None = SQLite.
    pub database: Option<String>,
    /// More than one share a database and a volume.
    pub replicas: u16,
    pub storage: String,
    /// None = the cluster's usual one.
    pub storage_class: Option<String>,
    /// What the container may have.
    pub memory: String,
    pub drain: Duration,
    /// More Secrets that the hub finds as files.
    pub secrets: BTreeSet<String>,
    /// More of the hub's variables; they stand above ours.
    pub settings: BTreeMap<String, String>,
}

/// Where clusters and people come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    pub https: u16,
    pub git: u16,
}

/// The type of the hub's Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    LoadBalancer,
    NodePort,
    ClusterIp,
}

impl Reach {
    fn word(self) -> &'static str {
        match self {
            Self::LoadBalancer => "LoadBalancer",
            Self::NodePort => "NodePort",
            Self::ClusterIp => "ClusterIP",
        }
    }
}

/// A certificate in a Secret of type `kubernetes.io/tls`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub secret: String,
    /// Whether its `ca.crt` is what clusters and people are to trust.
    pub ca: bool,
}

impl HubValues {
    fn several(&self) -> bool {
        self.replicas > 1
    }

    /// Before a Pod hears of its end. Who comes to a hub that is alone meets nobody either way, and the next one would come later.
    fn pause(&self) -> Duration {
        if self.several() {
            PAUSE
        } else {
            Duration::ZERO
        }
    }
}

/// A name for the hub's namespace: a DNS label (RFC 1123) that is not the cluster's own, an agent's or an engine's.
///
/// # Errors
/// Says what is wrong with it.
pub fn namespace(name: &str) -> Result<String, String> {
    if !scope::fits(name) {
        return Err(format!(
            "'{name}' is no name of a namespace: a-z, 0-9 and '-' inside, at most 63"
        ));
    }
    let engines = EngineNamespaces::default();
    let taken = [super::NAMESPACE, "default"];
    if taken.contains(&name) || engines.all().contains(&name) || name.starts_with("kube-") {
        return Err(format!(
            "'{name}' is not the hub's alone, which has its keys there; choose another, such as {NAMESPACE}"
        ));
    }
    Ok(name.to_owned())
}

/// The objects, in the order in which they are to be applied.
pub fn objects(values: &HubValues) -> Vec<Value> {
    let mut objects = vec![
        restricted(&values.namespace),
        service_account(values),
        network_policy(values),
        service(values),
    ];
    if values.several() {
        objects.extend([claim(values), disruption_budget(values)]);
    }
    objects.push(stateful_set(values));
    objects
}

fn selector() -> Value {
    json!({"app.kubernetes.io/name": HUB})
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": HUB, "app.kubernetes.io/part-of": "linesman"})
}

fn metadata(values: &HubValues) -> Value {
    json!({"name": HUB, "namespace": values.namespace, "labels": labels()})
}

fn service_account(values: &HubValues) -> Value {
    let mut account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(values),
        "automountServiceAccountToken": false,
    });
    if !values.image_pull_secret.is_empty() {
        account["imagePullSecrets"] = json!([{"name": values.image_pull_secret}]);
    }
    account
}

fn network_policy(values: &HubValues) -> Value {
    let port = |port: u16| json!({"port": port, "protocol": "TCP"});
    let mut ingress = vec![
        json!({"ports": [port(HTTPS_PORT), port(GIT_PORT)]}),
        // Whoever collects metrics in this cluster: that port asks for no credential.
        json!({"from": [{"namespaceSelector": {}}], "ports": [port(HEALTH_PORT)]}),
    ];
    if values.several() {
        let replicas = json!([{"podSelector": {"matchLabels": selector()}}]);
        ingress.push(json!({"from": replicas, "ports": [port(PEER_PORT)]}));
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(values),
        "spec": {
            "podSelector": {"matchLabels": selector()},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    })
}

fn service(values: &HubValues) -> Value {
    let port = |name: &str, port: u16| {
        let mut entry = json!({"name": name, "port": port, "targetPort": name, "protocol": "TCP"});
        if values.reach == Reach::NodePort && NODE_PORTS.contains(&port) {
            entry["nodePort"] = json!(port);
        }
        entry
    };
    let mut spec = json!({
        "type": values.reach.word(),
        "selector": selector(),
        "ports": [port("https", values.ports.https), port("git", values.ports.git)],
    });
    if values.reach == Reach::LoadBalancer {
        // By way of another node all clients would have that node's address: in the audit, and for limits per address.
        spec["externalTrafficPolicy"] = json!("Local");
    }
    let mut metadata = metadata(values);
    if !values.service_annotations.is_empty() {
        metadata["annotations"] = json!(values.service_annotations);
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

/// The one volume of several replicas.
fn claim(values: &HubValues) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(values),
        "spec": claimed(values, "ReadWriteMany"),
    })
}

fn claimed(values: &HubValues, mode: &str) -> Value {
    let mut spec = json!({
        "accessModes": [mode],
        "resources": {"requests": {"storage": values.storage}},
    });
    if let Some(class) = &values.storage_class {
        spec["storageClassName"] = json!(class);
    }
    spec
}

/// Of a hub that is alone it would only keep nodes from being drained.
fn disruption_budget(values: &HubValues) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(values),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector()}},
    })
}

/// It ends a Pod before it makes the next one of that name: two hubs on one SQLite would refuse each other.
fn stateful_set(values: &HubValues) -> Value {
    let mut spec = json!({
        "replicas": values.replicas,
        "revisionHistoryLimit": 3,
        "serviceName": HUB,
        // In order, a Pod that cannot start would stay in the way of the template that mends it.
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": selector()},
        "template": {"metadata": {"labels": labels()}, "spec": pod::of(values)},
    });
    if !values.several() {
        let own = json!({"metadata": {"name": "data"}, "spec": claimed(values, "ReadWriteOnce")});
        spec["volumeClaimTemplates"] = json!([own]);
    }
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata(values), "spec": spec})
}

#[cfg(test)]
pub(crate) mod tests;
