//! Who has a place at the HTTPS port. What a new connection is for shows with its first request, so each is let in: where there
//! is no room, in the place of the one that has been silent longest. Then it is a line, of which there may be so many, or
//! a user's, of which there may be so many others: people and their programs never take an agent's place. A user's
//! connection that nothing runs on gives way to one that is asked for something, and ends by itself after a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use http::StatusCode;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::kubeapi::lasting::Lasting;
use crate::kubeapi::status::{Hop, Refusal};

/// How many connections there may be, of each sort, and what they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// That have asked for nothing yet.
    pub strangers: usize,
    /// Of people and programs, their sessions among them, and calls of agents that are no line.
    pub users: usize,
    pub lines: usize,
    /// The first request comes within this time.
    pub first: Duration,
    /// A connection that nothing is asked on ends after this time.
    pub idle: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            strangers: 2_000,
            users: 6_000,
            lines: 12_000,
            first: Duration::from_secs(10),
            idle: Duration::from_mins(5),
        }
    }
}

/// Users' connections that were told to give way and have not gone yet.
const LEAVING: usize = 256;

/// All places of a port.
pub(super) struct Room {
    limits: Connections,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// The next number: who has a lower one has waited longer.
    next: u64,
    strangers: BTreeMap<u64, CancellationToken>,
    /// Of the users' connections, those that nothing runs on.
    idle: BTreeMap<u64, CancellationToken>,
    users: usize,
    lines: usize,
}

/// What the first request of a connection makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    User,
    Line,
}

/// The place of one connection, given back on drop.
pub(super) struct Seat {
    room: Arc<Room>,
    stage: Mutex<Stage>,
    used: watch::Sender<Use>,
    gives_way: CancellationToken,
}

/// What runs on a connection.
#[derive(Debug, Clone, Copy)]
struct Use {
    running: usize,
    /// When the last of it ended, or the connection was made.
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Stranger(u64),
    /// A user's that nothing runs on.
    Idle(u64),
    /// A user's.
    Busy,
    Line,
    /// There was no room for it.
    Refused,
}

impl Room {
    pub(super) fn new(limits: Connections) -> Arc<Self> {
        Arc::new(Self {
            limits,
            places: Mutex::default(),
        })
    }

