//! Records of saved objects that could not be written, or could not be deleted when the objects were back: as they stand, an agent
//! after this one would bring nothing back, or what somebody deleted since.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Error, anyhow};
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::Watchdog;
use super::tell::{BARE, GIVEN_UP, UNRECORDED};
use crate::agent::apply::Told;
use crate::agent::engine::Install;
use crate::agent::plan::Observed;
use crate::agent::plan::state::Saved;
use crate::agent::saves::Stored;
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
/// A first try is made without a record when that was written in vain so often, or for so long.
const WRITES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(10);
/// For a write when that time is over.
const LAST: Duration = Duration::from_secs(1);

/// CRDs whose record is not as it should be, and when each is tried again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unkept {
    again: BTreeMap<ObjectId, Again>,
    /// What first tries wait for, by CRD.
    waited: BTreeMap<ObjectId, Waited>,
}

#[derive(Debug, PartialEq, Eq)]
struct Again {
    failures: u32,
    due: Instant,
}

/// Writes in vain, and when the first of them began.
#[derive(Debug, PartialEq, Eq)]
struct Waited {
    writes: u32,
    since: Instant,
}

impl Unkept {
    /// Takes in what became of a record; `unit` is a random number in 0..1. Whether it is to be told of: the first failure in a row
    /// is.
    fn note(&mut self, crd: &ObjectId, kept: bool, unit: f64, now: Instant) -> bool {
        if kept {
            self.again.remove(crd);
            return false;
        }
        let failures = self.again.get(crd).map_or(0, |again| again.failures);
        if failures > 0 || self.again.len() < MOST {
            let due = now + RETRY.full_jitter(failures, unit);
            let again = Again {
                failures: failures.saturating_add(1),
                due,
            };
            self.again.insert(crd.clone(), again);
        }
        failures == 0
    }

    /// How long the next write before a first try may take.
    fn patience(&self, crd: &ObjectId, now: Instant) -> Duration {
        let waited = self.waited.get(crd);
        let waited = waited.map(|waited| now.saturating_duration_since(waited.since));
        let rest = PATIENCE.saturating_sub(waited.unwrap_or_default());
        rest.max(LAST)
    }

    /// Takes in what became of such a write, which took from `begun` until `now`. Whether the first try is made now: on record or,
    /// where that takes too long, without, or nothing would come back as long as no ConfigMap can be written.
    fn lets_go(&mut self, crd: &ObjectId, written: bool, (begun, now): (Instant, Instant)) -> bool {
        let waited = self.waited.remove(crd);
        if written {
            return true;
        }
        let (writes, since) = waited.map_or((1, begun), |before| (before.writes + 1, before.since));
        let over = writes >= WRITES || now.saturating_duration_since(since) >= PATIENCE;
        if !over {
            let waited = Waited { writes, since };
            self.waited.insert(crd.clone(), waited);
        }
        over
    }

    /// Those whose time has come.
    fn due(&self, now: Instant) -> Vec<ObjectId> {
        let due = self.again.iter().filter(|(_, again)| again.due <= now);
        due.map(|(crd, _)| crd.clone()).collect()
    }

    /// When the next one is tried.
    pub(super) fn next(&self) -> Option<Instant> {
        self.again.values().map(|again| again.due).min()
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
        let mut changed = self.give_up(now, observed);
        changed.extend(self.history.leave(install));
        changed.extend(self.history.mourn(now, install, observed));
        changed
    }

    fn give_up(&mut self, now: OffsetDateTime, observed: &Observed) -> BTreeSet<ObjectId> {
        let given_up = self.history.give_up(now, observed);
        for (crd, saved) in &given_up {
            let alike = |one: &Saved, next: &Saved| one.tried.is_some() == next.tried.is_some();
            for some in saved.chunk_by(alike) {
                self.teller.warn(GIVEN_UP, &told(crd, some));
            }
        }
        given_up.into_keys().collect()
    }

    /// All that died with `crd` is about to be brought back: puts that on record where it is the first try. False = that was not
    /// written, and is waited for: they are not brought back now.
    pub(super) async fn records_try(&mut self, now: OffsetDateTime, crd: &ObjectId) -> bool {
        if self.history.is_first_try(crd) && !self.records_first(crd).await {
            self.history.put_off(now, crd);
            return false;
        }
        self.history.tries(now, crd);
        true
    }

    /// Writes it once. Whether the first try is made now.
    async fn records_first(&mut self, crd: &ObjectId) -> bool {
        // What was given up meanwhile waits for nothing any more.
        let put_off = &self.history.restore_after;
        let waited = &mut self.unkept.waited;
        waited.retain(|crd, _| put_off.contains_key(crd));
        let begun = Instant::now();
        let limit = self.unkept.patience(crd, begun);
        let saved = self.history.saved.get(crd).map(Vec::as_slice);
        let write = self
            .saves
            .store_tried(crd, saved.unwrap_or_default(), clock::now());
        let written = timeout(limit, write).await.unwrap_or_else(|_| {
            let seconds = limit.as_secs();
            Err(anyhow!(
                "the ConfigMaps were not written within {seconds} s"
            ))
        });
        let took = (begun, Instant::now());
        let goes_on = self.unkept.lets_go(crd, written.is_ok(), took);
        if let Err(error) = &written {
            self.note_kept(crd, Some(error));
            if goes_on {
                warn!(%crd, "what died with it is brought back although that is not on record");
            }
        }
        goes_on
    }

    /// Tells what people have to know of a step on what died with `crd`.
    pub(super) fn tell_of(&mut self, crd: &ObjectId, told: &Told) {
        let Told { unrecorded, bare } = told;
        if let Some(bare) = bare {
            self.teller.warn(BARE, bare);
        }
        if let Some(unrecorded) = unrecorded {
            self.teller.warn(UNRECORDED, unrecorded);
            // Told of by now.
            self.unkept.note(crd, false, clock::unit(), Instant::now());
        }
    }

    /// What is to be brought back is on record, too, however this process ends.
    pub(super) async fn keep_saves(&mut self, crd: &ObjectId) {
        let kept = match self.history.saved.get(crd) {
            Some(objects) => {
                let stored = self.saves.store(crd, objects, clock::now()).await;
                stored.and_then(Stored::alone)
            }
            None => self.saves.forget(crd).await,
        };
        self.note_kept(crd, kept.as_ref().err());
    }

    /// Takes in why a record is not as it should be, if it is not.
    fn note_kept(&mut self, crd: &ObjectId, wrong: Option<&Error>) {
        let (unit, now) = (clock::unit(), Instant::now());
        let tell = self.unkept.note(crd, wrong.is_none(), unit, now);
        if let Some(error) = wrong
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
            if self.unkept.again.contains_key(&crd) {
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
    let why = if saved.iter().any(|one| one.tried.is_some()) {
        "could not be brought back for a day"
    } else {
        "were not brought back in the two days since their CRD serves"
    };
    format!(
        "{many} objects of {crd} {why}, and are given up; who still wants one makes it anew: {}{rest}",
        places.join(", ")
    )
}

#[cfg(test)]
mod tests;
