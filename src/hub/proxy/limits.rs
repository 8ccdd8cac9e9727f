//! How many requests run at once: per user and per cluster, so that one cannot take all room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;

use crate::kubeapi::status::{Hop, Refusal};

/// Of one user, on all clusters.
const USER: usize = 1_024;
/// Of one cluster, by all users.
const CLUSTER: usize = 4_096;

/// Requests that run now.
#[derive(Default)]
pub struct Limits {
    running: Mutex<HashMap<Key, usize>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    User(String),
    Cluster(String),
}

/// A place among them, given back on drop.
pub struct Place {
    limits: Arc<Limits>,
    keys: [Key; 2],
}

impl Limits {
    pub fn enter(self: &Arc<Self>, user: &str, cluster: &str) -> Result<Place, Refusal> {
        let keys = [Key::User(user.to_owned()), Key::Cluster(cluster.to_owned())];
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |key: &Key| running.get(key).copied().unwrap_or_default();
        let [of_user, of_cluster] = &keys;
        if count(of_user) >= USER {
            return Err(busy(format!(
                "{user} has {USER} requests running, the most for one user"
            )));
        }
        if count(of_cluster) >= CLUSTER {
            return Err(busy(format!(
                "cluster {cluster} has {CLUSTER} requests running, the most for one cluster"
            )));
        }
        for key in &keys {
            *running.entry(key.clone()).or_default() += 1;
        }
        drop(running);
        Ok(Place {
            limits: self.clone(),
            keys,
        })
    }
}

fn busy(what: String) -> Refusal {
    Refusal::new(
        Hop::Hub,
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        what,
    )
    .next("end watches and sessions that are not needed")
    .retry_after(1)
}

impl Drop for Place {
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

    /// L11: whoever they are.
    #[test]
    fn a_cluster_at_the_limit_takes_no_more_and_another_does() {
        let limits = Arc::new(Limits::default());
        let users = CLUSTER / USER;
        let users: Vec<String> = (0..users).map(|n| format!("user-{n}")).collect();
        let each = users.iter().flat_map(|user| vec![user; USER]);
        let places: Vec<Place> = each
            .map(|user| limits.enter(user, "eu1").unwrap())
            .collect();
        let refusal = limits.enter("bob", "eu1").err().unwrap();
        let expected =
            busy("cluster eu1 has 4096 requests running, the most for one cluster".to_owned());
        assert_eq!(refusal, expected);
        assert!(limits.enter("bob", "eu2").is_ok());
        drop(places);
        assert!(limits.enter("bob", "eu1").is_ok());
    }

    #[test]
    fn a_user_at_the_limit_is_told_so_and_gets_in_again() {
        let limits = Arc::new(Limits::default());
        let mut places: Vec<Place> = (0..USER)
            .map(|_| limits.enter("ada", "eu1").unwrap())
            .collect();
        let refusal = limits.enter("ada", "eu2").err().unwrap();
        assert_eq!((refusal.code.as_u16(), refusal.retry_after), (429, Some(1)));
        assert!(limits.enter("bob", "eu1").is_ok());
        places.pop();
        assert!(limits.enter("ada", "eu2").is_ok());
        drop(places);
        assert!(limits.running.lock().unwrap().is_empty());
    }
}
