//! Where a cluster's line is: here, or at another replica of the hub.
//!
//! The records are asked for each request, so that one never goes to a line that has a successor. Where they do not
//! answer, a line that is here is used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use time::OffsetDateTime;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::peers::{Peer, PeerError, Peers};
use super::replica::lines::Elsewhere;
use super::store::{Bell, Cluster, LineRow, Located, Replica, StoreError};
use super::tunnels::{self, NoLine};
use super::twin::takeovers::Holder;
use super::{Hub, chain_of};
use crate::clock::{self, Steady};
use crate::tunnel::{Line, LineError, Stream};
use crate::wire::frame::{Class, Code, Kind};
use crate::wire::id::ClusterName;

/// Between looks at the records while a request waits, and at who the other replicas are.
const LOOK: Duration = Duration::from_secs(1);
/// A look that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(2);

/// A cluster's line, wherever it is.
pub enum Route {
    Here(Line),
    There(There),
}

/// A line at another replica.
pub struct There {
    peers: Peers,
    cluster: ClusterName,
    epoch: u64,
    owner: Replica,
    /// The line's own, which the agent judges by.
    clock: Steady,
}

impl Route {
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Here(line) => line.facts().epoch,
            Self::There(there) => there.epoch,
        }
    }

    /// The time by which the agent judges what is said on this line.
    pub fn hub_now(&self) -> OffsetDateTime {
        match self {
            Self::Here(line) => line.hub_now(),
            Self::There(there) => there.clock.at(Instant::now()),
        }
    }

    /// The replica that has it, where that is another, for people.
    pub fn owner(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::There(there) => Some(there.owner.peer.clone()),
        }
    }

    /// Opens a stream. What fails here has cost nothing: nothing of the request has left.
    pub async fn open(&self, kind: Kind, class: Class, meta: Bytes) -> Result<Stream, LineError> {
        let there = match self {
            Self::Here(line) => return line.open(kind, class, meta).await,
            Self::There(there) => there,
        };
        let line = (&there.cluster, there.epoch);
        let opened = there
            .peers
            .open(&there.owner.id, line, (kind, class), &meta);
        opened.await.map_err(|error| match error {
            PeerError::Line(error) => error,
            PeerError::Unknown | PeerError::Dial(_) | PeerError::Late => {
                let owner = &there.owner.peer;
                let text = format!("the replica of the hub that has the line, {owner}: {error}");
                LineError::new(Code::Unavailable, text)
            }
        })
    }
}

/// The cluster's line, with an epoch above `after`. Where there is none, but its return is likely, waits up to `limit`
/// for it.
pub async fn wait(
    hub: &Hub,
    cluster: &Cluster,
    after: Option<u64>,
    limit: Duration,
) -> Result<Route, NoLine> {
    let Cluster {
        id,
        name,
        last_seen,
        ..
    } = cluster;
    let Some((own, peers)) = several(hub) else {
        heard_before(hub, cluster);
        let here = hub.tunnels.wait(name, after, limit).await;
        return here.map(Route::Here);
    };
    if let Some(route) = newest(hub, (own, peers), (name, after), look(hub, name).await) {
        return Ok(route);
    }
    if let Some(heard) = *last_seen {
        hub.tunnels.heard_elsewhere(name, heard);
    }
    let _place = hub.tunnels.park(name)?;
    let shared = hub.tunnels.look(name, id);
    let next = shared.until(
        LOOK,
        || look(hub, name),
        |located| match newest(hub, (own, peers), (name, after), located) {
            Some(route) => Some(Ok(route)),
            None if hub.tunnels.is_expected(name) => None,
            None => Some(Err(NoLine::Offline)),
        },
    );
    let waited = timeout(limit, next).await;
    waited.unwrap_or_else(|_| Err(hub.tunnels.in_vain(name)))
}

/// A hub that has just begun has seen no line of the cluster yet. The records say when the one before it heard the cluster last: a line
/// that ended with that hub is on its way to this one.
fn heard_before(hub: &Hub, cluster: &Cluster) {
    if let Some(heard) = cluster.last_seen
        && heard < hub.started
        && hub.tunnels.get(&cluster.name).is_none()
    {
        hub.tunnels.heard_elsewhere(&cluster.name, heard);
    }
}

