//! Who has a place at the SSH port. Whoever connects is let in: where there is no room for strangers, in the place of the one
//! that has waited longest at the address that has the most of them, so a flood pushes its own connections out. Who has
//! shown a key that is known has one of the other places: by key the same, so no key takes the places of others.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::address::network;
use crate::keys::Public;

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
    strangers: Crowd<IpAddr>,
    known: Crowd<Public>,
}

/// Connections by their numbers: whose each is, and how it is told to go.
struct Crowd<K>(BTreeMap<u64, (K, CancellationToken)>);

/// The place of one connection, given back on drop.
pub(super) struct Seat {
    room: Arc<Room>,
    stage: Mutex<Stage>,
    gives_way: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Stranger(u64),
    Known(u64),
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
        let strangers = &mut places.strangers;
        // What agents carry over their lines all comes from here.
        let crowded = !from.is_loopback() && strangers.of(from).count() >= self.per_address;
        if crowded {
            let oldest = strangers.of(from).next();
            strangers.dismiss(oldest);
        } else if strangers.0.len() >= self.strangers {
            let (_, oldest) = strangers.most();
            strangers.dismiss(oldest);
        }
        places.next += 1;
        let number = places.next;
        let place = (from, gives_way.clone());
        places.strangers.0.insert(number, place);
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

impl<K> Default for Crowd<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Copy + Eq + Hash> Crowd<K> {
    /// The numbers of one, in order.
    fn of(&self, who: K) -> impl Iterator<Item = u64> {
        let same = self.0.iter().filter(move |(_, (of, _))| *of == who);
        same.map(|(number, _)| *number)
    }

    /// How many places who has the most of them has, and the number that has waited longest of those.
    fn most(&self) -> (usize, Option<u64>) {
        let mut counts: HashMap<K, (usize, u64)> = HashMap::new();
        for (number, (of, _)) in &self.0 {
            counts.entry(*of).or_insert((0, *number)).0 += 1;
        }
        let most = counts.into_values();
        let most = most.max_by_key(|(count, oldest)| (*count, u64::MAX - oldest));
        most.map_or((0, None), |(count, oldest)| (count, Some(oldest)))
    }

    fn dismiss(&mut self, number: Option<u64>) {
        let gone = number.and_then(|number| self.0.remove(&number));
        if let Some((_, gives_way)) = gone {
            gives_way.cancel();
        }
    }
}

impl Crowd<Public> {
    /// Whether there is room for one more of this key, for which one of a key that has more than one may have to go: its own where
    /// no other has more.
    fn makes_room(&mut self, key: Public, limit: usize) -> bool {
        if self.0.len() < limit {
            return true;
        }
        let own = self.of(key).count();
        let (most, oldest) = self.most();
        let goes = if most > own + 1 {
            oldest
        } else {
            self.of(key).next()
        };
        self.dismiss(goes);
        goes.is_some()
    }
}

impl Seat {
    /// Its client has shown that it has this key, which is known; false = there are as many of those as may be.
    pub(super) fn known(&self, key: Public) -> bool {
        let mut stage = self.stage();
        let Stage::Stranger(number) = *stage else {
            return matches!(*stage, Stage::Known(_));
        };
        let mut places = self.room.lock();
        // One that was dismissed a moment ago goes.
        let there = places.strangers.0.remove(&number).is_some();
        let fits = there && places.known.makes_room(key, self.room.known);
        *stage = if fits {
            let place = (key, self.gives_way.clone());
            places.known.0.insert(number, place);
            Stage::Known(number)
        } else {
            Stage::Refused
        };
        fits
    }

    /// Completes when the connection has to give way to another.
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
            Stage::Stranger(number) => drop(places.strangers.0.remove(&number)),
            Stage::Known(number) => drop(places.known.0.remove(&number)),
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

    fn key(number: u8) -> Public {
        Public([number; 32])
    }

    #[test]
    fn who_is_known_keeps_its_place_and_gives_it_back() {
        let room = room(1, 1, 2);
        let first = room.enter(ip("192.0.2.1"));
        assert!(first.known(key(1)));
        let second = room.enter(ip("192.0.2.1"));
        let third = room.enter(ip("192.0.2.1"));
        assert_eq!(gone(&[first.clone(), second.clone()]), [false, true]);
        assert!(!second.known(key(2)));
        assert!(third.known(key(2)));
        let fourth = room.enter(ip("192.0.2.1"));
        assert!(!fourth.known(key(3)));
        assert_eq!(gone(&[first.clone(), third.clone()]), [false, false]);
        drop((first, fourth));
        assert!(room.enter(ip("192.0.2.1")).known(key(3)));
        drop((second, third));
        let places = room.lock();
        assert_eq!((places.known.0.len(), places.strangers.0.len()), (0, 0));
    }

    #[test]
    fn a_key_takes_no_place_of_another_that_has_fewer() {
        let room = room(9, 9, 4);
        let enter = |who: u8| {
            let seat = room.enter(ip("192.0.2.1"));
            (seat.known(key(who)), seat)
        };
        let (all, greedy): (Vec<bool>, Vec<_>) = (0..4).map(|_| enter(1)).unzip();
        assert_eq!(all, [true; 4]);
        // Others come in the place of what it has too much of, ...
        let (fits, second) = enter(2);
        let (too, third) = enter(3);
        assert!(fits && too);
        assert_eq!(gone(&greedy), [true, true, false, false]);
        // ... it itself only in its own, ...
        let (fits, again) = enter(1);
        assert!(fits);
        assert_eq!(gone(&greedy), [true, true, true, false]);
        // ... and as soon as all have alike, each has what it has.
        let (fits, fourth) = enter(4);
        assert!(fits);
        assert_eq!(gone(&greedy), [true; 4]);
        let (fits, _fifth) = enter(5);
        assert!(!fits);
        let seats = [second, third, again, fourth];
        assert_eq!(gone(&seats), [false; 4]);
    }
}
