//! The commits that a heal names beside the one that it is about: those that broke the same object while it was being mended,
//! and those that came while it was held back for that.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::{Key, MAX_OPEN, MAX_STEPS, Records};
use crate::agent::plan::quarantine::Wait;
use crate::agent::plan::{Class, Finding};
use crate::bundle::ObjectId;
use crate::clock::rfc3339;
use crate::heal::{COMMIT, commit_of};
use crate::wire::report::{HealRecord, HealStep};

/// A heal names so many; what comes after them is as these were.
const MAX_COMMITS: usize = 16;

/// Heals that are over and whose objects are still held back.
pub(super) type Holding = BTreeMap<ObjectId, (Key, HealRecord)>;

/// Whether a heal of this class holds its object back where a commit was at fault.
pub(super) fn holds(key: &Key, record: &HealRecord) -> bool {
    let class = matches!(
        key.0,
        Class::BadEngineCommit
            | Class::EngineUpgradeStuck
            | Class::SourceAltered
            | Class::GitSecretBad
    );
    class && !record.commit.is_empty()
}

fn names(record: &HealRecord, revision: &str) -> bool {
    record.commit == revision || record.steps.iter().any(|s| commit_of(s) == Some(revision))
}

/// Names a commit, once. False = it is named, or there is no place.
fn name(record: &mut HealRecord, now: OffsetDateTime, revision: &str, what: &str) -> bool {
    let named = record.steps.iter().filter(|s| s.action == COMMIT).count();
    let full = named >= MAX_COMMITS || record.steps.len() >= MAX_STEPS;
    if full || names(record, revision) {
        return false;
    }
    let last = if named + 1 == MAX_COMMITS {
        "; those after it are not named here"
    } else {
        ""
    };
    record.steps.push(HealStep {
        action: COMMIT.to_owned(),
        object: record.object.clone(),
        at: rfc3339(now),
        outcome: format!("{revision} {what}{last}"),
    });
    true
}

/// Whether another commit is at fault by now than the one that an open heal is about.
pub(super) fn broke_again(record: &mut HealRecord, finding: &Finding, now: OffsetDateTime) -> bool {
    let known = !record.commit.is_empty() && !finding.commit.is_empty();
    known && name(record, now, &finding.commit, "broke it again")
}

impl Records {
    /// Names the commits that came while objects are held back. Returns the heals that are over and that this is told of.
    pub(in crate::agent::watchdog) fn waited(
        &mut self,
        now: OffsetDateTime,
        waits: &[Wait],
    ) -> Vec<HealRecord> {
        let mut told = Vec::new();
        let of = |id: &ObjectId| waits.iter().find(|wait| wait.object == *id);
        self.holding
            .retain(|id, (_, record)| of(id).is_some_and(|wait| names(record, &wait.revision)));
        for wait in waits {
            let Some((revision, until)) = &wait.came else {
                continue;
            };
            let until = rfc3339(*until);
            let what = format!(
                "came while it is held back until {until}, for commits broke it again and again: the object stays without what \
                 this one has of it"
            );
            for (key, open) in &mut self.open {
                if key.1 == wait.object && names(&open.record, &wait.revision) {
                    open.untold |= name(&mut open.record, now, revision, &what);
                }
            }
            let Some((key, mut record)) = self.holding.get(&wait.object).cloned() else {
                continue;
            };
            if name(&mut record, now, revision, &what) {
                let kept = (key.clone(), record.clone());
                self.holding.insert(wait.object.clone(), kept);
                told.push(self.end(key, record));
            }
        }
        told
    }

    /// Keeps a heal that is over for the commits that may come while its object is held.
    pub(super) fn hold_on(&mut self, key: &Key, record: &HealRecord) {
        let place = self.holding.contains_key(&key.1) || self.holding.len() < MAX_OPEN;
        if holds(key, record) && place {
            let kept = (key.clone(), record.clone());
            self.holding.insert(key.1.clone(), kept);
        }
    }
}

#[cfg(test)]
mod tests;
