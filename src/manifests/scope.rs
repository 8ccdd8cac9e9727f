//! Which namespaces an adoption covers: the `ConfigMap` `linesman-scope`, which the cluster's owner writes and nobody
//! else, and the bindings that the agent makes of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::rbac::{account, labelled_binding, people};
use super::{ACCESS_GROUPS, AGENT, EngineNamespaces, NAMESPACE, READ_ROLE, metadata};
use crate::wire::api::{AccessLevel, AdoptionOptions, ScopeOptions};

/// The `ConfigMap`, and the `ClusterRole` and binding with the agent's rights on the bindings that it makes.
pub const SCOPE: &str = "linesman-scope";
/// As many namespaces are covered at most.
pub const MOST: usize = 50;
/// The bindings in a covered namespace.
pub const BINDINGS: [&str; 4] = [
    READ_ROLE,
    "linesman-view",
    "linesman-edit",
    "linesman-admin",
];

/// How far the rights of the adoption YAML reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Cluster,
    /// What [`Scope`] names, the engine's namespace and the agent's own.
    Namespaces,
}

impl Extent {
    pub(super) fn of(scope: Option<&Scope>) -> Self {
        scope.map_or(Self::Cluster, |_| Self::Namespaces)
    }
}

/// What the owner covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub namespaces: BTreeSet<String>,
    /// The agent itself reads nothing in them.
    pub strict: bool,
    /// The most that access groups get in them.
    pub access: AccessLevel,
}

/// Why a list of namespaces is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error(
        "'{0}' is not the name of a namespace: 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends"
    )]
    Name(String),
    #[error("namespace {0} is named twice")]
    Twice(String),
    #[error("{0} namespaces are more than {MOST}; adopt the whole cluster, or cover fewer")]
    Many(usize),
    #[error(
        "namespace {0} holds keys of the agent or the engine, and nobody is let in there; leave it out, the agent has its own rights in it"
    )]
    Reserved(String),
    #[error("key '{0}' is not known; known are namespaces, strict, access")]
    Key(String),
    #[error("'{key}: {value}' cannot be read; write {expected}")]
    Value {
        key: &'static str,
        value: String,
        expected: &'static str,
    },
}

/// Checks what was asked for, before there is YAML.
pub fn check(options: &ScopeOptions, engines: &EngineNamespaces) -> Result<(), ScopeError> {
    names(options.namespaces.iter().map(String::as_str), engines).map(drop)
}

impl Scope {
    /// What checked options mean; none = the whole cluster. Strict without a namespace, only what the agent lives in is
    /// seen: there `view` shows no Secret.
    pub fn of(options: &ScopeOptions, access: AccessLevel, engine: &str) -> Option<Self> {
        if options.is_whole() {
            return None;
        }
        let mut namespaces: BTreeSet<String> = options.namespaces.iter().cloned().collect();
        if namespaces.is_empty() {
            namespaces = [NAMESPACE, engine].map(str::to_owned).into();
        }
        Some(Self::bounded(namespaces, options.strict, access))
    }

    fn bounded(namespaces: BTreeSet<String>, strict: bool, access: AccessLevel) -> Self {
        Self {
            namespaces,
            strict,
            access: at_most(access, strict),
        }
    }

    /// Reads the `ConfigMap`'s `data`: a value or key that cannot be read makes all of it invalid.
    pub fn parse(
        data: &BTreeMap<String, String>,
        engines: &EngineNamespaces,
    ) -> Result<Self, ScopeError> {
        let (mut listed, mut strict, mut access) = ("", false, AccessLevel::Off);
        for (key, value) in data {
            let value = value.trim();
            match key.as_str() {
                "namespaces" => listed = value,
                "strict" => strict = self::strict(value)?,
                "access" => access = self::access(value)?,
                other => return Err(ScopeError::Key(cut(other))),
            }
        }
        let split = |c: char| c == ',' || c.is_whitespace();
        let listed = listed.split(split).filter(|name| !name.is_empty());
        let namespaces = if strict {
            unreserved(listed)?
        } else {
            names(listed, engines)?
        };
        Ok(Self::bounded(namespaces, strict, access))
    }

