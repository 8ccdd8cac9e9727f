//! Records of saved objects that could not be written, or could not be deleted when the objects were back: as they stand, an agent
//! after this one would bring nothing back, or what somebody deleted since.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::Watchdog;
use super::tell::{GIVEN_UP, UNRECORDED};
use crate::agent::engine::Install;
use crate::agent::plan::Observed;
use crate::agent::plan::state::Saved;
use crate::backoff::Schedule;
use crate::bundle::ObjectId;
use crate::clock;

/// No install has so many CRDs.
const MOST: usize = 64;
/// Objects that are told by name.
const NAMED: usize = 20;
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// CRDs whose record is not as it should be, and when each is tried again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unkept(BTreeMap<ObjectId, Again>);

#[derive(Debug, PartialEq, Eq)]
struct Again {
    failures: u32,
    due: Instant,
}

impl Unkept {
    /// Takes in what became of a record; `unit` is a random number in 0..1. Whether it is to be told of: the first failure in a row
    /// is.
    pub(super) fn note(&mut self, crd: &ObjectId, kept: bool, unit: f64, now: Instant) -> bool {
        if kept {
            self.0.remove(crd);
            return false;
        }
        let failures = self.0.get(crd).map_or(0, |again| again.failures);
        if failures > 0 || self.0.len() < MOST {
            let due = now + RETRY.full_jitter(failures, unit);
            let again = Again {
                failures: failures.saturating_add(1),
                due,
            };
            self.0.insert(crd.clone(), again);
        }
        failures == 0
    }

    /// Those whose time has come.
    fn due(&self, now: Instant) -> Vec<ObjectId> {
        let due = self.0.iter().filter(|(_, again)| again.due <= now);
        due.map(|(crd, _)| crd.clone()).collect()
    }

    /// When the next one is tried.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|again| again.due).min()
    }
}

impl Watchdog {
    /// Keeps what died with its CRD, and gives up what could not be brought back for too long. Returns the CRDs of which another
    /// record is to be kept now.
    pub(super) fn mourn(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) -> BTreeSet<ObjectId> {
        let mut changed = self.give_up(now);
        changed.extend(self.history.mourn(now, install, observed));
        changed
    }

    fn give_up(&mut self, now: OffsetDateTime) -> BTreeSet<ObjectId> {
        let given_up = self.history.give_up(now);
        for (crd, saved) in &given_up {
            self.teller.warn(GIVEN_UP, &told(crd, saved));
        }
        given_up.into_keys().collect()
    }

    /// What is to be brought back is on record, too, however this process ends.
    pub(super) async fn keep_saves(&mut self, crd: &ObjectId) {
        let kept = match self.history.saved.get(crd) {
            Some(objects) => self.saves.store(crd, objects, clock::now()).await,
            None => self.saves.forget(crd).await,
        };
        let (unit, now) = (clock::unit(), Instant::now());
        let tell = self.unkept.note(crd, kept.is_ok(), unit, now);
        if let Err(error) = kept.as_ref()
            && tell
        {
            let what = format!(
                "the record of objects to bring back with {crd} was not written, which is tried again"
            );
            self.teller.warn(UNRECORDED, &format!("{what}: {error:#}"));
        }
    }

    /// Tries once more what was not kept, up to the first that is in vain: all else of the round has waited for it long enough.
    pub(super) async fn keep_the_rest(&mut self) {
        for crd in self.unkept.due(Instant::now()) {
            self.keep_saves(&crd).await;
            if self.unkept.0.contains_key(&crd) {
                return;
            }
        }
    }
}

/// What is given up, for people.
fn told(crd: &ObjectId, saved: &[Saved]) -> String {
    let places: Vec<String> = saved.iter().take(NAMED).map(Saved::place).collect();
    let many = saved.len();
    let more = many.saturating_sub(NAMED);
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "{many} objects of {crd} could not be brought back for a day, and are given up; who still wants one makes it anew: {}{rest}",
        places.join(", ")
    )
}

#[cfg(test)]
mod tests;
