//! An agent's link to the hub of a world.

use linesman::agent::identity::Identity;
use linesman::agent::link::{self, LinkConfig, LinkState, ProxyConfig};
use linesman::clock;
use linesman::keys::KeyPair;
use linesman::tunnel::{Incoming, Line};
use linesman::wire::api::AgentBuild;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, World};

/// An agent's link.
pub(in crate::line) struct Agent {
    pub(in crate::line) state: watch::Receiver<LinkState>,
    pub(in crate::line) incoming: mpsc::Receiver<Incoming>,
    pub(in crate::line) stop: CancellationToken,
    _task: JoinSet<()>,
}

impl World {
    /// An agent with the cluster's key.
    pub(in crate::line) fn agent(&self) -> Agent {
        self.agent_as(self.identity.clone())
    }

    pub(in crate::line) fn agent_as(&self, identity: KeyPair) -> Agent {
        self.start(identity, watch::channel(None).1)
    }

    pub(in crate::line) fn agent_through(&self, proxy: ProxyConfig) -> Agent {
        self.agent_by(watch::channel(Some(proxy)).1)
    }

    /// The same, by a way that may become another one.
    pub(in crate::line) fn agent_by(&self, proxy: watch::Receiver<Option<ProxyConfig>>) -> Agent {
        self.start(self.identity.clone(), proxy)
    }

    fn start(&self, identity: KeyPair, proxy: watch::Receiver<Option<ProxyConfig>>) -> Agent {
        let mut reference = self.hub.reference();
        if let Some(ca) = &self.ca {
            reference.ca.clone_from(ca);
        }
        let (_hub, hub) = watch::channel(reference);
        let since = clock::now();
        let (out, state) = watch::channel(LinkState::Down {
            since,
            cause: String::new(),
            attempt: 0,
            strange: false,
        });
        let (streams, incoming) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let config = LinkConfig {
            hub,
            cluster: self.cluster.clone(),
            keys: watch::channel(Identity {
                identity,
                ..Identity::from_seeds(&[1; 32], &[2; 32])
            })
            .1,
            build: AgentBuild::default(),
            instance: clock::id(),
            proxy,
        };
        let mut task = JoinSet::new();
        let stopped = stop.clone();
        task.spawn(async move { link::run(config, out, streams, stopped).await.unwrap() });
        Agent {
            state,
            incoming,
            stop,
            _task: task,
        }
    }
}

impl Agent {
    /// The agent's end of a line that is up.
    pub(in crate::line) async fn up(&mut self) -> Line {
        let up = self
            .state
            .wait_for(|state| matches!(state, LinkState::Up { .. }));
        let state = timeout(PATIENCE, up)
            .await
            .expect("the line comes up")
            .unwrap()
            .clone();
        match state {
            LinkState::Up { line, .. } => line,
            LinkState::Down { cause, .. } => panic!("down: {cause}"),
        }
    }

    /// The cause of the first failure.
    pub(in crate::line) async fn failure(&mut self) -> String {
        let down = self
            .state
            .wait_for(|state| matches!(state, LinkState::Down { attempt: 1.., .. }));
        match timeout(PATIENCE, down)
            .await
            .expect("a failure")
            .unwrap()
            .clone()
        {
            LinkState::Down { cause, .. } => cause,
            LinkState::Up { .. } => unreachable!("asked for down"),
        }
    }
}
