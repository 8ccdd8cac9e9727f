//! The YAML that a cluster's owner applies: namespace first, Deployment last, from the constants the code uses. [`hub`] has the hub's own.
//!
//! Applying it twice changes nothing but the join token, which the agent drops again within seconds. Fields that
//! the agent keeps itself (the rules of [`LINE_SUBJECTS`]) are absent here, so that `kubectl apply` leaves them alone.

use serde_json::{Value, json};

use crate::wire::api::{AccessLevel, HubKey};
use crate::yaml;

pub mod bypass;
pub mod copy;
pub mod hub;
pub mod proxy;
mod rbac;
pub mod scope;
mod values;

pub use rbac::is_inventory;
use scope::{Extent, Scope};
pub use values::{AdoptionValues, EngineNamespaces, engine_namespace};

/// The agent's own namespace.
pub const NAMESPACE: &str = "linesman";
/// The agent's Deployment, ServiceAccount, ClusterRole, Role and their bindings.
pub const AGENT: &str = "linesman-agent";
/// The ServiceAccount whose token requests from the line travel with; mounted nowhere.
pub const LINE_ACCOUNT: &str = "linesman-line";
/// ClusterRole and binding that say whom [`LINE_ACCOUNT`] may impersonate; the agent keeps the rules.
pub const LINE_SUBJECTS: &str = "linesman-line-subjects";
/// The Secret that line tokens are bound to: deleting it is the owner's kill switch.
pub const LINE_BIND: &str = "linesman-line-bind";
/// ClusterRole that the agent binds to itself in the engine's namespace.
pub const ENGINE_ROLE: &str = "linesman-engine";
/// ClusterRole: read access to what is shown of a cluster; never Secrets, never ConfigMaps.
pub const READ_ROLE: &str = "linesman-read";
/// `ValidatingAdmissionPolicy`, and its binding, that refuses the deletion of what the engine lives on.
pub const GUARD_POLICY: &str = "linesman-guard";
/// Secret {token, hub, hub-key, ca.crt, cluster, proxy, no-proxy}.
pub const JOIN_SECRET: &str = "linesman-join";
/// ConfigMap {hub, hub-key, ca.crt, cluster, proxy, no-proxy}: read where [`JOIN_SECRET`] is missing. The catalog's copy
/// of the agent brings it.
pub const HUB_MAP: &str = "linesman-hub";
/// Secret {identity, deploy, deploy.pub}.
pub const KEYS_SECRET: &str = "linesman-keys";
/// Secret {assignment.json, redeemed, proven, trust.json, proxy, no-proxy}.
pub const STATE_SECRET: &str = "linesman-state";
/// Secret {session, redis}: what Argo CD's parts share.
pub const ENGINE_SECRET: &str = "linesman-engine";
/// ConfigMap {bundle.zst, digest, form.json, since}.
pub const BUNDLE_MAP: &str = "linesman-bundle";
/// ConfigMap {change.json, before.zst}: a change of the engine that is under way or was undone.
pub const CHANGE_MAP: &str = "linesman-change";
/// ConfigMap of heals that the hub has not acknowledged.
pub const HEALS_MAP: &str = "linesman-heals";
/// Heals that are not over.
pub const OPEN_HEALS_MAP: &str = "linesman-open-heals";
/// ConfigMap in which a cluster's owner may put facts.
pub const FACTS_MAP: &str = "linesman-facts";
/// The port of `/livez`, `/readyz` and `/metrics` in the Pod.
pub const HEALTH_PORT: u16 = 8080;
/// The port of the Git relay in the Pod, admitted from the engine's namespace alone.
pub const GIT_RELAY_PORT: u16 = 2222;
/// The Service at which the engine finds the catalog's Git host, carried by the line.
pub const GIT_SERVICE: &str = "linesman-git";
/// The label of the Pod that leads: the one with the line.
pub const LEADS: &str = "linesman.dev/leads";
/// Groups of the line and the built-in ClusterRoles that they are bound to, weakest first.
pub const ACCESS_GROUPS: [(AccessLevel, &str, &str); 3] = [
    (AccessLevel::View, "linesman:view", "view"),
    (AccessLevel::Edit, "linesman:edit", "edit"),
    (AccessLevel::Admin, "linesman:admin", "cluster-admin"),
];

