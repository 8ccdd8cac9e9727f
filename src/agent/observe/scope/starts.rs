//! When a watch may be begun, and how it can go on after its end. Pure.

use std::time::Duration;

use kube::core::Status;
use tokio::time::Instant;

use crate::backoff::Schedule;

/// A watch that has told something or has lasted so long did work: the next one goes on at once.
const SOUND: Duration = Duration::from_secs(1);
/// Otherwise the server is left alone for a while, which is as short as an object that is gone meanwhile can wait.
const RESTART: Schedule = Schedule {
    floor: Duration::from_millis(200),
    first: Duration::from_millis(400),
    cap: Duration::from_secs(8),
};

/// How a watch ended, or why it did not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The API server ends them all after a while.
    Closed,
    /// The server has trouble, or the way to it; where the watch was is still good.
    Broken,
    /// What was asked for is not there: only a list can tell from where to go on.
    Lost,
}

impl End {
    /// Overload and errors of the server are about no one's place in a watch. All else is: a resourceVersion that is too old, or
    /// newer than all that the server has, a kind that went, a right that was taken.
    pub(super) fn of(status: &Status) -> Self {
        let ahead = status.message.contains("Too large resource version");
        match status.code {
            400..=499 if !matches!(status.code, 408 | 425 | 429) => Self::Lost,
            _ if ahead => Self::Lost,
            _ => Self::Broken,
        }
    }

    pub(super) fn of_error(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of(status),
            // The next watch would meet what cannot be read again.
            kube::Error::SerdeError(_) | kube::Error::LinesCodecMaxLineLengthExceeded => Self::Lost,
            _ => Self::Broken,
        }
    }
}

/// The pace of one scope's watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Starts {
    /// Of those in a row that came to nothing.
    vain: u32,
    /// When the present one was begun.
    begun: Option<Instant>,
    /// The next one is not begun before.
    pub(super) next: Instant,
}

impl Starts {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            vain: 0,
            begun: None,
            next: now,
        }
    }

    /// The API server began it.
    pub(super) fn begun(&mut self, now: Instant) {
        self.begun = Some(now);
    }

    /// It told something.
    pub(super) fn heard(&mut self) {
        self.vain = 0;
    }

    /// `unit` is a random number in 0..1.
    pub(super) fn over(&mut self, end: End, unit: f64, now: Instant) {
        let begun = self.begun.take();
        let sound = begun.is_some_and(|at| now.saturating_duration_since(at) >= SOUND);
        if sound {
            self.vain = 0;
        }
        if sound && end == End::Closed {
            self.next = now;
            return;
        }
        self.next = now + RESTART.full_jitter(self.vain, unit);
        self.vain = self.vain.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> Status {
        Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        }
    }

    #[test]
    fn only_what_is_about_the_place_in_the_watch_needs_a_list() {
        for (code, message, end) in [
            (410, "too old resource version: 1 (2)", End::Lost),
            (400, "invalid resource version", End::Lost),
            (403, "forbidden", End::Lost),
            (404, "not found", End::Lost),
            (504, "Timeout: Too large resource version: 9", End::Lost),
            (429, "too many requests", End::Broken),
            (500, "etcdserver: no leader", End::Broken),
            (503, "apiserver is shutting down", End::Broken),
            (504, "Timeout", End::Broken),
            (0, "", End::Broken),
        ] {
            assert_eq!(End::of(&status(code, message)), end, "{code} {message}");
        }
    }

    /// Milliseconds until the next start after each of these: how long the watch lasted, whether it told anything, its end.
    fn waits(all: &[(u64, bool, End)]) -> Vec<u128> {
        let mut now = Instant::now();
        let mut starts = Starts::new(now);
        let mut waits = Vec::new();
        for (lasted, told, end) in all {
            if *end != End::Broken || *told {
                starts.begun(now);
            }
            now += Duration::from_millis(*lasted);
            if *told {
                starts.heard();
            }
            starts.over(*end, 1.0, now);
            waits.push((starts.next - now).as_millis());
            now = starts.next;
        }
        waits
    }

    /// W5: the usual end costs nothing, what fails is asked for ever less often, and what told something begins at the bottom again.
    #[test]
    fn a_watch_that_comes_to_nothing_is_begun_ever_later_and_one_that_lasted_at_once() {
        let usual = (290_000, false, End::Closed);
        let fails = (0, false, End::Broken);
        assert_eq!(
            waits(&[
                usual, fails, fails, fails, fails, fails, fails, fails, usual, fails
            ]),
            [0, 400, 800, 1_600, 3_200, 6_400, 8_000, 8_000, 0, 400]
        );
        let at_once = (5, false, End::Closed);
        assert_eq!(waits(&[at_once; 3]), [400, 800, 1_600]);
        let after_a_word = (5, true, End::Closed);
        assert_eq!(waits(&[after_a_word; 3]), [400, 400, 400]);
        // An answer that comes late is still none; a connection that is lost later was one.
        assert_eq!(waits(&[(2_000, false, End::Broken); 3]), [400, 800, 1_600]);
        assert_eq!(waits(&[(2_000, true, End::Broken); 3]), [400; 3]);
        let lost = (0, false, End::Lost);
        assert_eq!(waits(&[lost; 3]), [400, 800, 1_600]);
        assert_eq!(waits(&[(1_000, false, End::Closed); 3]), [0, 0, 0]);
    }
}
