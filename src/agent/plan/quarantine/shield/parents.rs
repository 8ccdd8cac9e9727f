//! The Applications above one that is told something. Each of them would set right what is told to the one below it, so each
//! leaves that alone.

use std::collections::BTreeMap;

use super::super::Held;
use super::{Shield, owners};
use crate::agent::engine::Install;
use crate::agent::plan::state::Observed;
use crate::agent::plan::undecodable::aside::is_covered;
use crate::bundle::ObjectId;

/// From an Application up to the root; more levels than any catalog has.
const LEVELS: usize = 16;

/// What each Application has to hold back, and what to leave alone for that.
pub fn shields(
    install: &Install,
    observed: &Observed,
    holds: &BTreeMap<ObjectId, Held>,
) -> BTreeMap<ObjectId, Shield> {
    let mut all: BTreeMap<ObjectId, Shield> = BTreeMap::new();
    for (id, held) in holds {
        let shield = all.entry(held.owner.clone()).or_default();
        shield.held.insert(id.clone(), held.hold.clone());
    }
    let holders: Vec<ObjectId> = all.keys().cloned().collect();
    for holder in &holders {
        let mut below = holder;
        for by in chain(install, observed, holder) {
            let shield = all.entry(by.clone()).or_default();
            shield.below.insert(below.clone());
            below = by;
        }
    }
    all
}

/// What brings an Application, what brings that, and so on; mostly up to the root.
pub(in crate::agent::plan::quarantine) fn chain<'a>(
    install: &'a Install,
    observed: &'a Observed,
    from: &'a ObjectId,
) -> Vec<&'a ObjectId> {
    let mut all: Vec<&ObjectId> = Vec::new();
    let mut at = from;
    while *at != install.sync && all.len() < LEVELS {
        let by = brought_by(install, observed, at);
        // One that cannot be written would only keep the hold from the object.
        let next = by.filter(|by| !all.contains(by) && is_covered(install, observed, by));
        let Some(by) = next else {
            break;
        };
        all.push(by);
        at = by;
    }
    all
}

fn brought_by<'a>(
    install: &'a Install,
    observed: &'a Observed,
    id: &ObjectId,
) -> Option<&'a ObjectId> {
    let Some(child) = observed.children.get(id) else {
        // It is gone, or not heard of: what was told stays so, for it may be back in a moment.
        let told = owners(install, observed).find(|(_, said)| said.below.contains(id));
        return Some(told.map_or(&install.sync, |(by, _)| by));
    };
    match (&child.fate.owner, &child.fate.made_from) {
        (Some(owner), _) => Some(owner),
        // An ApplicationSet knows no such setting.
        (None, Some(_)) => None,
        // Where nobody says so it is the root, if anything: to leave alone what it does not bring is nothing to it.
        (None, None) => Some(&install.sync),
    }
}
