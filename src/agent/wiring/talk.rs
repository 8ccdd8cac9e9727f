//! The line, and what it carries.

use anyhow::{Context as _, Result};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::agent::forward::{self, Subjects};
use crate::agent::gate::Covered;
use crate::agent::gate::policy::Policy;
use crate::agent::identity::Identity;
use crate::agent::link::{self, LinkConfig, LinkState, ProxyConfig};
use crate::agent::{DRAIN, Joined, enroll};
use crate::clock;
use crate::lifetime::Tasks;
use crate::lifetime::hearts::Hearts;
use crate::wire::api::{EngineKind, HubRef};

/// The line and what it carries, as soon as the cluster has joined.
pub(super) struct Talk {
    pub(super) keys: watch::Receiver<Identity>,
    pub(super) server: kube::Config,
    pub(super) context: enroll::Context,
    pub(super) joined: watch::Receiver<Option<Joined>>,
    pub(super) link: watch::Sender<LinkState>,
    pub(super) line: watch::Receiver<LinkState>,
    pub(super) subjects: watch::Receiver<Subjects>,
    pub(super) owner: watch::Receiver<Option<Policy>>,
    pub(super) covered: watch::Receiver<Covered>,
    pub(super) hearts: Hearts,
}

impl Talk {
    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let waiting = self.joined.wait_for(Option::is_some);
        let Some(first) = stop.run_until_cancelled(waiting).await else {
            return Ok(());
        };
        let first = first.context("the task that joins has ended")?.clone();
        let first = first.context("joined without an assignment")?;
        let (hub_out, hub) = watch::channel(first.assignment.hub.clone());
        let (proxy_out, proxy) = watch::channel(first.proxy.clone());
        let (incoming_out, incoming) = mpsc::channel(forward::INCOMING);
        let dial = LinkConfig {
            hub,
            cluster: self.context.cluster.clone(),
            keys: self.keys.clone(),
            build: self.context.build.clone(),
            instance: uuid::Builder::from_random_bytes(clock::random())
                .into_uuid()
                .to_string(),
            proxy,
        };
        let forwarding = forward::Context {
            kube: self.context.kube.clone(),
            server: self.server,
            namespace: self.context.namespace.clone(),
            argocd: self.context.engines.of(EngineKind::Argocd).to_owned(),
            hub_id: first.assignment.hub.id.clone(),
            cluster_id: first.assignment.cluster.id.clone(),
            policy: self.owner,
            covered: self.covered,
            hearts: self.hearts.clone(),
        };
        let mut tasks = Tasks::watched(stop, &self.hearts);
        let (state_out, state, subjects) = (self.link, self.line, self.subjects);
        tasks.spawn("link", |stop| {
            link::run(dial, state_out, incoming_out, stop)
        });
        tasks.spawn("forward", |stop| {
            forward::run(forwarding, incoming, state, subjects, stop)
        });
        tasks.spawn("hub's record", |stop| {
            follow(self.joined, first, (hub_out, proxy_out), stop)
        });
        tasks.run(DRAIN).await
    }
}

/// Hands changes of the hub's record, and of the way there, to the link. Another hub or another cluster id is another life.
async fn follow(
    mut joined: watch::Receiver<Option<Joined>>,
    first: Joined,
    (hub, proxy): (watch::Sender<HubRef>, watch::Sender<Option<ProxyConfig>>),
    stop: CancellationToken,
) -> Result<()> {
    let of = |joined: &Joined| {
        let assignment = &joined.assignment;
        (assignment.hub.id.clone(), assignment.cluster.id.clone())
    };
    while let Some(changed) = stop.run_until_cancelled(joined.changed()).await {
        changed.context("the task that joins has ended")?;
        let Some(now) = joined.borrow_and_update().clone() else {
            continue;
        };
        anyhow::ensure!(of(&now) == of(&first), "adopted anew: starting again");
        hub.send_if_modified(|hub| {
            let changed = *hub != now.assignment.hub;
            hub.clone_from(&now.assignment.hub);
            changed
        });
        proxy.send_if_modified(|proxy| {
            let changed = *proxy != now.proxy;
            proxy.clone_from(&now.proxy);
            changed
        });
    }
    Ok(())
}
