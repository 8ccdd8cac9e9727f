//! Applications follow their cluster's way to Git. Each names the catalog's URL, which is another one over the line, and Argo CD has the
//! key for that of the way in force alone.
//!
//! What the hub wrote for the other way, and nobody has changed since, it writes anew. What people wrote is theirs: it is named where the
//! cluster is shown. Nobody has to tell that a way changed, so nothing is lost between a change and a commit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::catalog::url::{Turn, readers};
use super::catalog::{ClusterRecord, copy};
use super::git::{self, Author, Change, Files};
use super::store::Cluster;
use super::{Hub, adoption, assignment, replica};
use crate::wire::api::{EngineKind, Order, OtherWay, Via};
use crate::wire::id::ClusterName;
use crate::wire::report::{Facts, GIT_IN_FORCE};

const LOOK: Duration = Duration::from_secs(15);
/// After a look that failed: what did, such as a full disk, does again.
const AGAIN: Duration = Duration::from_mins(2);
/// Clusters that are looked at together.
const PAGE: u32 = 500;
/// Files of people that are named for one cluster.
const NAMED: usize = 50;
/// What waits for a signature lies on the branch of this and the cluster's name.
const WAITS: &str = "linesman-git/";

/// Looks until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let mut wait = LOOK;
    while stop.run_until_cancelled(sleep(wait)).await.is_some() {
        let look = Box::pin(look(&hub));
        wait = match stop.run_until_cancelled(look).await {
            None => return Ok(()),
            Some(Ok(())) => LOOK,
            Some(Err(_)) if hub.store.is_away() => LOOK,
            Some(Err(error)) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "keep Applications at their clusters' ways to Git"
                );
                AGAIN
            }
        };
    }
    Ok(())
}

/// One look: what the hub wrote for each cluster is for the way in force afterwards, waits for a signature, or could not be written.
pub async fn look(hub: &Hub) -> Result<()> {
    let repo = &hub.catalog.repo;
    let proposed = git::branches(repo, WAITS).await;
    let proposed = proposed.context("list what waits for a signature")?;
    let (mut waiting, mut failed) = (BTreeSet::new(), None);
    let mut after: Option<String> = None;
    loop {
        let page = hub.store.clusters(after.as_deref(), PAGE).await;
        let page = page.context("read the clusters")?;
        let full = page.len() == PAGE as usize;
        after = page.last().map(|c| c.name.to_string());
        for due in due(hub, page).await? {
            let name = due.name.clone();
            let turned = turn(hub, due).await;
            let turned = turned.with_context(|| format!("of cluster {name}"));
            if !matches!(turned, Ok(Turned::Committed)) {
                waiting.insert(name.to_string());
            }
            // What cannot be written for one keeps no other from its own.
            failed = turned.err().or(failed);
        }
        if !full {
            break;
        }
    }
    // Whoever merged what is not due any more would undo what is.
    for name in proposed.difference(&waiting) {
        git::withdraw(repo, &format!("{WAITS}{name}")).await?;
    }
    failed.map_or(Ok(()), Err)
}

/// What a cluster that reads the catalog by `via` has of the other way.
struct Due {
    name: ClusterName,
    via: Via,
    turn: Turn,
}

impl Due {
    /// What it would be if nobody had a hand in it; None = the cluster's engine needs no URL.
    /// `said` is the way that its agent says.
    fn of(hub: &Hub, cluster: &Cluster, said: Option<&str>) -> Option<Self> {
        if cluster.engine != EngineKind::Argocd {
            return None;
        }
        let via = in_force(cluster.via(), said);
        let record = ClusterRecord {
            name: cluster.name.clone(),
            engine: cluster.engine,
            engines: adoption::engines(&cluster.adoption),
            labels: cluster.labels.clone(),
            url: assignment::url(hub, via),
            branch: hub.catalog.branch.clone(),
        };
        Some(Self {
            name: cluster.name.clone(),
            via,
            turn: Turn::of(&record, &assignment::url(hub, other(via))),
        })
    }
}

/// The way that a cluster's engine is set up for: its agent's word, and until there is one, the way that it is to take. The URL of
/// a way that is not proven yet would take the catalog from Applications that have it.
fn in_force(wished: Via, said: Option<&str>) -> Via {
    let mut known = [Via::Direct, Via::Line].into_iter();
    let known = known.find(|via| said.is_some_and(|said| said == via.as_str()));
    known.unwrap_or(wished)
}

fn other(via: Via) -> Via {
    match via {
        Via::Direct => Via::Line,
        Via::Line => Via::Direct,
    }
}

