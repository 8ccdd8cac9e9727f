//! The cluster's agent, and the way between it and the hub.

use std::net::SocketAddr;
use std::sync::Arc;

use linesman::agent::forward::exchange::{Exchange, Shared};
use linesman::agent::forward::{INCOMING, serve};
use linesman::agent::identity::Identity;
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock;
use linesman::hub::Hub;
use linesman::keys::KeyPair;
use linesman::tunnel::Incoming;
use linesman::wire::api::{AgentBuild, HubRef};
use linesman::wire::id::ClusterName;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, World, has_line, join, name};
use crate::proxy::apiserver::ApiServer;
use crate::proxy::pair::Pair;

/// The way between agent and hub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Door {
    /// New connections are dropped.
    pub(in crate::proxy) shut: bool,
    /// Every change of this drops those that stand.
    pub(in crate::proxy) cuts: u32,
}

/// An agent that has dialled: what ends it, the streams that come, and how its line is.
type Dialled = (
    CancellationToken,
    mpsc::Receiver<Incoming>,
    watch::Receiver<LinkState>,
);

impl World {
    /// The same with the line up.
    pub(in crate::proxy) async fn with_line(server: &ApiServer) -> Self {
        let mut world = Self::new().await;
        world.agent(server).await;
        world
    }

    /// Starts the cluster's agent, which ends with the token; its line is up when this returns.
    pub(in crate::proxy) async fn agent(&mut self, server: &ApiServer) -> CancellationToken {
        self.agent_under(server, &[]).await
    }

    /// The same under a policy of the cluster's owner.
    pub(in crate::proxy) async fn agent_under(
        &mut self,
        server: &ApiServer,
        policy: &[(&str, &str)],
    ) -> CancellationToken {
        let shared = Pair::shared(server, &self.hub.id, &self.cluster_id, policy);
        self.agent_of(shared).await
    }

    /// The same with its parts.
    pub(in crate::proxy) async fn agent_of(&mut self, shared: Arc<Shared>) -> CancellationToken {
        let hub = self.hub.clone();
        let (stop, streams, state) = self.dial_to(&hub, INCOMING).await;
        self.tasks.spawn(forward(shared, streams, state));
        stop
    }

    /// The same by the agent's own loop, with its bound of how many it serves at once.
    pub(in crate::proxy) async fn agent_serving(&mut self, shared: Arc<Shared>) {
        let hub = self.hub.clone();
        let (stop, streams, state) = self.dial_to(&hub, INCOMING).await;
        self.tasks.spawn(async move {
            let served = linesman::agent::forward::streams(shared, streams, state, stop);
            served.await.unwrap();
        });
    }

    /// The same where the door leads to another replica.
    pub(in crate::proxy) async fn agent_at(
        &mut self,
        server: &ApiServer,
        owner: &Hub,
    ) -> CancellationToken {
        let shared = Pair::shared(server, &self.hub.id, &self.cluster_id, &[]);
        let (stop, streams, state) = self.dial_to(owner, INCOMING).await;
        self.tasks.spawn(forward(shared, streams, state));
        stop
    }

    /// A process of the agent by keys that may change; its line is up, wherever the door leads to, when this returns.
    pub(in crate::proxy) async fn agent_by(
        &mut self,
        server: &ApiServer,
        keys: watch::Receiver<Identity>,
    ) {
        let shared = Pair::shared(server, &self.hub.id, &self.cluster_id, &[]);
        let config = |hub| LinkConfig {
            keys,
            ..link_config(hub)
        };
        let (_stop, streams, state) = self.dialled(config, INCOMING).await;
        self.tasks.spawn(forward(shared, streams, state));
    }

    /// The same without anyone who serves the streams, of which 64 wait.
    pub(in crate::proxy) async fn dial(&mut self) -> Dialled {
        let hub = self.hub.clone();
        self.dial_to(&hub, 64).await
    }

