//! Who has a place at the SSH port. Whoever connects is let in: where there is no room for strangers, in the place of the one
//! that has waited longest at the address that has the most of them, so a flood pushes its own connections out. Who has
//! shown a key that is known has one of the other places, and keeps it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::address::network;

/// All places of a port.
pub(super) struct Room {
    strangers: usize,
    per_address: usize,
    known: usize,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Who has a lower number has waited longer.
    next: u64,
    strangers: BTreeMap<u64, (IpAddr, CancellationToken)>,
    known: usize,
}

/// The place of one connection, given back on drop.
pub(super) struct Seat {
    room: Arc<Room>,
    stage: Mutex<Stage>,
    gives_way: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Stranger(u64),
    Known,
    /// There was no room for it.
    Refused,
}

impl Room {
    pub(super) fn new(limits: &super::Limits) -> Arc<Self> {
        Arc::new(Self {
            strangers: limits.strangers.max(1),
            per_address: limits.strangers_per_address.max(1),
            known: limits.connections,
            places: Mutex::default(),
        })
    }

    /// A place for a connection that nobody knows yet.
    pub(super) fn enter(self: &Arc<Self>, from: IpAddr) -> Arc<Seat> {
        let from = network(from);
        let gives_way = CancellationToken::new();
        let mut places = self.lock();
        // What agents carry over their lines all comes from here.
        let crowded = !from.is_loopback() && places.of(from).count() >= self.per_address;
        if crowded {
            let oldest = places.of(from).next();
            places.dismiss(oldest);
        } else if places.strangers.len() >= self.strangers {
            let oldest = places.oldest_of_most();
            places.dismiss(oldest);
        }
        places.next += 1;
        let number = places.next;
        places.strangers.insert(number, (from, gives_way.clone()));
        drop(places);
        Arc::new(Seat {
            room: self.clone(),
            stage: Mutex::new(Stage::Stranger(number)),
            gives_way,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// The numbers of an address, in order.
    fn of(&self, from: IpAddr) -> impl Iterator<Item = u64> {
        let same = self
            .strangers
            .iter()
            .filter(move |(_, (ip, _))| *ip == from);
        same.map(|(number, _)| *number)
    }

    fn oldest_of_most(&self) -> Option<u64> {
        let mut counts: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, (from, _)) in &self.strangers {
            counts.entry(*from).or_insert((0, *number)).0 += 1;
        }
        let most = counts.into_values();
        let most = most.max_by_key(|(count, oldest)| (*count, u64::MAX - oldest));
        most.map(|(_, oldest)| oldest)
    }

    fn dismiss(&mut self, number: Option<u64>) {
        let gone = number.and_then(|number| self.strangers.remove(&number));
        if let Some((_, gives_way)) = gone {
            gives_way.cancel();
        }
    }
}

impl Seat {
    /// Its client has shown who it is; false = there are as many of those as may be.
    pub(super) fn known(&self) -> bool {
        let mut stage = self.stage();
        let Stage::Stranger(number) = *stage else {
            return *stage == Stage::Known;
        };
        let mut places = self.room.lock();
        // One that was dismissed a moment ago goes.
        let there = places.strangers.remove(&number).is_some();
        let fits = there && places.known < self.room.known;
        places.known += usize::from(fits);
        *stage = if fits { Stage::Known } else { Stage::Refused };
        fits
    }

    /// Completes when a connection that has not said who it is has to give way.
    pub(super) async fn dismissed(&self) {
        self.gives_way.cancelled().await;
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
            Stage::Known => places.known -= 1,
            Stage::Refused => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    fn room(strangers: usize, per_address: usize, connections: usize) -> Arc<Room> {
        Room::new(&Limits {
            strangers,
            strangers_per_address: per_address,
            connections,
            ..Limits::default()
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn gone(seats: &[Arc<Seat>]) -> Vec<bool> {
        seats.iter().map(|s| s.gives_way.is_cancelled()).collect()
    }

    #[test]
    fn a_flood_pushes_its_own_connections_out() {
        let room = room(4, 3, 9);
        let other = room.enter(ip("192.0.2.1"));
        let flood: Vec<_> = (1..=5)
            .map(|n| room.enter(ip(&format!("2001:db8::{n}"))))
            .collect();
        assert_eq!(gone(&flood), [true, true, false, false, false]);
        // All places are taken; who has the most goes, and its oldest first.
        let third = room.enter(ip("192.0.2.3"));
        assert_eq!(gone(&flood), [true, true, true, false, false]);
        assert_eq!(gone(&[other, third]), [false, false]);
    }

    #[test]
    fn what_comes_over_lines_has_one_address_and_no_limit_for_it() {
        let room = room(4, 1, 9);
        let seats: Vec<_> = (0..5).map(|_| room.enter(ip("127.0.0.1"))).collect();
        assert_eq!(gone(&seats), [true, false, false, false, false]);
    }

    #[test]
    fn who_is_known_keeps_its_place_and_gives_it_back() {
        let room = room(1, 1, 2);
        let first = room.enter(ip("192.0.2.1"));
        assert!(first.known());
        let second = room.enter(ip("192.0.2.1"));
        let third = room.enter(ip("192.0.2.1"));
        assert_eq!(gone(&[first.clone(), second.clone()]), [false, true]);
        assert!(!second.known());
        assert!(third.known());
        let fourth = room.enter(ip("192.0.2.1"));
        assert!(!fourth.known());
        drop((first, fourth));
        assert!(room.enter(ip("192.0.2.1")).known());
        drop((second, third));
        let places = room.lock();
        assert_eq!((places.known, places.strangers.len()), (0, 0));
    }
}
