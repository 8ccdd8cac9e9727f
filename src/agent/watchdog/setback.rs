//! What the watchdog remembers of a time that the wall clock, set back, has not reached again.

use time::OffsetDateTime;
use tracing::warn;

use super::Watchdog;
use crate::agent::plan::setback::cap;

/// Less than this is a clock that is kept right, not one that was set.
const TOLD: time::Duration = time::Duration::SECOND;

impl Watchdog {
    /// Before each plan.
    pub(super) fn set_back(&mut self, now: OffsetDateTime) {
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
}
