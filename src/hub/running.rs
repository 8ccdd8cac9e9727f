//! Kubernetes requests that run now, by what lets them: when a token, a user or a grant ends, so do they.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::clock;

/// What a request runs by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct By {
    pub user_id: String,
    pub token_id: String,
    /// The id of the cluster that it goes to; None = it is no request to one.
    pub cluster_id: Option<String>,
    /// The ids of the grants that cover it.
    pub grants: Vec<String>,
    /// When the first of them ends by itself.
    pub until: Option<OffsetDateTime>,
}

/// What was taken away.
#[derive(Debug, Clone, Copy)]
pub enum Gone<'a> {
    User(&'a str),
    Token(&'a str),
    /// `by`: the name of who revoked it; None = nobody by name: it went with its cluster.
    Grant {
        id: &'a str,
        by: Option<&'a str>,
    },
    /// Grants that one user does not have any more, though others may.
    Held {
        user: &'a str,
        grants: &'a [String],
    },
    /// Grants that a cluster is not among any more, though others are.
    Reach {
        cluster: &'a str,
        grants: &'a [String],
    },
}

impl Gone<'_> {
    fn ends(self, by: &By) -> bool {
        match self {
            Self::User(id) => by.user_id == id,
            Self::Token(id) => by.token_id == id,
            Self::Grant { id, .. } => by.grants.iter().any(|g| g == id),
            Self::Held { user, grants } => {
                by.user_id == user && by.grants.iter().any(|g| grants.contains(g))
            }
            Self::Reach { cluster, grants } => {
                by.cluster_id.as_deref() == Some(cluster)
                    && by.grants.iter().any(|g| grants.contains(g))
            }
        }
    }

    /// In words, for what ran by this.
    fn told(self, by: &By) -> String {
        let first = |grants: &[String]| {
            let mut own = by.grants.iter().filter(|id| grants.contains(id));
            own.next().cloned().unwrap_or_default()
        };
        match self {
            Self::User(_) => "the user was removed".to_owned(),
            Self::Token(_) => "the token or session was ended".to_owned(),
            Self::Grant { id, by: None } => format!("grant {id} was revoked"),
            Self::Grant { id, by: Some(who) } => format!("grant {id} was revoked by {who}"),
            Self::Held { grants, .. } => format!(
                "grant {} was revoked, or is not the user's any more",
                first(grants)
            ),
            Self::Reach { grants, .. } => format!(
                "grant {} does not take in the cluster any more",
                first(grants)
            ),
        }
    }

    fn kept(self) -> Kept {
        match self {
            Self::User(id) => Kept::User(id.to_owned()),
            Self::Token(id) => Kept::Token(id.to_owned()),
            Self::Grant { id, by } => Kept::Grant(id.to_owned(), by.map(str::to_owned)),
            Self::Held { user, grants } => Kept::Held(user.to_owned(), grants.to_vec()),
            Self::Reach { cluster, grants } => Kept::Reach(cluster.to_owned(), grants.to_vec()),
        }
    }
}

/// A moment among what was taken away: what a request was judged by was read after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    gone: u64,
    looks: u64,
}

/// What was taken away lately, for requests that were being judged meanwhile.
const RECENT: usize = 256;

/// All of them. Bounded by the places that a request needs before it comes here.
#[derive(Default)]
pub struct Requests {
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    next: u64,
    taken: HashMap<u64, Taken>,
    /// How much was taken away so far, and the last of it.
    gone: u64,
    recent: VecDeque<Kept>,
    /// How often all of them were looked at, and whether one came since that was judged before the last look.
    looks: u64,
    late: bool,
}

/// One of them.
struct Taken {
    by: By,
    over: CancellationToken,
    /// What was taken away, in words; None = nothing was.
    why: Option<String>,
}

impl Taken {
    /// The first word counts.
    fn end(&mut self, gone: Gone<'_>) {
        if self.why.is_none() {
            self.why = Some(gone.told(&self.by));
        }
        self.over.cancel();
    }
}

/// [`Gone`], to remember.
enum Kept {
    User(String),
    Token(String),
    Grant(String, Option<String>),
    Held(String, Vec<String>),
    Reach(String, Vec<String>),
}

impl Kept {
    fn gone(&self) -> Gone<'_> {
        match self {
            Self::User(id) => Gone::User(id),
            Self::Token(id) => Gone::Token(id),
            Self::Grant(id, by) => Gone::Grant {
                id,
                by: by.as_deref(),
            },
            Self::Held(user, grants) => Gone::Held { user, grants },
            Self::Reach(cluster, grants) => Gone::Reach { cluster, grants },
        }
    }
}

