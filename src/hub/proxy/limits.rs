//! How many requests run at once: per user and per cluster, so that one cannot take all room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;

use crate::kubeapi::status::{Hop, Refusal};

/// Below this one kubectl, which asks for all API groups at once, would be refused.
pub const LEAST: u32 = 64;
/// What one may be allowed: a quarter of the audit's places, of which each request has one until it is over, so that one user alone
/// never has all of them.
pub const MOST_OF_USER: u32 = 16_384;
/// An agent serves so many at once, and refuses those above.
pub const MOST_OF_CLUSTER: u32 = 4_096;

/// How many requests may run at once, at this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Of one user, on all clusters.
    pub user: u32,
    /// Of one cluster, by all users.
    pub cluster: u32,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            user: 1_024,
            cluster: MOST_OF_CLUSTER,
        }
    }
}

/// Requests that run now.
#[derive(Default)]
pub struct Limits {
    running: Mutex<HashMap<Key, u32>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    User(String),
    Cluster(String),
}

/// What one of them takes of the room that its user and its cluster have; given back on drop.
pub struct Slot {
    limits: Arc<Limits>,
    keys: Vec<Key>,
}

/// A request of a user that is judged yet: it has the user's slot among those that run.
pub struct Asking {
    most: Requests,
    slot: Slot,
}

impl Limits {
    /// A slot for one more request of the user, where less than `most` run. It is held while the request is judged, too.
    pub fn ask(self: &Arc<Self>, most: Requests, user: &str) -> Result<Asking, Refusal> {
        let key = Key::User(user.to_owned());
        if !self.take(&key, most.user) {
            return Err(user_busy(user, most.user));
        }
        let slot = Slot {
            limits: self.clone(),
            keys: vec![key],
        };
        Ok(Asking { most, slot })
    }

    /// Counts one more where there are less than `most`.
    fn take(&self, key: &Key, most: u32) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let count = running.get(key).copied().unwrap_or_default();
        if count >= most {
            return false;
        }
        running.insert(key.clone(), count + 1);
        true
    }
}

impl Asking {
    /// The slot of the cluster, too.
    pub fn enter(self, cluster: &str) -> Result<Slot, Refusal> {
        let Self { most, mut slot } = self;
        let key = Key::Cluster(cluster.to_owned());
        if !slot.limits.take(&key, most.cluster) {
            return Err(cluster_busy(cluster, most.cluster));
        }
        slot.keys.push(key);
        Ok(slot)
    }
}

fn user_busy(user: &str, most: u32) -> Refusal {
    busy(
        format!("{user} has {most} requests running, the most for one user"),
        (most < MOST_OF_USER).then_some("--max-requests-per-user"),
    )
}

fn cluster_busy(cluster: &str, most: u32) -> Refusal {
    busy(
        format!("cluster {cluster} has {most} requests running, the most for one cluster"),
        (most < MOST_OF_CLUSTER).then_some("--max-requests-per-cluster"),
    )
}

/// `setting` is what may be raised.
fn busy(what: String, setting: Option<&str>) -> Refusal {
    let end = "end watches and sessions that are not needed";
    let next = match setting {
        Some(setting) => format!("{end}, or raise the hub's {setting}"),
        None => end.to_owned(),
    };
    Refusal::new(
        Hop::Hub,
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        what,
    )
    .next(next)
    .retry_after(1)
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut running = self
            .limits
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            if let Some(count) = running.get_mut(key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    running.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::audit::PLACES;

    const MOST: Requests = Requests {
        user: 3,
        cluster: 6,
    };

    /// L11: whoever they are.
    #[test]
    fn a_cluster_at_the_limit_takes_no_more_and_another_does() {
        let limits = Arc::new(Limits::default());
        let enter = |user: &str, cluster: &str| limits.ask(MOST, user)?.enter(cluster);
        let users = ["ada", "ada", "ada", "eve", "eve", "eve"];
        let slots: Vec<Slot> = users.map(|user| enter(user, "eu1").unwrap()).into();
        let refusal = enter("bob", "eu1").err().unwrap();
        assert_eq!(refusal, cluster_busy("eu1", 6));
        assert!(enter("bob", "eu2").is_ok());
        drop(slots);
        assert!(enter("bob", "eu1").is_ok());
    }

    /// L11
    #[test]
    fn a_user_at_the_limit_is_told_so_and_gets_in_again() {
        let limits = Arc::new(Limits::default());
        let enter = |user: &str, cluster: &str| limits.ask(MOST, user)?.enter(cluster);
        let clusters = ["eu1", "eu2", "eu3"];
        let mut slots: Vec<Slot> = clusters.map(|name| enter("ada", name).unwrap()).into();
        let refusal = enter("ada", "eu4").err().unwrap();
        assert_eq!(refusal, user_busy("ada", 3));
        assert_eq!((refusal.code.as_u16(), refusal.retry_after), (429, Some(1)));
        assert!(enter("bob", "eu1").is_ok());
        slots.pop();
        assert!(enter("ada", "eu4").is_ok());
        drop(slots);
        assert!(limits.running.lock().unwrap().is_empty());
    }

    /// Those that are refused take no more at once than those that are not.
    #[test]
    fn what_is_judged_yet_counts_as_the_users_and_as_no_clusters() {
        let limits = Arc::new(Limits::default());
        let asks: Vec<Asking> = (0..MOST.user)
            .map(|_| limits.ask(MOST, "ada").unwrap())
            .collect();
        let refusal = limits.ask(MOST, "ada").err().unwrap();
        assert_eq!(refusal, user_busy("ada", 3));
        let counts = [(Key::User("ada".to_owned()), 3)];
        assert_eq!(*limits.running.lock().unwrap(), HashMap::from(counts));
        drop(asks);
        assert!(limits.running.lock().unwrap().is_empty());
        // Refused by the cluster's bound, it gives the user's slot back.
        let full = Requests { cluster: 0, ..MOST };
        let refusal = limits.ask(full, "ada").unwrap().enter("eu1").err().unwrap();
        assert_eq!(refusal, cluster_busy("eu1", 0));
        assert!(limits.running.lock().unwrap().is_empty());
    }

    /// One user meets this bound before others are refused for the want of a place in the audit.
    #[test]
    fn a_user_can_be_allowed_a_part_of_the_audits_places() {
        assert_eq!(PLACES / usize::try_from(MOST_OF_USER).unwrap(), 4);
    }

    /// L11: the setting is named where there is more to be had by it.
    #[test]
    fn a_refusal_says_which_setting_of_the_hub_can_be_raised() {
        let Requests { user, cluster } = Requests::default();
        for (refusal, next) in [
            (
                user_busy("ada", user),
                "end watches and sessions that are not needed, or raise the hub's --max-requests-per-user",
            ),
            (
                user_busy("ada", MOST_OF_USER),
                "end watches and sessions that are not needed",
            ),
            (
                cluster_busy("eu1", LEAST),
                "end watches and sessions that are not needed, or raise the hub's --max-requests-per-cluster",
            ),
            (
                cluster_busy("eu1", cluster),
                "end watches and sessions that are not needed",
            ),
        ] {
            assert_eq!(refusal.next, next, "{}", refusal.what);
        }
    }
}
