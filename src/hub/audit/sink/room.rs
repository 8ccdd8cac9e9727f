//! How much a receiver takes at once, as far as it shows by what it refuses. Pure.

use std::time::{Duration, Instant};

/// Receivers, and the proxies before them, commonly take 1 MiB.
const MOST: usize = 512 << 10;
/// What was refused for its size is not tried again for so long: a limit may be raised.
const KNOWN: Duration = Duration::from_hours(1);

pub(super) struct Room {
    /// Of one delivery; a line that is longer goes alone.
    bytes: usize,
    /// The last size that was refused, and when.
    refused: Option<(usize, Instant)>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            bytes: MOST,
            refused: None,
        }
    }
}

impl Room {
    /// How many of these lines go at once behind so many bytes: one at least, where there is one.
    pub(super) fn fitting(&self, before: usize, sizes: impl Iterator<Item = usize>) -> usize {
        let mut size = before;
        let fits = |line: &usize| {
            size += line;
            size <= self.bytes
        };
        let mut sizes = sizes.peekable();
        let least = usize::from(sizes.peek().is_some());
        sizes.take_while(fits).count().max(least)
    }

    /// Several lines of this size together were too much.
    pub(super) fn refused(&mut self, size: usize, now: Instant) {
        self.bytes = (size / 2).max(1);
        self.refused = Some((size, now));
    }

    /// What was given last was taken: a little more may go next time, but not again what was refused.
    pub(super) fn taken(&mut self, now: Instant) {
        let most = match self.refused {
            Some((size, at)) if now.duration_since(at) < KNOWN => size - size / 8,
            _ => MOST,
        };
        self.bytes = (self.bytes + self.bytes / 8 + 1).min(most.min(MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_together_as_far_as_their_bytes_fit() {
        let room = Room {
            bytes: 100,
            refused: None,
        };
        for (before, sizes, count) in [
            (0, &[][..], 0),
            (0, &[40, 60, 1][..], 2),
            (1, &[40, 60, 1][..], 1),
            (0, &[101, 1][..], 1),
            (500, &[1, 1][..], 1),
            (0, &[1; 99][..], 99),
        ] {
            let fit = room.fitting(before, sizes.iter().copied());
            assert_eq!(fit, count, "{before} {sizes:?}");
        }
    }

    /// A receiver with a limit: what it takes is found, and from then on it refuses next to nothing.
    #[test]
    fn a_receivers_limit_is_found_and_kept() {
        for limit in [3_000, 64 << 10, 100_000, MOST, 9 << 20] {
            let (mut room, begun) = (Room::default(), Instant::now());
            let mut refused = Vec::new();
            for round in 0..500_u32 {
                let now = begun + Duration::from_secs(1) * round;
                let size = room.bytes;
                if size > limit {
                    room.refused(size, now);
                    refused.push(round);
                } else {
                    room.taken(now);
                }
            }
            assert!(
                refused.iter().all(|round| *round < 50),
                "{limit}: {refused:?}"
            );
            assert!(
                room.bytes * 3 > limit.min(MOST) * 2,
                "{limit}: {}",
                room.bytes
            );
        }
    }

    #[test]
    fn a_limit_that_was_raised_is_found_again() {
        let (mut room, begun) = (Room::default(), Instant::now());
        room.refused(2_000, begun);
        let soon = begun + Duration::from_mins(1);
        for _ in 0..100 {
            room.taken(soon);
        }
        assert_eq!(room.bytes, 1_750);
        for _ in 0..100 {
            room.taken(begun + KNOWN);
        }
        assert_eq!(room.bytes, MOST);
    }
}
