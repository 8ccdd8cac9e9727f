//! What the other replicas changed, taken over here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Own;
use crate::hub::incident::Incident;
use crate::hub::store::{Bell, Changes, Noted, StoreError};
use crate::hub::{Hub, api, chain_of, directory, git, serve};
use crate::ssh::HostPair;
use crate::wire::api::Order;
use crate::wire::id::ClusterName;

mod standing;

pub use standing::end_lost;

/// Between looks where no bell rings.
const LOOK: Duration = Duration::from_secs(1);
/// A look at the counters that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(2);
/// A part that takes longer to be taken over is tried anew.
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
            if let Err(error) = hub.store.ring(&bells).await
                && !hub.store.is_away()
            {
                tracing::warn!(error = chain_of(&error), "ring for the other replicas");
            }
            bells.clear();
        }
    };
    let hearing = async {
        loop {
            if let Err(error) = hear(&hub, own).await
                && !hub.store.is_away()
            {
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
            Bell::Line(id) => {
                own.count.notify_one();
                hub.tunnels.moved_elsewhere(&id);
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
    let (access, wanted) = watch::channel(None);
    let common = Arc::new(Notify::new());
    let mut follower = Follower::new(access, common.clone());
    let following = async {
        loop {
            match timeout(LIMIT, hub.store.changes()).await {
                Ok(Ok(changes)) => follower.take(&hub, own, changes).await,
                // That is said once, and not at each look.
                _ if hub.store.is_away() => {}
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
    // Beside the rest: where much runs and the records are slow, that takes long.
    let looking = standing::follow(&hub, wanted);
    // And so does this, where many agents listen.
    let telling = async {
        loop {
            common.notified().await;
            api::clusters::announce_changed(&hub).await;
        }
    };
    let all = async { tokio::join!(following, looking, telling) };
    stop.run_until_cancelled(Box::pin(all)).await;
    Ok(())
}

/// What was taken over so far; None = nothing yet.
struct Follower {
    /// For the look at what runs here, which says by itself how far it is.
    access: watch::Sender<Option<i64>>,
    /// Rung when what all clusters are told may be another: each agent that listens here is to hear whether its assignment is.
    changed: Arc<Notify>,
    clusters: Option<i64>,
    common: Option<i64>,
    pushes: Option<i64>,
    told: BTreeMap<ClusterName, u64>,
}

async fn in_time(work: impl Future<Output = Result<()>>) -> Result<()> {
    timeout(TAKEN, work).await.context("no end in time")?
}

impl Follower {
    fn new(access: watch::Sender<Option<i64>>, changed: Arc<Notify>) -> Self {
        Self {
            access,
            changed,
            clusters: None,
            common: None,
            pushes: None,
            told: BTreeMap::new(),
        }
    }

    /// What fails stays to be taken over at the next look.
    async fn take(&mut self, hub: &Arc<Hub>, own: &Own, now: Changes) {
        let done = |counter: &mut Option<i64>, to: i64, ended: Result<()>| match ended {
            Ok(()) => *counter = Some(to),
            Err(_) if hub.store.is_away() => {}
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "take over what others changed"
                );
            }
        };
        let access = *self.access.borrow();
        if access != Some(now.access) || self.clusters != Some(now.clusters) {
            // Before what runs is looked at: who comes after that look is judged by what is read now.
            hub.store.access().add();
        }
        if access != Some(now.access) {
            self.access.send_replace(Some(now.access));
        }
        if self.common != Some(now.common) {
            let ended = in_time(common(hub)).await;
            if ended.is_ok() {
                self.changed.notify_one();
            }
            done(&mut self.common, now.common, ended);
        }
        if self.clusters != Some(now.clusters) {
            own.count.notify_one();
            let ended = in_time(revoked(hub)).await;
            let told = ended.and(in_time(orders(hub, &mut self.told)).await);
            done(&mut self.clusters, now.clusters, told);
        }
        if self.pushes != Some(now.pushes) {
            let told = match self.pushes {
                // What was pushed before this replica began, agents hear when they begin to listen.
                None => Ok(()),
                Some(before) => in_time(push(hub, own, (before, now.pushes))).await,
            };
            done(&mut self.pushes, now.pushes, told);
        }
    }
}

/// The Git host's keys and the standing incident, which all clusters are told.
async fn common(hub: &Hub) -> Result<()> {
    let turn = hub.git_keys.turn().await;
    let path = serve::host_key(&hub.config.data);
    let doing = || format!("read the host key {}", path.display());
    let text = tokio::fs::read_to_string(&path).await.with_context(doing)?;
    let pair = HostPair::from_openssh(&text).with_context(doing)?;
    if pair.key() != hub.git_keys.served() {
        hub.git_keys.serve(pair);
    }
    hub.git_keys.refresh(&hub.store).await?;
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
    Ok(())
}

/// Ends what agents have open here whose cluster was revoked, and what they have by a key that has ended.
async fn revoked(hub: &Hub) -> Result<()> {
    let mut present = hub.tunnels.clusters();
    present.extend(hub.orders.listening());
    let names = present.iter().map(ToString::to_string).collect();
    for name in hub.store.revoked(names).await? {
        api::clusters::cut_off(hub, &name);
    }
    Ok(directory::end_former(hub, None).await?)
}

/// Tells each agent that listens here of an assignment that is another, and that its cluster was removed. Of such a cluster nothing
/// stays known.
async fn orders(hub: &Arc<Hub>, told: &mut BTreeMap<ClusterName, u64>) -> Result<()> {
    let listening = hub.orders.listening();
    told.retain(|name, _| listening.contains(name));
    // Also of those that have no line any more, or never had one here.
    let known = hub.tunnels.known();
    let names = known.iter().map(|(name, _)| name).chain(&listening);
    let names = names.map(ToString::to_string).collect();
    let living: BTreeMap<String, u64> = hub.store.revisions(names).await?.into_iter().collect();
    for (name, id) in known {
        if !living.contains_key(name.as_str()) {
            let hub = hub.clone();
            hub.clone().work.spawn(async move {
                sleep(REMOVED).await;
                directory::removed(&hub, &name, &id);
            });
        }
    }
    for name in listening {
        match living.get(name.as_str()) {
            None => hub.orders.send(&name, Order::Removed),
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

/// What agents here have to hear of pushes.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// They were told, by this replica.
    Nothing,
    These(String, BTreeSet<ClusterName>),
    /// Of this head; None = of the one that the catalog has now.
    All(Option<String>),
}

/// By the last push and its counter: as it was taken over last, as this look found it, and behind the reading of that push. Only
/// where it went one on in all is that push the only one; where there were several, all hear of the head.
fn told(last: Option<Pushed>, own: &str, (before, seen, after): (i64, i64, i64)) -> Told {
    match last.filter(|_| seen - before == 1 && after == seen) {
        Some(push) if push.by == own => Told::Nothing,
        Some(Pushed {
            head,
            clusters: Some(clusters),
            ..
        }) => Told::These(head, clusters),
        Some(Pushed { head, .. }) => Told::All(Some(head)),
        None => Told::All(None),
    }
}

/// Tells the agents that listen here of what was pushed since the counter was at `before`.
async fn push(hub: &Hub, own: &Own, (before, seen): (i64, i64)) -> Result<()> {
    let noted = hub.store.noted(Noted::Push).await?;
    let after = hub.store.changes().await?.pushes;
    let last: Option<Pushed> = noted.and_then(|text| serde_json::from_str(&text).ok());
    match told(last, &own.record.id, (before, seen, after)) {
        Told::Nothing => {}
        Told::These(head, clusters) => {
            for name in clusters {
                let revision = head.clone();
                hub.orders.send(&name, Order::CatalogHead { revision });
            }
        }
        Told::All(Some(revision)) => hub.orders.send_all(&Order::CatalogHead { revision }),
        Told::All(None) => {
            let head = git::head(&hub.catalog.repo, &hub.catalog.branch).await?;
            if let Some(revision) = head {
                hub.orders.send_all(&Order::CatalogHead { revision });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two pushes in a row the last one's words are not taken for the first one's: its clusters would never hear of it.
    #[test]
    fn only_a_push_that_was_alone_is_told_to_its_own_clusters() {
        let clusters: BTreeSet<ClusterName> = ["b".parse().unwrap()].into();
        let push = |clusters: Option<&BTreeSet<ClusterName>>, by: &str| {
            Some(Pushed {
                head: "2".to_owned(),
                clusters: clusters.cloned(),
                by: by.to_owned(),
            })
        };
        let these = || Told::These("2".to_owned(), clusters.clone());
        let head = || Told::All(Some("2".to_owned()));
        let (some, all) = (Some(&clusters), None);
        for (last, counters, expected) in [
            (push(some, "other"), (4, 5, 5), these()),
            (push(all, "other"), (4, 5, 5), head()),
            (push(some, "own"), (4, 5, 5), Told::Nothing),
            // Two since the last look.
            (push(some, "other"), (3, 5, 5), Told::All(None)),
            (push(some, "own"), (3, 5, 5), Told::All(None)),
            // The second came when the counter had been read.
            (push(some, "other"), (4, 5, 6), Told::All(None)),
            (push(some, "own"), (4, 5, 6), Told::All(None)),
            (None, (4, 5, 5), Told::All(None)),
        ] {
            assert_eq!(told(last, "own", counters), expected, "{counters:?}");
        }
    }
}
