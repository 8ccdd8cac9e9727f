//! The rights: of the agent, of the line, and of the people behind the line.
//!
//! No rule has `*`. Creation by server-side apply is authorised as `create` with the object's name, so
//! `resourceNames` pins it; the engines' names are therefore spelled out.

use serde_json::{Value, json};

use crate::bundle::check::ARGOCD_ROLES;
use crate::wire::api::AccessLevel;

use super::scope::{BINDINGS, Extent, SCOPE, Scope, binding};
use super::{
    ACCESS_GROUPS, AGENT, ENGINE_ROLE, EngineNamespaces, GUARD_POLICY, LINE_ACCOUNT, LINE_SUBJECTS,
    NAMESPACE, READ_ROLE, labels, metadata,
};

mod engines;

use engines::all;

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const POLICIES: [&str; 2] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
const READ: [&str; 3] = ["get", "list", "watch"];
const KEEP: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Roles and bindings, roles before what refers to them.
pub(super) fn objects(
    access: AccessLevel,
    engines: &EngineNamespaces,
    scope: Option<&Scope>,
) -> Vec<Value> {
    let mut objects = own(engines, Extent::of(scope));
    objects.push(line_subjects());
    let subjects = cluster_role_binding(LINE_SUBJECTS, LINE_SUBJECTS, &account(LINE_ACCOUNT));
    objects.push(subjects);
    if let Some(scope) = scope {
        // The agent makes the bindings: a namespace of the list may be missing yet.
        objects.push(cluster_role(SCOPE, &scope_rules(scope)));
        objects.push(cluster_role_binding(SCOPE, SCOPE, &account(AGENT)));
        objects.push(binding(READ_ROLE, NAMESPACE));
        return objects;
    }
    for (level, group, role) in ACCESS_GROUPS {
        let name = group.replace(':', "-");
        let mut binding = cluster_role_binding(&name, role, &people(group));
        // What an adoption before gave is taken away by this alone: `kubectl apply` leaves in place what it does not name.
        if level > access {
            binding["subjects"] = json!([]);
        }
        objects.push(binding);
    }
    objects
}

/// The agent's own, roles before what refers to them.
pub(super) fn own(engines: &EngineNamespaces, extent: Extent) -> Vec<Value> {
    let mut objects = vec![
        cluster_role(READ_ROLE, &read_rules()),
        cluster_role(ENGINE_ROLE, &engine_rules()),
        cluster_role(AGENT, &agent_rules(engines, extent)),
        role(&own_rules()),
        cluster_role_binding(AGENT, AGENT, &account(AGENT)),
    ];
    if extent == Extent::Cluster {
        objects.push(cluster_role_binding(READ_ROLE, READ_ROLE, &account(AGENT)));
    }
    objects.push(role_binding());
    objects
}

/// What the agent may do about the bindings in the covered namespaces: see and take away each of them by its name, make
/// no more than the owner allows.
fn scope_rules(scope: &Scope) -> Vec<Value> {
    let (allowed, bound) = scope.allowed();
    let seen = ["get", "list", "watch", "delete"];
    vec![
        pinned(RBAC, &["rolebindings"], &BINDINGS, &seen),
        pinned(RBAC, &["rolebindings"], &allowed, &["create", "patch"]),
        pinned(RBAC, &["clusterroles"], &bound, &["bind"]),
    ]
}

