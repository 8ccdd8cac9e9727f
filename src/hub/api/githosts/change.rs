//! One change of the Git host's keys at a time, and what clusters are told after it: what the store has.

use std::fs::File;
use std::sync::Arc;

use anyhow::Result;
use tokio::sync::SemaphorePermit;

use super::super::clusters::announce;
use crate::hub::githost::hostkeys::{BUILTIN, TrustedKey};
use crate::hub::store::StoreError;
use crate::hub::{Hub, serve};

/// Until it is dropped, nobody else changes the keys: neither here nor in another replica, which has the same files.
pub(super) struct Turn<'a> {
    _here: SemaphorePermit<'a>,
    _among_replicas: File,
}

pub(super) async fn turn(hub: &Hub) -> Result<Turn<'_>> {
    let here = hub.git_keys.turn().await;
    let among_replicas = serve::turn(&hub.config.data).await?;
    Ok(Turn {
        _here: here,
        _among_replicas: among_replicas,
    })
}

/// Puts these in the place of those; false = others are there. Whatever came of it, clusters are told what the store has then:
/// a change may be stored although nobody heard so.
pub(super) async fn store(
    hub: &Arc<Hub>,
    before: Vec<TrustedKey>,
    after: Vec<TrustedKey>,
) -> Result<bool, StoreError> {
    let changed = hub.store.change_host_keys(BUILTIN, before, after).await;
    let read = refreshed(hub).await;
    if read.is_err() {
        // It is read again by who watches over rotations.
        hub.git_keys.ring();
    }
    let changed = changed?;
    read.map(|()| changed)
}

/// Tells what the store has, where something else was told. Whoever asks has a turn.
pub(super) async fn refreshed(hub: &Arc<Hub>) -> Result<(), StoreError> {
    if hub.git_keys.refresh(&hub.store).await? {
        tell(hub);
    }
    Ok(())
}

/// Lets every cluster that listens fetch what it is told now. Nobody waits for that, and no caller's going away ends it.
fn tell(hub: &Arc<Hub>) {
    let telling = hub.clone();
    hub.work.spawn(async move { tell_all(&telling).await });
}

async fn tell_all(hub: &Hub) {
    for name in hub.orders.listening() {
        if hub.stop.is_cancelled() {
            return;
        }
        let told = async {
            match hub.store.cluster(&name).await? {
                Some(cluster) => announce(hub, &cluster).await,
                None => Ok(()),
            }
        };
        if let Err(problem) = told.await {
            tracing::error!(cluster = %name, error = problem.detail, "tell a cluster of the Git host's keys");
        }
    }
}
