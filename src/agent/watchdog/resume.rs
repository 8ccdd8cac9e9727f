//! An agent goes on where the one before it ended.

use std::time::Duration;

use time::Duration as Span;
use tracing::warn;

use super::open::Read;
use super::record::Resumed;
use super::tell::UNREADABLE;
use super::{Watchdog, ailing, budgets, silences, stopped, versions};
use crate::agent::plan::setback::shift;
use crate::agent::plan::state::Saved;
use crate::clock;

impl Watchdog {
    /// Goes on with what an agent before this one saved and left open. What cannot be read now is not given up.
    pub(super) async fn resume(&mut self) {
        let left = loop {
            let open = self.open_heals.load().await;
            let set_by = open.as_ref().map_or(Span::ZERO, set_since);
            // By the clock of before: what was saved minutes ago is no older for a clock that was set.
            let saved = self.saves.load(clock::now() - set_by).await;
            match (saved, open) {
                (Ok(saved), Ok(open)) => break (saved, open, set_by),
                (Err(error), _) | (_, Err(error)) => {
                    warn!(error = format!("{error:#}"), "trying again");
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
            }
        };
        let (saved, open, set_by) = left;
        for wrong in saved.wrong.iter().chain(&open.wrong) {
            self.teller.warn(UNREADABLE, wrong);
        }
        self.history.saved = saved.objects;
        let now = clock::now();
        if !set_by.is_zero() {
            let seconds = set_by.whole_seconds();
            warn!(
                seconds,
                "the clock was set while no agent ran; what was done before is as long ago as it was"
            );
        }
        let saved = self.history.saved.values_mut().flatten();
        shift(saved.flat_map(Saved::times), set_by);
        self.history.tries_on(now);
        budgets::resume(&mut self.history, &open.left.tried, (now, set_by));
        silences::resume(&mut self.history, &open.left.owed, set_by);
        ailing::resume(&mut self.history, &open.left.ailing);
        stopped::resume(&mut self.history, &open.left.stopped);
        let same_clock = is_of_this_boot(&open).then_some(set_by);
        versions::resume(&mut self.history, &open.left.versions, same_clock);
        self.history.cut = open.left.cut().collect();
        let Resumed { over, lost } = self.records.resume(open.left.heals);
        shift(self.records.times(), set_by);
        // What it did for them nobody may have asked the engine about yet: without this, they would wait for the next question of all.
        self.history.last_write = self.records.last_step();
        // An agent of an earlier version said it in the steps of its heals alone.
        self.history.cut.extend(self.records.cut());
        self.history.complaints.extend(self.records.complaints());
        // Whoever ended a heal counted it: what is summed up over processes has each of them once.
        for heal in &lost {
            self.context.metrics.ended(heal);
        }
        self.tell(over.into_iter().chain(lost).collect()).await;
    }
}

/// Whether the agent before ran on this node, which did not boot since: its clock is no other one.
fn is_of_this_boot(open: &Read) -> bool {
    let boot = open.stamp.as_ref().zip(clock::boot());
    boot.is_some_and(|(stamp, boot)| stamp.is_of(&boot))
}

/// By how much the clock was set since the agent before said what it had; nothing where the machine began anew meanwhile.
fn set_since(open: &Read) -> Span {
    let boot = open.stamp.as_ref().zip(clock::boot());
    boot.map_or(Span::ZERO, |(stamp, boot)| {
        stamp.set_since(clock::now(), &boot)
    })
}
