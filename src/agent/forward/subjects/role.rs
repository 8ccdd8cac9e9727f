//! The rules of `ClusterRole` `linesman-line-subjects`: whom `linesman-line` may act as and, where the API server
//! knows constrained impersonation (KEP-5284), what it may do meanwhile. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{CLUSTER_ROLE, Name};

/// A name that no legacy rule ever has: who may act as it shows that the API server knows constrained impersonation.
pub(super) const PROBE: &str = "linesman:probe";
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
mod tests {
    use super::*;

    fn names() -> [Name; 2] {
        [
            Name::User("linesman:ada".to_owned()),
            Name::Group("linesman:admin".to_owned()),
        ]
    }

    fn rules(form: &Form, probing: bool) -> Vec<Value> {
        let role = role(names().iter(), form, probing);
        role["rules"].as_array().unwrap().clone()
    }

    #[test]
    fn the_role_pins_every_name() {
        assert_eq!(
            rules(&Form::Classic, false),
            [
                json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["linesman:ada"]}),
                json!({"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["linesman:admin"]}),
            ]
        );
        let constrained = rules(&Form::Constrained(Scope::Full), false);
        assert_eq!(
            constrained[..2],
            [
                json!({"apiGroups": [GROUP], "resources": ["users"], "verbs": ["impersonate:user-info"], "resourceNames": ["linesman:ada"]}),
                json!({"apiGroups": [GROUP], "resources": ["groups"], "verbs": ["impersonate:user-info"], "resourceNames": ["linesman:admin"]}),
            ]
        );
    }

    /// Where the constrained rules refuse, the API server would fall back to a legacy one.
    #[test]
    fn constrained_rules_have_no_legacy_grant_beside_them_and_no_verb_star() {
        let read = Scope::Read([(String::new(), ["pods".to_owned()].into())].into());
        for scope in [Scope::Full, read] {
            for rule in rules(&Form::Constrained(scope), true) {
                let verbs = rule["verbs"].as_array().unwrap();
                assert!(!verbs.is_empty());
                for verb in verbs {
                    let verb = verb.as_str().unwrap();
                    let constrained = verb == "impersonate:user-info"
                        || verb.starts_with("impersonate-on:user-info:");
                    assert!(constrained && !verb.contains('*'), "{rule}");
                }
            }
        }
    }

    /// L39
    #[test]
    fn a_read_only_role_names_no_subresource_but_three() {
        let kinds = [
            (
                String::new(),
                ["nodes".to_owned(), "pods".to_owned()].into(),
            ),
            ("apps".to_owned(), ["deployments".to_owned()].into()),
        ];
        let rules = rules(&Form::Constrained(Scope::Read(kinds.into())), false);
        let resources: Vec<String> = rules
            .iter()
            .skip(2)
            .filter_map(|rule| rule["resources"].as_array())
            .flatten()
            .map(|resource| resource.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            resources,
            [
                "*/status",
                "*/scale",
                "*/log",
                "nodes",
                "pods",
                "deployments",
                "selfsubjectaccessreviews",
                "selfsubjectrulesreviews",
                "selfsubjectreviews",
            ]
        );
        let creates = rules.iter().filter(|r| r.to_string().contains(":create"));
        assert_eq!(creates.count(), 2);
        assert!(!json!(rules).to_string().contains(":patch"));
    }

    #[test]
    fn no_name_means_no_rule() {
        for form in [Form::Classic, Form::Constrained(Scope::Full)] {
            assert_eq!(role([].iter(), &form, false)["rules"], json!([]));
        }
        let probe = role([].iter(), &Form::Classic, true);
        assert_eq!(
            probe["rules"],
            json!([
                {"apiGroups": [GROUP], "resources": ["users"], "verbs": ["impersonate:user-info"], "resourceNames": [PROBE]},
                {"nonResourceURLs": ["/version"], "verbs": ["impersonate-on:user-info:get"]},
            ])
        );
    }
}