    /// One more cluster with its agent, whose line is up when this returns; gives the cluster's id.
    pub(in crate::proxy) async fn neighbour(
        &mut self,
        cluster: &ClusterName,
        server: &ApiServer,
    ) -> String {
        let identity = KeyPair::from_seed(&clock::random());
        let id = join(&self.hub, cluster.clone(), &identity).await;
        let shared = Pair::shared(server, &self.hub.id, &id, &[]);
        let config = |hub| LinkConfig {
            cluster: cluster.clone(),
            keys: keys(identity),
            ..link_config(hub)
        };
        let (_stop, streams, state) = self.dialled(config, INCOMING).await;
        self.tasks.spawn(forward(shared, streams, state));
        has_line(&self.hub, cluster, true).await;
        id
    }

    async fn dial_to(&mut self, owner: &Hub, waiting: usize) -> Dialled {
        let dialled = self.dialled(link_config, waiting).await;
        has_line(owner, &name(), true).await;
        dialled
    }

    async fn dialled(
        &mut self,
        config: impl FnOnce(watch::Receiver<HubRef>) -> LinkConfig,
        waiting: usize,
    ) -> Dialled {
        let (hub_held, hub_ref) = watch::channel(self.hub.reference());
        let config = config(hub_ref);
        let (line, mut state) = watch::channel(not_dialled());
        let (incoming, streams) = mpsc::channel(waiting);
        let stop = self.stop.child_token();
        let stopped = stop.clone();
        self.tasks.spawn(async move {
            link::run(config, line, incoming, stopped).await.unwrap();
            drop(hub_held);
        });
        let up = state.wait_for(|state| matches!(state, LinkState::Up { .. }));
        drop(timeout(PATIENCE, up).await.expect("the line comes up"));
        (stop, streams, state)
    }
}

pub(super) async fn relay(
    outside: TcpListener,
    to: watch::Receiver<SocketAddr>,
    door: watch::Receiver<Door>,
) {
    let mut open = JoinSet::new();
    while let Ok((mut socket, _)) = outside.accept().await {
        let mut door = door.clone();
        if door.borrow_and_update().shut {
            continue;
        }
        let to = *to.borrow();
        open.spawn(async move {
            let mut hub = TcpStream::connect(to).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut socket, &mut hub) => {}
                _ = door.changed() => {}
            }
        });
    }
}

/// Serves each stream as the agent does.
pub(in crate::proxy) async fn forward(
    shared: Arc<Shared>,
    mut streams: mpsc::Receiver<Incoming>,
    mut state: watch::Receiver<LinkState>,
) {
    let mut running = JoinSet::new();
    while let Some(arrived) = streams.recv().await {
        let up = state.wait_for(|state| matches!(state, LinkState::Up { .. }));
        let Ok(LinkState::Up { keyset, .. }) = up.await.map(|up| up.clone()) else {
            return;
        };
        let exchange = Exchange {
            meta: serde_json::from_slice(&arrived.meta).unwrap(),
            epoch: arrived.epoch,
            keyset,
            hub_now: arrived.stream.line().hub_now(),
            renew: Arc::new(|| {}),
            cancelled: arrived.stream.cancelled(),
            stop: Arc::new(arrived.stream.stopper()),
        };
        running.spawn(serve(arrived.stream, shared.clone(), exchange));
    }
}

pub(in crate::proxy) fn identity() -> KeyPair {
    KeyPair::from_seed(&[11; 32])
}

fn keys(identity: KeyPair) -> watch::Receiver<Identity> {
    watch::channel(held(identity)).1
}

/// What an agent of this identity has.
pub(in crate::proxy) fn held(identity: KeyPair) -> Identity {
    Identity {
        identity,
        ..Identity::from_seeds(&[1; 32], &[2; 32])
    }
}

/// How the agent of these tests dials.
pub(in crate::proxy) fn link_config(hub: watch::Receiver<HubRef>) -> LinkConfig {
    LinkConfig {
        hub,
        cluster: name(),
        keys: keys(identity()),
        build: AgentBuild::default(),
        instance: clock::id(),
        proxy: watch::channel(None).1,
    }
}

pub(in crate::proxy) fn not_dialled() -> LinkState {
    LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    }
}
