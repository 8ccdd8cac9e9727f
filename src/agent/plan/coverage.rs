//! The bindings that covered namespaces should have against those that there are. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::manifests::READ_ROLE;
use crate::manifests::scope::{Scope, binding};

/// What the cluster has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Those that do not end.
    pub namespaces: BTreeSet<String>,
    /// By namespace and name.
    pub bindings: BTreeMap<(String, String), Bound>,
}

/// One of our names in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Whether it bears our label.
    pub ours: bool,
    pub role: Value,
    pub subjects: Value,
}

/// What to do, each a binding by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Apply(String, String),
    Delete(String, String),
}

/// What is to be done, and what cannot be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Namespaces of the list that do not exist.
    pub missing: Vec<String>,
    /// Bindings with one of our names that somebody else made, where ours should be.
    pub foreign: Vec<(String, String)>,
}

/// Takes away before it gives. `homes` are the agent's own namespace and the engines', which it reads in any case.
pub fn plan(scope: &Scope, homes: &[&str], seen: &Seen) -> Plan {
    let mut plan = Plan::default();
    let wanted: BTreeSet<(String, String)> = wanted(scope, homes).collect();
    for (key, bound) in &seen.bindings {
        let (namespace, name) = key;
        let other = bound.role != binding(name, namespace)["roleRef"];
        match (wanted.contains(key), bound.ours) {
            (true, false) => plan.foreign.push(key.clone()),
            // The role of a binding cannot be changed.
            (true, true) if other => plan.delete(key),
            (false, true) => plan.delete(key),
            (true, true) | (false, false) => {}
        }
    }
    for key in wanted {
        let (namespace, name) = &key;
        let there = seen.bindings.get(&key);
        let differs = |b: &Bound| b.ours && b.subjects != binding(name, namespace)["subjects"];
        if seen.namespaces.contains(namespace) && there.is_none_or(differs) {
            plan.steps.push(Step::Apply(key.0, key.1));
        }
    }
    let missing = scope.namespaces.difference(&seen.namespaces);
    plan.missing = missing.cloned().collect();
    plan
}

fn wanted(scope: &Scope, homes: &[&str]) -> impl Iterator<Item = (String, String)> {
    let names = scope.bindings();
    let listed = scope.namespaces.iter();
    let listed = listed.flat_map(move |namespace| {
        let names = names.clone().into_iter();
        names.map(|name| (namespace.clone(), name.to_owned()))
    });
    let homes = homes.iter();
    listed.chain(homes.map(|home| ((*home).to_owned(), READ_ROLE.to_owned())))
}

impl Plan {
    fn delete(&mut self, (namespace, name): &(String, String)) {
        let step = Step::Delete(namespace.clone(), name.clone());
        self.steps.push(step);
    }
}

