//! Git over SSH, served by the hub itself: the system's `git` behind [`crate::ssh::serve`].
//!
//! Deploy keys read, users' keys push. Git enforces what may be pushed (one branch, no rewrite, no deletion);
//! the commands of a push are read on their way in, so that the words for a refusal and the report of what
//! arrived are exact even when pushes and the hub's own commits cross.

mod abandoned;
mod ending;
mod push;
mod run;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use crate::ssh::{Limits, Right};

use crate::keys::Public;
use crate::ssh;

/// The built-in Git host: one bare repository under one name.
pub struct GitServer {
    pub repo: PathBuf,
    /// As clients write it, `catalog.git`.
    pub repo_name: String,
    /// The one branch that takes pushes.
    pub branch: String,
    /// Shown to each connection as it is then.
    pub host_key: watch::Receiver<ssh::HostPair>,
    pub limits: Limits,
    /// Told of each push with a key that may not.
    pub refused: Refuse,
}

pub type Refuse = Arc<dyn Fn(Pusher) -> BoxFuture<'static, ()> + Send + Sync>;

/// Who pushes, by which key and from where: a person may have several keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pusher {
    pub who: String,
    pub key: Public,
    pub peer: SocketAddr,
}

/// What a key may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitAccess {
    /// For messages and the audit: a user's or a cluster's name.
    pub who: String,
    pub push: bool,
}

/// A push that arrived on the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub by: Pusher,
    pub branch: String,
    /// `None` for the first commit of the branch.
    pub old: Option<String>,
    pub new: String,
    pub changed_paths: Vec<String>,
    /// More paths changed than are listed.
    pub truncated: bool,
}

/// Whether there is a git to serve with; the error is where it was looked for.
pub async fn has_git() -> Result<(), &'static str> {
    if run::starts(run::PATH).await {
        Ok(())
    } else {
        Err(run::PATH)
    }
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    server: GitServer,
    authorize: impl Fn(Public) -> BoxFuture<'static, Right<GitAccess>> + Send + Sync + 'static,
    pushed: mpsc::Sender<Push>,
    stop: CancellationToken,
) -> Result<()> {
    // Git compares the real path with the one that it is told to trust.
    let repo = tokio::fs::canonicalize(&server.repo)
        .await
        .with_context(|| format!("catalog repository {}", server.repo.display()))?;
    // Every session can leave one push behind without waiting.
    let most = server.limits.sessions.max(1) * 2;
    let (ended, ends) = mpsc::channel(most);
    let (pushing, cuts) = ending::Pushing::new(most);
    let clear = abandoned::clear(repo.clone(), pushing.running());
    let report = run::report(repo.clone(), server.branch.clone(), ends, pushed);
    let catalog = Arc::new(run::Catalog {
        repo,
        name: server.repo_name,
        branch: server.branch,
        ended,
        pushing,
        refused: server.refused,
    });
    let server = ssh::Server {
        host_key: server.host_key,
        limits: server.limits,
        authorize: Arc::new(authorize),
        covers: run::covers,
        run: Arc::new(move |command| Box::pin(run::run(Arc::clone(&catalog), command))),
    };
    let clearing = stop.run_until_cancelled(clear);
    // What is cut is ended after the last session, and the reports end after that, when no one is left to send one.
    let (result, (), (), _) = tokio::join!(
        ssh::serve(listener, server, stop.clone()),
        ending::end(cuts, most),
        report,
        clearing
    );
    result
}
