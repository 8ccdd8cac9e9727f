//! When takeovers of a cluster's line mean that two agents have its keys (L41). Pure: time is an argument.
//!
//! What counts is a line that another process took while the one before still answered, and did not say goodbye. An agent that
//! is restarted, rolled out or evicted drains its line first; one that dies without a word does not answer.

use std::collections::VecDeque;

use time::{Duration, OffsetDateTime};

/// So many takeovers ...
pub const MANY: usize = 3;
/// ... in this time are no accident, and after as long without one they are over.
pub const WITHIN: Duration = Duration::minutes(10);
/// The agent that lost its line leaves it to the other one for this long.
pub const WAIT: std::time::Duration = std::time::Duration::from_secs(30);

/// A process of a cluster's agent, and where it dialled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// UUID of the process.
    pub instance: String,
    /// Its address and port, as the hub saw them.
    pub remote: String,
}

/// A line that changed hands while its holder answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    pub at: OffsetDateTime,
    pub from: Holder,
    pub to: Holder,
}

/// The last takeovers of one cluster's line, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Takeovers(VecDeque<Takeover>);

impl Takeovers {
    pub fn add(&mut self, takeover: Takeover) {
        self.0.push_back(takeover);
        while self.0.len() > MANY {
            self.0.pop_front();
        }
    }

    /// The takeovers that make a duplicate agent of this moment, oldest first. What was seen up to `known` does not count: a
    /// person knows of it.
    pub fn duplicate(
        &self,
        now: OffsetDateTime,
        known: Option<OffsetDateTime>,
    ) -> Option<Vec<Takeover>> {
        let news = |takeover: &&Takeover| known < Some(takeover.at) && is_recent(now, takeover);
        let counted: Vec<Takeover> = self.0.iter().filter(news).cloned().collect();
        (counted.len() >= MANY).then_some(counted)
    }

    /// How long whoever loses the line now is to wait: with this one they may be many.
    pub fn wait(&self, now: OffsetDateTime) -> std::time::Duration {
        let recent = self.0.iter().filter(|t| is_recent(now, t)).count();
        if recent + 1 >= MANY {
            WAIT
        } else {
            std::time::Duration::ZERO
        }
    }
}

fn is_recent(now: OffsetDateTime, takeover: &Takeover) -> bool {
    now - takeover.at < WITHIN
}

#[cfg(test)]
pub(super) mod tests {
    use time::macros::datetime;

    use super::*;

    pub(in crate::hub::twin) const NOON: OffsetDateTime = datetime!(2026-01-01 12:00 UTC);

    pub(in crate::hub::twin) fn holder(name: &str) -> Holder {
        Holder {
            instance: name.to_owned(),
            remote: format!("10.0.0.1:{name}"),
        }
    }

    /// `b` took the line from `a` so many seconds after noon.
    pub(in crate::hub::twin) fn taken(seconds: i64) -> Takeover {
        Takeover {
            at: NOON + Duration::seconds(seconds),
            from: holder("a"),
            to: holder("b"),
        }
    }

    fn seen(at: &[i64]) -> Takeovers {
        let mut takeovers = Takeovers::default();
        for at in at {
            takeovers.add(taken(*at));
        }
        takeovers
    }

    fn at(seconds: i64) -> OffsetDateTime {
        NOON + Duration::seconds(seconds)
    }

    /// L41: three within ten minutes, wherever those begin.
    #[test]
    fn three_takeovers_within_ten_minutes_are_a_duplicate() {
        for (taken_at, now, counted) in [
            (&[][..], 0, &[][..]),
            (&[0, 40], 80, &[]),
            (&[0, 40, 80], 80, &[0, 40, 80]),
            (&[0, 300, 599], 599, &[0, 300, 599]),
            (&[0, 300, 600], 600, &[]),
            (&[0, 300, 600, 700], 700, &[300, 600, 700]),
            (&[0, 1, 2, 3, 4], 4, &[2, 3, 4]),
            (&[0, 40, 80], 680, &[]),
        ] {
            let counted: Vec<Takeover> = counted.iter().copied().map(taken).collect();
            let expected = Some(counted).filter(|counted| !counted.is_empty());
            let found = seen(taken_at).duplicate(at(now), None);
            assert_eq!(found, expected, "{taken_at:?}");
        }
    }

    #[test]
    fn what_somebody_knows_of_does_not_count_again() {
        let takeovers = seen(&[0, 40, 80]);
        assert_eq!(takeovers.duplicate(at(80), Some(at(0))), None);
        let newer = at(-1);
        let found = takeovers.duplicate(at(80), Some(newer));
        assert_eq!(found.map(|found| found.len()), Some(3));
    }

    /// L41: the third one's loser waits already, and none of those that are far apart does.
    #[test]
    fn the_loser_of_the_third_takeover_waits() {
        for (taken_at, now, wait) in [
            (&[][..], 0, 0),
            (&[0], 40, 0),
            (&[0, 40], 80, 30),
            (&[0, 40, 80], 120, 30),
            (&[0, 40], 640, 0),
            (&[0, 40, 80], 679, 0),
            (&[0, 40, 80], 639, 30),
        ] {
            let found = seen(taken_at).wait(at(now));
            assert_eq!(found.as_secs(), wait, "{taken_at:?} at {now}");
        }
    }

    /// An agent with the key can dial as often as it likes.
    #[test]
    fn no_more_is_kept_than_counts() {
        let mut takeovers = Takeovers::default();
        (0..10_000).for_each(|n| takeovers.add(taken(n)));
        assert_eq!(takeovers, seen(&[9_997, 9_998, 9_999]));
    }
}
