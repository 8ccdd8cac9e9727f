//! Carries the rotation of the built-in Git server's key out: files, records, what is shown.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::super::problem::Problem;
use super::{change, find, joined};
use crate::clock;
use crate::hub::audit::Entry;
use crate::hub::githost::hostkeys::{BUILTIN, Refusal, Standing, TrustedKey};
use crate::hub::githost::rotation::{self, Member, Next};
use crate::hub::replica::lines::Elsewhere;
use crate::hub::store::{Cluster, HostKeysOf};
use crate::hub::{Hub, serve};
use crate::ssh::HostPair;
use crate::ssh::known_hosts::HostKey;
use crate::wire::api::MAX_HOST_KEYS;

/// Between looks while a rotation is under way; a report of a cluster asks for one at once.
const LOOK: Duration = Duration::from_secs(5);
/// Between looks while none is.
const IDLE: Duration = Duration::from_mins(1);
/// Between the wake-ups of many reports.
const PACE: Duration = Duration::from_millis(500);

/// Makes the next key and tells it beside the present one. A rotation that is under way stays as it is.
pub(super) async fn begin(hub: &Arc<Hub>, by: &str, entry: Entry) -> Result<(), Problem> {
    let _turn = change::turn(hub).await?;
    let before = hub.store.host_keys(BUILTIN).await?;
    if before.iter().any(|t| t.standing == Standing::Next) {
        return Ok(());
    }
    if before.len() >= MAX_HOST_KEYS {
        return Err(Refusal::Full.into());
    }
    let pair = hub.git_keys.make_next(&clock::random());
    let pair = pair.context("make a host key")?;
    let key = pair.key();
    let after = rotation::announced(&before, key.clone(), (by, clock::now()));
    hub.audit
        .change(Entry {
            target: format!(
                "{BUILTIN}: {} is to take the place of {}",
                key.fingerprint,
                hub.git_keys.served().fingerprint
            ),
            ..entry
        })
        .await?;
    // The file first: a key that is told and cannot be shown would have to be taken back.
    let text = pair.openssh("linesman catalog").context("encode a key")?;
    serve::keep_secret(&serve::next_host_key(&hub.config.data), text.expose())?;
    store(hub, before, after).await?;
    tracing::info!(key = key.fingerprint, by, "the next host key is told");
    Ok(())
}

/// Shows the next key from now on, whoever knows it by now; false = there is none.
pub(super) async fn serve_now(hub: &Arc<Hub>, mut entry: Entry) -> Result<bool> {
    let _turn = change::turn(hub).await?;
    let before = hub.store.host_keys(BUILTIN).await?;
    let Some(coming) = before.iter().find(|t| t.standing == Standing::Next) else {
        return Ok(false);
    };
    let (key, old) = (coming.key.clone(), hub.git_keys.served());
    if key != old {
        entry.target = format!("{BUILTIN}: {} -> {}", old.fingerprint, key.fingerprint);
        show(hub, &key, entry).await?;
    }
    // A hub that was killed before this line finds that it serves the key that was to be the next one.
    let after = rotation::served(&before, &key, clock::now());
    store(hub, before, after).await?;
    tracing::info!(
        key = key.fingerprint,
        "the Git server shows its new host key"
    );
    Ok(true)
}

/// Puts the next key's file in the present one's place, and shows it to whoever connects from now on.
async fn show(hub: &Hub, key: &HostKey, entry: Entry) -> Result<()> {
    let [next, present] = [
        serve::next_host_key(&hub.config.data),
        serve::host_key(&hub.config.data),
    ];
    // Another replica may have put it there, and ended before it could say so.
    let there = pair_in(&present).await.ok().filter(|p| p.key() == *key);
    if let Some(pair) = there {
        hub.git_keys.serve(pair);
        return Ok(());
    }
    let pair = pair_in(&next).await.with_context(|| {
        format!(
            "read the next host key {}; if it is lost, drop it and rotate again: linesman githost drop-host-key \
             --fingerprint {}",
            next.display(),
            key.fingerprint
        )
    })?;
    ensure!(
        pair.key() == *key,
        "{} holds another key than clusters were told; drop that one and rotate again: linesman githost drop-host-key \
         --fingerprint {}",
        next.display(),
        key.fingerprint
    );
    hub.audit.change(entry).await?;
    tokio::fs::rename(&next, &present).await.with_context(|| {
        format!(
            "put {} in the place of the present host key",
            next.display()
        )
    })?;
    hub.git_keys.serve(pair);
    Ok(())
}

