//! What requests to clusters are judged by, kept for a moment: a `kubectl get` after another asks the database nothing.
//!
//! Nothing is kept over a change that this process makes, or hears of from another replica. What changes otherwise, such as by
//! hand, is seen after [`KEEP`].

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::hub::access::Grant;
use crate::hub::store::{ApiToken, Cluster, Result, Session, SessionToken, Store, UserRow};
use crate::wire::id::ClusterName;

/// How long something is kept.
const KEEP: Duration = Duration::from_secs(1);
/// Of each kind; one more, and all of them are forgotten.
const MOST: usize = 4096;
/// Revoked grants that are looked at for who is refused.
const REVOKED: u32 = 20;

/// A token of one kind with whose it is.
type Api = (ApiToken, UserRow);
type Login = (SessionToken, Session, UserRow);

/// Asks the store, or says what it said a moment ago.
pub struct Lookups {
    store: Store,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The count of changes that all of this was read after.
    changes: u64,
    api_tokens: Shelf<String, Api>,
    session_tokens: Shelf<String, Login>,
    clusters: Shelf<ClusterName, Cluster>,
    grants: Shelf<Vec<String>, Vec<Grant>>,
    revoked: Shelf<Vec<String>, Vec<Grant>>,
}

struct Shelf<K, V>(HashMap<K, (Instant, Arc<V>)>);

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl Lookups {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            kept: Mutex::default(),
        }
    }

    /// A token with its user, whatever their state.
    pub async fn api_token(&self, id: &str) -> Result<Option<Arc<Api>>> {
        let read = self.store.api_token(id);
        self.ask(|kept| &mut kept.api_tokens, id.to_owned(), read)
            .await
    }

    /// A pair with its session and user, whatever their state.
    pub async fn session_token(&self, id: &str) -> Result<Option<Arc<Login>>> {
        let read = self.store.session_token(id);
        self.ask(|kept| &mut kept.session_tokens, id.to_owned(), read)
            .await
    }

    /// A living cluster by its name.
    pub async fn cluster(&self, name: &ClusterName) -> Result<Option<Arc<Cluster>>> {
        let read = self.store.cluster(name);
        self.ask(|kept| &mut kept.clusters, name.clone(), read)
            .await
    }

    /// Grants of these subjects that are not revoked; they may have ended.
    pub async fn grants_of(&self, subjects: Vec<String>) -> Result<Arc<Vec<Grant>>> {
        let read = async { self.store.grants_of(&subjects).await.map(Some) };
        let grants = self
            .ask(|kept| &mut kept.grants, subjects.clone(), read)
            .await?;
        Ok(grants.unwrap_or_default())
    }

    /// Grants of these subjects that were revoked lately, for who is refused.
    pub async fn revoked_grants_of(&self, subjects: Vec<String>) -> Result<Arc<Vec<Grant>>> {
        let read = async {
            let revoked = self.store.revoked_grants_of(&subjects, REVOKED).await;
            revoked.map(Some)
        };
        let grants = self
            .ask(|kept| &mut kept.revoked, subjects.clone(), read)
            .await?;
        Ok(grants.unwrap_or_default())
    }

    /// What is not there is asked for each time: it may come.
    async fn ask<K: Eq + Hash, V>(
        &self,
        place: impl Fn(&mut Kept) -> &mut Shelf<K, V>,
        key: K,
        read: impl Future<Output = Result<Option<V>>>,
    ) -> Result<Option<Arc<V>>> {
        let now = Instant::now();
        let before = {
            let mut kept = self.kept();
            if let Some(known) = place(&mut kept).get(&key, now) {
                return Ok(Some(known));
            }
            kept.changes
        };
        let Some(found) = read.await?.map(Arc::new) else {
            return Ok(None);
        };
        let mut kept = self.kept();
        // What was read before a change may not be said after it.
        if kept.changes == before {
            place(&mut kept).put(key, now, found.clone());
        }
        drop(kept);
        Ok(Some(found))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.store.access().count();
        if kept.changes != changes {
            *kept = Kept {
                changes,
                ..Kept::default()
            };
        }
        kept
    }
}

impl<K: Eq + Hash, V> Shelf<K, V> {
    fn get(&self, key: &K, now: Instant) -> Option<Arc<V>> {
        let (read, value) = self.0.get(key)?;
        (now.duration_since(*read) < KEEP).then(|| value.clone())
    }

    fn put(&mut self, key: K, read: Instant, value: Arc<V>) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key, (read, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::store::sqlite::Sqlite;

    /// A change between the question and the answer: who asked may be told the old, nobody after.
    #[tokio::test]
    async fn what_was_read_before_a_change_is_not_kept() {
        let data = std::env::temp_dir().join(format!("linesman-lookups-{}", std::process::id()));
        std::fs::create_dir_all(&data).unwrap();
        let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
        let lookups = Lookups::new(store.clone());
        let ask = async |read: Vec<Grant>, changes: bool| {
            let read = async {
                if changes {
                    store.access().add();
                }
                Ok(Some(read))
            };
            let grants = lookups.ask(|kept| &mut kept.grants, Vec::new(), read);
            grants.await.unwrap().unwrap().len()
        };
        let grants = |count| vec![grant(); count];
        assert_eq!(ask(grants(2), true).await, 2);
        assert_eq!(ask(grants(1), false).await, 1);
        assert_eq!(ask(grants(3), false).await, 1);
        store.access().add();
        assert_eq!(ask(grants(3), true).await, 3);
        assert_eq!(ask(grants(4), false).await, 4);
        drop(std::fs::remove_dir_all(&data));
    }

    fn grant() -> Grant {
        Grant {
            id: "g1".to_owned(),
            subject: "user:ada".parse().unwrap(),
            clusters: crate::hub::access::Clusters::All,
            groups: ["edit".to_owned()].into(),
            act_as: std::collections::BTreeSet::new(),
            namespaces: None,
            mode: crate::hub::access::Mode::Full,
            expires_at: None,
            revoked_at: None,
            revoked_by: None,
            reason: String::new(),
            created_by: "hub".to_owned(),
            created_at: time::OffsetDateTime::UNIX_EPOCH,
            rev: 1,
        }
    }

    #[test]
    fn a_shelf_that_is_full_begins_anew() {
        let mut shelf = Shelf::default();
        let now = Instant::now();
        for n in 0..=MOST {
            shelf.put(n, now, Arc::new(n));
        }
        assert_eq!(
            (shelf.get(&0, now), shelf.get(&MOST, now)),
            (None, Some(Arc::new(MOST)))
        );
        assert_eq!(shelf.get(&MOST, now + KEEP), None);
    }
}