/// Those of a page of clusters for which the catalog has something of the other way that nobody but the hub has a hand in.
async fn due(hub: &Hub, page: Vec<Cluster>) -> Result<Vec<Due>> {
    let of_argocd = |c: &Cluster| c.engine == EngineKind::Argocd;
    let page: Vec<Cluster> = page.into_iter().filter(of_argocd).collect();
    if page.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<String> = page.iter().map(|c| c.id.clone()).collect();
    // Nothing else of what they say: this looks again and again, at all of them.
    let said = hub.store.fact(&ids, GIT_IN_FORCE).await;
    let said = said.context("read by which way clusters fetch")?;
    let both = page.iter().zip(&said);
    let all: Vec<Due> = both
        .filter_map(|(cluster, said)| Due::of(hub, cluster, said.as_deref()))
        .collect();
    let written: Files = all.iter().flat_map(|due| due.turn.from.clone()).collect();
    let (repo, branch) = (&hub.catalog.repo, &hub.catalog.branch);
    let held = git::just_so(repo, branch, written).await?;
    let left = |due: Due| {
        let turn = due.turn.only(&held)?;
        Some(Due { turn, ..due })
    };
    Ok(all.into_iter().filter_map(left).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turned {
    /// Or somebody changed a file meanwhile: the next look judges anew.
    Committed,
    /// Clusters verify the head, and the hub cannot sign.
    Proposed,
}

/// One commit; the cluster's engine looks at once.
async fn turn(hub: &Hub, due: Due) -> Result<Turned> {
    let Due { name, via, turn } = due;
    let (repo, base) = (&hub.catalog.repo, &hub.catalog.branch);
    let change = Change {
        files: turn.to.clone(),
        only_missing: false,
        gone: BTreeSet::new(),
        author: Author::hub(),
        message: message(&name, via, &assignment::url(hub, via)),
    };
    if is_signed(hub).await? {
        let branch = format!("{WAITS}{name}");
        if !git::is_as(repo, &branch, turn.to, BTreeSet::new()).await? {
            git::propose(repo, base, &branch, change).await?;
            tracing::info!(cluster = %name, branch, "Applications at the other way to Git wait for a signature");
        }
        return Ok(Turned::Proposed);
    }
    if let Some(revision) = git::commit_instead(repo, base, change, &turn.from).await? {
        tracing::info!(cluster = %name, commit = revision, via = via.as_str(), "Applications follow their cluster's way to Git");
        crate::hub::serve::note(&hub.store, &revision).await;
        let only = [name.clone()].into();
        replica::follow::pushed(hub, &revision, Some(&only)).await;
        hub.orders.send(&name, Order::CatalogHead { revision });
    }
    Ok(Turned::Committed)
}

fn message(name: &ClusterName, via: Via, url: &str) -> String {
    let way = match via {
        Via::Direct => "directly",
        Via::Line => "over the line",
    };
    format!(
        "Let cluster {name} read the catalog {way}\n\nIts Applications that are as the hub wrote them name {url} from now on."
    )
}

async fn is_signed(hub: &Hub) -> Result<bool> {
    let signers = hub.store.signers().await.context("read the signers")?;
    Ok(!signers.is_empty())
}

/// What the catalog has for this cluster of the other way, and the hub does not turn by itself; None = nothing.
pub async fn other_way(hub: &Hub, cluster: &Cluster, facts: &Facts) -> Result<Option<OtherWay>> {
    let said = facts.get(GIT_IN_FORCE).map(String::as_str);
    let Some(due) = Due::of(hub, cluster, said) else {
        return Ok(None);
    };
    let (repo, base) = (&hub.catalog.repo, &hub.catalog.branch);
    let path = cluster.catalog_path.trim_start_matches("./");
    let path = path.trim_matches('/').to_owned();
    let elsewhere = assignment::url(hub, other(due.via));
    let mut there = git::below(repo, base, vec![path.clone()]).await?;
    // `--wait` asks twice a second: what does not have the URL at all is not taken apart.
    there.retain(|_, text| String::from_utf8_lossy(text).contains(elsewhere.as_str()));
    let own = |path: &String| {
        due.turn.from.contains_key(path) && there.get(path) == due.turn.from.get(path)
    };
    let mut readers = readers(&there, &path, &elsewhere);
    // The copy of the agent is written by rules of its own.
    for copied in copy::paths(&cluster.name, [path.as_str()]) {
        readers.remove(&copied);
    }
    let (own, mut files): (Vec<String>, Vec<String>) = readers.into_iter().partition(own);
    files.truncate(NAMED);
    let mut proposed = None;
    if !own.is_empty() && is_signed(hub).await? {
        let branch = format!("{WAITS}{}", due.name);
        let made = git::head(repo, &branch).await?;
        proposed = made.map(|_| branch);
    }
    let nothing = files.is_empty() && proposed.is_none();
    Ok((!nothing).then(|| OtherWay {
        url: assignment::url(hub, due.via),
        files,
        proposed,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_that_is_proven_counts_before_the_one_that_is_wished() {
        for (wished, said, expected) in [
            (Via::Direct, None, Via::Direct),
            (Via::Line, None, Via::Line),
            (Via::Line, Some("direct"), Via::Direct),
            (Via::Direct, Some("line"), Via::Line),
            // A word of a later agent.
            (Via::Line, Some("pigeon"), Via::Line),
        ] {
            assert_eq!(in_force(wished, said), expected, "{wished:?} {said:?}");
        }
    }

    #[test]
    fn the_commit_says_which_way_and_which_url() {
        let name = "eu1".parse().unwrap();
        assert_eq!(
            message(
                &name,
                Via::Line,
                "ssh://git@linesman-git.linesman.svc/c.git"
            ),
            "Let cluster eu1 read the catalog over the line\n\nIts Applications that are as the hub wrote them name \
             ssh://git@linesman-git.linesman.svc/c.git from now on."
        );
        let direct = message(&name, Via::Direct, "ssh://git@hub/c.git");
        assert!(direct.starts_with("Let cluster eu1 read the catalog directly\n\n"));
    }
}