async fn pair_in(file: &Path) -> Result<HostPair> {
    let text = tokio::fs::read_to_string(file).await?;
    Ok(HostPair::from_openssh(&text)?)
}

async fn store(hub: &Arc<Hub>, before: Vec<TrustedKey>, after: Vec<TrustedKey>) -> Result<()> {
    ensure!(
        change::store(hub, before, after).await?,
        "the host's keys changed meanwhile; look at them and decide again: linesman githost show"
    );
    Ok(())
}

/// What the rotation does next, and for whom it waits.
pub(super) async fn look(hub: &Hub, now: OffsetDateTime) -> Result<Next> {
    let trusted = hub.git_keys.trusted();
    let served = hub.git_keys.served();
    if rotation::next(now, &trusted, &served, &[]) == Next::Nothing {
        return Ok(Next::Nothing);
    }
    let members = members(hub, now).await?;
    Ok(rotation::next(now, &trusted, &served, &members))
}

async fn members(hub: &Hub, now: OffsetDateTime) -> Result<Vec<Member>> {
    let reports = hub.store.host_key_reports().await?;
    let elsewhere = Elsewhere::all(hub).await?;
    let of = |c: &Cluster| {
        let here = hub.tunnels.view_of(&c.name, &c.id);
        let up = elsewhere.view(&c.name, here).up;
        member(hub, now, (c, up.is_some()), find(&reports, &c.name))
    };
    Ok(joined(hub, of).await?)
}

fn member(
    hub: &Hub,
    now: OffsetDateTime,
    (cluster, up): (&Cluster, bool),
    said: Option<&HostKeysOf>,
) -> Member {
    let (heard, _) = hub.presence.last(&cluster.id);
    // By another replica, too.
    let heard = heard.max(cluster.last_seen);
    let lately = heard.is_some_and(|at| now - at < hub.config.offline_after);
    Member {
        name: cluster.name.clone(),
        engine: cluster.engine,
        in_reach: up || lately,
        trusted: said.map(|s| s.trusted.clone()).unwrap_or_default(),
        trusted_at: said.map_or(now, |s| s.trusted_at),
        shown: said.and_then(|s| s.shown.as_ref().map(|k| k.fingerprint.clone())),
    }
}

/// Takes each step of a rotation when it is due, until `stop`.
pub async fn watch_over(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    loop {
        let wait = match step(&hub).await {
            Ok(true) => LOOK,
            Ok(false) => IDLE,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the rotation of the host key waits"
                );
                IDLE
            }
        };
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(wait) => {}
            () = hub.git_keys.rung() => {
                if stop.run_until_cancelled(tokio::time::sleep(PACE)).await.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

/// True = a rotation is under way.
async fn step(hub: &Arc<Hub>) -> Result<bool> {
    let entry = |action: &str| Entry {
        actor: "hub".to_owned(),
        action: action.to_owned(),
        ..Entry::default()
    };
    {
        let _turn = hub.git_keys.turn().await;
        change::refreshed(hub).await?;
    }
    match look(hub, clock::now()).await? {
        Next::Nothing => Ok(false),
        Next::Wait(clusters) => {
            tracing::debug!(
                clusters = clusters.len(),
                "the rotation of the host key waits for clusters"
            );
            Ok(true)
        }
        Next::Serve(_) => {
            serve_now(hub, entry("githost.serve-host-key")).await?;
            Ok(true)
        }
        Next::Drop(keys) => {
            let _turn = change::turn(hub).await?;
            let before = hub.store.host_keys(BUILTIN).await?;
            let mut after = before.clone();
            after.retain(|t| !keys.contains(&t.key));
            let prints: Vec<&str> = keys.iter().map(|k| k.fingerprint.as_str()).collect();
            let entry = Entry {
                target: format!("{BUILTIN}: {}", prints.join(", ")),
                ..entry("githost.drop-host-key")
            };
            hub.audit.change(entry).await?;
            store(hub, before, after).await?;
            tracing::info!(
                keys = prints.join(", "),
                "the old host key is told no longer"
            );
            Ok(true)
        }
    }
}
