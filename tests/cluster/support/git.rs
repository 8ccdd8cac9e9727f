//! The catalog's Git server without its hub: what a cluster meets where the hub is away and Git is not.
//!
//! The catalog lies on the hub's built-in Git, so who stops the hub takes Git away, too. Where the catalog lies on another host
//! that is not so, and a commit arrives as ever. Here it is the product's own Git server that takes over the address once the hub
//! has ended: the hub's repository, its host key and the keys that it let in, so that engine and agent cannot tell. It runs in
//! this process, and nothing else of a hub does: no HTTPS, no line, no store, no order that tells of a new head. A second hub on
//! the same data would do more than serve Git, and one that is only kept from its HTTPS port lives on: neither is away.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use linesman::hub::githost::embedded::{self, GitAccess, GitServer, Limits, Right};
use linesman::hub::serve::host_key;
use linesman::hub::{CATALOG, git::BRANCH};
use linesman::keys::{KeyPair, Public};
use linesman::ssh::HostPair;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::hub::Hub;
use super::world::{ARGOCD, FLUX, World, git_repository};
use super::{argocd, seconds};
use crate::keys::fingerprints;

impl World {
    /// Stops the hub, and has Git go on without it.
    pub(crate) fn lose_hub(&mut self) {
        let deploy = fingerprints(self, "deploy");
        self.clone_catalog();
        let keys = Keys {
            read: deploy,
            push: of_clones(&self.hub.state()),
        };
        self.hub.stop();
        self.git = Some(GitAlone::after(&self.hub, keys));
    }

    /// The hub is there again, and serves Git itself.
    pub(crate) fn hub_back(&mut self) {
        self.git = None;
        self.hub.up();
    }

    /// With the hub away, Git goes too. What brings it back is returned.
    pub(crate) fn lose_git(&mut self) -> Keys {
        let alone = self.git.take().expect("the hub is away, and Git is not");
        alone.keys.clone()
    }

    /// Git is there again, the hub is not.
    pub(crate) fn git_back(&mut self, keys: Keys) {
        self.git = Some(GitAlone::after(&self.hub, keys));
    }

    /// Has the engine look at Git now, as `flux reconcile source git` and `argocd app get --refresh` do. With the hub away nobody
    /// tells the agent of a push, and each commit would cost a test the minute after which the engine looks by itself.
    pub(crate) fn look(&self) {
        let now = format!(
            "test-{}",
            std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()
        );
        let (root, asked) = if self.engine == ARGOCD {
            let refresh = json!({ argocd::REFRESH: "normal" });
            (argocd::root(), refresh)
        } else {
            let asked = json!({ "reconcile.fluxcd.io/requestedAt": now });
            (git_repository(FLUX), asked)
        };
        // A root that is being mended is asked by nobody.
        let asked = json!({ "metadata": { "annotations": asked } });
        if let Err((code, message)) = self.api.try_patch(&root, &asked) {
            assert_eq!(code, 404, "{message}");
        }
    }
}

/// The fingerprints of those who may come.
#[derive(Clone)]
pub(crate) struct Keys {
    read: Vec<String>,
    push: Vec<String>,
}

impl Keys {
    fn right(&self, key: Public) -> Right<GitAccess> {
        let fingerprint = key.fingerprint();
        let push = self.push.contains(&fingerprint);
        if !push && !self.read.contains(&fingerprint) {
            return Right::None;
        }
        let who = if push { "admin" } else { "cluster" };
        Right::Held(GitAccess {
            who: who.to_owned(),
            push,
        })
    }
}

/// Ends with the value.
pub(super) struct GitAlone {
    keys: Keys,
    stop: CancellationToken,
    served: Option<JoinHandle<anyhow::Result<()>>>,
    runtime: Runtime,
}

impl GitAlone {
    /// In the place of a hub that has ended.
    fn after(hub: &Hub, keys: Keys) -> Self {
        assert!(!hub.runs(), "the hub serves Git itself");
        let pair = fs::read_to_string(host_key(&hub.data())).unwrap();
        let pair = HostPair::from_openssh(&pair).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (pushed, mut told) = mpsc::channel(64);
        // Who would tell the clusters is away.
        runtime.spawn(async move { while told.recv().await.is_some() {} });
        let listener = runtime.block_on(TcpListener::bind(hub.git_address()));
        let server = GitServer {
            repo: hub.data().join(CATALOG),
            repo_name: CATALOG.to_owned(),
            branch: BRANCH.to_owned(),
            host_key: watch::Sender::new(pair).subscribe(),
            limits: Limits::default(),
            refused: Arc::new(|_| Box::pin(async {})),
        };
        let known = keys.clone();
        let authorize = move |key| {
            let right = known.right(key);
            Box::pin(async move { right }) as _
        };
        let stop = CancellationToken::new();
        let serve = embedded::serve(listener.unwrap(), server, authorize, pushed, stop.clone());
        let served = Some(runtime.spawn(serve));
        Self {
            keys,
            stop,
            served,
            runtime,
        }
    }
}

impl Drop for GitAlone {
    fn drop(&mut self) {
        self.stop.cancel();
        // The hub that comes back needs the port. One that does not end is told of by that hub.
        if let Some(served) = self.served.take() {
            let end = async { tokio::time::timeout(seconds(20), served).await };
            drop(self.runtime.block_on(end));
        }
    }
}

/// The fingerprints of the keys that `linesman catalog clone` made, below its directory of state.
fn of_clones(state: &Path) -> Vec<String> {
    let hubs = fs::read_dir(state.join("linesman/git")).unwrap();
    let keys = hubs.map(|hub| hub.unwrap().path().join("id_ed25519"));
    keys.map(|file| {
        let pair = KeyPair::from_openssh(&fs::read_to_string(file).unwrap()).unwrap();
        pair.public().fingerprint()
    })
    .collect()
}
