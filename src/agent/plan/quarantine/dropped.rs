//! What a version of the engine in Git does without. It is no fault that this is not there; what the engine cannot work without is
//! kept, and all else that such a commit removed as well: that is no version of the engine, but its end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use time::OffsetDateTime;

use super::harm::blamed;
use super::{brings, holds, owner, removed};
use crate::agent::engine::{Install, is_workload};
use crate::agent::plan::find::FRESH;
use crate::agent::plan::health;
use crate::agent::plan::state::{History, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// Whom Flux' controllers post their events to.
const EVENTS: &str = "--events-addr=";

/// How well it is known that Git does without an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// The engine said so.
    Surely,
    /// It is not there, and Flux, which is at a commit or is not heard of yet, may have pruned it: that shows when it is done.
    Perhaps,
}

/// What is not looked for now, and what of that Git's version does without. That is not told from one day to the other: it may yet
/// show that the engine needs it.
#[derive(Debug, Default)]
pub struct LetGo {
    pub all: BTreeSet<ObjectId>,
    pub dropped: BTreeSet<ObjectId>,
}

/// What of the install, in which all is Git's that Git took over, is not wanted now.
pub fn let_go(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> LetGo {
    let found = found(now, install, observed);
    let before = install.dropped.iter().filter(|id| !is_gits(install, id));
    let before: BTreeSet<ObjectId> = before.cloned().collect();
    if found.is_empty() {
        return LetGo {
            all: before.clone(),
            dropped: before,
        };
    }
    let mut rest = install.clone();
    rest.wanted.retain(|id, _| !found.contains_key(id));
    // What shows that the engine cannot work without what it has not had since then.
    let missed = |id: &ObjectId, since| blamed(now, &rest, observed, history, (id, since));
    let is_needed = |id: &ObjectId| {
        let since = history.without.get(id);
        since.is_some_and(|since| missed(id, *since).is_some())
    };
    let mut let_go = LetGo {
        all: before.clone(),
        dropped: before,
    };
    for (id, known) in found {
        if known == Known::Perhaps {
            let_go.all.insert(id);
        } else if !is_needed(&id) {
            let_go.all.insert(id.clone());
            let_go.dropped.insert(id);
        }
    }
    let_go
}

fn is_gits(install: &Install, id: &ObjectId) -> bool {
    install.wanted.get(id).is_some_and(|w| w.git_owned)
}

/// What Git does without since the last snapshot; nothing where a commit removed the engine.
fn found(now: OffsetDateTime, install: &Install, observed: &Observed) -> BTreeMap<ObjectId, Known> {
    let brought = |id: &&ObjectId| is_gits(install, id) || id.kind == Kind::Namespace;
    let known = |id: &ObjectId| {
        if removed(install, observed, id) {
            Some(Known::Surely)
        } else {
            may_be_pruned(now, install, observed, id).then_some(Known::Perhaps)
        }
    };
    let all = install.wanted.keys().filter(brought);
    let mut all: BTreeMap<ObjectId, Known> = all
        .filter_map(|id| Some((id.clone(), known(id)?)))
        .collect();
    if all.is_empty() {
        return all;
    }
    let held = holds(install, observed);
    let needed = needed(install, observed, &all);
    let lost = |(id, known): (&ObjectId, &Known)| *known == Known::Surely && needed.contains(id);
    let kept = held.iter().filter(|(_, held)| held.hold.removal);
    if all.iter().any(lost) || kept.into_iter().any(|(id, _)| needed.contains(id)) {
        return BTreeMap::new();
    }
    all.retain(|id, _| !needed.contains(id) && !held.contains_key(id));
    all
}

/// Whether it is gone while Flux is at a commit of what brings it: it prunes before it says that it did. Of what brings it below the
/// root an agent that has just begun may not have heard yet, nor does it know what the one before it let go. It waits for that list,
/// but for no longer than for any other.
fn may_be_pruned(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
) -> bool {
    if install.traits.kind != EngineKind::Flux || observed.objects.contains_key(id) {
        return false;
    }
    let by = owner(install, observed, id);
    let Some(said) = brings::said(install, observed, &by) else {
        let young = observed.since.is_some_and(|since| now - since <= FRESH);
        return young && by != install.sync && observed.awaited.contains(&by.kind);
    };
    said.may_have_pruned()
}

/// What the engine is nothing without: its kinds and its Namespace, the controllers of its roots, and whatever they and the other
/// controllers that Git still has run by, are reached by and refer to.
fn needed(
    install: &Install,
    observed: &Observed,
    gone: &BTreeMap<ObjectId, Known>,
) -> BTreeSet<ObjectId> {
    let fields = |id: &ObjectId| -> &Value {
        let live = observed.objects.get(id).map(|live| &live.fields);
        let known = install.wanted.get(id).map(|w| w.expect.as_ref());
        live.or(known).unwrap_or(&Value::Null)
    };
    let of_roots: Vec<&ObjectId> = health::of_roots(install)
        .filter(|id| is_asked(install, id) || posts(install, &fields))
        .collect();
    let stays = |id: &ObjectId| observed.objects.contains_key(id) && !gone.contains_key(id);
    let workloads = install.workloads();
    let workloads: Vec<&ObjectId> = workloads
        .filter(|id| of_roots.contains(id) || stays(id))
        .collect();
    let accounts: BTreeSet<&str> = workloads.iter().map(|id| account(id, fields(id))).collect();
    let of_wanted = |wish: &dyn Fn(&ObjectId) -> bool| {
        let all = install.wanted.keys().filter(|id| wish(id));
        all.cloned().collect::<Vec<ObjectId>>()
    };
    let bindings = of_wanted(&|id| {
        matches!(id.kind, Kind::ClusterRoleBinding | Kind::RoleBinding)
            && (install.traits.rights.contains(&id.name.as_str())
                || subjects(fields(id)).any(|subject| accounts.contains(subject)))
    });
    let roles: BTreeSet<&str> = bindings.iter().map(|id| role(fields(id))).collect();
    let others = of_wanted(&|id| match id.kind {
        Kind::Namespace | Kind::CustomResourceDefinition => true,
        kind if is_workload(kind) => workloads.contains(&id),
        Kind::ServiceAccount => accounts.contains(id.name.as_str()),
        Kind::ClusterRole | Kind::Role => roles.contains(id.name.as_str()),
        Kind::Service => workloads.iter().any(|of| of.name == id.name),
        Kind::ConfigMap => {
            let template = |of: &ObjectId| fields(of).pointer("/spec/template");
            let refers = |of: &&ObjectId| template(of).is_some_and(|t| names(t, &id.name));
            install.keys_of(id).is_some() || workloads.iter().any(refers)
        }
        _ => false,
    });
    bindings.into_iter().chain(others).collect()
}

/// Whether source or sync object are its own.
fn is_asked(install: &Install, id: &ObjectId) -> bool {
    let controllers = install.traits.controllers;
    let argocd = install.traits.kind == EngineKind::Argocd;
    argocd || controllers.contains(&(id.kind, id.name.as_str()))
}

/// Whether the controllers of Flux' roots post events, each inside a reconciliation, which waits for that.
fn posts<'a>(install: &Install, fields: &impl Fn(&ObjectId) -> &'a Value) -> bool {
    install.roots().any(|root| {
        let fields = fields(&install.controller(root));
        let containers = fields.pointer("/spec/template/spec/containers");
        let containers = containers.and_then(Value::as_array).into_iter().flatten();
        let args = containers.filter_map(|c| c.get("args")?.as_array());
        let mut args = args.flatten().filter_map(Value::as_str);
        args.any(|arg| arg.strip_prefix(EVENTS).is_some_and(|to| !to.is_empty()))
    })
}