    /// Names of the bindings that a covered namespace has.
    pub fn bindings(&self) -> Vec<&'static str> {
        let people = ACCESS_GROUPS.iter().zip(&BINDINGS[1..]);
        let people = people.filter(|((level, ..), _)| *level <= self.access);
        let read = (!self.strict).then_some(READ_ROLE);
        read.into_iter()
            .chain(people.map(|(_, name)| *name))
            .collect()
    }

    /// The bindings that the agent may make, and the `ClusterRole`s of them: reading, too, for the namespaces that it
    /// lives in.
    pub(super) fn allowed(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let wanted = self.bindings();
        let allowed = |name: &&str| *name == READ_ROLE || wanted.contains(name);
        let allowed: Vec<&str> = BINDINGS.into_iter().filter(allowed).collect();
        let roles = allowed.iter().map(|name| role(name)).collect();
        (allowed, roles)
    }

    pub(super) fn config_map(&self) -> Value {
        let lines = |text: String, name: &String| text + name + "\n";
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(SCOPE),
            "data": {
                "namespaces": self.namespaces.iter().fold(String::new(), lines),
                "strict": self.strict.to_string(),
                "access": self.access.as_str(),
            },
        })
    }
}

/// The most that access groups get by YAML with these options.
pub fn most(options: &AdoptionOptions) -> AccessLevel {
    let strict = options.scope.as_ref().is_some_and(|scope| scope.strict);
    at_most(options.access, strict)
}

fn at_most(access: AccessLevel, strict: bool) -> AccessLevel {
    if strict {
        access.min(AccessLevel::View)
    } else {
        access
    }
}

/// The `RoleBinding` of one of [`BINDINGS`].
pub fn binding(name: &str, namespace: &str) -> Value {
    let group = name.replacen('-', ":", 1);
    let subject = if name == READ_ROLE {
        account(AGENT)
    } else {
        people(&group)
    };
    let mut binding = labelled_binding("RoleBinding", name, role(name), &subject);
    binding["metadata"]["namespace"] = json!(namespace);
    binding
}

/// `admin` in place of `cluster-admin`: who administers what is in a namespace does not delete it, nor lift its quota.
fn role(binding: &str) -> &'static str {
    match binding {
        "linesman-view" => "view",
        "linesman-edit" => "edit",
        "linesman-admin" => "admin",
        _ => READ_ROLE,
    }
}

fn names<'a>(
    listed: impl Iterator<Item = &'a str>,
    engines: &EngineNamespaces,
) -> Result<BTreeSet<String>, ScopeError> {
    let names = unreserved(listed)?;
    let mut reserved = [NAMESPACE].into_iter().chain(engines.all());
    match reserved.find(|name| names.contains(*name)) {
        Some(name) => Err(ScopeError::Reserved(name.to_owned())),
        None => Ok(names),
    }
}

fn unreserved<'a>(listed: impl Iterator<Item = &'a str>) -> Result<BTreeSet<String>, ScopeError> {
    let mut names = BTreeSet::new();
    let mut count = 0;
    for name in listed {
        count += 1;
        if !fits(name) {
            return Err(ScopeError::Name(cut(name)));
        }
        if !names.insert(name.to_owned()) {
            return Err(ScopeError::Twice(name.to_owned()));
        }
    }
    if count > MOST {
        return Err(ScopeError::Many(count));
    }
    Ok(names)
}

/// A DNS label (RFC 1123).
pub(super) fn fits(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn strict(value: &str) -> Result<bool, ScopeError> {
    let bad = |_| unreadable("strict", value, "true or false");
    value.parse().map_err(bad)
}

fn access(value: &str) -> Result<AccessLevel, ScopeError> {
    let all = [
        AccessLevel::Off,
        AccessLevel::View,
        AccessLevel::Edit,
        AccessLevel::Admin,
    ];
    let found = all.into_iter().find(|level| level.as_str() == value);
    found.ok_or_else(|| unreadable("access", value, "off, view, edit or admin"))
}

fn unreadable(key: &'static str, value: &str, expected: &'static str) -> ScopeError {
    let value = cut(value);
    ScopeError::Value {
        key,
        value,
        expected,
    }
}

fn cut(text: &str) -> String {
    text.chars().take(63).collect()
}

#[cfg(test)]
mod tests;
