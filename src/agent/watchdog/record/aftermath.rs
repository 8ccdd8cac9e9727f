//! Heals of a collapse that are over, until it is known what the engine had to make again.

use time::{Duration, OffsetDateTime};

use super::{Key, MAX_OPEN};
use crate::clock::parse_rfc3339;
use crate::wire::report::{HealRecord, Remade};

/// How long after function is proven the engine is asked what it made: the sync objects below the root come later than
/// the root.
const LOOKS: [Duration; 3] = [
    Duration::seconds(10),
    Duration::seconds(60),
    Duration::seconds(180),
];

#[derive(Debug, Default)]
pub(super) struct Aftermaths(Vec<Aftermath>);

#[derive(Debug)]
struct Aftermath {
    key: Key,
    record: HealRecord,
    ended: OffsetDateTime,
    /// Of [`LOOKS`], those that were begun.
    looks: usize,
}

impl Aftermath {
    fn due(&self) -> Option<OffsetDateTime> {
        Some(self.ended + *LOOKS.get(self.looks)?)
    }
}

impl Aftermaths {
    pub(super) fn follow(&mut self, now: OffsetDateTime, key: Key, record: HealRecord) {
        if self.0.len() >= MAX_OPEN {
            self.0.remove(0);
        }
        self.0.push(Aftermath {
            key,
            record,
            ended: now,
            looks: 0,
        });
    }

    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        self.0.iter_mut().map(|one| &mut one.ended)
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Option<OffsetDateTime> {
        self.0.iter().filter_map(Aftermath::due).min()
    }

    /// The heal that is to be looked after now, and since when what was made counts. Each is given once for each look.
    pub(super) fn next(&mut self, now: OffsetDateTime) -> Option<(String, OffsetDateTime)> {
        let mut all = self.0.iter_mut();
        let due = all.find(|one| one.due().is_some_and(|due| due <= now))?;
        due.looks += 1;
        let since = parse_rfc3339(&due.record.detected_at).unwrap_or(due.ended);
        Some((due.record.id.clone(), since))
    }

    /// What was made again for a heal, as far as it is known now; its record, where that is more than before.
    pub(super) fn found(&mut self, heal: &str, remade: Remade) -> Option<(Key, HealRecord)> {
        let place = self.0.iter().position(|one| one.record.id == heal)?;
        let one = self.0.get_mut(place)?;
        let more = remade.count > one.record.scene.remade.count;
        if more {
            one.record.scene.remade = remade;
        }
        let told = more.then(|| (one.key.clone(), one.record.clone()));
        if one.due().is_none() {
            self.0.remove(place);
        }
        told
    }
}