/// The ServiceAccount that a controller runs by.
fn account<'a>(id: &'a ObjectId, fields: &'a Value) -> &'a str {
    let name = fields.pointer("/spec/template/spec/serviceAccountName");
    name.and_then(Value::as_str).unwrap_or(&id.name)
}

fn subjects(binding: &Value) -> impl Iterator<Item = &str> {
    let all = binding.get("subjects").and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(|s| s.get("name")?.as_str())
}

fn role(binding: &Value) -> &str {
    let name = binding.pointer("/roleRef/name");
    name.and_then(Value::as_str).unwrap_or_default()
}

/// Whether a Pod template refers to something of that name without which no Pod starts.
fn names(template: &Value, name: &str) -> bool {
    match template {
        Value::String(text) => text == name,
        Value::Array(all) => all.iter().any(|part| names(part, name)),
        Value::Object(all) => {
            all.get("optional") != Some(&Value::Bool(true))
                && all.values().any(|part| names(part, name))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl History {
    /// Notes what Git does without, and since when that is known.
    pub fn saw_dropped(&mut self, now: OffsetDateTime, install: &Install, observed: &Observed) {
        let since = |id: &ObjectId, known: Known| match known {
            Known::Surely => self.without.get(id).copied().unwrap_or(now),
            Known::Perhaps => now,
        };
        let found = found(now, install, observed);
        let all = found.into_iter().map(|(id, known)| {
            let since = since(&id, known);
            (id, since)
        });
        self.without = all.collect();
    }
}
