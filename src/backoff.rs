//! Retry schedules as pure functions: the caller passes the attempt and the randomness.

use std::time::Duration;

/// A capped exponential schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    pub floor: Duration,
    pub first: Duration,
    pub cap: Duration,
}

impl Schedule {
    /// The wait before retry `attempt` (0 = the first retry) with full jitter: uniform between `floor` and
    /// min(cap, first · 2ⁿ), which is taken as twice the floor at least: those who fail together must not come back
    /// together. `unit` is a random number in 0..1.
    pub fn full_jitter(&self, attempt: u32, unit: f64) -> Duration {
        let top = self.ceiling(attempt).max(self.floor * 2);
        self.floor + top.saturating_sub(self.floor).mul_f64(unit.clamp(0.0, 1.0))
    }

    /// The wait before retry `attempt`, without jitter.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let factor = 2_u32.saturating_pow(attempt.min(30));
        self.first.saturating_mul(factor).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Schedule = Schedule {
        floor: Duration::from_millis(500),
        first: Duration::from_millis(500),
        cap: Duration::from_secs(30),
    };

    /// L15
    #[test]
    fn the_first_retry_has_jitter_too() {
        let millis = |unit| LINE.full_jitter(0, unit).as_millis();
        assert_eq!([millis(0.0), millis(0.5), millis(1.0)], [500, 750, 1000]);
    }

    #[test]
    fn waits_stay_between_floor_and_cap() {
        for attempt in 0..100 {
            for unit in [0.0, 0.5, 1.0] {
                let wait = LINE.full_jitter(attempt, unit);
                assert!(
                    wait >= LINE.floor && wait <= LINE.cap,
                    "{attempt} {unit} {wait:?}"
                );
            }
        }
        assert_eq!(LINE.full_jitter(50, 1.0), LINE.cap);
        assert_eq!(LINE.ceiling(2), Duration::from_secs(2));
    }
}
