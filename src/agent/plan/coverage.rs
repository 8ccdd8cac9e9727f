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
mod tests;
