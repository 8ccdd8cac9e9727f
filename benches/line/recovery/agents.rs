//! The agents: real links and real forwarders of all clusters in one process, with what else a forwarder has from its cluster
//! given once for all of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use linesman::agent::forward::exchange::Shared;
use linesman::agent::forward::subjects::Want;
use linesman::agent::forward::upstream::{Credential, Upstream, authorization};
use linesman::agent::forward::{INCOMING, streams};
use linesman::agent::gate::Covered;
use linesman::agent::gate::policy::Policy;
use linesman::agent::gate::replay::Replay;
use linesman::tunnel::switched::Ahead;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::asked_to_end;
use crate::storm;

/// Prints `UP` when all lines are, and leaves as an agent does when it is asked to end.
pub(super) async fn run(data: &Path, server: &str) {
    let known = std::fs::read_to_string(data.with_extension("clusters")).unwrap();
    let ids: Vec<&str> = known.lines().collect();
    let reference = storm::reference(data);
    let (_hub, hub) = watch::channel(reference.clone());
    let stop = CancellationToken::new();
    let (links, states) = storm::start(&hub, ids.len(), INCOMING, &stop);
    let mut cluster = Cluster::new(server);
    let (mut serving, mut up) = (JoinSet::new(), Vec::new());
    for (id, (state, incoming)) in ids.into_iter().zip(states) {
        let shared = Arc::new(cluster.shared(&reference.id, id));
        serving.spawn(streams(shared, incoming, state.clone(), stop.clone()));
        up.push(state);
    }
    let lives = async {
        for state in &mut up {
            storm::up(state, 0).await;
        }
        println!("UP");
        asked_to_end().await;
        stop.cancel();
        links.join_all().await;
        serving.join_all().await;
    };
    tokio::select! {
        () = lives => println!("ENDED"),
        () = cluster.grants() => {}
    }
}

/// What a forwarder has from its cluster, the other ends of which live as long as this.
struct Cluster {
    server: kube::Config,
    credential: watch::Sender<Credential>,
    policy: watch::Sender<Option<Policy>>,
    covered: watch::Sender<Covered>,
    /// Nobody has a role that would have to be written first.
    wants: (mpsc::Sender<Want>, mpsc::Receiver<Want>),
    renew: (mpsc::Sender<u64>, mpsc::Receiver<u64>),
}

impl Cluster {
    fn new(server: &str) -> Self {
        let token = Credential::Token {
            bearer: authorization("bench").unwrap(),
            serial: 1,
            bound: "uid".to_owned(),
        };
        Self {
            server: kube::Config::new(format!("http://{server}/").parse().unwrap()),
            credential: watch::Sender::new(token),
            policy: watch::Sender::new(Some(Policy::default())),
            covered: watch::Sender::new(Covered::Cluster),
            wants: mpsc::channel(1_024),
            renew: mpsc::channel(1),
        }
    }

    fn shared(&self, hub: &str, cluster: &str) -> Shared {
        let (credential, renew) = (self.credential.subscribe(), self.renew.0.clone());
        Shared {
            hub_id: hub.to_owned(),
            cluster_id: cluster.to_owned(),
            namespace: "linesman".to_owned(),
            argocd: "argocd".to_owned(),
            upstream: Upstream::new(&self.server, credential, renew).unwrap(),
            policy: self.policy.subscribe(),
            covered: self.covered.subscribe(),
            allowed: watch::channel(BTreeSet::new()).1,
            wants: self.wants.0.clone(),
            replay: Mutex::new(Replay::default()),
            switched: TaskTracker::new(),
            ahead: Ahead::new(1 << 20),
        }
    }

    /// Says of every user that the role has them. Ends never, since this holds a sender itself.
    async fn grants(&mut self) {
        while let Some(want) = self.wants.1.recv().await {
            drop(want.done.send(Ok(())));
        }
    }
}
