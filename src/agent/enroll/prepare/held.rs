//! What preparing has reached, and when it looks again.

use std::time::Duration;

use tokio::time::Instant;

use super::{RETRY, STORED};
use crate::agent::Engine;
use crate::agent::enroll::hostkeys::HostKeySeen;
use crate::wire::api::{EngineKind, HostKeysReport, Via};

/// A new line is followed by a probe within this time.
const NEW_LINE: Duration = Duration::from_secs(10);

/// After a look that came to nothing, and after the last of so many in a row. Of a Git host that is away for long a whole fleet
/// would ask more than it can answer when it is back.
const SOON: Duration = Duration::from_secs(5);
const LATER: Duration = Duration::from_secs(30);
const NEWS: u32 = 24;

/// What is due, and what was reached.
pub(super) struct Held {
    pub(super) engine: Option<(EngineKind, Engine)>,
    /// What was said last of an engine that is to take another one's place.
    pub(super) replacing: Option<String>,
    /// Whether the bundle in force is the one that the hub wants.
    pub(super) current: bool,
    pub(super) bundle_due: Instant,
    pub(super) bundle_attempt: u32,
    pub(super) stored_due: Instant,
    /// How often in a row it could not be read or written.
    pub(super) stored_attempt: u32,
    pub(super) probe_due: Instant,
    /// The Git path that was looked at last: [`Held::probe_due`] is about that one.
    pub(super) looked: String,
    /// Looks at it in a row that came to nothing.
    pub(super) failures: u32,
    /// The epoch of the line that was up while one probe after the other found no route, and how many did.
    pub(super) no_route: Option<(u64, u32)>,
    /// Looks in a row at which the Git host did not take the deploy key.
    pub(super) refusals: u32,
    /// Whether that was told of, or nobody could.
    pub(super) told_refusal: bool,
    pub(super) host_key: HostKeySeen,
    /// Whether the engine said last that it met another key.
    pub(super) heard_other: bool,
    pub(super) told: Option<HostKeysReport>,
    /// The epoch of the newest line that was seen.
    pub(super) epoch: Option<u64>,
}

