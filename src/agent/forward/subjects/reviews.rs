//! Asks the API server, a few names at a time, whether `linesman-line` may act as them, and answers each who waits as soon as
//! their own names are allowed. A name that is refused, or whose review is slow, is the matter of those alone who want it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{CLUSTER_ROLE, Name, Want};

/// Names looked at at once.
const AT_ONCE: usize = 16;
/// How long a first use waits until the API server's authorizer has seen the role.
const VISIBLE: Duration = Duration::from_secs(2);
/// Between two looks at one name.
const BETWEEN: Duration = Duration::from_millis(50);
/// Who may wait before more are let in.
const WAITING: usize = 1_024;

/// Verb and API group of the right to act as somebody.
type Right = (&'static str, &'static str);
/// Asks whether a name may be acted as; ends by itself.
type Look = Box<dyn Fn(Right, &Name) -> BoxFuture<'static, Result<bool>> + Send>;

/// The reviews that are to be done, and who waits for them.
pub(super) struct Reviews {
    look: Look,
    right: Right,
    waiting: Vec<Waiting>,
    /// Names that are under review, and when each was looked at first; `None` = it has not been its turn yet.
    names: BTreeMap<Name, Option<Instant>>,
    turns: VecDeque<Name>,
    looks: FuturesUnordered<BoxFuture<'static, Looked>>,
    /// Names that may be acted as; whoever takes them makes that known.
    pub(super) learned: BTreeSet<Name>,
    /// A name was refused, or its review failed; whoever takes it has the role looked at again.
    pub(super) failed: bool,
}

/// Who waits, for which names still.
struct Waiting {
    since: Instant,
    rest: BTreeSet<Name>,
    done: oneshot::Sender<Result<(), String>>,
}

struct Looked {
    name: Name,
    begun: Instant,
    said: Result<bool>,
}

impl Reviews {
    pub(super) fn new(
        right: Right,
        look: impl Fn(Right, &Name) -> BoxFuture<'static, Result<bool>> + Send + 'static,
    ) -> Self {
        Self {
            look: Box::new(look),
            right,
            waiting: Vec::new(),
            names: BTreeMap::new(),
            turns: VecDeque::new(),
            looks: FuturesUnordered::new(),
            learned: BTreeSet::new(),
            failed: false,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING
    }

    /// Has names reviewed that the role holds by now.
    pub(super) fn admit(&mut self, right: Right, wants: Vec<Want>) {
        self.right = right;
        let since = Instant::now();
        for want in wants {
            let Want {
                names,
                again: _,
                done,
            } = want;
            // Groups come last and are shared by many: one that is refused settles all of these.
            for name in names.iter().rev() {
                if let Entry::Vacant(free) = self.names.entry(name.clone()) {
                    free.insert(None);
                    self.turns.push_back(name.clone());
                }
            }
            let rest = names.into_iter().collect();
            self.waiting.push(Waiting { since, rest, done });
        }
        self.forget_who_left();
        self.begin();
    }

    /// Waits until a look has ended, and answers whom that settles. Cancel-safe; never ends where nothing is looked at.
    pub(super) async fn step(&mut self) {
        match self.looks.next().await {
            Some(looked) => self.settle(&looked),
            None => std::future::pending().await,
        }
    }

    fn settle(&mut self, looked: &Looked) {
        let Looked { name, begun, said } = looked;
        let now = Instant::now();
        self.forget_who_left();
        let first = self.names.get(name).copied().flatten().unwrap_or(*begun);
        // One that began before the role was written for somebody says nothing to them.
        let concerns = |one: &Waiting| one.since <= *begun && one.rest.contains(name);
        let over = |one: &mut Waiting| {
            concerns(one)
                && match said {
                    Ok(true) => one.rest.remove(name) && one.rest.is_empty(),
                    Ok(false) => now >= first.max(one.since) + VISIBLE,
                    Err(_) => true,
                }
        };
        let answer = match said {
            Ok(true) => Ok(()),
            Ok(false) => Err(unseen(name)),
            Err(error) => Err(format!("{error:#}")),
        };
        let mut told = false;
        for one in self.waiting.extract_if(.., over) {
            told = true;
            // Whoever asked may be gone.
            let _gone = one.done.send(answer.clone());
        }
        if let (Err(error), true) = (&answer, told) {
            warn!(error, "{CLUSTER_ROLE}");
            self.failed = true;
        }
        if matches!(said, Ok(true)) {
            self.learned.insert(name.clone());
        }
        let wanted = self.is_wanted(name);
        match said {
            Ok(false) if wanted => self.look(name.clone(), BETWEEN),
            // For those who came meanwhile it begins anew.
            Ok(true) | Err(_) if wanted => {
                self.names.insert(name.clone(), None);
                self.turns.push_back(name.clone());
            }
            Ok(_) | Err(_) => {
                self.names.remove(name);
            }
        }
        self.begin();
    }

    /// Begins as many as there is room for; what nobody waits for any more is not asked.
    fn begin(&mut self) {
        while self.looks.len() < AT_ONCE
            && let Some(name) = self.turns.pop_front()
        {
            if self.is_wanted(&name) {
                self.names.insert(name.clone(), Some(Instant::now()));
                self.look(name, Duration::ZERO);
            } else {
                self.names.remove(&name);
            }
        }
    }

    fn look(&mut self, name: Name, after: Duration) {
        let look = (self.look)(self.right, &name);
        // What is asked was chosen now, whenever it is.
        let begun = Instant::now();
        self.looks.push(Box::pin(async move {
            if !after.is_zero() {
                sleep(after).await;
            }
            let said = look.await;
            Looked { name, begun, said }
        }));
    }

    fn is_wanted(&self, name: &Name) -> bool {
        self.waiting.iter().any(|one| one.rest.contains(name))
    }

    fn forget_who_left(&mut self) {
        self.waiting.retain(|one| !one.done.is_closed());
    }
}

fn unseen(name: &Name) -> String {
    let (resource, text) = name.parts();
    format!(
        "linesman-line may not act as {resource} {text} although {CLUSTER_ROLE} names it; \
         apply the adoption YAML again, its ClusterRoleBinding may be gone"
    )
}

#[cfg(test)]
mod tests;