    /// A place for a connection that nobody knows yet.
    pub(super) fn enter(self: &Arc<Self>) -> Arc<Seat> {
        let gives_way = CancellationToken::new();
        let mut places = self.lock();
        if places.strangers.len() >= self.limits.strangers {
            give_way(&mut places.strangers);
        }
        let number = places.number();
        places.strangers.insert(number, gives_way.clone());
        drop(places);
        Arc::new(Seat {
            room: self.clone(),
            stage: Mutex::new(Stage::Stranger(number)),
            used: watch::Sender::new(Use {
                running: 0,
                since: Instant::now(),
            }),
            gives_way,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has waited longest goes.
fn give_way(waiting: &mut BTreeMap<u64, CancellationToken>) -> bool {
    let first = waiting.pop_first();
    if let Some((_, gives_way)) = &first {
        gives_way.cancel();
    }
    first.is_some()
}

impl Places {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A place for a connection that has asked for something.
    fn settle(&mut self, sort: Sort, limits: &Connections) -> Stage {
        match sort {
            Sort::Line if self.lines < limits.lines => {
                self.lines += 1;
                Stage::Line
            }
            Sort::User
                if self.users < limits.users
                    || (self.users < limits.users + LEAVING && give_way(&mut self.idle)) =>
            {
                self.users += 1;
                Stage::Busy
            }
            Sort::Line | Sort::User => Stage::Refused,
        }
    }
}

impl Seat {
    /// A request begins. The error is what its user is told.
    pub(super) fn asked(self: &Arc<Self>, sort: Sort) -> Result<Asking, Refusal> {
        let mut stage = self.stage();
        let first = matches!(*stage, Stage::Stranger(_));
        let mut places = self.room.lock();
        *stage = match *stage {
            Stage::Stranger(number) => {
                places.strangers.remove(&number);
                places.settle(sort, &self.room.limits)
            }
            Stage::Idle(number) => {
                places.idle.remove(&number);
                Stage::Busy
            }
            settled => settled,
        };
        drop(places);
        if *stage == Stage::Refused {
            // It has no more to wait for.
            self.used.send_modify(|_| {});
            return Err(full(sort));
        }
        // Under the lock: who sees the count sees the stage that goes with it. Whoever waits looks again when its time is over, and
        // is woken only where that is another time from now on: a wake-up for each request costs as much as a part of it.
        self.used.send_if_modified(|used| {
            used.running += 1;
            first
        });
        Ok(Asking { seat: self.clone() })
    }

    /// Completes when the connection has been without a request for as long as it may, or has to give way to another.
    pub(super) async fn unused(&self) {
        let waits = async {
            let limits = &self.room.limits;
            let limit = || match *self.stage() {
                Stage::Stranger(_) => limits.first,
                Stage::Refused => Duration::ZERO,
                Stage::Idle(_) | Stage::Busy | Stage::Line => limits.idle,
            };
            self.idle(limit).await;
        };
        tokio::select! {
            () = waits => {}
            () = self.gives_way.cancelled() => {}
        }
    }

    /// Completes when nothing has run for so long, from now on.
    pub(super) async fn idle(&self, limit: impl Fn() -> Duration) {
        let begun = Instant::now();
        let mut used = self.used.subscribe();
        loop {
            let Use { running, since } = *used.borrow_and_update();
            let now = Instant::now();
            // What runs now ends later, and the time counts from there.
            let from = if running == 0 { since.max(begun) } else { now };
            let until = from + limit();
            if running == 0 && until <= now {
                return;
            }
            tokio::select! {
                biased;
                // It cannot fail: we hold its sender.
                _ = used.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Completes when a connection that has not asked for anything has to give way.
    pub(super) async fn dismissed(&self) {
        self.gives_way.cancelled().await;
        if !matches!(*self.stage(), Stage::Stranger(_)) {
            std::future::pending::<()>().await;
        }
    }

    fn over(self: &Arc<Self>) {
        let mut stage = self.stage();
        self.used.send_if_modified(|used| {
            used.running -= 1;
            used.since = Instant::now();
            false
        });
        if *stage == Stage::Busy && self.used.borrow().running == 0 {
            let mut places = self.room.lock();
            let number = places.number();
            places.idle.insert(number, self.gives_way.clone());
            *stage = Stage::Idle(number);
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let stage = *self.stage();
        let mut places = self.room.lock();
        match stage {
            Stage::Stranger(number) => drop(places.strangers.remove(&number)),
            Stage::Idle(number) => {
                places.idle.remove(&number);
                places.users -= 1;
            }
            Stage::Busy => places.users -= 1,
            Stage::Line => places.lines -= 1,
            Stage::Refused => {}
        }
    }
}

fn full(sort: Sort) -> Refusal {
    let what = match sort {
        Sort::User => "the hub has as many connections of users as it takes",
        Sort::Line => "the hub has as many lines as it takes",
    };
    Refusal::new(
        Hop::Hub,
        StatusCode::SERVICE_UNAVAILABLE,
        "Connections",
        what,
    )
    .next("repeat it; if it stays, end watches and sessions that are not needed, or add a replica of the hub")
    .retry_after(1)
    .close()
}

/// The body of an answer, with its request where that has a place.
pub(super) type Held = Lasting<Body, Option<Asking>>;

/// A request, until the last of its answer has gone.
pub(super) struct Asking {
    seat: Arc<Seat>,
}

impl Asking {
    pub(super) fn is_a_line(&self) -> bool {
        *self.seat.stage() == Stage::Line
    }

    /// The connection is the request's from now on: its protocol was switched.
    pub(super) fn for_good(self) {
        // Once more than it is over.
        self.seat.used.send_if_modified(|used| {
            used.running += 1;
            false
        });
    }

    /// An answer that ends with this.
    pub(super) fn with(self, body: Body) -> Held {
        Lasting::new(body, Some(self))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.seat.over();
    }
}

#[cfg(test)]
mod tests;