impl Seats {
    /// What it runs by that was taken away since, in words; or that it was so much that nobody remembers.
    fn lost(&self, by: &By, since: Moment) -> Option<String> {
        let missed = usize::try_from(self.gone - since.gone).unwrap_or(usize::MAX);
        if missed > self.recent.len() {
            return Some("too much was taken away at once to tell what".to_owned());
        }
        let mut missed = self.recent.iter().rev().take(missed).map(Kept::gone);
        let gone = missed.find(|gone| gone.ends(by))?;
        Some(gone.told(by))
    }
}

/// One of them, until it is dropped.
pub struct Seat {
    requests: Arc<Requests>,
    number: u64,
    over: CancellationToken,
    until: Option<OffsetDateTime>,
}

impl Requests {
    /// To be taken before user, token and grants are looked up.
    pub fn now(&self) -> Moment {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        Moment {
            gone: seats.gone,
            looks: seats.looks,
        }
    }

    /// What all of them run by now, each combination once, to be compared with the store.
    pub fn look(&self) -> Vec<By> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.looks += 1;
        seats.late = false;
        let mut known = HashSet::new();
        let taken = seats.taken.values().map(|taken| &taken.by);
        let each = taken
            .filter(|by| known.insert((&by.user_id, &by.token_id, &by.cluster_id, &by.grants)));
        each.cloned().collect()
    }

    /// Whether a request came since the last look that was judged by what was read before it: another look is due.
    pub fn late(&self) -> bool {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.late
    }

    /// A seat for a request that was judged by what was read since `judged`. What was taken away meanwhile ends
    /// it at once.
    pub fn enter(self: &Arc<Self>, by: By, judged: Moment) -> Seat {
        let over = CancellationToken::new();
        let until = by.until;
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let why = seats.lost(&by, judged);
        if why.is_some() {
            over.cancel();
        }
        seats.late |= judged.looks < seats.looks;
        seats.next += 1;
        let number = seats.next;
        let taken = Taken {
            by,
            over: over.clone(),
            why,
        };
        seats.taken.insert(number, taken);
        drop(seats);
        Seat {
            requests: self.clone(),
            number,
            over,
            until,
        }
    }

    /// The tokens and sessions that something runs by.
    pub fn tokens(&self) -> BTreeSet<String> {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = seats.taken.values();
        taken.map(|taken| taken.by.token_id.clone()).collect()
    }

    /// The users that something runs by.
    pub fn users(&self) -> BTreeSet<String> {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = seats.taken.values();
        taken.map(|taken| taken.by.user_id.clone()).collect()
    }

    /// Ends what ran by this; gives how many that are. To be called when the store has it.
    pub fn end(&self, gone: Gone<'_>) -> usize {
        // So many are remembered, and no more: what ends nothing must not take the place of what does.
        if let Gone::Held { grants, .. } | Gone::Reach { grants, .. } = gone
            && grants.is_empty()
        {
            return 0;
        }
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.gone += 1;
        if seats.recent.len() == RECENT {
            seats.recent.pop_front();
        }
        seats.recent.push_back(gone.kept());
        let taken = seats.taken.values_mut();
        let ended = taken.filter(|taken| gone.ends(&taken.by));
        ended.map(|taken| taken.end(gone)).count()
    }

    /// Ends what has run out by `now`; gives how many that are. Each does so by itself, by a clock that goes on evenly: where the hub's own
    /// was set forward, or stood still, that is later.
    pub fn end_over(&self, now: OffsetDateTime) -> usize {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let over = seats.taken.values().filter(|taken| {
            !taken.over.is_cancelled() && taken.by.until.is_some_and(|until| until <= now)
        });
        over.map(|taken| taken.over.cancel()).count()
    }
}

impl Seat {
    /// What was taken away, in words; None = nothing was: what it ran by came to its own end.
    pub fn why(&self) -> Option<String> {
        let seats = &self.requests.seats;
        let seats = seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.taken.get(&self.number)?.why.clone()
    }

    /// Ready when the request has to end.
    pub fn over(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (over, until) = (self.over.clone(), self.until);
        Box::pin(async move {
            let left = until.map(|end| (end - clock::now()).try_into().unwrap_or_default());
            match left {
                Some(left) => tokio::select! {
                    () = over.cancelled() => {}
                    () = tokio::time::sleep(left) => {}
                },
                None => over.cancelled().await,
            }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self
            .requests
            .seats
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        seats.taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
