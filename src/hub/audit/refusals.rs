//! Refusals of callers that nobody knows. Whoever reaches the hub can bring one about at any time, so each is not a
//! record of its own: the first of its kind is, at once, and from then on there is one a minute that says how many came
//! since. All that is kept for it is bounded, and what does not fit is counted in one record for all.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Entry, Verdict};
use crate::address;
use crate::hub::cut;

/// Between two records of the same refusal; one that stays away for so long is forgotten.
const EVERY: Duration = Duration::from_mins(1);
/// Refusals that are told apart, of all addresses and of one.
const MOST: usize = 256;
const OF_ONE: usize = 32;
/// Records at once, and how long one more takes to be earned: a flood of whatever width stays below 43,200 a day.
const AT_ONCE: u32 = 600;
const EARNED: Duration = Duration::from_secs(2);
/// Of a text that is kept.
const MAX_TEXT: usize = 256;

/// What makes a refusal the same as another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    from: String,
    action: String,
    cluster: Option<String>,
    target: String,
    reason: Option<String>,
}

#[derive(Debug)]
struct Seen {
    last: Entry,
    /// That are in no record yet.
    untold: u64,
    since: Instant,
}

/// All that came lately.
#[derive(Debug)]
pub(super) struct Refusals {
    kinds: HashMap<Kind, Seen>,
    /// What is not told apart and in no record yet.
    beyond: u64,
    beyond_since: Instant,
    records: u32,
    earned: Instant,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kinds: HashMap::new(),
            beyond: 0,
            beyond_since: now,
            records: AT_ONCE,
            earned: now,
        }
    }

    /// Takes one in; gives it back where it is to be recorded now.
    pub(super) fn note(&mut self, entry: Entry, now: Instant) -> Option<Entry> {
        let kind = Kind::of(&entry);
        if let Some(seen) = self.kinds.get_mut(&kind) {
            seen.untold += 1;
            seen.last = kept(entry);
            return None;
        }
        let full = self.kinds.len() >= MOST || {
            let same = self.kinds.keys().filter(|other| other.from == kind.from);
            same.count() >= OF_ONE
        };
        if full || !self.spend(now) {
            self.beyond += 1;
            return None;
        }
        let seen = Seen {
            last: kept(entry.clone()),
            untold: 0,
            since: now,
        };
        self.kinds.insert(kind, seen);
        Some(entry)
    }

    /// The records that are due; with `all`, what is left at the end.
    pub(super) fn due(&mut self, now: Instant, all: bool) -> Vec<Entry> {
        let over = |since: Instant| all || now.duration_since(since) >= EVERY;
        let mut due = Vec::new();
        let mut kinds = std::mem::take(&mut self.kinds);
        kinds.retain(|_, seen| {
            if !over(seen.since) {
                return true;
            }
            let untold = std::mem::take(&mut seen.untold);
            if untold > 0 && (all || self.spend(now)) {
                due.push(told(&seen.last, untold));
            } else {
                self.beyond += untold;
            }
            seen.since = now;
            untold > 0 && !all
        });
        self.kinds = kinds;
        // In the order in which they are told apart, whatever the table's is.
        due.sort_by(|a, b| (&a.remote, &a.target).cmp(&(&b.remote, &b.target)));
        if over(self.beyond_since) {
            let beyond = std::mem::take(&mut self.beyond);
            self.beyond_since = now;
            due.extend((beyond > 0).then(|| uncounted(beyond)));
        }
        due
    }

    /// Whether one more record is earned.
    fn spend(&mut self, now: Instant) -> bool {
        let more = now.duration_since(self.earned).as_secs() / EARNED.as_secs();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.records = self.records.saturating_add(more).min(AT_ONCE);
            self.earned += EARNED.saturating_mul(more);
        }
        let some = self.records > 0;
        self.records -= u32::from(some);
        some
    }
}

impl Kind {
    fn of(entry: &Entry) -> Self {
        let text = |text: &str| cut(text, MAX_TEXT).to_owned();
        Self {
            from: address::of(cut(&entry.remote, MAX_TEXT)),
            action: text(&entry.action),
            cluster: entry.cluster.as_deref().map(text),
            target: text(&entry.target),
            reason: entry.reason.as_deref().map(text),
        }
    }
}

/// With no text that is longer than what is kept of it.
fn kept(entry: Entry) -> Entry {
    let text = |text: String| match text.len() {
        0..=MAX_TEXT => text,
        _ => cut(&text, MAX_TEXT).to_owned(),
    };
    let Entry {
        actor,
        action,
        acted_as,
        cluster,
        target,
        request_id,
        verdict,
        reason,
        remote,
    } = entry;
    Entry {
        actor: text(actor),
        action: text(action),
        acted_as: acted_as.map(text),
        cluster: cluster.map(text),
        target: text(target),
        request_id: text(request_id),
        verdict,
        reason: reason.map(text),
        remote: text(remote),
    }
}

fn told(last: &Entry, untold: u64) -> Entry {
    let reason = last.reason.as_deref().unwrap_or("refused");
    Entry {
        reason: Some(format!(
            "{reason} ({untold} times since the record before; this is the last)"
        )),
        ..last.clone()
    }
}

fn uncounted(beyond: u64) -> Entry {
    Entry {
        actor: "anyone".to_owned(),
        action: "refusals".to_owned(),
        verdict: Verdict::Deny,
        reason: Some(format!(
            "{beyond} refusals of callers that nobody knows were too many to be told apart; the hub's log has each"
        )),
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests;