impl Held {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            engine: None,
            replacing: None,
            current: false,
            bundle_due: now,
            bundle_attempt: 0,
            stored_due: now + STORED,
            stored_attempt: 0,
            probe_due: now,
            looked: String::new(),
            failures: 0,
            no_route: None,
            refusals: 0,
            told_refusal: false,
            host_key: HostKeySeen::default(),
            heard_other: false,
            told: None,
            epoch: None,
        }
    }

    pub(super) fn due(&self) -> Instant {
        let bundle = if self.current {
            self.stored_due
        } else {
            self.bundle_due
        };
        self.probe_due.min(bundle)
    }

    /// Whether the bundle is stored now. Where it is not, an agent that starts without the hub would heal nothing.
    pub(super) fn looked_at_stored(&mut self, stored: bool, unit: f64, now: Instant) {
        let wait = if stored {
            self.stored_attempt = 0;
            STORED
        } else {
            let wait = RETRY.full_jitter(self.stored_attempt, unit);
            self.stored_attempt = self.stored_attempt.saturating_add(1);
            wait
        };
        self.stored_due = now + wait;
    }

    /// A line of this epoch is up. Where Git goes over it, its first one is what a look has waited for. After that, a hub that was
    /// started anew may serve Git with another host key: its agents look, but not all in one moment.
    pub(super) fn line_came(&mut self, epoch: u64, via: Via, unit: f64, now: Instant) {
        let before = self.epoch.replace(epoch);
        let soon = match (before, via) {
            (None, Via::Line) => now,
            (Some(before), _) if before != epoch => now + NEW_LINE.mul_f64(unit),
            (None, Via::Direct) | (Some(_), _) => return,
        };
        self.probe_due = self.probe_due.min(soon);
    }

    /// The hub says something new, such as that the key is registered: a look may come to more than those before it.
    pub(super) fn heard(&mut self, now: Instant) {
        self.failures = 0;
        (self.probe_due, self.bundle_due) = (now, now);
    }

    /// Whether the Git host refused the key at this look. After so many in a row the hub is asked: a first one is followed by others as
    /// soon as any news.
    pub(super) fn was_refused(&mut self, refused: bool) {
        self.refusals = if refused {
            self.refusals.saturating_add(1)
        } else {
            0
        };
        if self.refusals == 1 {
            self.failures = 0;
        }
    }

    /// This Git path is looked at now.
    pub(super) fn looks_at(&mut self, path: &str) {
        if self.looked != path {
            path.clone_into(&mut self.looked);
            self.failures = 0;
        }
    }

    /// The look came to nothing; `unit` is a random number in 0..1.
    pub(super) fn came_to_nothing(&mut self, unit: f64, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let wait = if self.failures < NEWS {
            SOON
        } else {
            LATER.mul_f64(0.5 + unit / 2.0)
        };
        self.probe_due = now + wait;
    }

    /// Whether the Git path is to be looked at now. That it is another than last time is read off the path, not off
    /// what woke the loop: a change of the keys that comes with another event is seen without a wake-up of its own.
    pub(super) fn must_look(&self, path: &str, now: Instant) -> bool {
        self.looked != path || self.probe_due <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::enroll::prepare::probe::PROBE_AGAIN;

    /// W42: a deploy key promoted while the loop was woken by something else waited for the next routine look, minutes
    /// later, before the engine got it.
    #[test]
    fn another_git_path_is_looked_at_at_once_whatever_woke_the_loop() {
        let now = Instant::now();
        let mut held = Held::new(now);
        assert!(held.must_look("old", now));
        held.looked = "old".to_owned();
        held.probe_due = now + PROBE_AGAIN;
        assert!(!held.must_look("old", now));
        assert!(held.must_look("new", now));
        assert!(held.must_look("old", now + PROBE_AGAIN));
    }

    /// W14: ten thousand clusters that look every 5 s are 2,000 logins a second, which keep a host away that was about to come back.
    #[test]
    fn a_git_host_that_stays_away_is_looked_at_less_often() {
        let now = Instant::now();
        let mut held = Held::new(now);
        let fails = |held: &mut Held, unit| {
            held.came_to_nothing(unit, now);
            (held.probe_due - now).as_secs()
        };
        held.looks_at("a");
        for _ in 1..NEWS {
            assert_eq!(fails(&mut held, 0.5), 5);
        }
        held.looks_at("a");
        assert_eq!([0.0, 1.0].map(|unit| fails(&mut held, unit)), [15, 30]);
        held.looks_at("b");
        assert_eq!(fails(&mut held, 0.5), 5);
    }

    /// W13, H9: who was away and is back may refuse the key, of which the hub hears after the next look; and a key that it has registered
    /// since may be taken a moment later.
    #[test]
    fn a_first_refusal_and_what_the_hub_says_are_news() {
        let now = Instant::now();
        let mut held = Held::new(now);
        let next = |held: &mut Held| {
            held.came_to_nothing(0.0, now);
            (held.probe_due - now).as_secs()
        };
        for (refused, wait) in [(true, 5), (true, 15), (false, 15), (true, 5)] {
            held.failures = NEWS;
            held.was_refused(refused);
            assert_eq!(next(&mut held), wait, "{refused}");
        }
        held.failures = NEWS;
        held.heard(now);
        assert_eq!((held.probe_due, held.bundle_due), (now, now));
        assert_eq!(next(&mut held), 5);
    }

    /// W5: a restart without the hub in those ten minutes had no bundle.
    #[test]
    fn a_bundle_that_could_not_be_stored_is_stored_soon_and_not_ten_minutes_later() {
        let now = Instant::now();
        let mut held = Held::new(now);
        held.current = true;
        held.probe_due = now + STORED * 2;
        let mut waits = Vec::new();
        for stored in [
            true, false, false, false, false, false, false, false, true, false,
        ] {
            held.looked_at_stored(stored, 1.0, now);
            waits.push((held.due() - now).as_secs());
        }
        assert_eq!(waits, [600, 1, 2, 4, 8, 16, 30, 30, 600, 1]);
    }

    /// L51: the first look over the line came before the line did, and the next one 5 s after it.
    #[test]
    fn git_over_the_line_is_looked_at_when_the_first_line_is_up() {
        let now = Instant::now();
        let later = now + PROBE_AGAIN;
        let due = |before: Option<u64>, via| {
            let mut held = Held::new(now);
            (held.epoch, held.probe_due) = (before, later);
            held.line_came(7, via, 0.5, now);
            assert_eq!(held.epoch, Some(7));
            held.probe_due
        };
        assert_eq!(due(None, Via::Line), now);
        assert_eq!(due(None, Via::Direct), later);
        for via in [Via::Line, Via::Direct] {
            assert_eq!(due(Some(6), via), now + NEW_LINE / 2);
            assert_eq!(due(Some(7), via), later);
        }
    }
}
