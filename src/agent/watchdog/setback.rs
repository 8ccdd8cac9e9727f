//! What the watchdog remembers while the wall clock is set, and of a time that it has not reached again.

use std::time::Instant;

use time::OffsetDateTime;
use tracing::warn;

use super::Watchdog;
use crate::agent::plan::setback::{cap, shift};
use crate::clock::Steady;

/// Less than this is a clock that is kept right, not one that was set.
const TOLD: time::Duration = time::Duration::SECOND;

/// The wall clock as it would be had nobody set it since.
#[derive(Debug, Default)]
pub(super) struct Unset(Option<Steady>);

impl Unset {
    /// By how much the wall clock was set since the last look; it shows `now`.
    pub(super) fn jumped(&mut self, now: OffsetDateTime, at: Instant) -> time::Duration {
        let by = self
            .0
            .map_or(time::Duration::ZERO, |unset| now - unset.at(at));
        if self.0.is_some() && by.abs() <= TOLD {
            return time::Duration::ZERO;
        }
        self.0 = Some(Steady::showing(now, at));
        by
    }
}

impl Watchdog {
    /// Before each plan.
    pub(super) fn set_back(&mut self, now: OffsetDateTime) {
        self.set_by(now);
        let mut ahead = self.history.set_back(now);
        let own = self.changing.times().chain(self.handover.times());
        ahead = ahead.max(cap(own.chain(self.snapshot_at.as_mut()), now));
        ahead = ahead.max(cap(self.records.times(), now));
        if ahead > TOLD {
            let seconds = ahead.whole_seconds();
            warn!(
                seconds,
                "the clock was set back; what was done after the time that it shows counts as done now"
            );
        }
    }

    fn set_by(&mut self, now: OffsetDateTime) {
        let by = self.unset.jumped(now, Instant::now());
        if by.is_zero() {
            return;
        }
        self.history.set_by(by);
        let own = self.changing.times().chain(self.handover.times());
        shift(own.chain(self.snapshot_at.as_mut()), by);
        shift(self.records.times(), by);
        let seconds = by.whole_seconds();
        warn!(
            seconds,
            "the clock was set, or the node slept; what was done before is as long ago as it was"
        );
    }
}

#[cfg(test)]
mod tests;
