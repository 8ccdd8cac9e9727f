//! Whether a batch waits for company. What a commit costs, it costs once, however many records are in it: in SQLite as much as
//! some five of them, and the way to its thread and back.

use std::time::Duration;

use tokio::time::Instant;

/// Requests that began longer ago say nothing of how many come: they are watches and sessions.
const WINDOW: Duration = Duration::from_millis(50);
/// So many that began lately and still run come of several users, or of a program that does not wait for its answers: nobody who
/// asks one thing after the other waits for others.
const CROWD: usize = 8;

/// How many requests run that began lately.
pub(super) struct Pace {
    since: Instant,
    /// Of the present window and the one before.
    windows: [Window; 2],
}

/// Requests whose records stand behind `after`, as far as they run.
#[derive(Clone, Copy)]
struct Window {
    after: i64,
    running: usize,
}

impl Pace {
    pub(super) fn new(now: Instant, head: i64) -> Self {
        let none = Window {
            after: head,
            running: 0,
        };
        Self {
            since: now,
            windows: [none; 2],
        }
    }

    /// A request goes on, with its record stored.
    pub(super) fn opened(&mut self) {
        self.windows[0].running += 1;
    }

    /// The request with this record has ended.
    pub(super) fn closed(&mut self, opened: i64) {
        let window = self.windows.iter_mut().find(|w| opened > w.after);
        if let Some(window) = window {
            window.running = window.running.saturating_sub(1);
        }
    }

    /// Whether the records of `more` requests wait for others. `head` is the number of the last record.
    pub(super) fn waits(&mut self, more: usize, (now, head): (Instant, i64)) -> bool {
        let passed = now.saturating_duration_since(self.since);
        if passed >= WINDOW * 2 {
            *self = Self::new(now, head);
        } else if passed >= WINDOW {
            self.since = now;
            self.windows[1] = self.windows[0];
            self.windows[0] = Window {
                after: head,
                running: 0,
            };
        }
        let [present, before] = self.windows;
        // A batch that is large already has its company.
        (1..CROWD).contains(&more) && more + present.running + before.running >= CROWD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Whether records wait, in each of a number of rounds a millisecond apart, where so many requests run at once; each of them
    /// takes a round. Records are numbered as opens and closes come.
    fn rounds(pace: &mut Pace, at: &mut (Instant, i64), together: usize) -> Vec<bool> {
        let mut running: Vec<i64> = Vec::new();
        let mut waited = Vec::new();
        for _ in 0..200 {
            at.0 += MILLISECOND;
            // One ends and the next one begins.
            if running.len() == together {
                at.1 += 1;
                pace.closed(running.remove(0));
            }
            waited.push(pace.waits(1, *at));
            at.1 += 1;
            running.push(at.1);
            pace.opened();
        }
        for opened in running {
            pace.closed(opened);
        }
        waited
    }

    /// L52
    #[test]
    fn records_wait_for_company_while_many_requests_run_and_never_for_one_user() {
        let mut at = (Instant::now(), 7);
        let mut pace = Pace::new(at.0, at.1);
        assert!(rounds(&mut pace, &mut at, 1).iter().all(|waits| !waits));
        let many = rounds(&mut pace, &mut at, 32);
        assert!(
            !many[0] && many[20..].iter().all(|waits| *waits),
            "{many:?}"
        );
        assert!(rounds(&mut pace, &mut at, 2).iter().all(|waits| !waits));
    }

    /// L52: what stays open is no crowd.
    #[test]
    fn watches_that_were_opened_before_keep_nobody_waiting() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 0);
        (0..200).for_each(|_| pace.opened());
        assert!(pace.waits(1, (start, 200)));
        let mut at = (start + WINDOW * 3, 200);
        assert!(!pace.waits(1, at));
        assert!(rounds(&mut pace, &mut at, 1).iter().all(|waits| !waits));
    }

    #[test]
    fn a_batch_that_is_large_goes_at_once() {
        let now = Instant::now();
        assert!(!Pace::new(now, 0).waits(CROWD, (now, 0)));
        assert!(!Pace::new(now, 0).waits(CROWD - 1, (now, 0)));
    }
}