/// This replica's id and its lines to the others, where the hub is one of several.
fn several(hub: &Hub) -> Option<(&str, &Peers)> {
    Some((&hub.replica.as_ref()?.record.id, hub.peers.as_ref()?))
}

/// What the records say of the cluster's line.
async fn look(hub: &Hub, cluster: &ClusterName) -> Option<Located> {
    match timeout(LIMIT, hub.store.line_of(cluster)).await {
        Ok(Ok(located)) => located,
        _ if hub.store.is_away() => None,
        Ok(Err(error)) => {
            tracing::warn!(%cluster, error = chain_of(&error), "look where a line is");
            None
        }
        Err(_) => {
            tracing::warn!(%cluster, "look where a line is: no answer in time");
            None
        }
    }
}

/// The newest line that is known now, where its epoch is above `after`: of those that the records say and that are here.
fn newest(
    hub: &Hub,
    (own, peers): (&str, &Peers),
    (cluster, after): (&ClusterName, Option<u64>),
    located: Option<Located>,
) -> Option<Route> {
    let newer = |epoch: &u64| after < Some(*epoch);
    let elsewhere = located.filter(|located| located.line.replica != own);
    if let Some(located) = &elsewhere {
        let epoch = located.line.epoch;
        hub.tunnels.seen_elsewhere(cluster, epoch, clock::now());
    }
    // One that is here and newer than what the records say is not in them yet.
    let here = hub
        .tunnels
        .get(cluster)
        .map(|line| (line.facts().epoch, line));
    match (here, elsewhere) {
        (Some((epoch, line)), other) if other.as_ref().is_none_or(|o| o.line.epoch < epoch) => {
            newer(&epoch).then_some(Route::Here(line))
        }
        (_, Some(located)) => newer(&located.line.epoch).then(|| there(peers, cluster, located)),
        (_, None) => None,
    }
}

fn there(peers: &Peers, cluster: &ClusterName, located: Located) -> Route {
    let Located { line, peer: owner } = located;
    // It may have come since the last look at who is there.
    peers.meet(peer(owner.clone()));
    let millis = line.hub_clock.unix_timestamp_nanos() / 1_000_000;
    Route::There(There {
        peers: peers.clone(),
        cluster: cluster.clone(),
        epoch: line.epoch,
        owner,
        clock: Steady::new(i64::try_from(millis).unwrap_or_default(), Instant::now()),
    })
}

/// Tells the others of a line that came. Gives whose place it took at another replica.
pub async fn came(hub: &Hub, cluster: &ClusterName, id: &str, line: &Line) -> Option<Holder> {
    let (own, _) = several(hub)?;
    let row = tunnels::row(own, id.to_owned(), line);
    let put = async {
        let before = hub.store.line_of(cluster).await?;
        Ok::<_, StoreError>((before, hub.store.put_line(&row).await?))
    };
    match timeout(LIMIT, put).await {
        Ok(Ok((before, true))) => {
            ring(hub, id);
            taken_over(before, &row)
        }
        Ok(Ok((_, false))) => {
            hub.tunnels.superseded(cluster, row.epoch);
            None
        }
        // The next renewal of the lease makes it good.
        _ if hub.store.is_away() => None,
        Ok(Err(error)) => {
            tracing::warn!(%cluster, error = chain_of(&error), "tell the others of a line");
            None
        }
        Err(_) => {
            tracing::warn!(%cluster, "tell the others of a line: no answer in time");
            None
        }
    }
}

/// The line of another process of the agent, where that was at another replica and the older one.
fn taken_over(before: Option<Located>, row: &LineRow) -> Option<Holder> {
    let before = before?.line;
    let another = before.replica != row.replica
        && before.instance != row.instance
        && before.epoch < row.epoch;
    another.then_some(Holder {
        instance: before.instance,
        remote: before.remote,
    })
}

/// Tells the others that a line is gone.
pub async fn went(hub: &Hub, cluster_id: &str, epoch: u64) {
    if several(hub).is_none() {
        return;
    }
    let dropped = timeout(LIMIT, hub.store.drop_line(cluster_id, epoch)).await;
    if matches!(dropped, Ok(Ok(()))) {
        ring(hub, cluster_id);
    } else if !hub.store.is_away() {
        // The next renewal of the lease makes it good.
        tracing::warn!(cluster_id, epoch, "tell the others that a line is gone");
    }
}

