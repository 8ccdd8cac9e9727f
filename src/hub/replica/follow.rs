//! What the other replicas changed, taken over here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Own;
use crate::clock;
use crate::hub::githost::hostkeys::BUILTIN;
use crate::hub::incident::Incident;
use crate::hub::running::{By, Gone};
use crate::hub::store::{Bell, Changes, Noted, StoreError};
use crate::hub::{Hub, access, api, auth, chain_of, git, serve};
use crate::ssh::HostPair;
use crate::wire::api::Order;
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

/// Between looks where no bell rings.
const LOOK: Duration = Duration::from_secs(1);
/// A look at the counters that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(2);
/// What takes longer to be taken over is tried anew.
const TAKEN: Duration = Duration::from_secs(10);
/// The wait after a connection that broke.
const RETRY: Duration = Duration::from_secs(1);
/// Bells in one statement come from this long.
const COALESCE: Duration = Duration::from_millis(20);
/// An agent hears that its cluster was removed before its line ends.
const REMOVED: Duration = Duration::from_millis(500);

/// The last push, as the replica that took it says it.
#[derive(Debug, Serialize, Deserialize)]
struct Pushed {
    head: String,
    /// None = all.
    clusters: Option<BTreeSet<ClusterName>>,
    by: String,
}

/// Tells the other replicas of a push; None = it concerns all clusters.
pub async fn pushed(hub: &Hub, head: &str, clusters: Option<&BTreeSet<ClusterName>>) {
    let Some(own) = &hub.replica else { return };
    let note = Pushed {
        head: head.to_owned(),
        clusters: clusters.cloned(),
        by: own.record.id.clone(),
    };
    let text = serde_json::to_string(&note).expect("a push has string keys");
    if let Err(error) = hub.store.note(Noted::Push, Some(text)).await {
        // Their agents hear of it when their engines look themselves.
        tracing::error!(
            error = chain_of(&error),
            "tell the other replicas of a push"
        );
    }
}

/// Rings the bells of this replica and hears those of the others, until `stop`.
pub async fn bells(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let Some(own) = &hub.replica else {
        stop.cancelled().await;
        return Ok(());
    };
    let taken = own.rung.lock().ok().and_then(|mut rung| rung.take());
    let Some(mut rung) = taken else {
        stop.cancelled().await;
        return Ok(());
    };
    let ringing = async {
        let mut bells = Vec::new();
        while rung.recv_many(&mut bells, 1000).await > 0 {
            sleep(COALESCE).await;
            while bells.len() < 1000
                && let Ok(bell) = rung.try_recv()
            {
                bells.push(bell);
            }
            if let Err(error) = hub.store.ring(&bells).await {
                tracing::warn!(error = chain_of(&error), "ring for the other replicas");
            }
            bells.clear();
        }
    };
    let hearing = async {
        loop {
            if let Err(error) = hear(&hub, own).await {
                tracing::warn!(error = chain_of(&error), "listen to the other replicas");
            }
            own.look.notify_one();
            sleep(RETRY).await;
        }
    };
    let both = async { tokio::join!(ringing, hearing) };
    stop.run_until_cancelled(Box::pin(both)).await;
    Ok(())
}

async fn hear(hub: &Hub, own: &Own) -> Result<(), StoreError> {
    let Some(mut bells) = hub.store.bells().await? else {
        std::future::pending::<()>().await;
        return Ok(());
    };
    loop {
        match bells.next().await? {
            Bell::Look => own.look.notify_one(),
            Bell::Line(_) => {
                own.count.notify_one();
                hub.tunnels.moved();
            }
            Bell::Healed(id) if own.leads() => {
                if let Some((cluster, heal)) = hub.store.heal(&id).await? {
                    hub.notices.add(&cluster, &[heal]);
                }
            }
            Bell::Healed(_) => {}
        }
    }
}

