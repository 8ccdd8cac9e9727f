//! Who has a place at the HTTPS port. What a new connection is for shows with its first request, so each is let in: where there
//! is no room, in the place of the one that has been a stranger longest. Then it is a line, of which there may be so many, or
//! a user's, of which there may be so many others: people and their programs never take an agent's place. It is a user's when it
//! is known who asks; whoever asks for what needs no credential, or with a wrong one, is a stranger's guest until then, and
//! takes no user's place, whatever runs there. A user's connection that nothing runs on gives way to one that is asked for
//! something, and ends by itself after a while.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// On which nobody who is known has asked for anything yet; where all are taken, an address that has three quarters of them makes room by its own.
    pub strangers: usize,
    /// Of people and programs, their sessions among them, and calls of agents that are no line.
    pub users: usize,
    pub lines: usize,
    /// The first request comes within this time, and the next one of a stranger, unless a proxy may have sent it.
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
    strangers: Strangers,
    /// Of the users' connections, those that nothing runs on.
    idle: BTreeMap<u64, CancellationToken>,
    users: usize,
    lines: usize,
}

/// Connections by their numbers, and those of each address.
#[derive(Default)]
struct Strangers {
    all: BTreeMap<u64, (Option<IpAddr>, CancellationToken)>,
    of: HashMap<IpAddr, BTreeSet<u64>>,
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
    /// Whether it is known who asks here: each request looks.
    known: AtomicBool,
    /// It comes from where many may come: a proxy keeps its connections, whoever asks next.
    of_many: bool,
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
    /// A stranger's who has asked for something.
    Guest(u64),
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

    /// A place for a connection that nobody knows yet; None = from where many may come.
    pub(super) fn enter(self: &Arc<Self>, from: Option<IpAddr>) -> Arc<Seat> {
        let gives_way = CancellationToken::new();
        let mut places = self.lock();
        places.strangers.make_room(from, self.limits.strangers);
        let number = places.number();
        places.strangers.add(number, from, gives_way.clone());
        drop(places);
        Arc::new(Seat {
            room: self.clone(),
            stage: Mutex::new(Stage::Stranger(number)),
            used: watch::Sender::new(Use {
                running: 0,
                since: Instant::now(),
            }),
            known: AtomicBool::new(false),
            of_many: from.is_none(),
            gives_way,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has waited longest goes.
fn give_way(waiting: &mut BTreeMap<u64, CancellationToken>) {
    if let Some((_, gives_way)) = waiting.pop_first() {
        gives_way.cancel();
    }
}

impl Strangers {
    /// Where all places are taken, whoever has waited longest goes: of the same address where that has its share, so that a flood
    /// pushes its own connections out, and a fleet behind one address has all that nobody else wants.
    fn make_room(&mut self, from: Option<IpAddr>, limit: usize) {
        let share = (limit - limit / 4).max(1);
        let own = from.and_then(|from| self.of.get(&from));
        let crowded = own.filter(|own| own.len() >= share);
        let full = self.all.len() >= limit;
        let goes = match crowded {
            _ if !full => None,
            Some(own) => own.first().copied(),
            None => self.all.keys().next().copied(),
        };
        if let Some((_, gives_way)) = goes.and_then(|number| self.remove(number)) {
            gives_way.cancel();
        }
    }

    fn add(&mut self, number: u64, from: Option<IpAddr>, gives_way: CancellationToken) {
        if let Some(from) = from {
            self.of.entry(from).or_default().insert(number);
        }
        self.all.insert(number, (from, gives_way));
    }

    fn remove(&mut self, number: u64) -> Option<(Option<IpAddr>, CancellationToken)> {
        let gone = self.all.remove(&number)?;
        if let Some(from) = gone.0
            && let Some(own) = self.of.get_mut(&from)
        {
            own.remove(&number);
            if own.is_empty() {
                self.of.remove(&from);
            }
        }
        Some(gone)
    }
}

impl Places {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whether a user would have a place.
    fn has_room(&self, limits: &Connections) -> bool {
        let leaving = !self.idle.is_empty() && self.users < limits.users + LEAVING;
        self.users < limits.users || leaving
    }

    /// The first request of a stranger, or one for a line.
    fn settle(&mut self, sort: Sort, number: u64, limits: &Connections) -> Stage {
        // It takes nobody's place before it is known whose it is.
        if sort == Sort::User && self.has_room(limits) {
            return Stage::Guest(number);
        }
        self.strangers.remove(number);
        if sort == Sort::Line && self.lines < limits.lines {
            self.lines += 1;
            return Stage::Line;
        }
        Stage::Refused
    }

    /// A user takes a place, that of an idle one where there is no other; false = there is none.
    fn admit(&mut self, limits: &Connections) -> bool {
        let room = self.has_room(limits);
        if room && self.users >= limits.users {
            give_way(&mut self.idle);
        }
        self.users += usize::from(room);
        room
    }

    /// Nothing runs any more on a user's connection.
    fn rest(&mut self, gives_way: &CancellationToken) -> Stage {
        let number = self.number();
        self.idle.insert(number, gives_way.clone());
        Stage::Idle(number)
    }
}

impl Seat {
    /// A request begins. The error is what its user is told.
    pub(super) fn asked(self: &Arc<Self>, sort: Sort) -> Result<Asking, Refusal> {
        let mut stage = self.stage();
        let first = matches!(*stage, Stage::Stranger(_));
        let mut places = self.room.lock();
        *stage = match *stage {
            Stage::Stranger(number) => places.settle(sort, number, &self.room.limits),
            // A proxy asks for it on a connection that strangers asked on before.
            Stage::Guest(number) if sort == Sort::Line => {
                places.settle(sort, number, &self.room.limits)
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

    /// Whether it is a user's. The one look that each request costs.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// It is known who asks: the connection is a user's from now on. Where there is no room for it any more it stays a guest's, which
    /// asks again with its next request.
    pub(super) fn know(&self) {
        let mut stage = self.stage();
        let Stage::Guest(number) = *stage else {
            return;
        };
        let mut places = self.room.lock();
        if !places.admit(&self.room.limits) {
            return;
        }
        places.strangers.remove(number);
        // What asked may be over, for its client went away.
        *stage = if self.used.borrow().running == 0 {
            places.rest(&self.gives_way)
        } else {
            Stage::Busy
        };
        self.known.store(true, Ordering::Relaxed);
    }

    /// Completes when the connection has been without a request for as long as it may, or has to give way to another.
    pub(super) async fn unused(&self) {
        let waits = async {
            let limits = &self.room.limits;
            let limit = || match *self.stage() {
                Stage::Stranger(_) => limits.first,
                Stage::Guest(_) if !self.of_many => limits.first.min(limits.idle),
                Stage::Refused => Duration::ZERO,
                Stage::Guest(_) | Stage::Idle(_) | Stage::Busy | Stage::Line => limits.idle,
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

    /// Completes when a stranger's connection has to give way: whatever runs there, it may have no end.
    pub(super) async fn dismissed(&self) {
        self.gives_way.cancelled().await;
        if !matches!(*self.stage(), Stage::Stranger(_) | Stage::Guest(_)) {
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
            *stage = self.room.lock().rest(&self.gives_way);
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
            Stage::Stranger(number) | Stage::Guest(number) => {
                drop(places.strangers.remove(number));
            }
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
