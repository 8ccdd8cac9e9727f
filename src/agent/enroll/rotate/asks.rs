//! How often the hub is asked to register the deploy key. A key may be lost again seconds after it was registered, so the first
//! questions are quick; while they help nothing, they become fewer. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Longer than between two looks at a catalog that is refused: what a question came to is known before the next one.
const SOON: Duration = Duration::from_secs(6);
/// So many questions in a row are only [`SOON`] apart.
const QUICK: u32 = 3;
const LATEST: Duration = Duration::from_mins(1);
/// Without a question for so long, the next one begins a row.
const QUIET: Duration = Duration::from_mins(5);

/// The questions so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asks {
    last: Option<Instant>,
    /// In a row.
    run: u32,
}

impl Asks {
    /// With one more.
    pub(super) fn and(self, now: Instant) -> Self {
        let goes_on = self
            .last
            .is_some_and(|last| now.duration_since(last) < QUIET);
        let before = if goes_on { self.run } else { 0 };
        Self {
            last: Some(now),
            run: before.saturating_add(1),
        }
    }

    /// When the next one is allowed; none = it is.
    pub(super) fn next(self) -> Option<Instant> {
        self.last.map(|last| last + pause(self.run))
    }

    pub(super) fn allow(self, now: Instant) -> bool {
        self.next().is_none_or(|at| now >= at)
    }
}

/// After so many questions in a row.
fn pause(run: u32) -> Duration {
    let doublings = run.saturating_sub(QUICK).min(10);
    (SOON * 2_u32.pow(doublings)).min(LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks as soon as it may, and once more after a rest; the pauses in seconds.
    fn pauses(questions: usize, rest: Duration) -> Vec<u64> {
        let mut now = Instant::now();
        let mut asks = Asks::default();
        assert!(asks.allow(now));
        let mut all = Vec::new();
        for n in 0..questions {
            asks = asks.and(now);
            let next = asks.next().unwrap();
            assert!(asks.allow(next) && !asks.allow(next - Duration::from_millis(1)));
            all.push((next - now).as_secs());
            now = if n + 2 == questions {
                next + rest
            } else {
                next
            };
        }
        all
    }

    /// W13: a second loss within seconds waited for the rest of a minute.
    #[test]
    fn the_first_questions_are_quick_and_the_others_at_most_once_a_minute() {
        let expected = [6, 6, 6, 12, 24, 48, 60, 60, 60];
        assert_eq!(pauses(9, Duration::ZERO), expected);
    }

    #[test]
    fn five_minutes_without_a_question_begin_a_new_row() {
        // With the minute after the last one.
        let rest = |seconds| pauses(9, Duration::from_secs(seconds)).last().copied();
        assert_eq!((rest(239), rest(240)), (Some(60), Some(6)));
    }

    #[test]
    fn no_number_of_questions_is_too_many() {
        assert_eq!(pause(u32::MAX), LATEST);
    }
}
