//! Refusals of callers that nobody knows. Whoever reaches the hub can bring one about at any time, so each is not a
//! record of its own: the first of its kind is, at once, and from then on there is one a minute that says how many came
//! since. All that is kept for it is bounded, and what does not fit is counted in one record for all.
//!
//! Those of a user who is known are a record each: that is somebody to ask. Only a flood of them is counted, in the same way
//! and for each user alone: by their number, retention would else take what others did.

use std::collections::{BTreeMap, HashMap};
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
/// A user's refusals are a record each while more than these are left: what is the first of its kind in a flood has some.
const RESERVE: u32 = AT_ONCE / 2;
/// Users who are looked at, each alone, all at once; those beyond are counted together.
const USERS: usize = 4_096;
/// Of a text that is kept.
const MAX_TEXT: usize = 256;

/// Refusals of all callers that came lately: of those that nobody knows, and of each user.
#[derive(Debug)]
pub(super) struct Counted {
    unknown: Refusals,
    /// By the actor that records name.
    users: BTreeMap<String, Refusals>,
    /// Of users beyond [`USERS`].
    others: Refusals,
}

impl Counted {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            unknown: Refusals::new(Whose::Unknown, now),
            users: BTreeMap::new(),
            others: Refusals::new(Whose::Others, now),
        }
    }

    /// Takes one in of somebody whom nobody knows; gives it back where it is to be recorded now.
    pub(super) fn unknown(&mut self, entry: Entry, now: Instant) -> Option<Entry> {
        self.unknown.note(entry, now)
    }

    /// The same of a user, who is the entry's actor.
    pub(super) fn user(&mut self, entry: Entry, now: Instant) -> Option<Entry> {
        let actor = cut(&entry.actor, MAX_TEXT).to_owned();
        if self.users.len() >= USERS && !self.users.contains_key(&actor) {
            return self.others.note(entry, now);
        }
        let of_user = self.users.entry(actor);
        let refusals = of_user.or_insert_with_key(|actor| {
            let whose = Whose::User(actor.clone());
            Refusals::new(whose, now)
        });
        refusals.note(entry, now)
    }

    /// The records that are due; with `all`, what is left at the end.
    pub(super) fn due(&mut self, now: Instant, all: bool) -> Vec<Entry> {
        let mut due = self.unknown.due(now, all);
        due.extend(self.others.due(now, all));
        for refusals in self.users.values_mut() {
            due.extend(refusals.due(now, all));
        }
        self.users.retain(|_, refusals| !refusals.is_over(now));
        due
    }
}

/// Whose refusals are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Whose {
    /// Of all whom nobody knows: an address is what is known of them.
    Unknown,
    /// Of this actor.
    User(String),
    /// Of users for whom alone there is no room.
    Others,
}

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

/// All that came lately of somebody.
#[derive(Debug)]
struct Refusals {
    whose: Whose,
    kinds: HashMap<Kind, Seen>,
    /// What is not told apart and in no record yet.
    beyond: u64,
    beyond_since: Instant,
    records: u32,
    earned: Instant,
}

impl Refusals {
    fn new(whose: Whose, now: Instant) -> Self {
        Self {
            whose,
            kinds: HashMap::new(),
            beyond: 0,
            beyond_since: now,
            records: AT_ONCE,
            earned: now,
        }
    }

    /// Takes one in; gives it back where it is to be recorded now.
    fn note(&mut self, entry: Entry, now: Instant) -> Option<Entry> {
        let kind = Kind::of(&entry, &self.whose);
        if let Some(seen) = self.kinds.get_mut(&kind) {
            seen.untold += 1;
            seen.last = kept(entry);
            return None;
        }
        self.earn(now);
        if self.has_plenty() {
            self.records -= 1;
            return Some(entry);
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
    fn due(&mut self, now: Instant, all: bool) -> Vec<Entry> {
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
            untold > 0 && !all && !self.has_plenty()
        });
        self.kinds = kinds;
        // In the order in which they are told apart, whatever the table's is.
        due.sort_by(|a, b| (&a.remote, &a.target).cmp(&(&b.remote, &b.target)));
        if over(self.beyond_since) {
            let beyond = std::mem::take(&mut self.beyond);
            self.beyond_since = now;
            due.extend((beyond > 0).then(|| uncounted(&self.whose, beyond)));
        }
        due
    }

    /// Whether a refusal has a record of its own whatever came before it: the flood of a user is over, or has not begun.
    fn has_plenty(&self) -> bool {
        match self.whose {
            Whose::Unknown | Whose::Others => false,
            Whose::User(_) => self.records > RESERVE,
        }
    }

    /// Whether it is as if nothing had come.
    fn is_over(&mut self, now: Instant) -> bool {
        self.earn(now);
        self.kinds.is_empty() && self.beyond == 0 && self.records == AT_ONCE
    }

    fn earn(&mut self, now: Instant) {
        let more = now.duration_since(self.earned).as_secs() / EARNED.as_secs();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.records = self.records.saturating_add(more).min(AT_ONCE);
            self.earned += EARNED.saturating_mul(more);
        }
    }

    /// Whether one more record is earned.
    fn spend(&mut self, now: Instant) -> bool {
        self.earn(now);
        let some = self.records > 0;
        self.records -= u32::from(some);
        some
    }
}

impl Kind {
    fn of(entry: &Entry, whose: &Whose) -> Self {
        let text = |text: &str| cut(text, MAX_TEXT).to_owned();
        let (from, target) = match whose {
            Whose::Unknown => (
                address::of(cut(&entry.remote, MAX_TEXT)),
                text(&entry.target),
            ),
            // Wherever they are, and whatever path they think of.
            Whose::User(_) => (String::new(), String::new()),
            Whose::Others => (text(&entry.actor), String::new()),
        };
        Self {
            from,
            action: text(&entry.action),
            cluster: entry.cluster.as_deref().map(text),
            target,
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
        container,
        command,
        ports,
        request_id,
        verdict,
        reason,
        code,
        remote,
    } = entry;
    Entry {
        actor: text(actor),
        action: text(action),
        acted_as: acted_as.map(text),
        cluster: cluster.map(text),
        target: text(target),
        container: container.map(text),
        command: command.map(text),
        ports: ports.map(text),
        request_id: text(request_id),
        verdict,
        reason: reason.map(text),
        code,
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

fn uncounted(whose: &Whose, beyond: u64) -> Entry {
    let (actor, reason) = match whose {
        Whose::Unknown => (
            "anyone",
            format!(
                "{beyond} refusals of callers that nobody knows were too many to be told apart; the hub's log has each"
            ),
        ),
        Whose::User(actor) => (
            actor.as_str(),
            format!("{beyond} refusals of this user were too many to be told apart"),
        ),
        Whose::Others => (
            "anyone",
            format!(
                "{beyond} refusals were too many to be told apart, of users beyond the {USERS} who were refused at the same time"
            ),
        ),
    };
    Entry {
        actor: actor.to_owned(),
        action: "refusals".to_owned(),
        verdict: Verdict::Deny,
        reason: Some(reason),
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests;
