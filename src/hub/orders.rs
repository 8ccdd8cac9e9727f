//! The orders to the agents' open streams.

use std::collections::BTreeMap;
use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use crate::wire::api::Order;
use crate::wire::id::ClusterName;

/// Orders to the agents' open streams. A receiver that falls behind is told so, and starts from the present state.
#[derive(Default)]
pub struct Orders {
    clusters: Mutex<BTreeMap<ClusterName, Streams>>,
}

/// The streams of one cluster, by the key that let them in over HTTPS. None = those on lines, which end with their lines.
type Streams = BTreeMap<Option<String>, broadcast::Sender<Order>>;

impl Orders {
    const ROOM: usize = 64;
    /// Of one cluster: its agent has one, and another for a moment when it moves to its next line.
    pub const STREAMS: usize = 16;

    /// `key` is the fingerprint of the one that let the stream in over HTTPS. None = the cluster's agent has as many as it may.
    pub fn subscribe(
        &self,
        cluster: &ClusterName,
        key: Option<&str>,
    ) -> Option<broadcast::Receiver<Order>> {
        let mut clusters = self.lock();
        // Keys and clusters whose last stream ended leave no trace.
        clusters.retain(|_, listeners| {
            listeners.retain(|_, sender| sender.receiver_count() > 0);
            !listeners.is_empty()
        });
        let listeners = clusters.entry(cluster.clone()).or_default();
        if open(listeners) >= Self::STREAMS {
            return None;
        }
        let sender = listeners.entry(key.map(str::to_owned));
        let sender = sender.or_insert_with(|| broadcast::channel(Self::ROOM).0);
        Some(sender.subscribe())
    }

    /// To the cluster's agent, if it listens now: an agent that does not will start from the present state.
    pub fn send(&self, cluster: &ClusterName, order: Order) {
        if let Some(listeners) = self.lock().get(cluster) {
            for (sender, order) in listeners.values().zip(iter::repeat(order)) {
                // An error says that nobody listens.
                let _listeners = sender.send(order);
            }
        }
    }

    /// Ends the streams of the cluster's agent. It may ask for another, which is judged anew.
    pub fn end(&self, cluster: &ClusterName) {
        self.lock().remove(cluster);
    }

    /// The keys that let streams in over HTTPS; those of one cluster where it is named.
    pub fn keys(&self, of: Option<&ClusterName>) -> Vec<String> {
        let clusters = self.lock();
        let chosen = clusters
            .iter()
            .filter(|(name, _)| of.is_none_or(|of| of == *name));
        let keys = chosen.flat_map(|(_, listeners)| listeners.keys().flatten());
        keys.cloned().collect()
    }

    /// Ends the streams that these keys let in.
    pub fn end_former<T>(&self, ended: &BTreeMap<String, T>) {
        for listeners in self.lock().values_mut() {
            listeners.retain(|key, _| key.as_ref().is_none_or(|key| !ended.contains_key(key)));
        }
    }

    /// The clusters whose agents listen now.
    pub fn listening(&self) -> Vec<ClusterName> {
        let clusters = self.lock();
        let live = clusters.iter().filter(|(_, listeners)| open(listeners) > 0);
        live.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the cluster's agent listens now.
    pub fn listens(&self, cluster: &ClusterName) -> bool {
        self.lock()
            .get(cluster)
            .is_some_and(|listeners| open(listeners) > 0)
    }

    pub fn send_all(&self, order: &Order) {
        for sender in self.lock().values().flat_map(BTreeMap::values) {
            let _listeners = sender.send(order.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Streams>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(listeners: &Streams) -> usize {
    let all = listeners.values();
    all.map(broadcast::Sender::receiver_count).sum()
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    #[test]
    fn an_agent_has_so_many_streams_of_orders_and_another_one_has_its_own() {
        let orders = Orders::default();
        let [eu1, us1] = ["eu1", "us1"].map(|name| name.parse::<ClusterName>().unwrap());
        let open = || orders.subscribe(&eu1, None);
        let by_https = orders.subscribe(&eu1, Some("k1")).unwrap();
        let mut streams: Vec<_> = (1..Orders::STREAMS).map(|_| open().unwrap()).collect();
        assert!(open().is_none());
        assert!(orders.subscribe(&eu1, Some("k2")).is_none());
        assert!(orders.subscribe(&us1, None).is_some());
        drop(by_https);
        streams.push(orders.subscribe(&eu1, Some("k2")).unwrap());
        orders.send(&eu1, Order::Beat);
        let all = streams.iter_mut();
        let heard: Vec<_> = all.map(broadcast::Receiver::try_recv).collect();
        assert_eq!(heard, vec![Ok(Order::Beat); Orders::STREAMS]);
    }

    /// L41
    #[test]
    fn streams_of_orders_end_with_the_key_that_let_them_in() {
        let orders = Orders::default();
        let [eu1, us1] = ["eu1", "us1"].map(|name| name.parse::<ClusterName>().unwrap());
        let by = |key| orders.subscribe(&eu1, key).unwrap();
        let mut streams = [by(None), by(Some("k1")), by(Some("k2"))];
        let mut other = orders.subscribe(&us1, Some("k3")).unwrap();
        assert_eq!(orders.keys(Some(&eu1)), ["k1", "k2"]);
        assert_eq!(orders.keys(None), ["k1", "k2", "k3"]);
        orders.end_former(&BTreeMap::from([("k1".to_owned(), true)]));
        let heard = streams.each_mut().map(|stream| stream.try_recv().err());
        let [stays, over] = [TryRecvError::Empty, TryRecvError::Closed].map(Some);
        assert_eq!(heard, [stays.clone(), over.clone(), stays]);
        assert_eq!(orders.keys(None), ["k2", "k3"]);
        // A cluster that has none left does not listen.
        orders.end_former(&BTreeMap::from([("k3".to_owned(), false)]));
        assert_eq!(other.try_recv().err(), over);
        assert_eq!(orders.listening(), [eu1]);
    }
}