/// Looks again and again until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let Some(own) = &hub.replica else {
        stop.cancelled().await;
        return Ok(());
    };
    let mut follower = Follower::default();
    let following = async {
        loop {
            match timeout(LIMIT, hub.store.changes()).await {
                Ok(Ok(changes)) => {
                    let taken = timeout(TAKEN, follower.take(&hub, own, changes)).await;
                    if taken.is_err() {
                        tracing::warn!("take over what others changed: no end in time");
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = chain_of(&error), "look what the others changed");
                }
                Err(_) => tracing::warn!("look what the others changed: no answer in time"),
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = own.look.notified() => {}
            }
        }
    };
    stop.run_until_cancelled(Box::pin(following)).await;
    Ok(())
}

/// What was taken over so far; None = nothing yet.
#[derive(Default)]
struct Follower {
    access: Option<i64>,
    clusters: Option<i64>,
    common: Option<i64>,
    pushes: Option<i64>,
    told: BTreeMap<ClusterName, u64>,
}

impl Follower {
    /// What fails stays to be taken over at the next look.
    async fn take(&mut self, hub: &Arc<Hub>, own: &Own, now: Changes) {
        let done = |counter: &mut Option<i64>, to: i64, ended: Result<()>| match ended {
            Ok(()) => *counter = Some(to),
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "take over what others changed"
                );
            }
        };
        if self.access != Some(now.access) || self.clusters != Some(now.clusters) {
            // Before what runs is looked at: who comes after that look is judged by what is read now.
            hub.store.access().add();
        }
        if self.access != Some(now.access) || hub.requests.late() {
            // Until all of it was looked at: what is cut off here knows nothing of it any more.
            self.access = None;
            done(&mut self.access, now.access, access_changed(hub).await);
        }
        if self.common != Some(now.common) {
            done(&mut self.common, now.common, common(hub).await);
        }
        if self.clusters != Some(now.clusters) {
            own.count.notify_one();
            let ended = revoked(hub).await;
            let told = ended.and(orders(hub, &mut self.told).await);
            done(&mut self.clusters, now.clusters, told);
        }
        if self.pushes != Some(now.pushes) {
            let one = self.pushes.map(|before| now.pushes - before == 1);
            let told = match one {
                // What was pushed before this replica began, agents hear when they begin to listen.
                None => Ok(()),
                Some(one) => push(hub, own, one).await,
            };
            done(&mut self.pushes, now.pushes, told);
        }
    }
}

/// Ends what runs by something that is no more, and tells the agents whom their lines may act as.
async fn access_changed(hub: &Hub) -> Result<()> {
    end_lost(hub).await?;
    hub.access_changed.notify_one();
    Ok(())
}

/// Ends what runs here by something that is no more, as it is on record.
///
/// # Errors
/// The records cannot be read: some of it was not looked at.
pub async fn end_lost(hub: &Hub) -> Result<(), StoreError> {
    for by in hub.requests.look() {
        ended(hub, &by).await?;
    }
    Ok(())
}

async fn ended(hub: &Hub, by: &By) -> Result<(), StoreError> {
    let user = if let Some((token, user)) = hub.store.api_token(&by.token_id).await? {
        token.revoked_at.is_none().then_some(user)
    } else {
        let session = hub.store.session(&by.token_id).await?;
        session.and_then(|(session, user)| (!session.ended).then_some(user))
    };
    let Some(user) = user.filter(|user| !user.disabled) else {
        hub.requests.end(Gone::Token(&by.token_id));
        return Ok(());
    };
    let asker = access::Asker {
        name: &user.name,
        groups: auth::groups(&user, hub.config.oidc.as_ref(), clock::now()),
    };
    let held = hub.store.grants_of(&asker.subjects()).await?;
    let (kept, gone): (Vec<&String>, Vec<&String>) = by
        .grants
        .iter()
        .partition(|id| held.iter().any(|grant| grant.id == **id));
    if !gone.is_empty() {
        hub.requests.end(Gone::Held {
            user: &by.user_id,
            grants: &owned(gone),
        });
    }
    let Some(id) = &by.cluster_id else {
        return Ok(());
    };
    // One that was removed has no line.
    let Some(cluster) = hub.store.cluster_by_id(id).await? else {
        return Ok(());
    };
    let place = access::Place {
        name: &cluster.name,
        labels: &cluster.labels,
    };
    // Of those that the user has alone: what one user lost, others may have.
    let elsewhere = |id: &&String| {
        let grant = held.iter().find(|grant| grant.id == **id);
        grant.is_some_and(|grant| !grant.clusters.contain(&place))
    };
    let gone: Vec<&String> = kept.into_iter().filter(elsewhere).collect();
    if !gone.is_empty() {
        hub.requests.end(Gone::Reach {
            cluster: id,
            grants: &owned(gone),
        });
    }
    Ok(())
}

