//! Which names the role holds. All groups first, for every request needs some, and then users, as many as there is room for: one who
//! comes and is not among them takes the place of who was not here for longest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::role::Form;
use super::{CHECK, CLUSTER_ROLE, Name, Subjects};
use crate::agent::gate::well_named;

/// How long a name stays that no grant gives and nobody uses.
pub(super) const UNUSED: Duration = Duration::from_hours(24);
/// A name that came within this time is not pushed out: each change is a write of the role.
pub(super) const BUSY: Duration = Duration::from_mins(1);
/// How soon the API server is asked again which form it takes where it did not say; doubled each time.
pub(super) const SOON: Duration = Duration::from_mins(1);
/// Names in the role; it is one object in etcd.
pub(super) const MOST: usize = 2_000;

/// What is known of the role and its names.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// The names of the role, and when each was last asked for; `None` = not yet.
    pub(super) names: BTreeMap<Name, Option<Instant>>,
    /// All names that grants give and the order in which they go in; more than the role holds, maybe.
    pub(super) given: BTreeMap<Name, usize>,
    /// What the role holds as far as we know.
    pub(super) written: Option<BTreeSet<Name>>,
    /// The form that the role has; `None` = to be found out.
    pub(super) form: Option<Form>,
    /// The API server's version that was seen to take constrained impersonation.
    pub(super) found_on: Option<String>,
    /// When the API server was last asked which form it takes, and whether it is to be asked again.
    pub(super) asked: Option<Instant>,
    pub(super) stale: bool,
    /// How often in a row it did not say.
    pub(super) undecided: u32,
    /// The hub has said which names grants give.
    pub(super) granted: bool,
}

impl Book {
    /// The grants, all of them: what they no longer give goes at once.
    pub(super) fn grant(&mut self, granted: &Subjects) {
        let full = |name: &String| format!("linesman:{name}");
        let users = granted.users.iter().map(|name| Name::User(full(name)));
        let groups = granted.groups.iter().map(|name| Name::Group(full(name)));
        let mut given = BTreeMap::new();
        for name in groups
            .chain(users)
            .filter(|name| well_named(name.parts().1))
        {
            let place = given.len();
            given.entry(name).or_insert(place);
        }
        let before = std::mem::replace(&mut self.given, given);
        let given = &self.given;
        self.names.retain(|name, used| {
            given.contains_key(name) || (!before.contains_key(name) && used.is_some())
        });
        for name in given.keys() {
            self.names.entry(name.clone()).or_insert(None);
        }
        let over = self.names.len().saturating_sub(MOST);
        for name in self.least(|_, _| true, over) {
            self.names.remove(&name);
        }
    }

    pub(super) fn used(&mut self, wanted: &BTreeSet<Name>, now: Instant) -> Result<(), String> {
        for name in wanted {
            if !well_named(name.parts().1) {
                return Err(format!("'{}' is not a name of the line", name.parts().1));
            }
        }
        let new = wanted.iter().filter(|name| !self.names.contains_key(name));
        let over = (self.names.len() + new.count()).saturating_sub(MOST);
        let idle = |used: Option<Instant>| used.is_none_or(|at| now.duration_since(at) >= BUSY);
        let out = self.least(|name, used| idle(used) && !wanted.contains(name), over);
        if out.len() < over {
            return Err(format!(
                "{CLUSTER_ROLE} is full with {MOST} names that are all in use; grant fewer groups"
            ));
        }
        for name in out {
            self.names.remove(&name);
        }
        for name in wanted {
            self.names.insert(name.clone(), Some(now));
        }
        Ok(())
    }

    /// So many of these names as are needed least: users before groups, who was not here for longest, and at last the order of the
    /// grants from its end.
    fn least(&self, of: impl Fn(&Name, Option<Instant>) -> bool, count: usize) -> Vec<Name> {
        if count == 0 {
            return Vec::new();
        }
        let mut names: Vec<_> = self
            .names
            .iter()
            .filter(|(name, used)| of(name, **used))
            .map(|(name, used)| {
                let place = self.given.get(name).copied().unwrap_or(usize::MAX);
                (matches!(name, Name::Group(_)), *used, Reverse(place), name)
            })
            .collect();
        names.sort_unstable();
        names.truncate(count);
        names.into_iter().map(|(.., name)| name.clone()).collect()
    }

    /// When everything is looked at again.
    pub(super) fn wait(&self) -> Duration {
        match self.undecided.checked_sub(1) {
            None => CHECK,
            Some(times) => CHECK.min(SOON * 2_u32.saturating_pow(times.min(10))),
        }
    }

    pub(super) fn prune(&mut self, now: Instant) {
        let given = &self.given;
        self.names.retain(|name, used| {
            given.contains_key(name) || used.is_none_or(|at| now.duration_since(at) < UNUSED)
        });
    }
}