/// The sign of life of a cluster whose line ended, at the time when that was known, also of one that fell silent: other replicas
/// wait for its next line from there on. Of one that was removed meanwhile nothing stays: the next one that has its name is not to
/// show it.
pub async fn last_heard(
    hub: &Hub,
    (cluster, cluster_id): (&ClusterName, &str),
    known: OffsetDateTime,
) {
    // All that is known here ends with a hub that stops.
    let lives = hub.stop.is_cancelled() || {
        let found = timeout(LIMIT, hub.store.cluster_by_id(cluster_id)).await;
        let is_there = |found: Option<Cluster>| found.is_some_and(|c| c.removed_at.is_none());
        // One that cannot be looked up may be there.
        found.ok().and_then(Result::ok).is_none_or(is_there)
    };
    if lives {
        hub.presence.heard(cluster_id, known, true);
    } else {
        removed(hub, cluster, cluster_id);
    }
}

/// Ends the lines here of a cluster that was removed; nothing stays known of it.
pub fn removed(hub: &Hub, cluster: &ClusterName, cluster_id: &str) {
    hub.tunnels.end_removed(cluster, cluster_id);
    hub.presence.forget(cluster_id);
    hub.paces.forget(cluster_id);
}

/// Ends the lines here whose keys have ended, at whichever replica that was, and the orders that such a key listens to by HTTPS; those of
/// one cluster where it is named. Where the agent itself moved on to its next key, what runs on its former line may end in its time, as
/// long as the same process has a newer one.
///
/// # Errors
/// The records cannot be read: lines and orders of former keys may go on, until the next look.
pub async fn end_former(hub: &Hub, of: Option<&ClusterName>) -> Result<(), StoreError> {
    let mut keys = hub.tunnels.keys(of);
    keys.extend(hub.orders.keys(of));
    if keys.is_empty() {
        return Ok(());
    }
    let ended: BTreeMap<String, bool> = hub.store.ended_keys(keys).await?.into_iter().collect();
    if ended.is_empty() {
        return Ok(());
    }
    // Also where the agent moved on: it asks for others with its next key, and they begin with the present state.
    hub.orders.end_former(&ended);
    let elsewhere = match of {
        // Of lines elsewhere nothing has to be known where no agent moved on.
        _ if !ended.values().any(|moved| *moved) => Elsewhere::default(),
        Some(cluster) => Elsewhere::of(hub, cluster).await?,
        None => Elsewhere::all(hub).await?,
    };
    for cluster in hub.tunnels.proven_by(&ended) {
        let newest = elsewhere.at(&cluster).map(|located| &located.line);
        if let Some(newest) = newest {
            let epoch = newest.epoch;
            hub.tunnels.seen_elsewhere(&cluster, epoch, clock::now());
        }
        let newest = newest.map(|line| (line.epoch, line.instance.as_str()));
        hub.tunnels.end_former(&cluster, &ended, newest);
    }
    Ok(())
}

/// The others need not wait for their next look.
fn ring(hub: &Hub, cluster_id: &str) {
    if let Some(own) = &hub.replica {
        own.ring(Bell::Line(cluster_id.to_owned()));
    }
}

/// Learns again and again who the other replicas are, until `stop`.
pub async fn follow(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let following = async {
        let Some((own, peers)) = several(&hub) else {
            return std::future::pending().await;
        };
        loop {
            match timeout(LIMIT, hub.store.replicas()).await {
                Ok(Ok(replicas)) => {
                    let others = replicas.into_iter().filter(|other| other.id != own);
                    peers.know(others.map(peer).collect());
                }
                // Those who were known stay so.
                _ if hub.store.is_away() => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = chain_of(&error), "look who the other replicas are");
                }
                Err(_) => tracing::warn!("look who the other replicas are: no answer in time"),
            }
            sleep(LOOK).await;
        }
    };
    stop.run_until_cancelled(following).await;
    Ok(())
}

fn peer(replica: Replica) -> Peer {
    let Replica {
        id,
        peer,
        cert_sha256,
    } = replica;
    Peer {
        id,
        address: peer,
        cert_sha256,
    }
}
