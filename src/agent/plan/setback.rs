//! A wall clock that is set. What the agent remembers moves with it, and stays as long ago as it is: else a clock that is set forward
//! would end every budget before its time, and take any question that is under way for one that nobody answers.
//!
//! By how much it was set is known while the agent runs, and over a restart as long as the node does not boot. Times that are ahead of the clock all the same count as
//! now: taken as they are, nothing would be done until the clock has caught up with them; and forgotten, they would give every budget
//! anew to a clock that jumps to and fro.

use time::{Duration, OffsetDateTime};

use super::exits::Exits;
use super::history::AGAIN;
use super::retry::Complaint;
use super::silence::Silence;
use super::state::{History, Past, Saved};

/// Takes what is later than `latest` as that. Returns by how much the latest of them was too late.
pub fn cap<'a>(
    times: impl IntoIterator<Item = &'a mut OffsetDateTime>,
    latest: OffsetDateTime,
) -> Duration {
    let mut most = Duration::ZERO;
    for at in times {
        most = most.max(*at - latest);
        *at = (*at).min(latest);
    }
    most
}

/// Moves them with a clock that was set by so much.
pub fn shift<'a>(times: impl IntoIterator<Item = &'a mut OffsetDateTime>, by: Duration) {
    for at in times {
        *at = at.saturating_add(by);
    }
}

impl History {
    /// The clock was set by so much.
    pub fn set_by(&mut self, by: Duration) {
        let (ahead, been) = self.times();
        shift(ahead.chain(been), by);
    }

    /// Before anything is decided by it. Returns how far ahead of `now` the latest of its times was.
    pub fn set_back(&mut self, now: OffsetDateTime) -> Duration {
        let (ahead, been) = self.times();
        // These are ahead by what they are.
        cap(ahead, now + AGAIN).max(cap(been, now))
    }

    /// Those that are to come, and those that have been.
    fn times(
        &mut self,
    ) -> (
        impl Iterator<Item = &mut OffsetDateTime>,
        impl Iterator<Item = &mut OffsetDateTime>,
    ) {
        let Self {
            faults,
            settled: _,
            given: _,
            voided: _,
            // The API server's, and only held against itself.
            ran_beside: _,
            adopted: _,
            ailing: _,
            apart: _,
            before: _,
            last_write,
            host_keys,
            head,
            order,
            saved,
            cut: _,
            had_rights: _,
            restore_after,
            refused: _,
            nudged,
            retried,
            blinded,
            at_work,
            releasing,
            operation,
            stopped: _,
            // When it was written is the API server's.
            versions,
            down,
            unready,
            vain,
            kept,
            told,
            complaints,
            silent,
            exits,
            without,
            followed,
        } = self;
        let faults = faults.values_mut().flat_map(|past| {
            let Past {
                since,
                attempts,
                unserved,
                spent: _,
                away,
            } = past;
            let once = since.iter_mut().chain(away);
            once.chain(attempts).chain(unserved)
        });
        let once = [last_write, host_keys, blinded, at_work, releasing];
        let named = [head, operation];
        let of_each = [nudged, down, unready, without];
        let been = faults
            .chain(once.into_iter().flatten())
            .chain(named.into_iter().flatten().map(|(_, at)| at))
            .chain(order.iter_mut().map(|(_, heard)| heard))
            .chain(of_each.into_iter().flatten().map(|(_, at)| at))
            .chain(versions.values_mut().map(|(_, seen)| seen))
            .chain(retried.values_mut().flatten())
            .chain(vain.values_mut().flatten())
            .chain(told.values_mut().flatten())
            .chain(kept.values_mut().flat_map(|(_, times)| times))
            .chain(saved.values_mut().flatten().flat_map(Saved::times))
            .chain(complaints.values_mut().filter_map(Complaint::time))
            .chain(silent.values_mut().flat_map(Silence::times))
            .chain(exits.values_mut().flat_map(Exits::times))
            .chain(followed.times());
        (restore_after.values_mut(), been)
    }
}

#[cfg(test)]
mod tests;
