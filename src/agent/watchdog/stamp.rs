//! When something was written, by the wall clock and by the one of the node since it booted, which nobody sets: together they tell
//! an agent that is started again by how much the wall clock was set meanwhile. Pure.
//!
//! Only where the node is the same and did not boot since; else a wall clock that is ahead cannot be told from time that went by.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::clock::{Boot, parse_rfc3339, rfc3339};

/// Less than this is a clock that is kept right, not one that was set.
const TOLD: Duration = Duration::seconds(2);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stamp {
    /// RFC 3339.
    at: String,
    boot: String,
    /// Since the node booted.
    up_millis: u64,
}

impl Stamp {
    pub(super) fn of(now: OffsetDateTime, boot: &Boot) -> Self {
        Self {
            at: rfc3339(now),
            boot: boot.id.clone(),
            up_millis: millis(boot),
        }
    }

    /// Whether it was written in this boot of the node.
    pub(super) fn is_of(&self, boot: &Boot) -> bool {
        self.boot == boot.id && self.up_millis <= millis(boot)
    }

    /// By how much the wall clock was set since then, where that can be known; it shows `now`.
    pub(super) fn set_since(&self, now: OffsetDateTime, boot: &Boot) -> Duration {
        let passed = millis(boot).checked_sub(self.up_millis);
        let passed = passed.filter(|_| self.boot == boot.id);
        let passed = passed.and_then(|millis| i64::try_from(millis).ok());
        let Some((at, passed)) = parse_rfc3339(&self.at).zip(passed) else {
            return Duration::ZERO;
        };
        let by = now - at.saturating_add(Duration::milliseconds(passed));
        if by.abs() <= TOLD { Duration::ZERO } else { by }
    }
}

fn millis(boot: &Boot) -> u64 {
    u64::try_from(boot.up.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_clock_that_was_set_is_told_from_time_that_went_by_on_the_same_boot() {
        let then = datetime!(2026-01-02 12:00:00 UTC);
        let boot = |id: &str, up: u64| Boot {
            id: id.to_owned(),
            up: std::time::Duration::from_secs(up),
        };
        let stamp = Stamp::of(then, &boot("a", 1_000));
        let text = serde_json::to_string(&stamp).unwrap();
        let stamp: Stamp = serde_json::from_str(&text).unwrap();
        for (shows, id, up, by) in [
            (10, "a", 1_010, 0),
            (11, "a", 1_010, 0),
            (7_200, "a", 8_200, 0),
            (7_210, "a", 1_010, 7_200),
            (-7_190, "a", 1_010, -7_200),
            // Another node, or another boot of this one.
            (7_210, "b", 1_010, 0),
            (7_210, "a", 10, 0),
        ] {
            let now = then + Duration::seconds(shows);
            let is_of = id == "a" && up > 10;
            assert_eq!(stamp.is_of(&boot(id, up)), is_of, "{id} {up}");
            let set = stamp.set_since(now, &boot(id, up));
            assert_eq!(set, Duration::seconds(by), "{shows} {id} {up}");
        }
        let garbled = Stamp {
            at: "yesterday".to_owned(),
            ..stamp
        };
        assert_eq!(garbled.set_since(then, &boot("a", 1_010)), Duration::ZERO);
    }
}
