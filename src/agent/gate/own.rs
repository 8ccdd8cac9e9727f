//! What the line never touches unless the owner says so: the agent's own namespace, its roles, bindings and policy for the cluster, and the
//! Secrets that hold the cluster's private keys. The hub says as whom a request goes, so a right of that somebody (`edit` reads
//! Secrets, `cluster-admin` writes anything) would be the hub's: it could read the keys, or rewrite the policy that is to bind it.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::StatusCode;

use super::Homes;
use super::policy::Policy;
use crate::agent::engine::{argocd, flux};
use crate::kubeapi::path::{self, RequestInfo};
use crate::kubeapi::scope;
use crate::kubeapi::status::{Hop, Refusal};

const KEY: &str = "ownNamespace";
/// How the agent's objects for the whole cluster begin.
const PREFIX: &str = "linesman-";
/// Helm's releases, which `helm list` asks for by this label; none of the Secrets below has it.
const RELEASES: (&str, &str) = ("owner", "helm");
/// Parts of a query that is relied on. Of one with more than 10,000 Go reads nothing (`urlmaxqueryparams` of net/url): the API server
/// would list without any selector.
const PARTS: usize = 1_000;

/// A place of private keys: one Secret, or all of a namespace.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    namespace: &'a str,
    secret: Option<&'a str>,
}

/// Judges by the owner's `ownNamespace`. Some = the query that the request goes on with: a list of
/// Secrets without those that hold private keys.
pub(super) fn check(
    policy: &Policy,
    homes: Homes<'_>,
    info: &RequestInfo,
    query: Option<&str>,
) -> Result<Option<String>, Refusal> {
    if policy.own_namespace || !info.resource_request || scope::asks_about_self(info) {
        return Ok(None);
    }
    if info.namespace == homes.agent {
        return inside(info).map(|()| None);
    }
    if is_secret(info) {
        return secrets(homes, info, query);
    }
    cluster_wide(info).map(|()| None)
}

/// The same of what runs: its query cannot be another any more.
pub(super) fn still(
    policy: &Policy,
    homes: Homes<'_>,
    info: &RequestInfo,
    query: Option<&str>,
) -> Result<(), Refusal> {
    if check(policy, homes, info, query)?.is_none() {
        return Ok(());
    }
    let what = format!(
        "'{}' shows Secrets with the cluster's private keys",
        scope::describe(info)
    );
    Err(denied(what, ""))
}

fn is_secret(info: &RequestInfo) -> bool {
    info.group.is_empty() && info.resource == "secrets"
}

/// In the agent's namespace one looks, but not at Secrets, and lets its Pods go where a node is drained.
fn inside(info: &RequestInfo) -> Result<(), Refusal> {
    let (asked, namespace) = (scope::describe(info), &info.namespace);
    if is_secret(info) {
        let what = format!(
            "'{asked}': no Secret of namespace {namespace}, where the cluster's private keys are, is reached through the line"
        );
        return Err(denied(what, ""));
    }
    if scope::reads(info) || evicts(info) {
        return Ok(());
    }
    let what = format!(
        "'{asked}': namespace {namespace} is the agent's own, and is only looked at through the line"
    );
    Err(denied(what, ""))
}

/// Whether it has a Pod go from its node, as far as its disruption budgets allow: it shows nothing and changes nothing, and the Pod's owner
/// makes another one.
fn evicts(info: &RequestInfo) -> bool {
    info.group.is_empty()
        && info.resource == "pods"
        && info.subresource == "eviction"
        && info.verb == "create"
}

/// The engine's copy of the deploy key by its name, and lists that would show it or the agent's own keys.
fn secrets(
    homes: Homes<'_>,
    info: &RequestInfo,
    query: Option<&str>,
) -> Result<Option<String>, Refusal> {
    let place = |namespace, secret| Place { namespace, secret };
    let places = [
        place(homes.agent, None),
        place(flux::NAME, Some(flux::NAME)),
        place(homes.argocd, Some(argocd::REPOSITORY)),
    ];
    if !info.name.is_empty() {
        let held = info.name == argocd::REPOSITORY
            || places.iter().any(|place| {
                place.namespace == info.namespace && place.secret == Some(info.name.as_str())
            });
        if !held {
            return Ok(None);
        }
        let what = format!(
            "Secret {} of namespace {} holds the deploy key, and is not reached through the line",
            info.name, info.namespace
        );
        return Err(denied(what, ""));
    }
    // What is created shows nothing that was there.
    if info.verb == "create" {
        return Ok(None);
    }
    let terms = Terms::of(query);
    let shown = places
        .iter()
        .filter(|place| info.namespace.is_empty() || place.namespace == info.namespace)
        .filter(|place| !terms.exclude(place));
    let left_out: Vec<String> = shown
        .map(|place| match place.secret {
            Some(secret) => format!("metadata.name!={secret}"),
            None => format!("metadata.namespace!={}", place.namespace),
        })
        .collect();
    if left_out.is_empty() {
        return Ok(None);
    }
    let selector = left_out.join(",");
    if scope::reads(info)
        && let Some(query) = narrowed(query.unwrap_or_default(), &selector)
    {
        return Ok(Some(query));
    }
    let (what, other) = if info.namespace.is_empty() {
        ("of all namespaces", "name a namespace")
    } else {
        ("of the engine's namespace", "name the Secret")
    };
    let what = format!(
        "'{}' {what} would show the cluster's private keys",
        scope::describe(info)
    );
    Err(denied(
        what,
        &format!("{other}, or add --field-selector '{selector}'; or "),
    ))
}

