//! How many logins may begin: each is a write in the database that anyone can bring about. An address has a few at once and earns
//! one more every so often, and so have all of them together. And how often an address may ask for tokens that it does not get.
//! Pure: the time is told.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::hub::pace::{Left, Rate};

/// Of one address: an office behind one that comes to work, and still no write a second in the long run.
const OF_ONE: Rate = Rate {
    most: 60,
    every: Duration::from_secs(2),
};
/// Of all of them.
const OF_ALL: Rate = Rate {
    most: 600,
    every: Duration::from_millis(100),
};
/// Addresses that are told apart; the others share what one has.
const ADDRESSES: usize = 4_096;

/// Whom it was that had its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Address,
    All,
}

/// Too many, and how long until one more may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    pub whose: Whose,
    pub wait: Duration,
}

/// What every address has left.
#[derive(Debug)]
pub struct Beginning {
    of_one: HashMap<String, Left>,
    others: Left,
    /// None = each address has its own, and nobody's attempts are another's.
    of_all: Option<Left>,
}

impl Beginning {
    pub fn new(now: Instant) -> Self {
        Self {
            of_all: Some(OF_ALL.whole(now)),
            ..Self::of_each(now)
        }
    }

    /// Without a bound of all together: what goes wrong for some keeps nobody else from what is theirs.
    pub fn of_each(now: Instant) -> Self {
        Self {
            of_one: HashMap::new(),
            others: OF_ONE.whole(now),
            of_all: None,
        }
    }

    /// One more login begins at this address ([`crate::address::of`]). A refused one costs nothing.
    pub fn one_more(&mut self, address: &str, now: Instant) -> Result<(), TooMany> {
        self.of_all = self.of_all.map(|left| OF_ALL.earned(left, now));
        if self.of_one.len() >= ADDRESSES && !self.of_one.contains_key(address) {
            // Who has all of it again need not be known.
            self.of_one
                .retain(|_, left| OF_ONE.earned(*left, now).n < OF_ONE.most);
        }
        let told_apart = self.of_one.contains_key(address) || self.of_one.len() < ADDRESSES;
        let own = if told_apart {
            let own = self.of_one.entry(address.to_owned());
            own.or_insert_with(|| OF_ONE.whole(now))
        } else {
            &mut self.others
        };
        *own = OF_ONE.earned(*own, now);
        let too_many = |whose, wait| Err(TooMany { whose, wait });
        if own.n == 0 {
            return too_many(Whose::Address, OF_ONE.wait(*own, now));
        }
        if let Some(all) = &mut self.of_all {
            if all.n == 0 {
                return too_many(Whose::All, OF_ALL.wait(*all, now));
            }
            all.n -= 1;
        }
        own.n -= 1;
        Ok(())
    }

    /// The last one of this address did not count.
    pub fn back(&mut self, address: &str) {
        let own = self.of_one.get_mut(address).unwrap_or(&mut self.others);
        own.n = own.n.saturating_add(1).min(OF_ONE.most);
        if let Some(all) = &mut self.of_all {
            all.n = all.n.saturating_add(1).min(OF_ALL.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rate: &mut Beginning, address: &str, now: Instant) -> Option<(Whose, u64)> {
        let told = rate.one_more(address, now).err();
        told.map(|t| (t.whose, u64::try_from(t.wait.as_millis()).unwrap()))
    }

    #[test]
    fn an_address_begins_a_few_at_once_and_earns_more() {
        let start = Instant::now();
        let mut rate = Beginning::new(start);
        for n in 0..OF_ONE.most {
            assert_eq!(refused(&mut rate, "a", start), None, "{n}");
        }
        assert_eq!(
            refused(&mut rate, "a", start),
            Some((Whose::Address, 2_000))
        );
        // Another one is not concerned.
        assert_eq!(refused(&mut rate, "b", start), None);
        let later = start + Duration::from_millis(1_500);
        assert_eq!(refused(&mut rate, "a", later), Some((Whose::Address, 500)));
        let earned = start + Duration::from_millis(4_100);
        assert_eq!(refused(&mut rate, "a", earned), None);
        assert_eq!(refused(&mut rate, "a", earned), None);
        assert_eq!(
            refused(&mut rate, "a", earned),
            Some((Whose::Address, 1_900))
        );
        let whole = start + Duration::from_hours(1);
        for n in 0..OF_ONE.most {
            assert_eq!(refused(&mut rate, "a", whole), None, "{n}");
        }
        assert!(refused(&mut rate, "a", whole).is_some());
    }

    #[test]
    fn all_addresses_have_a_bound_together() {
        let start = Instant::now();
        let mut rate = Beginning::new(start);
        for n in 0..OF_ALL.most {
            assert_eq!(refused(&mut rate, &n.to_string(), start), None, "{n}");
        }
        assert_eq!(refused(&mut rate, "x", start), Some((Whose::All, 100)));
        // What was refused took nothing from its address.
        let later = start + Duration::from_millis(100 * u64::from(OF_ONE.most));
        for n in 0..OF_ONE.most {
            assert_eq!(refused(&mut rate, "x", later), None, "{n}");
        }
    }

    /// Of tokens: who gets them has always enough, and who does not is told to wait.
    #[test]
    fn what_did_not_count_is_given_back() {
        let start = Instant::now();
        let mut rate = Beginning::of_each(start);
        for n in 0..10 * OF_ONE.most {
            assert_eq!(refused(&mut rate, "a", start), None, "{n}");
            rate.back("a");
        }
        for n in 0..OF_ONE.most {
            assert_eq!(refused(&mut rate, "a", start), None, "{n}");
        }
        let wait = Some((Whose::Address, 2_000));
        assert_eq!(refused(&mut rate, "a", start), wait);
        rate.back("a");
        assert_eq!(refused(&mut rate, "a", start), None);
        assert_eq!(refused(&mut rate, "a", start), wait);
        // Nobody's attempts are another's, however many there are.
        for n in 0..2 * OF_ALL.most {
            assert_eq!(refused(&mut rate, &n.to_string(), start), None, "{n}");
        }
    }

    /// A flood from whatever many addresses takes a bounded amount of memory, and those that come then share one's bound.
    #[test]
    fn addresses_beyond_those_that_are_told_apart_share_one_bound() {
        let mut now = Instant::now();
        let mut rate = Beginning::new(now);
        for n in 0..u32::try_from(ADDRESSES).unwrap() {
            rate.of_all = Some(OF_ALL.whole(now));
            assert_eq!(refused(&mut rate, &n.to_string(), now), None);
        }
        rate.of_all = Some(OF_ALL.whole(now));
        for n in 0..OF_ONE.most {
            assert_eq!(refused(&mut rate, &format!("x{n}"), now), None, "{n}");
        }
        assert_eq!(refused(&mut rate, "y", now), Some((Whose::Address, 2_000)));
        assert_eq!(rate.of_one.len(), ADDRESSES);
        // Each has all of it again by then, and makes room.
        now += OF_ONE.every;
        assert_eq!(refused(&mut rate, "y", now), None);
        assert_eq!(rate.of_one.len(), 1);
    }
}
