//! The watchdog while one engine takes the other's place: it lets go of the one, and takes up the other.

use super::change::Changing;
use super::fallback::Fallback;
use super::handover::Handover;
use super::{History, Watchdog};
use crate::agent::Desired;
use crate::clock;

impl Watchdog {
    /// Leaves an engine alone, and says so: nothing that was begun with it goes on. False = there will be no other
    /// wish.
    pub(super) async fn rest(&mut self, desired: &Desired) -> bool {
        let number = desired.install.change.as_ref().map(|c| c.number);
        let rest = number.map(|number| (number, desired.kind()));
        self.context.rest.send_replace(rest);
        self.hears().await
    }

    /// Begins with an engine, anew where it is not the one of before: what is known of one says nothing of the other.
    pub(super) async fn take_up(&mut self, desired: &Desired) {
        self.context
            .rest
            .send_if_modified(|rest| rest.take().is_some());
        let kind = desired.kind();
        let before = self.engine.replace(kind);
        if before.is_some_and(|before| before != kind) {
            let left = self.records.leave(clock::now());
            for heal in &left {
                self.context.metrics.ended(heal);
            }
            self.open_heals.store(self.left()).await;
            self.tell(left).await;
            self.history = History {
                head: self.history.head.take(),
                // What died with a CRD is still on record, and of use where the engine of before has to come back.
                saved: std::mem::take(&mut self.history.saved),
                ..History::default()
            };
            self.handover = Handover::default();
            self.fallback = Fallback::default();
            self.changing = Changing::default();
            self.snapshot_at = None;
        }
        if before != Some(kind) {
            let change = desired.install.change.as_ref();
            // It may have run here before and left a snapshot: it is not proven again yet.
            let arrives = change
                .is_some_and(|c| c.replaces() && c.failed.is_none() && c.to.kind == Some(kind));
            let kept = self.snapshot.as_ref();
            let of_it = kept.is_some_and(|s| s.engine.is_none_or(|engine| engine == kind));
            self.history.adopted = of_it && !arrives;
        }
    }
}
