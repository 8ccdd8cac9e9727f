//! The agent's rights as the adoption YAML gives them, against those that the API server says it has. Pure.
//!
//! RBAC only ever adds, so a right is there or not, whichever role gives it. What a `SelfSubjectRulesReview` leaves out may
//! come from another authorizer, which does not list its rules: each kind of right is asked for by itself before it is
//! called missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::manifests::{self, EngineNamespaces, scope::Extent};

/// Rights that a message names; the rest is counted.
const TOLD: usize = 6;
/// Names that one of them spells out.
const NAMES: usize = 3;

/// One verb on one resource; by name where the role pins it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub verb: String,
    /// Empty for the core.
    pub group: String,
    pub resource: String,
    /// The part behind the slash; empty = the resource itself.
    pub subresource: String,
    pub name: Option<String>,
}

impl Right {
    /// Whether it differs from the other in the name only.
    pub fn is_of(&self, kind: &Self) -> bool {
        let key = |r: &Self| {
            let Self {
                verb,
                group,
                resource,
                subresource,
                name: _,
            } = r;
            [
                verb.clone(),
                group.clone(),
                resource.clone(),
                subresource.clone(),
            ]
        };
        key(self) == key(kind)
    }
}

/// Rights of one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Cluster,
    Namespace(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("in the whole cluster"),
            Self::Namespace(namespace) => write!(f, "in namespace {namespace}"),
        }
    }
}

/// A rule of a role or of a review: what it allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    /// Empty = all.
    pub names: Vec<String>,
}

impl Rule {
    fn of(rule: &Value) -> Self {
        let list = |field: &str| -> Vec<String> {
            let all = rule.get(field).and_then(Value::as_array);
            let all = all.into_iter().flatten().filter_map(Value::as_str);
            all.map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
        }
    }

    fn rights(&self) -> Vec<Right> {
        let mut names: Vec<Option<String>> = self.names.iter().cloned().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        let mut all = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
                for verb in &self.verbs {
                    all.extend(names.iter().map(|name| Right {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.to_owned(),
                        subresource: part.to_owned(),
                        name: name.clone(),
                    }));
                }
            }
        }
        all
    }

    fn allows(&self, right: &Right) -> bool {
        let has = |all: &[String], one: &str| all.iter().any(|a| a == "*" || a == one);
        let part = &right.subresource;
        let resource = self.resources.iter().any(|r| match r.split_once('/') {
            Some((of, below)) => {
                below == part && !part.is_empty() && (of == "*" || of == right.resource)
            }
            None => r == "*" || part.is_empty() && *r == right.resource,
        });
        let name = |name: &String| self.names.contains(name);
        let named = self.names.is_empty() || right.name.as_ref().is_some_and(name);
        resource && named && has(&self.verbs, &right.verb) && has(&self.groups, &right.group)
    }
}

/// All that the YAML gives the agent, by place. `engines` are the namespaces in which its role for an engine's is bound:
/// before an install and after a removal it is not.
pub fn needed(
    all: &EngineNamespaces,
    engines: &[&str],
    extent: Extent,
) -> BTreeMap<Place, BTreeSet<Right>> {
    let own = manifests::NAMESPACE;
    let mut needed: BTreeMap<Place, BTreeSet<Right>> = BTreeMap::new();
    for role in manifests::own(all, extent) {
        let text = |pointer| role.pointer(pointer).and_then(Value::as_str);
        let of = |namespaces: &[&str]| -> Vec<Place> {
            let named = namespaces.iter().map(|n| Place::Namespace((*n).to_owned()));
            named.collect()
        };
        let places = match (text("/kind"), text("/metadata/name")) {
            (Some("ClusterRole"), Some(manifests::ENGINE_ROLE)) => of(engines),
            // Bound in the covered namespaces, which come and go.
            (Some("ClusterRole"), Some(manifests::READ_ROLE)) if extent == Extent::Namespaces => {
                continue;
            }
            (Some("ClusterRole"), _) => vec![Place::Cluster],
            (Some("Role"), _) => of(&[own]),
            _ => continue,
        };
        let rules = role.get("rules").and_then(Value::as_array);
        let rules = rules.into_iter().flatten();
        let rights: Vec<Right> = rules.flat_map(|rule| Rule::of(rule).rights()).collect();
        for place in places {
            let here = needed.entry(place).or_default();
            here.extend(rights.iter().cloned());
        }
    }
    needed
}

/// The rights that no rule gives.
pub fn missing(needed: BTreeSet<Right>, rules: &[Rule]) -> BTreeSet<Right> {
    let given = |right: &Right| rules.iter().any(|rule| rule.allows(right));
    needed.into_iter().filter(|right| !given(right)).collect()
}

/// Rights that differ in the name only.
pub fn kinds(missing: &BTreeSet<Right>) -> BTreeMap<Right, Vec<Right>> {
    let mut kinds: BTreeMap<Right, Vec<Right>> = BTreeMap::new();
    for right in missing {
        let kind = Right {
            name: None,
            ..right.clone()
        };
        kinds.entry(kind).or_default().push(right.clone());
    }
    kinds
}

/// What is missing, for people; empty where nothing is.
pub fn told(missing: &BTreeMap<Place, BTreeSet<Right>>) -> String {
    // Verbs that miss on the same objects are named together.
    let mut lines: BTreeMap<(&Place, String, Vec<&str>), Vec<&str>> = BTreeMap::new();
    let kinds: Vec<_> = missing
        .iter()
        .map(|(place, rights)| (place, kinds(rights)))
        .collect();
    for (place, kinds) in &kinds {
        for (kind, rights) in kinds {
            let names = rights.iter().filter_map(|right| right.name.as_deref());
            let line = (*place, object(kind), names.collect());
            lines.entry(line).or_default().push(&kind.verb);
        }
    }
    let count = lines.len();
    let all = lines.into_iter().take(TOLD);
    let mut told: Vec<String> = all
        .map(|((place, object, names), verbs)| {
            let more = names.len().saturating_sub(NAMES);
            let mut names = names[..names.len() - more].join(", ");
            if more > 0 {
                names = format!("{names} and {more} more");
            }
            let names = if names.is_empty() {
                names
            } else {
                format!(" ({names})")
            };
            format!("{} {object}{names} {place}", verbs.join(", "))
        })
        .collect();
    if count > TOLD {
        told.push(format!("{} more", count - TOLD));
    }
    told.join("; ")
}

/// `clusterroles.rbac.authorization.k8s.io`, `pods/log`.
fn object(right: &Right) -> String {
    let mut text = right.resource.clone();
    if !right.group.is_empty() {
        text = format!("{text}.{}", right.group);
    }
    if !right.subresource.is_empty() {
        text = format!("{text}/{}", right.subresource);
    }
    text
}

#[cfg(test)]
mod tests;