/// The variable of the agent's Pod that says where Argo CD is to live; absent = `argocd`.
pub const ARGOCD_NAMESPACE: &str = "LINESMAN_ARGOCD_NAMESPACE";

const PRIORITY: &str = "system-cluster-critical";

/// `<kid> <base64url>` a line: the form of the key `hub-key` in Secret [`JOIN_SECRET`].
pub fn hub_key_lines(keys: &[HubKey]) -> String {
    keys.iter().fold(String::new(), |text, key| {
        text + &key.kid + " " + &key.key + "\n"
    })
}

/// Reads what [`hub_key_lines`] wrote; lines of another shape are skipped.
pub fn parse_hub_key_lines(text: &str) -> Vec<HubKey> {
    let key = |line: &str| {
        let (kid, key) = line.trim().split_once(' ')?;
        Some(HubKey {
            kid: kid.to_owned(),
            key: key.trim().to_owned(),
            not_after: None,
        })
    };
    text.lines().filter_map(key).collect()
}

/// The objects, in the order in which they are to be applied.
pub fn adoption(values: &AdoptionValues) -> Vec<Value> {
    let mut objects = vec![
        restricted(NAMESPACE),
        resource_quota(),
        service_account(AGENT, &values.image_pull_secret),
        service_account(LINE_ACCOUNT, ""),
    ];
    let scope = values.scope.as_ref();
    objects.extend(scope.map(Scope::config_map));
    objects.extend(rbac::objects(values.access, &values.engines, scope));
    objects.push(network_policy(&values.engines));
    objects.push(git_service());
    objects.push(join_secret(values));
    objects.push(deployment(values));
    objects
}

/// What is alike in every adoption and not its owner's to choose: what the agent keeps so for itself.
pub fn own(engines: &EngineNamespaces, extent: Extent) -> Vec<Value> {
    let mut objects = vec![resource_quota()];
    objects.extend(rbac::own(engines, extent));
    objects.push(network_policy(engines));
    objects.push(git_service());
    objects
}

/// Multi-document YAML of the objects.
pub fn to_yaml(objects: &[Value]) -> String {
    yaml::print_all(objects).expect("JSON values can be written as YAML")
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": AGENT, "app.kubernetes.io/part-of": "linesman"})
}

/// Name, namespace and labels of a namespaced object of ours.
fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE, "labels": labels()})
}

/// A namespace whose Pods have to meet Pod Security `restricted`.
fn restricted(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/part-of": "linesman",
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/audit": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            },
        },
    })
}

/// The nodes that our images run on. Nodes with Windows need not have a taint (those of AKS and EKS have none), and a Pod that comes to
/// one would be refused there for good.
fn linux() -> Value {
    json!({"kubernetes.io/os": "linux"})
}

/// GKE admits Pods of this priority outside `kube-system` only where a quota names it (fluxcd/flux2#3800).
fn resource_quota() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata("linesman-critical-pods"),
        "spec": {
            "hard": {"pods": "10"},
            "scopeSelector": {"matchExpressions": [
                {"operator": "In", "scopeName": "PriorityClass", "values": [PRIORITY]},
            ]},
        },
    })
}

fn service_account(name: &str, pull_secret: &str) -> Value {
    let mut account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(name),
        "automountServiceAccountToken": false,
    });
    if !pull_secret.is_empty() {
        account["imagePullSecrets"] = json!([{"name": pull_secret}]);
    }
    account
}

