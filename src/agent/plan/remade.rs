//! What the engine made again once it was back after a collapse. That was gone: pruned along with what had brought it,
//! before the cascade guard was there. Its own words are all there is: what it brings is for the most part nothing that
//! the agent may read.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Event;
use kube::core::DynamicObject;
use serde_json::Value;
use time::OffsetDateTime;

use super::scene;
use crate::bundle::Kind;
use crate::clock::parse_rfc3339;
use crate::wire::report::Remade;

/// So many are named; the others are counted.
const MAX_NAMED: usize = 50;
/// Of all names together: heals are kept in one ConfigMap.
const MAX_ALL: usize = 4096;
/// Before the words of an Event that stands for several.
const COMBINED: &str = "(combined from similar events): ";

/// Of Events, which tell whole seconds: what was made in the second of the collapse was made before it, for the engine has no
/// rights for longer than that. kustomize-controller tells each object that its apply changed, `KIND/NAMESPACE/NAME created` or another
/// verb, a line each.
pub fn by_flux(since: OffsetDateTime, events: &[Event]) -> BTreeSet<String> {
    let told = events.iter().filter(|event| {
        let kind = event.involved_object.kind.as_deref();
        let recent = scene::last(event).is_some_and(|at| at > since);
        kind == Some(Kind::Kustomization.as_str()) && recent
    });
    let lines = told.flat_map(|event| {
        let text = event.message.as_deref().unwrap_or_default();
        text.strip_prefix(COMBINED).unwrap_or(text).lines()
    });
    named(lines.filter_map(|line| {
        let (kind, place) = line.strip_suffix(" created")?.split_once('/')?;
        Some((kind.to_owned(), place.to_owned()))
    }))
}

/// Of Applications: each tells what its last sync did to which object.
pub fn by_argocd(since: OffsetDateTime, applications: &[DynamicObject]) -> BTreeSet<String> {
    let states = applications
        .iter()
        .filter_map(|live| live.data.pointer("/status/operationState"));
    let recent = states.filter(|state| {
        let began = state.get("startedAt").and_then(Value::as_str);
        let began = began.and_then(parse_rfc3339);
        began.is_some_and(|at| at > since)
    });
    let results = recent.filter_map(|state| state.pointer("/syncResult/resources")?.as_array());
    named(results.flatten().filter_map(|result| {
        let text = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or_default();
        let place = match (text("namespace"), text("name")) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        let made = text("message").ends_with(" created");
        made.then(|| (text("kind").to_owned(), place))
    }))
}

/// As it is told: the first names, and how many there are.
pub fn told(all: BTreeSet<String>) -> Remade {
    let mut room = MAX_ALL;
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let objects = all.into_iter().take(MAX_NAMED);
    Remade {
        count,
        objects: objects
            .take_while(|name| scene::fits(&mut room, name))
            .collect(),
    }
}

/// Sync objects went with their CRD, and come back with it; they are the collapse, and not what it cost.
fn named(all: impl Iterator<Item = (String, String)>) -> BTreeSet<String> {
    let is_sync = |kind: &str| {
        let known = Kind::ALL.iter().find(|known| known.as_str() == kind);
        known.is_some_and(|known| !known.installable() && !known.is_witness())
    };
    let all = all.filter(|(kind, _)| !is_sync(kind));
    all.map(|(kind, place)| format!("{kind} {place}")).collect()
}

#[cfg(test)]
mod tests;