/// The agent's rights on the whole cluster.
fn agent_rules(engines: &EngineNamespaces, extent: Extent) -> Vec<Value> {
    let (cluster_roles, crds) = (all(|n| n.cluster_roles), all(|n| n.crds));
    let bound = [&["cluster-admin", ENGINE_ROLE][..], &cluster_roles].concat();
    let own_bindings: &[&str] = match extent {
        Extent::Cluster => &[&[AGENT, READ_ROLE, LINE_SUBJECTS][..], &BINDINGS[1..]].concat(),
        Extent::Namespaces => &[AGENT, LINE_SUBJECTS],
    };
    let bindings = [&all(|n| n.cluster_role_bindings)[..], own_bindings].concat();
    let own_roles = [AGENT, READ_ROLE, ENGINE_ROLE, LINE_SUBJECTS];
    let written = [&cluster_roles[..], &own_roles].concat();
    let escalated = [&cluster_roles[..], &[LINE_SUBJECTS]].concat();
    let (crd, own) = ("apiextensions.k8s.io", ["create", "patch", "delete"]);
    let mut rules = vec![
        rule(crd, &["customresourcedefinitions"], &READ),
        pinned(
            crd,
            &["customresourcedefinitions"],
            &crds,
            &["create", "patch"],
        ),
        pinned(
            crd,
            &["customresourcedefinitions/status"],
            &crds,
            &["patch"],
        ),
        rule(RBAC, &["clusterroles", "clusterrolebindings"], &READ),
        // Own roles go when the cluster leaves the hub, an engine's when the other one has taken its place.
        pinned(RBAC, &["clusterroles"], &written, &own),
        pinned(RBAC, &["clusterroles"], &bound, &["bind"]),
        pinned(RBAC, &["clusterroles"], &escalated, &["escalate"]),
        pinned(RBAC, &["clusterrolebindings"], &bindings, &own),
        // The agent gives itself ENGINE_ROLE in the engine's namespace, which may come and go.
        pinned(
            RBAC,
            &["rolebindings"],
            &[ENGINE_ROLE],
            &["get", "create", "patch"],
        ),
        pinned(
            "",
            &["namespaces"],
            &[&[NAMESPACE][..], &engines.all()].concat(),
            &["create", "patch"],
        ),
        rule(ADMISSION, &POLICIES, &READ),
        pinned(ADMISSION, &POLICIES, &[GUARD_POLICY], &own),
        rule("config.openshift.io", &["clusterversions"], &READ),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ];
    if extent == Extent::Namespaces {
        rules.extend(beyond_the_scope());
    }
    // Sync objects of every namespace: when their CRD goes, all of them are kept from pruning what they brought.
    for (group, kinds) in all(|n| n.kinds) {
        let verbs = ["get", "list", "watch", "create", "patch"];
        rules.push(rule(group, kinds, &verbs));
    }
    for (group, kinds) in all(|n| n.asked) {
        rules.push(rule(group, kinds, &["get", "list", "watch", "patch"]));
    }
    // With what one had brought before its CRD went, or it would never prune that again.
    for (group, kinds) in all(|n| n.prunes_by_status) {
        rules.push(rule(group, kinds, &["patch"]));
    }
    // What an engine leaves behind that the other one has replaced; the rest of it is in its namespace.
    for (group, kinds) in all(|n| n.inventories) {
        rules.push(rule(group, kinds, &["delete"]));
    }
    rules
}

/// What is not in a namespace and is needed where [`READ_ROLE`] is bound in some of them only.
fn beyond_the_scope() -> Vec<Value> {
    vec![
        // That one of the list appears; the UID of kube-system tells one cluster from another.
        rule("", &["namespaces"], &READ),
        // Facts: how many there are, how many are ready.
        rule("", &["nodes"], &["get", "list"]),
        // Left by an adoption of the whole cluster: a role can be taken away without the right to give it.
        pinned(RBAC, &["clusterrolebindings"], &BINDINGS, &["delete"]),
        // Removed with the agent.
        pinned(RBAC, &["clusterrolebindings"], &[SCOPE], &["patch"]),
        pinned(RBAC, &["clusterroles"], &[SCOPE], &["delete"]),
    ]
}

