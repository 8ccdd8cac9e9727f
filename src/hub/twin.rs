//! Two agents with one cluster's keys, which take its line from each other (L41, F57): a copy of the cluster, or of its keys.
//!
//! Whether the line before still answered shows at the replica that held it, so that one judges a takeover, be the new line
//! here or at another replica. The fault is kept among the heals, and ended by the replica that leads.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::store::StoreError;
use super::tunnels::Fenced;
use super::{Hub, chain_of};
use crate::clock;
use crate::heal::{self, DUPLICATE_AGENT};
use crate::tunnel::LineFacts;

pub mod fault;
pub mod takeovers;

use takeovers::{Holder, Takeover};

/// How long the agent that lost its line has to answer, and to say that it was about to leave: that line has ended by then.
const ANSWER: Duration = Duration::from_secs(6);
/// Lines that are watched at once.
const WATCHED: usize = 256;
/// Between looks whether one is over.
const LOOK: Duration = Duration::from_secs(15);

/// Judges the lines that others took over, until `stop`.
pub async fn watch(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let Some(mut fenced) = hub.tunnels.fenced() else {
        stop.cancelled().await;
        return Ok(());
    };
    let mut watched = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_) = watched.join_next() => {}
            Some(line) = fenced.recv(), if watched.len() < WATCHED => {
                let hub = hub.clone();
                watched.spawn(async move { judge(&hub, line).await });
            }
        }
    }
}

/// Counts a takeover where the line before answered and its agent was not about to leave.
async fn judge(hub: &Hub, fenced: Fenced) {
    let cluster = fenced.cluster.clone();
    if let Err(error) = count(hub, fenced).await {
        tracing::error!(%cluster, error = %chain_of(&error), "judge a takeover");
    }
}

async fn count(hub: &Hub, fenced: Fenced) -> Result<(), StoreError> {
    let Fenced {
        cluster,
        cluster_id,
        line,
        by,
        at,
    } = fenced;
    let LineFacts {
        instance, remote, ..
    } = line.facts();
    let to = match by {
        Some(by) => by,
        // It is at another replica; one that is gone again by now took nothing for long.
        None => match hub.store.line_of(&cluster).await? {
            Some(located) => Holder {
                instance: located.line.instance,
                remote: located.line.remote,
            },
            None => return Ok(()),
        },
    };
    if to.instance == instance {
        return Ok(());
    }
    let ended = timeout(ANSWER, line.closed()).await;
    let left = ended.is_ok_and(|ended| ended.by_peer);
    if left || !line.answered() {
        return Ok(());
    }
    let from = Holder { instance, remote };
    let newest = Takeover { at, from, to };
    let all = hub.tunnels.taken((&cluster, &cluster_id), newest.clone());
    let unrestored = hub.store.unrestored(DUPLICATE_AGENT).await?;
    let last = unrestored.into_iter().rfind(|u| u.cluster == cluster);
    let (now, id) = (clock::now(), clock::id);
    let Some(record) = fault::taken(now, &cluster, (&newest, &all), last, id) else {
        return Ok(());
    };
    tracing::warn!(%cluster, evidence = record.evidence, "two agents have the keys of one cluster");
    hub.store.note_heal(&cluster_id, record, now).await
}

/// Ends what is over, until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let wait = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while wait().await.is_some() {
        if let Err(error) = look(&hub, clock::now()).await
            && !hub.store.is_away()
        {
            tracing::error!(error = %chain_of(&error), "look whether duplicate agents are gone");
        }
    }
    Ok(())
}

/// One look: ends those of whose clusters nobody took the line for ten minutes.
pub async fn look(hub: &Hub, now: OffsetDateTime) -> Result<(), StoreError> {
    for last in hub.store.unrestored(DUPLICATE_AGENT).await? {
        let (cluster, cluster_id) = (last.cluster.clone(), last.cluster_id.clone());
        if let Some(record) = fault::quiet(now, last) {
            if heal::is_over(&record) {
                tracing::info!(%cluster, "no agent takes another's line any more");
            }
            hub.store.note_heal(&cluster_id, record, now).await?;
        }
    }
    Ok(())
}