/// Whether the agent made it.
pub fn ours(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let part_of = labels.and_then(|labels| labels.get("app.kubernetes.io/part-of"));
    part_of.is_some_and(|of| of == "linesman")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::api::AccessLevel;

    fn scope(namespaces: &[&str], access: AccessLevel) -> Scope {
        Scope {
            namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
            strict: false,
            access,
        }
    }

    fn key(namespace: &str, name: &str) -> (String, String) {
        (namespace.to_owned(), name.to_owned())
    }

    fn bound(namespace: &str, name: &str) -> Bound {
        let binding = binding(name, namespace);
        Bound {
            ours: true,
            role: binding["roleRef"].clone(),
            subjects: binding["subjects"].clone(),
        }
    }

    /// The API server, as far as it matters here.
    fn carry_out(plan: &Plan, seen: &mut Seen) {
        for step in &plan.steps {
            match step {
                Step::Apply(namespace, name) => {
                    let made = bound(namespace, name);
                    seen.bindings.insert(key(namespace, name), made);
                }
                Step::Delete(namespace, name) => {
                    seen.bindings.remove(&key(namespace, name));
                }
            }
        }
    }

    fn namespaces(names: &[&str]) -> Seen {
        Seen {
            namespaces: names.iter().map(|n| (*n).to_owned()).collect(),
            bindings: BTreeMap::new(),
        }
    }

    fn there(seen: &Seen) -> Vec<String> {
        let keys = seen.bindings.keys();
        keys.map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect()
    }

    #[test]
    fn a_missing_namespace_is_named_and_covered_when_it_is_there() {
        let scope = scope(&["a", "b"], AccessLevel::View);
        let mut seen = namespaces(&["a", "c"]);
        let first = plan(&scope, &[], &seen);
        assert_eq!(first.missing, ["b"]);
        carry_out(&first, &mut seen);
        assert_eq!(there(&seen), ["a/linesman-read", "a/linesman-view"]);
        seen.namespaces.insert("b".to_owned());
        let second = plan(&scope, &[], &seen);
        let read = Step::Apply("b".to_owned(), "linesman-read".to_owned());
        let view = Step::Apply("b".to_owned(), "linesman-view".to_owned());
        assert_eq!(
            (second.missing.len(), second.steps.clone()),
            (0, vec![read, view])
        );
        carry_out(&second, &mut seen);
        assert_eq!(plan(&scope, &[], &seen), Plan::default());
    }

    #[test]
    fn what_left_the_list_or_the_level_is_taken_away_and_nothing_of_others() {
        let mut seen = namespaces(&["a", "b", "c"]);
        carry_out(
            &plan(&scope(&["a", "b"], AccessLevel::Edit), &[], &seen),
            &mut seen,
        );
        let theirs = Bound {
            ours: false,
            ..bound("c", "linesman-view")
        };
        seen.bindings.insert(key("c", "linesman-view"), theirs);
        let narrower = scope(&["a"], AccessLevel::View);
        carry_out(&plan(&narrower, &[], &seen), &mut seen);
        let left = ["a/linesman-read", "a/linesman-view", "c/linesman-view"];
        assert_eq!(there(&seen), left);
        assert_eq!(plan(&narrower, &[], &seen), Plan::default());
        let wider = plan(&scope(&["a", "c"], AccessLevel::View), &[], &seen);
        assert_eq!(wider.foreign, [key("c", "linesman-view")]);
    }

    #[test]
    fn a_binding_that_was_changed_is_put_right() {
        let scope = scope(&["a"], AccessLevel::View);
        let mut seen = namespaces(&["a"]);
        carry_out(&plan(&scope, &[], &seen), &mut seen);
        let view = key("a", "linesman-view");
        let right = seen.clone();
        seen.bindings.get_mut(&view).unwrap().subjects = json!([]);
        assert_eq!(
            plan(&scope, &[], &seen).steps,
            [Step::Apply("a".to_owned(), "linesman-view".to_owned())]
        );
        carry_out(&plan(&scope, &[], &seen), &mut seen);
        assert_eq!(seen, right);
        seen.bindings.get_mut(&view).unwrap().role["name"] = json!("cluster-admin");
        carry_out(&plan(&scope, &[], &seen), &mut seen);
        carry_out(&plan(&scope, &[], &seen), &mut seen);
        assert_eq!(seen, right);
    }

    /// Where the agent and an engine live it reads in any case, and no group is let in.
    #[test]
    fn the_agents_own_namespace_and_the_engines_are_read_as_soon_as_they_exist() {
        let strict = Scope {
            strict: true,
            ..scope(&["a"], AccessLevel::View)
        };
        let homes = ["linesman", "flux-system", "argocd"];
        let mut seen = namespaces(&["a", "linesman"]);
        let first = plan(&strict, &homes, &seen);
        assert_eq!(first.missing, [""; 0]);
        carry_out(&first, &mut seen);
        assert_eq!(there(&seen), ["a/linesman-view", "linesman/linesman-read"]);
        seen.namespaces.insert("flux-system".to_owned());
        carry_out(&plan(&strict, &homes, &seen), &mut seen);
        assert_eq!(there(&seen)[1], "flux-system/linesman-read");
        assert_eq!(plan(&strict, &homes, &seen), Plan::default());
    }
}
