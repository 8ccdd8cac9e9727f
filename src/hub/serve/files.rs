//! Follows the files in the data directory that make the hub what agents and people know it by: its key, its CA and its
//! certificate. `linesman hub rotate` changes them beside a hub that runs.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio_util::sync::CancellationToken;

use super::open::{KEY, say, turn};
use super::{renew, rotated};
use crate::clock;
use crate::hub::trust::Said;
use crate::hub::{Hub, api};
use crate::keys::Public;

/// What is told five minutes ahead is seen by every replica long before its time.
const LOOK: Duration = Duration::from_secs(2);

/// Looks again and again until `stop`. What is in force stays until a look succeeds.
pub(super) async fn follow(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let mut failed = String::new();
    // Also what was changed while no hub ran.
    let mut to_record = !matches!(rotated::record(&hub).await, Ok(true));
    let pause = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while pause().await.is_some() {
        let there = tokio::fs::metadata(hub.config.data.join(KEY));
        let Some(there) = stop.run_until_cancelled(there).await else {
            break;
        };
        let gone = there.err().map(|error| gone(&hub.config.data, &error));
        note(&hub, gone.as_deref());
        // Nothing is made in what may be the place where it was mounted.
        if gone.is_some() {
            continue;
        }
        let turn = stop.run_until_cancelled(turn(&hub.config.data));
        let Some(turn) = turn.await else { break };
        let (other, mut looked) = match looked(&hub, turn).await {
            Ok(Looked { other, renewed }) => (other, renewed),
            Err(error) => (false, Err(error)),
        };
        if other {
            api::clusters::announce_changed(&hub).await;
        }
        to_record |= other;
        if to_record {
            let recorded = rotated::record(&hub).await;
            to_record = !matches!(recorded, Ok(true));
            looked = looked.and_then(|()| recorded.map(drop));
        }
        match looked {
            Ok(()) => failed.clear(),
            Err(error) => {
                let error = format!("{error:#}");
                if error != failed {
                    tracing::error!(error, "follow the hub's key, CA and certificate");
                }
                failed = error;
            }
        }
    }
    Ok(())
}

/// What is said where the hub's key, which is replaced and never removed, cannot be looked at.
fn gone(data: &Path, error: &std::io::Error) -> String {
    format!(
        "the data directory {} has no {KEY} any more ({error}): bring its volume back, then start the hub anew",
        data.display()
    )
}

fn note(hub: &Hub, gone: Option<&str>) {
    let changed = hub.data_gone.send_if_modified(|known| {
        let changed = known.as_deref() != gone;
        *known = gone.map(str::to_owned);
        changed
    });
    match gone {
        Some(gone) if changed => tracing::error!("{gone}"),
        None if changed => tracing::info!("the data directory is back"),
        Some(_) | None => {}
    }
}

struct Looked {
    /// There is something else to tell agents.
    other: bool,
    renewed: Result<()>,
}

async fn looked(hub: &Arc<Hub>, turn: Result<File>) -> Result<Looked> {
    let turn = turn?;
    let looking = hub.clone();
    let look = tokio::task::spawn_blocking(move || look(&looking));
    let looked = look.await.context("look at the hub's files")?;
    drop(turn);
    looked
}

/// The fingerprint of the key that signs now, as `linesman hub rotate` prints it.
fn signs_as(said: &Said) -> String {
    let signs = said.keys.kid();
    let mut told = said.trust.keyset.iter();
    let key = told.find(|key| key.kid == signs);
    let key = key.and_then(|key| Public::from_base64(&key.key).ok());
    key.map_or_else(|| signs.to_owned(), Public::fingerprint)
}

fn look(hub: &Hub) -> Result<Looked> {
    let (now, before) = (clock::now(), hub.says());
    // Each on its own: a certificate that cannot be read keeps nobody from another key.
    let renewed = hub.tls.renew(now);
    let keys = renew::keys(&hub.config.data, now)?;
    let told = (&before.trust.ca, &before.trust.keyset);
    let is_told = told == (&hub.tls.ca(), &keys.keyset(now.unix_timestamp()));
    let signs = keys.kid().to_owned();
    if is_told && signs == before.keys.kid() {
        let other = false;
        return Ok(Looked { other, renewed });
    }
    let said = say(&hub.config, &hub.id, &hub.tls, keys)?;
    let version = said.trust.version;
    let signs = signs_as(&said);
    tracing::info!(version, signs, "the hub's keys or CA are others now");
    hub.said.send_replace(Arc::new(said));
    let other = !is_told;
    Ok(Looked { other, renewed })
}