/// The query of a list with one more condition on what it shows; none where a server might read that in another way.
fn narrowed(query: &str, selector: &str) -> Option<String> {
    if !readable(query) {
        return None;
    }
    let mut parts = Vec::new();
    let mut found = false;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if plain(key)? != "fieldSelector" {
            plain(value)?;
            parts.push(part.to_owned());
            continue;
        }
        // Twice, only one of them would count; an escape could take in the comma between.
        if found || plain(value)?.contains('\\') {
            return None;
        }
        found = true;
        let comma = if value.is_empty() { "" } else { "," };
        parts.push(format!("fieldSelector={value}{comma}{selector}"));
    }
    if !found {
        parts.push(format!("fieldSelector={selector}"));
    }
    // It may have a part more than it had.
    let made = parts.join("&");
    readable(&made).then_some(made)
}

/// The agent's roles and bindings, and the guard's policy.
fn cluster_wide(info: &RequestInfo) -> Result<(), Refusal> {
    let kind = matches!(
        (info.group.as_str(), info.resource.as_str()),
        (
            "rbac.authorization.k8s.io",
            "clusterroles" | "clusterrolebindings"
        ) | (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies" | "validatingadmissionpolicybindings"
        )
    );
    let all = info.verb == "deletecollection";
    if !kind || scope::reads(info) || !(all || info.name.starts_with(PREFIX)) {
        return Ok(());
    }
    let whose = if all {
        format!("what begins with {PREFIX}")
    } else {
        info.name.clone()
    };
    let what = format!(
        "'{}': {whose} is the agent's own, and is not changed through the line",
        scope::describe(info)
    );
    Err(denied(what, ""))
}

fn denied(what: String, instead: &str) -> Refusal {
    Refusal::new(Hop::Agent, StatusCode::FORBIDDEN, "OwnNamespace", what).next(format!(
        "{instead}ask the cluster's owner to do it there, or to set '{KEY}: allow' in ConfigMap linesman-policy"
    ))
}

/// What a list is narrowed to, where every server reads it in this one way; nothing otherwise. Conditions of both selectors have all to hold,
/// so that one that leaves a place out is enough.
#[derive(Debug, Default, PartialEq, Eq)]
struct Terms {
    fields: Vec<String>,
    labels: Vec<String>,
}

impl Terms {
    fn of(query: Option<&str>) -> Self {
        let query = query.unwrap_or_default();
        if !readable(query) {
            return Self::default();
        }
        // Go drops a part with a semicolon or a broken escape, and with it the condition.
        let pairs: Option<Vec<(String, String)>> = query
            .split('&')
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (key, value) = part.split_once('=').unwrap_or((part, ""));
                Some((plain(key)?, plain(value)?))
            })
            .collect();
        let terms = |name: &str| {
            let mut found = pairs.iter().flatten().filter(|(key, _)| key == name);
            match (found.next(), found.next()) {
                // Escapes, and commas within a set, would part it elsewhere.
                (Some((_, one)), None) if !one.contains(['\\', '(']) => {
                    one.split(',').map(str::to_owned).collect()
                }
                _ => Vec::new(),
            }
        };
        Self {
            fields: terms("fieldSelector"),
            labels: terms("labelSelector"),
        }
    }

    fn exclude(&self, place: &Place<'_>) -> bool {
        let field = |term: &String| {
            // `!=` first: `a!=b` has a `=`, too.
            let (equal, (key, value)) = match (term.split_once("!="), term.split_once('=')) {
                (Some(parts), _) => (false, parts),
                (None, Some((key, value))) => (true, (key, value.trim_start_matches('='))),
                (None, None) => return false,
            };
            let held = match key {
                "metadata.namespace" => place.namespace,
                "metadata.name" => match place.secret {
                    Some(secret) => secret,
                    None => return false,
                },
                _ => return false,
            };
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
            value.bytes().all(plain) && (held == value) != equal
        };
        let (key, value) = RELEASES;
        let releases = format!("{key}={value}");
        self.fields.iter().any(field) || self.labels.contains(&releases)
    }
}

/// Whether every server looks at its parts. Empty ones count, too.
fn readable(query: &str) -> bool {
    query.matches('&').count() < PARTS
}

/// A part of a query that is decoded in one way only.
fn plain(text: &str) -> Option<String> {
    if text.contains(';') {
        return None;
    }
    path::decoded(&text.replace('+', " "))
}

#[cfg(test)]
mod tests;
