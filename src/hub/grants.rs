//! Grants on their way to the agents: which names each cluster's agent must be able to act as.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::hub::access::{self, Asker, Grant, Place, Subject};
use crate::hub::running::Gone;
use crate::hub::store::{Cluster, StoreError, UserRow};
use crate::hub::{Hub, chain_of};
use crate::wire::api::Order;

/// Changes within this time become one round of orders.
const COALESCE: Duration = Duration::from_millis(100);
/// The net below the wake-ups, and the wait after a failure.
const AGAIN: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(2);
const PAGE: u32 = 500;
/// Bytes of users and of groups in an order, which is a line; an agent takes none of more than 1 MiB. Who is left out is taken in at
/// the first use, as are all those beyond the 2,000 that the agent's role has room for.
const USERS: usize = 512 << 10;
const GROUPS: usize = 384 << 10;

/// The order that tells an agent whom its line may act as.
pub async fn subjects(hub: &Hub, cluster: &Cluster) -> Result<Order, StoreError> {
    let (grants, users) = (all(hub).await?, hub.store.users().await?);
    Ok(order(&grants, &users, cluster))
}

fn order(grants: &[Grant], users: &[UserRow], cluster: &Cluster) -> Order {
    let askers = users.iter().map(|user| Asker {
        name: &user.name,
        groups: &user.groups,
    });
    let place = Place {
        name: &cluster.name,
        labels: &cluster.labels,
    };
    let (users, groups) = access::subjects(grants, askers, &place, clock::now());
    told(users, groups)
}

fn told(users: Vec<String>, groups: BTreeSet<String>) -> Order {
    Order::Subjects {
        users: first(users, USERS),
        groups: first(groups, GROUPS),
    }
}

/// As many as fit.
fn first(names: impl IntoIterator<Item = String>, mut bytes: usize) -> Vec<String> {
    let fits = |name: &String| {
        let name = serde_json::to_string(name).expect("a string becomes JSON");
        let left = bytes.checked_sub(name.len() + ",".len());
        bytes = left.unwrap_or_default();
        left.is_some()
    };
    names.into_iter().take_while(fits).collect()
}

async fn all(hub: &Hub) -> Result<Vec<Grant>, StoreError> {
    let mut grants: Vec<Grant> = Vec::new();
    loop {
        let after = grants.last().map(|g| g.id.clone());
        let page = hub.store.grants(after.as_deref(), PAGE).await?;
        let more = page.len() == PAGE as usize;
        grants.extend(page);
        if !more {
            return Ok(grants);
        }
    }
}

/// Ends what a user runs by grants of groups that they are not in any more. To be called when the store has it.
pub async fn groups_lost(
    hub: &Hub,
    user_id: &str,
    before: &[String],
    now: &[String],
) -> Result<(), StoreError> {
    let lost = before.iter().filter(|g| !now.contains(g));
    let subjects: Vec<String> = lost
        .map(|g| Subject::Group(g.clone()).to_string())
        .collect();
    if subjects.is_empty() {
        return Ok(());
    }
    let grants = hub.store.grants_of(&subjects).await?;
    let grants: Vec<String> = grants.into_iter().map(|g| g.id).collect();
    hub.requests.end(Gone::Held {
        user: user_id,
        grants: &grants,
    });
    Ok(())
}

/// Whether one of the user's own grants takes a cluster in once its labels are other ones.
pub async fn gains(
    hub: &Hub,
    asker: &Asker<'_>,
    before: &Place<'_>,
    after: &Place<'_>,
) -> Result<bool, StoreError> {
    let own = hub.store.grants_of(&asker.subjects()).await?;
    let now = clock::now();
    let reaches = |grant: &Grant, place| grant.reaches(asker, place, now).is_ok();
    Ok(own
        .iter()
        .any(|grant| reaches(grant, after) && !reaches(grant, before)))
}

/// Ends what runs on a cluster by grants that its labels take it out of. To be called when the store has them.
pub async fn relabelled(
    hub: &Hub,
    id: &str,
    before: &Place<'_>,
    after: &Place<'_>,
) -> Result<(), StoreError> {
    let grants = all(hub).await?;
    let lost = grants
        .iter()
        .filter(|grant| grant.clusters.contain(before) && !grant.clusters.contain(after));
    let lost: Vec<String> = lost.map(|grant| grant.id.clone()).collect();
    if !lost.is_empty() {
        hub.requests.end(Gone::Reach {
            cluster: id,
            grants: &lost,
        });
    }
    Ok(())
}

/// Tells the agents that listen whenever a grant or a user changed, and when a grant ends.
pub async fn announce(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    // How many changes they have heard of.
    let mut told = None;
    loop {
        let (wait, end) = match hub.store.next_grant_end(clock::now()).await {
            Ok(end) => (end.map_or(AGAIN, until), end),
            Err(error) => {
                if !hub.store.is_away() {
                    tracing::error!(error = chain_of(&error), "look up when grants end");
                }
                told = None;
                (RETRY, None)
            }
        };
        let woken = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = hub.access_changed.notified() => true,
            () = tokio::time::sleep(wait.min(AGAIN)) => false,
        };
        if stop
            .run_until_cancelled(tokio::time::sleep(COALESCE))
            .await
            .is_none()
        {
            return Ok(());
        }
        let changes = hub.store.access().count();
        let ended = end.is_some_and(|end| end <= clock::now());
        if !woken && !ended && told == Some(changes) {
            continue;
        }
        told = Some(changes);
        if let Err(error) = tell(&hub).await {
            if !hub.store.is_away() {
                tracing::error!(
                    error = chain_of(&error),
                    "tell agents whom their lines may act as"
                );
            }
            hub.access_changed.notify_one();
            if stop
                .run_until_cancelled(tokio::time::sleep(RETRY))
                .await
                .is_none()
            {
                return Ok(());
            }
        }
    }
}

fn until(end: OffsetDateTime) -> Duration {
    Duration::try_from(end - clock::now()).unwrap_or_default()
}

async fn tell(hub: &Hub) -> Result<(), StoreError> {
    let (grants, users) = (all(hub).await?, hub.store.users().await?);
    for name in hub.orders.listening() {
        if let Some(cluster) = hub.store.cluster(&name).await? {
            hub.orders.send(&name, order(&grants, &users, &cluster));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize, of: &str) -> Vec<String> {
        (0..count).map(|n| format!("{of}{n:0>199}")).collect()
    }

    #[test]
    fn an_order_names_those_first_for_whom_a_line_has_room() {
        let (users, groups) = (names(40_000, "u"), names(40_000, "g"));
        let order = told(users.clone(), groups.iter().cloned().collect());
        // Each is 200 characters, two quotes and a comma.
        let some = Order::Subjects {
            users: users[..USERS / 203].to_vec(),
            groups: groups[..GROUPS / 203].to_vec(),
        };
        assert!(order == some);
        assert!(serde_json::to_string(&order).unwrap().len() < 1 << 20);
    }

    #[test]
    fn an_order_names_all_where_there_is_room() {
        let (users, groups) = (names(2_000, "u"), names(1_000, "g"));
        let order = told(users.clone(), groups.iter().cloned().collect());
        assert!(order == Order::Subjects { users, groups });
    }
}
