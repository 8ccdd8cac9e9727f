//! Requests that wait for a cluster's line, where the records say which replica has it: one of them asks, for all. While the agents of a
//! replica that ended come back, each cluster's requests look when its own line moved, and not when any did.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::sleep;

use super::{Entry, Tunnels};
use crate::hub::store::Located;
use crate::wire::id::ClusterName;

/// What those share who wait for one cluster's line.
#[derive(Debug)]
pub(in crate::hub) struct Look {
    cluster_id: String,
    /// Whoever has it asks.
    turn: Semaphore,
    /// The line may be elsewhere than at the last look.
    moved: Notify,
    /// What the records said last.
    said: watch::Sender<Option<Located>>,
}

impl Look {
    fn of(cluster_id: &str) -> Self {
        Self {
            cluster_id: cluster_id.to_owned(),
            turn: Semaphore::new(1),
            moved: Notify::new(),
            said: watch::Sender::new(None),
        }
    }

    /// Waits until what the records say is what was looked for. One of all who wait asks them, when the line moved and `every` so
    /// often; when it goes, another one goes on.
    pub(in crate::hub) async fn until<T, F>(
        &self,
        every: Duration,
        ask: impl Fn() -> F,
        found: impl Fn(Option<Located>) -> Option<T>,
    ) -> T
    where
        F: Future<Output = Option<Located>>,
    {
        let mut said = self.said.subscribe();
        // What was said before it came, it has not heard.
        self.moved.notify_one();
        let _turn = loop {
            tokio::select! {
                // Whoever has found it goes, and its turn with it: those who find it, too, need none.
                biased;
                _ = said.changed() => {
                    let located = said.borrow_and_update().clone();
                    if let Some(found) = found(located) {
                        return found;
                    }
                }
                turn = self.turn.acquire() => break turn,
            }
        };
        // Whoever had the turn before may have gone in the midst of a look.
        self.moved.notify_one();
        loop {
            tokio::select! {
                () = self.moved.notified() => {}
                () = sleep(every) => {}
            }
            let located = ask().await;
            self.said.send_replace(located.clone());
            if let Some(found) = found(located) {
                return found;
            }
        }
    }
}

impl Tunnels {
    /// What a request shares with the others that wait for the line of the cluster with this name and id; it has to have its place
    /// among them.
    pub(in crate::hub) fn look(&self, cluster: &ClusterName, cluster_id: &str) -> Arc<Look> {
        let mut clusters = self.lock();
        let entry = clusters.entry(cluster.clone()).or_default();
        let shared = entry.look.upgrade();
        // Of another cluster that had the name some may wait yet.
        if let Some(look) = shared.filter(|look| look.cluster_id == cluster_id) {
            return look;
        }
        let look = Arc::new(Look::of(cluster_id));
        entry.look = Arc::downgrade(&look);
        look
    }

    /// The line of the cluster with this id came or went at another replica: those who wait for it look again.
    pub(in crate::hub) fn moved_elsewhere(&self, cluster_id: &str) {
        let clusters = self.lock();
        let looks = clusters.values().map(|entry| &entry.look);
        let mut its = looks.filter_map(Weak::upgrade);
        if let Some(look) = its.find(|look| look.cluster_id == cluster_id) {
            look.moved.notify_one();
        }
    }
}

impl Entry {
    /// Its line came, went or is not waited for any more.
    pub(super) fn moved(&self) {
        if let Some(look) = self.look.upgrade() {
            look.moved.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use futures_util::future::join_all;
    use time::OffsetDateTime;
    use tokio::task::yield_now;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::clock;
    use crate::hub::store::{LineRow, Replica};

    const EVERY: Duration = Duration::from_secs(1);
    /// The time of a look.
    const TAKES: Duration = Duration::from_millis(100);

    fn located(epoch: u64) -> Located {
        Located {
            line: LineRow {
                cluster_id: "id-eu1".to_owned(),
                replica: "b".to_owned(),
                epoch,
                session: String::new(),
                instance: String::new(),
                remote: String::new(),
                since: OffsetDateTime::UNIX_EPOCH,
                hub_clock: OffsetDateTime::UNIX_EPOCH,
            },
            peer: Replica {
                id: "b".to_owned(),
                peer: "b:7443".to_owned(),
                cert_sha256: [0; 32],
            },
        }
    }

    fn epoch(located: Option<Located>) -> Option<u64> {
        Some(located?.line.epoch)
    }

    /// A registry, and what those share who wait for the line of cluster eu1.
    fn waiting() -> (Tunnels, Arc<Look>) {
        let (tunnels, eu1): (_, ClusterName) = (Tunnels::default(), "eu1".parse().unwrap());
        tunnels.heard_elsewhere(&eu1, clock::now());
        let look = tunnels.look(&eu1, "id-eu1");
        (tunnels, look)
    }

    /// L19: a replica ended, and all agents that it had come back.
    #[tokio::test(start_paused = true)]
    async fn of_those_who_wait_one_asks_and_only_when_its_own_line_moved() {
        let (tunnels, look) = waiting();
        let (asked, there, began) = (Cell::new(0), RefCell::new(None), Instant::now());
        let ask = || async {
            asked.set(asked.get() + 1);
            sleep(TAKES).await;
            there.borrow().clone()
        };
        let waits = join_all((0..100).map(|_| look.until(EVERY, ask, epoch)));
        let others = async {
            sleep(TAKES * 5).await;
            for n in 0..1000 {
                tunnels.moved_elsewhere(&format!("id-other{n}"));
                yield_now().await;
            }
            // One for all, and one for those who came while it was under way.
            assert_eq!(asked.get(), 2);
            there.replace(Some(located(7)));
            tunnels.moved_elsewhere("id-eu1");
        };
        let (found, ()) = tokio::join!(waits, others);
        assert_eq!((found, asked.get()), (vec![7; 100], 3));
        assert!(began.elapsed() < EVERY, "{:?}", began.elapsed());
    }

    /// Its client left.
    #[tokio::test(start_paused = true)]
    async fn when_the_one_that_asks_goes_the_next_one_asks_at_once() {
        let (_tunnels, look) = waiting();
        let asked = Cell::new(0);
        let ask = || async {
            asked.set(asked.get() + 1);
            sleep(TAKES).await;
            Some(located(7))
        };
        let began = Instant::now();
        let leaves = timeout(TAKES / 2, look.until(EVERY, ask, epoch));
        let stays = look.until(EVERY, ask, epoch);
        let (left, found) = tokio::join!(leaves, stays);
        assert!(left.is_err());
        assert_eq!((found, asked.get()), (7, 2));
        assert!(began.elapsed() < TAKES * 2, "{:?}", began.elapsed());
    }

    /// One look in a second is for a bell that was not heard.
    #[tokio::test(start_paused = true)]
    async fn without_a_bell_it_is_asked_now_and_then() {
        let (_tunnels, look) = waiting();
        let asked = Cell::new(0);
        let ask = || async {
            asked.set(asked.get() + 1);
            (asked.get() > 3).then(|| located(7))
        };
        let began = Instant::now();
        assert_eq!(look.until(EVERY, ask, epoch).await, 7);
        assert_eq!((asked.get(), began.elapsed().as_secs()), (4, 3));
    }
}
