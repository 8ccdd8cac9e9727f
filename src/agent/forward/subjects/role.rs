//! The rules of `ClusterRole` `linesman-line-subjects`: whom `linesman-line` may act as and, where the API server
//! knows constrained impersonation (KEP-5284), what it may do meanwhile. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{CLUSTER_ROLE, Name};

/// A name that no legacy rule ever has: who may act as it shows that the API server knows constrained impersonation. The
/// gate and the hub let no name have a slash (`well_named`), so nobody's grant can bring it into such a rule.
pub(super) const PROBE: &str = "linesman:/probe";
/// The name that agents of before probed by. A user can have it, too.
pub(super) const PROBE_BEFORE: &str = "linesman:probe";
/// API group of constrained impersonation's users and groups.
pub(super) const GROUP: &str = "authentication.k8s.io";

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// Methods of paths that are no resources.
const PLAIN: [&str; 2] = ["get", "head"];
/// The paths that the line serves beside resources (`crate::kubeapi::path`).
const PATHS: [&str; 20] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/*",
    "/version",
    "/version/*",
    "/healthz",
    "/healthz/*",
    "/livez",
    "/livez/*",
    "/readyz",
    "/readyz/*",
    "/metrics",
    "/metrics/*",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/openapi",
];

/// Which rules the API server takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Verb `impersonate`: whom, and nothing else.
    Classic,
    /// Verbs `impersonate:user-info` and `impersonate-on:user-info:…`: whom, and for what.
    Constrained(Scope),
}

/// What may be done as somebody. The API server holds it, whatever hub and gate say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    Full,
    /// The owner's policy is read-only: these, by API group. Without subresources, for `exec` is one, and was reached by
    /// `get` before Kubernetes 1.35.
    Read(BTreeMap<String, BTreeSet<String>>),
}

impl Form {
    /// Verb and API group of the right to act as a user or group.
    pub(super) fn right(&self) -> (&'static str, &'static str) {
        match self {
            Self::Classic => ("impersonate", ""),
            Self::Constrained(_) => ("impersonate:user-info", GROUP),
        }
    }
}

/// The role. Without names there is no rule: a rule without `resourceNames` allows every name, `system:masters` too. The
/// two forms never stand side by side, for where the constrained one refuses, the API server tries the other; the probe's
/// rules name nobody but [`PROBE`].
pub(super) fn role<'a>(names: impl Iterator<Item = &'a Name>, form: &Form, probing: bool) -> Value {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for name in names {
        match name {
            Name::User(name) => users.push(name.as_str()),
            Name::Group(name) => groups.push(name.as_str()),
        }
    }
    let mut rules = whom(&users, &groups, form);
    if let (Form::Constrained(scope), false) = (form, rules.is_empty()) {
        rules.extend(what(scope));
    }
    if probing {
        let probe = Form::Constrained(Scope::Full);
        rules.extend(whom(&[PROBE], &[], &probe));
        rules.push(json!({"nonResourceURLs": ["/version"], "verbs": on(&["get"])}));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": CLUSTER_ROLE, "labels": {"app.kubernetes.io/managed-by": "linesman"}},
        "rules": rules,
    })
}

fn whom(users: &[&str], groups: &[&str], form: &Form) -> Vec<Value> {
    let (verb, group) = form.right();
    let named = [("users", users), ("groups", groups)];
    let named = named.into_iter().filter(|(_, names)| !names.is_empty());
    named
        .map(|(resource, names)| {
            json!({"apiGroups": [group], "resources": [resource], "verbs": [verb], "resourceNames": names})
        })
        .collect()
}

fn what(scope: &Scope) -> Vec<Value> {
    let rule = |group: &str, resources: Vec<&str>, verbs: Vec<String>| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut rules = vec![json!({"nonResourceURLs": PATHS, "verbs": on(&PLAIN)})];
    match scope {
        // Never the verb `*`: it would be the right to anything that is thought of later.
        Scope::Full => rules.push(rule("*", vec!["*"], on(&[&READ[..], &WRITE].concat()))),
        Scope::Read(kinds) => {
            let parts = vec!["*/status", "*/scale", "*/log"];
            rules.push(rule("*", parts, on(&READ)));
            for (group, resources) in kinds {
                let resources = resources.iter().map(String::as_str).collect();
                rules.push(rule(group, resources, on(&READ)));
            }
            // Asking about oneself changes nothing.
            let about = vec!["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
            rules.push(rule("authorization.k8s.io", about, on(&["create"])));
            let about = vec!["selfsubjectreviews"];
            rules.push(rule(GROUP, about, on(&["create"])));
        }
    }
    rules
}

fn on(verbs: &[&str]) -> Vec<String> {
    let on = |verb: &&str| format!("impersonate-on:user-info:{verb}");
    verbs.iter().map(on).collect()
}

#[cfg(test)]
mod tests;
