//! Replicas are one hub, and each has flags of its own: a slip in one of them gives agents another address by turns, or leads the
//! others to the wrong replica.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Own, TTL};
use crate::hub::store::{Reach, StoreError};
use crate::hub::{Hub, chain_of};

/// A look that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(4);
/// What to do about it.
pub const NEXT: &str = "start each replica with the same --url and --git-url, and with a --peer-url of its own; one that was killed counts \
     for 15 s";

/// What the flags of those that live say, and must not; None = nothing.
pub fn discord(all: &[Reach]) -> Option<String> {
    let (mut urls, mut peers) = (BTreeMap::new(), BTreeMap::new());
    for Reach {
        id: _,
        peer,
        urls: said,
    } in all
    {
        // One of before does not say.
        if !said.is_empty() {
            urls.entry(said.as_str()).or_insert(peer.as_str());
        }
        *peers.entry(peer.as_str()).or_insert(0_usize) += 1;
    }
    let mut found = Vec::new();
    if urls.len() > 1 {
        let said: Vec<_> = urls
            .iter()
            .map(|(urls, peer)| format!("{urls} ({peer})"))
            .collect();
        let said = said.join(", ");
        found.push(format!("replicas have another --url or --git-url: {said}"));
    }
    for (peer, _) in peers.iter().filter(|(_, count)| **count > 1) {
        found.push(format!("several replicas have --peer-url {peer}"));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// Says how this replica is reached, and warns of what does not fit. A lease that was left by a process before this one is over by
/// the first look.
pub(super) async fn watch(hub: &Hub, own: &Own) {
    let mut warned = None;
    let urls = urls(hub);
    loop {
        let told = hub.store.tell_urls(&own.record.id, &urls);
        report(hub, timeout(LIMIT, told).await);
        sleep(TTL).await;
        let Some(all) = report(hub, timeout(LIMIT, hub.store.reaches()).await) else {
            continue;
        };
        let found = discord(&all);
        if let Some(found) = found
            .as_ref()
            .filter(|found| warned.as_ref() != Some(*found))
        {
            tracing::warn!("{found}: {NEXT}");
        }
        warned = found;
    }
}

fn urls(hub: &Hub) -> String {
    format!("{} {}", hub.config.url, hub.config.git_url)
}

fn report<T>(
    hub: &Hub,
    done: Result<Result<T, StoreError>, tokio::time::error::Elapsed>,
) -> Option<T> {
    match done {
        Ok(Ok(found)) => return Some(found),
        _ if hub.store.is_away() => {}
        Ok(Err(error)) => {
            tracing::warn!(error = chain_of(&error), "compare the replicas' flags");
        }
        Err(_) => tracing::warn!("compare the replicas' flags: no answer in time"),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(id: &str, peer: &str, urls: &str) -> Reach {
        Reach {
            id: id.to_owned(),
            peer: peer.to_owned(),
            urls: urls.to_owned(),
        }
    }

    #[test]
    fn other_urls_and_one_peer_url_for_two_are_told() {
        let (a, b) = (reach("1", "a:1", "https://h x"), reach("2", "b:1", ""));
        let c = reach("3", "c:1", "https://h x");
        assert_eq!(discord(&[a.clone(), b.clone(), c.clone()]), None);
        let other = reach("4", "c:1", "https://other x");
        assert_eq!(
            discord(&[a, b, c, other]),
            Some(
                "replicas have another --url or --git-url: https://h x (a:1), https://other x (c:1); several replicas have \
                 --peer-url c:1"
                    .to_owned()
            )
        );
    }
}
