//! Holds that do not stand: what keeps them in force is undone as often as it is done. They are kept up less and less often
//! ([`pace::once_more`]), and told of.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::shield::{HOLDS, shields};
use super::{Held, holds};
use crate::agent::engine::Install;
use crate::agent::plan::pace;
use crate::agent::plan::state::{History, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// One that is told again and again what belongs to a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// The object that is held, or an Application that has a part in that.
    pub object: ObjectId,
    /// How often within an hour.
    pub times: usize,
    /// What brings it, and so sets it right.
    pub by: Option<ObjectId>,
}

impl Undone {
    pub fn text(&self) -> String {
        let Self { object, times, by } = self;
        let undone = format!(
            "a hold does not stand: it was undone at {object} {times} times within an hour"
        );
        match by {
            None => format!("{undone}; find out who writes there"),
            Some(set) if set.kind == Kind::ApplicationSet => format!(
                "{undone}, most likely by {set}; have it leave that alone: ignoreApplicationDifferences with \
                 /spec/ignoreDifferences and /spec/syncPolicy/syncOptions, preservedFields.annotations with {HOLDS}"
            ),
            Some(by) => format!("{undone}, most likely by {by}"),
        }
    }
}

/// All of them.
pub fn undone(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Vec<Undone> {
    let again = history.kept.iter().filter_map(|((_, id), (_, times))| {
        let times = pace::undone(times, now)?;
        Some((id, times))
    });
    let again: BTreeMap<&ObjectId, usize> = again.collect();
    if again.is_empty() {
        return Vec::new();
    }
    let holds = holds(install, observed);
    let shields = match install.traits.kind {
        EngineKind::Argocd => shields(install, observed, &holds),
        EngineKind::Flux => BTreeMap::new(),
    };
    // What is no longer held is nobody's trouble.
    let counts = |id: &ObjectId| holds.contains_key(id) || shields.contains_key(id);
    let all = again.into_iter().filter(|(id, _)| counts(id));
    all.map(|(id, times)| Undone {
        object: id.clone(),
        times,
        by: brought_by(observed, &holds, id),
    })
    .collect()
}

fn brought_by(
    observed: &Observed,
    holds: &BTreeMap<ObjectId, Held>,
    id: &ObjectId,
) -> Option<ObjectId> {
    if let Some(held) = holds.get(id) {
        return Some(held.owner.clone());
    }
    let fate = &observed.children.get(id)?.fate;
    fate.owner.as_ref().or(fate.made_from.as_ref()).cloned()
}