/// What the agent may see anywhere, or in the covered namespaces: never Secrets, never ConfigMaps.
fn read_rules() -> Vec<Value> {
    let core = [
        "events",
        "namespaces",
        "nodes",
        "pods",
        "resourcequotas",
        "serviceaccounts",
        "services",
    ];
    let apps = ["daemonsets", "deployments", "replicasets", "statefulsets"];
    let mut rules = vec![
        rule("", &core, &READ),
        rule("apps", &apps, &READ),
        rule("batch", &["cronjobs", "jobs"], &READ),
        rule("coordination.k8s.io", &["leases"], &READ),
        rule(
            "networking.k8s.io",
            &["ingresses", "networkpolicies"],
            &READ,
        ),
        rule(RBAC, &["rolebindings", "roles"], &READ),
    ];
    for (group, kinds) in all(|n| n.kinds) {
        rules.push(rule(group, kinds, &READ));
    }
    rules
}

/// The agent's rights in an engine's namespace.
fn engine_rules() -> Vec<Value> {
    let core = [
        "configmaps",
        "resourcequotas",
        "secrets",
        "serviceaccounts",
        "services",
    ];
    let mut rules = vec![
        rule("", &core, &KEEP),
        rule("apps", &["deployments", "statefulsets"], &KEEP),
        rule(
            "apps",
            &["deployments/scale", "statefulsets/scale"],
            &["get", "patch"],
        ),
        rule("networking.k8s.io", &["networkpolicies"], &KEEP),
        rule(RBAC, &["rolebindings", "roles"], &KEEP),
        // Patched is an annotation of the repo-server, which makes its kubelet write what it mounts; created in a dry run
        // only, which tells whether the API server would take one.
        rule(
            "",
            &["pods"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        rule("", &["pods/log"], &["get"]),
        rule("", &["events"], &READ),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "list", "watch", "delete"],
        ),
        pinned(RBAC, &["roles"], &ARGOCD_ROLES, &["bind", "escalate"]),
    ];
    for (group, kinds) in all(|n| n.kinds) {
        rules.push(rule(group, kinds, &["delete"]));
    }
    rules
}

/// Whether the agent may delete objects of this kind wherever they are, not only in the engine's namespace.
pub fn is_inventory(group: &str, plural: &str) -> bool {
    let mut all = all(|n| n.inventories).into_iter();
    all.any(|(of, kinds)| of == group && kinds.contains(&plural))
}

/// The agent's rights in its own namespace.
fn own_rules() -> Vec<Value> {
    let full = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    let own = ["create", "patch", "delete"];
    vec![
        rule("", &["configmaps", "secrets", "services"], &full),
        rule("coordination.k8s.io", &["leases"], &full),
        // Patched is the label of the Pod that leads.
        rule("", &["pods"], &["get", "list", "watch", "patch", "delete"]),
        rule("apps", &["deployments"], &READ),
        pinned("apps", &["deployments"], &[AGENT], &own),
        rule("", &["serviceaccounts"], &READ),
        pinned("", &["serviceaccounts"], &[AGENT, LINE_ACCOUNT], &own),
        pinned("", &["serviceaccounts/token"], &[LINE_ACCOUNT], &["create"]),
        pinned(RBAC, &["roles", "rolebindings"], &[AGENT], &own),
        pinned("networking.k8s.io", &["networkpolicies"], &[AGENT], &own),
        pinned("", &["resourcequotas"], &["linesman-critical-pods"], &own),
    ]
}

/// Without rules: the agent writes them, and a second `kubectl apply` must not take them back.
fn line_subjects() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": LINE_SUBJECTS, "labels": labels()},
    })
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn pinned(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs})
}

fn cluster_role(name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels()},
        "rules": rules,
    })
}

fn role(rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(AGENT),
        "rules": rules,
    })
}

pub(super) fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE})
}

pub(super) fn people(group: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "Group", "name": group})
}

fn cluster_role_binding(name: &str, role: &str, subject: &Value) -> Value {
    labelled_binding("ClusterRoleBinding", name, role, subject)
}

/// Of a `ClusterRole`.
pub(super) fn labelled_binding(kind: &str, name: &str, role: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels()},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

fn role_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(AGENT),
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": AGENT},
        "subjects": [account(AGENT)],
    })
}