fn owned(ids: Vec<&String>) -> Vec<String> {
    ids.into_iter().cloned().collect()
}

/// The Git host's keys, the standing incident, and whatever else all clusters are told.
async fn common(hub: &Hub) -> Result<()> {
    let turn = hub.git_keys.turn().await;
    let trusted = hub.store.host_keys(BUILTIN).await?;
    let path = serve::host_key(&hub.config.data);
    let doing = || format!("read the host key {}", path.display());
    let text = tokio::fs::read_to_string(&path).await.with_context(doing)?;
    let pair = HostPair::from_openssh(&text).with_context(doing)?;
    if pair.key() != hub.git_keys.served() {
        hub.git_keys.serve(pair);
    }
    if trusted != hub.git_keys.trusted() {
        hub.git_keys.set(trusted);
    }
    drop(turn);
    if !hub.replica.as_ref().is_some_and(Own::leads) {
        let noted = hub.store.noted(Noted::Incident).await?;
        let incident = noted.as_deref().and_then(Incident::parse);
        hub.incident.send_if_modified(|standing| {
            let other = *standing != incident;
            *standing = incident;
            other
        });
    }
    api::clusters::announce_changed(hub).await;
    Ok(())
}

/// Ends what agents have open here whose cluster was revoked.
async fn revoked(hub: &Hub) -> Result<()> {
    let mut present = hub.tunnels.clusters();
    present.extend(hub.orders.listening());
    let names = present.iter().map(ToString::to_string).collect();
    for name in hub.store.revoked(names).await? {
        api::clusters::cut_off(hub, &name);
    }
    Ok(())
}

/// Tells each agent that listens here of an assignment that is another, and that its cluster was removed.
async fn orders(hub: &Arc<Hub>, told: &mut BTreeMap<ClusterName, u64>) -> Result<()> {
    let listening = hub.orders.listening();
    told.retain(|name, _| listening.contains(name));
    let names = listening.iter().map(ToString::to_string).collect();
    let living: BTreeMap<String, u64> = hub.store.revisions(names).await?.into_iter().collect();
    for name in listening {
        match living.get(name.as_str()) {
            None => {
                hub.orders.send(&name, Order::Removed);
                let hub = hub.clone();
                hub.clone().work.spawn(async move {
                    sleep(REMOVED).await;
                    hub.tunnels
                        .close(&name, Code::Revoked, "the cluster was removed");
                });
            }
            Some(revision) => {
                // One that is seen for the first time may have been told before the change: saying it twice does no harm.
                if told.insert(name.clone(), *revision) != Some(*revision) {
                    let revision = *revision;
                    hub.orders.send(&name, Order::Assignment { revision });
                }
            }
        }
    }
    Ok(())
}

/// Tells the agents that listen here of the last push; of all, where there were several since the last look.
async fn push(hub: &Hub, own: &Own, one: bool) -> Result<()> {
    let noted = hub.store.noted(Noted::Push).await?;
    let noted: Option<Pushed> = noted.and_then(|text| serde_json::from_str(&text).ok());
    match noted.filter(|_| one) {
        Some(push) if push.by == own.record.id => {}
        Some(Pushed {
            head,
            clusters: Some(clusters),
            ..
        }) => {
            for name in clusters {
                let revision = head.clone();
                hub.orders.send(&name, Order::CatalogHead { revision });
            }
        }
        Some(Pushed { head, .. }) => hub.orders.send_all(&Order::CatalogHead { revision: head }),
        None => {
            let head = git::head(&hub.catalog.repo, &hub.catalog.branch).await?;
            if let Some(revision) = head {
                hub.orders.send_all(&Order::CatalogHead { revision });
            }
        }
    }
    Ok(())
}