fn network_policy(engines: &EngineNamespaces) -> Value {
    let engines = engines.all();
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(AGENT),
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": AGENT}},
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"namespaceSelector": {"matchExpressions": [{
                    "key": "kubernetes.io/metadata.name", "operator": "In", "values": engines,
                }]}}],
                "ports": [{"port": GIT_RELAY_PORT, "protocol": "TCP"}],
            }, {
                // Whoever scrapes metrics; what is served there names no object.
                "ports": [{"port": HEALTH_PORT, "protocol": "TCP"}],
            }],
        },
    })
}

/// Git over the line, for the engine. Only the Pod that leads has a line.
pub fn git_service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(GIT_SERVICE),
        "spec": {
            "selector": {"app.kubernetes.io/name": AGENT, (LEADS): "true"},
            // There is but one who leads: an engine that is kept from it because it missed two looks gets at Git nowhere else.
            "publishNotReadyAddresses": true,
            "ports": [{"name": "ssh", "port": 22, "targetPort": GIT_RELAY_PORT, "protocol": "TCP"}],
        },
    })
}

fn join_secret(values: &AdoptionValues) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(JOIN_SECRET),
        "type": "Opaque",
        "stringData": {
            "token": values.token.expose(),
            "hub": values.hub_url,
            "hub-key": hub_key_lines(&values.hub_keys),
            "ca.crt": values.hub_ca,
            "cluster": values.cluster.as_str(),
            "proxy": values.https_proxy,
            "no-proxy": values.no_proxy,
        },
    })
}

fn deployment(values: &AdoptionValues) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(AGENT),
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": {"app.kubernetes.io/name": AGENT}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": AGENT,
                    "automountServiceAccountToken": true,
                    "enableServiceLinks": false,
                    "nodeSelector": linux(),
                    "priorityClassName": PRIORITY,
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "runAsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "tolerations": [
                        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
                    ],
                    "containers": [container(values)],
                },
            },
        },
    })
}

fn container(values: &AdoptionValues) -> Value {
    let mut container = plain_container(values);
    // Without the ConfigMap the agent knows that it is not to cover the whole cluster.
    if let (Some(_), Some(env)) = (&values.scope, container["env"].as_array_mut()) {
        env.push(json!({"name": "LINESMAN_SCOPED", "value": "true"}));
    }
    container
}

fn plain_container(values: &AdoptionValues) -> Value {
    let image = &values.image;
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "health"},
            "periodSeconds": period,
            "timeoutSeconds": 3,
            "failureThreshold": failures,
        })
    };
    // A task that stands still is told of within 10 s, and 40 s later the kubelet ends the container, which is to be back within a
    // minute: what stands still does not end by itself, however long it is given.
    let mut liveness = probe("/livez", 10, 4);
    liveness["terminationGracePeriodSeconds"] = json!(5);
    let mut env = vec![
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        json!({"name": "LINESMAN_IMAGE", "value": image}),
        // Idle memory is halved by giving freed pages back at once (docs/benchmarks.md).
        json!({"name": "MIMALLOC_ALLOW_THP", "value": "0"}),
        json!({"name": "MIMALLOC_PURGE_DELAY", "value": "0"}),
        json!({"name": "MIMALLOC_ARENA_EAGER_COMMIT", "value": "0"}),
    ];
    if let Some(chosen) = values.engines.chosen() {
        env.push(json!({"name": ARGOCD_NAMESPACE, "value": chosen}));
    }
    json!({
        "name": "agent",
        "image": image,
        "args": ["agent"],
        "env": env,
        "ports": [
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
            {"name": "git", "containerPort": GIT_RELAY_PORT, "protocol": "TCP"},
        ],
        "startupProbe": probe("/livez", 10, 6),
        "livenessProbe": liveness,
        "readinessProbe": probe("/readyz", 3, 2),
        "resources": {
            "requests": {"cpu": "20m", "memory": "48Mi"},
            "limits": {"memory": "160Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    })
}

#[cfg(test)]
mod tests;
