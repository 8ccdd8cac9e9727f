//! What is said of batches that cannot be stored: each request that comes meanwhile makes one.

use std::time::Duration;

use tokio::time::Instant;

/// Between two words of it.
const AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Failing {
    /// When it was said last.
    said: Option<Instant>,
    /// That was after the last batch that was stored.
    lasts: bool,
    /// Batches that could not be stored since then.
    batches: u64,
}

impl Failing {
    /// A batch could not be stored. How many could not since this was said last, where it is to be said.
    pub(super) fn failed(&mut self, now: Instant) -> Option<u64> {
        self.batches += 1;
        let early = |said| now.saturating_duration_since(said) < AGAIN;
        if self.said.is_some_and(early) {
            return None;
        }
        self.said = Some(now);
        self.lasts = true;
        Some(std::mem::take(&mut self.batches))
    }

    /// A batch is stored. Whether that is to be said.
    pub(super) fn stored(&mut self) -> bool {
        std::mem::take(&mut self.lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_fail_are_said_at_once_then_counted_and_their_end_is_said_once() {
        let start = Instant::now();
        let mut failing = Failing::default();
        assert!(!failing.stored());
        let at = |seconds| start + Duration::from_secs(seconds);
        let said = [0, 1, 29, 30, 31].map(|second| failing.failed(at(second)));
        assert_eq!(said, [Some(1), None, None, Some(3), None]);
        assert_eq!([failing.stored(), failing.stored()], [true, false]);
        // It comes and goes.
        assert_eq!(
            [failing.failed(at(32)), failing.failed(at(60))],
            [None, Some(3)]
        );
        assert!(failing.stored());
    }
}
