//! What stands between agent and hub may end every connection at a certain age, whatever passes over it: gateways and
//! balancers with a limit for a whole exchange do. From the ages of the lines that broke follows when the next one has to be replaced
//! so that nobody notices.

use std::collections::VecDeque;
use std::time::Duration;

/// So many lines in a row that broke at the same age are no chance.
const ENOUGH: usize = 3;
/// How far such ages lie from their middle.
const SPREAD: Duration = Duration::from_secs(2);
/// What ends lines younger than this is a fault, and dialling ahead of it would only add load.
const YOUNGEST: Duration = Duration::from_secs(10);
/// Of the limit. The rest is for what runs on the old line.
const PART: f64 = 0.8;

/// What the ages of past lines tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ages {
    /// Of the lines that broke last, oldest first.
    broke: VecDeque<Duration>,
    cap: Option<Duration>,
}

impl Ages {
    /// A line broke: nobody had said goodbye. True where this shows a limit that was not known.
    pub(super) fn broke(&mut self, age: Duration) -> bool {
        self.broke.push_back(age);
        if self.broke.len() > ENOUGH {
            self.broke.pop_front();
        }
        let (Some(&least), Some(&most)) = (self.broke.iter().min(), self.broke.iter().max()) else {
            return false;
        };
        if self.broke.len() < ENOUGH || least < YOUNGEST || most > least + SPREAD * 2 {
            return false;
        }
        let before = self.cap.replace(least);
        before.is_none_or(|before| before.abs_diff(least) > SPREAD)
    }

    /// A line was as old as this when it ended, however it ended. True where that disproves the limit.
    pub(super) fn lived(&mut self, age: Duration) -> bool {
        let outlived = self.cap.is_some_and(|cap| age > cap + SPREAD * 2);
        if outlived {
            *self = Self::default();
        }
        outlived
    }

    /// The age at which lines are ended, as far as is known.
    pub(super) fn cap(&self) -> Option<Duration> {
        self.cap
    }

    /// The age at which a line has to be replaced.
    pub(super) fn renewal(&self) -> Option<Duration> {
        self.cap.map(|cap| cap.mul_f64(PART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ages: &[f64]) -> Ages {
        let mut all = Ages::default();
        for &age in ages {
            all.broke(Duration::from_secs_f64(age));
        }
        all
    }

    /// L12
    #[test]
    fn three_lines_that_broke_at_one_age_show_the_limit() {
        for (ages, renewal) in [
            (&[][..], None),
            (&[30.0, 30.0], None),
            (&[30.0, 30.1, 30.2], Some(24.0)),
            (&[32.0, 28.0, 30.0], Some(22.4)),
            (&[32.1, 28.0, 30.0], None),
            (&[30.0, 30.0, 7.0], None),
            (&[7.0, 30.0, 90.0, 30.0, 30.0], None),
            (&[7.0, 90.0, 30.0, 30.0, 30.0], Some(24.0)),
            // A limit that was lowered, and breaks of other kinds after it was known.
            (&[30.0, 30.0, 30.0, 15.0, 15.0, 15.0], Some(12.0)),
            (&[30.0, 30.0, 30.0, 4.0, 21.0], Some(24.0)),
            // A connection that is refused as soon as it stands is not dialled faster for it.
            (&[0.1, 0.1, 0.1], None),
            (&[3600.0, 3601.0, 3603.0], Some(2880.0)),
        ] {
            assert_eq!(
                after(ages).renewal(),
                renewal.map(Duration::from_secs_f64),
                "{ages:?}"
            );
        }
    }

    #[test]
    fn a_limit_is_news_once_and_forgotten_when_a_line_outlives_it() {
        let mut ages = after(&[30.0, 30.0]);
        let secs = Duration::from_secs;
        assert!(ages.broke(secs(30)));
        assert!(!ages.broke(secs(29)));
        assert_eq!(ages.cap(), Some(secs(29)));
        // Drained lines end when they are empty, or at the limit.
        assert!(!ages.lived(secs(24)));
        assert!(!ages.lived(secs(33)));
        assert_eq!(ages.renewal(), Some(secs(29).mul_f64(0.8)));
        assert!(ages.lived(secs(34)));
        assert_eq!(ages, Ages::default());
        assert!(!ages.lived(secs(3600)));
    }
}
