//! What a hub makes at its first start and never again. Clusters know it by its key and run what its catalog says: with others in
//! their places they would turn away from it, or prune what they run. So a later start without them is refused.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::open::KEY;
use crate::hub::git::{self, BRANCH};
use crate::hub::store::{Noted, Store, StoreError};
use crate::hub::{catalog, chain_of, trust};

/// Why a hub does not start, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {next}")]
pub struct CannotStart {
    pub what: String,
    pub next: String,
}

/// What starts before this one left in the records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// There is a cluster, or there was a catalog.
    started: bool,
    /// A commit that the catalog had.
    head: Option<String>,
}

impl Before {
    pub(super) async fn of(store: &Store) -> Result<Self, StoreError> {
        let head = store.noted(Noted::CatalogHead).await?;
        let started = head.is_some() || !store.clusters(None, 1).await?.is_empty();
        Ok(Self { started, head })
    }

    /// The hub's signing key is there, or has yet to be made.
    pub(super) fn has_key(&self, data: &Path) -> Result<(), CannotStart> {
        let path = data.join(KEY);
        if path.exists() || !(self.started || trust::is_kept(data)) {
            return Ok(());
        }
        let path = path.display();
        Err(CannotStart {
            what: format!(
                "{path} is not there, and clusters know this hub by the key that it held"
            ),
            next: format!(
                "see that the data directory's volume is mounted, which replicas share; else restore it from the backup; if there is \
                 none, make another (ssh-keygen -t ed25519 -N '' -f {path}) and readopt every cluster"
            ),
        })
    }

    /// The catalog's repository, made at the first start, and with all that it had at a later one. What it has now is noted.
    pub(super) async fn catalog(
        &self,
        store: &Store,
        repo: &Path,
        others: git::Others,
    ) -> Result<()> {
        if self.started {
            self.has_all(repo, others).await?;
        } else {
            let made = git::ensure(repo, &catalog::template(), others).await;
            made.context("make the catalog's repository")?;
        }
        let head = git::head(repo, BRANCH).await?;
        if let Some(head) = head.filter(|head| self.head.as_ref() != Some(head)) {
            note(store, &head).await;
        }
        Ok(())
    }

    async fn has_all(&self, repo: &Path, others: git::Others) -> Result<()> {
        let there = git::reopen(repo, others).await;
        if !there.context("open the catalog's repository")? {
            return Err(gone(repo).into());
        }
        let Some(had) = &self.head else { return Ok(()) };
        let has = match git::contains(repo, BRANCH, had).await {
            Ok(has) => has || git::is_meant(repo, BRANCH).await?,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, had, "see whether the catalog has what it had");
                return Ok(());
            }
        };
        if has {
            return Ok(());
        }
        // An older copy does not have the commit at all. Pushes take nothing back, so here somebody moved the branch by hand, and a hub
        // that ran meanwhile has shown that to clusters already.
        if git::may_have(repo, had).await? {
            tracing::warn!(
                repo = %repo.display(),
                had,
                "the catalog's branch {BRANCH} lacks a commit that it had; clusters prune what came with it"
            );
            return Ok(());
        }
        Err(behind(repo, had).into())
    }
}

fn gone(repo: &Path) -> CannotStart {
    let repo = repo.display();
    CannotStart {
        what: format!(
            "the catalog is gone: {repo} has no branch {BRANCH}, and clusters would prune what another one does not have"
        ),
        next: format!(
            "restore it from the backup, or from the newest clone that anybody has (git init --bare -b {BRANCH} {repo} && \
             git -C {repo} fetch CLONE origin/{BRANCH}:{BRANCH}); for one that is new on purpose: linesman catalog init --help"
        ),
    }
}

fn behind(repo: &Path, had: &str) -> CannotStart {
    let repo = repo.display();
    CannotStart {
        what: format!(
            "the catalog is older than it was: {BRANCH} in {repo} lacks commit {had}, and clusters would prune what came since"
        ),
        next: format!(
            "fetch the newest clone that anybody has (git -C {repo} fetch CLONE origin/{BRANCH}:{BRANCH}); if it is meant to be so: \
             git -C {repo} config linesman.head $(git -C {repo} rev-parse {BRANCH})"
        ),
    }
}

/// Notes what the catalog has by now: a later start is not to have less.
pub async fn note(store: &Store, head: &str) {
    let noted = store.note(Noted::CatalogHead, Some(head.to_owned())).await;
    if let Err(error) = noted {
        tracing::error!(error = chain_of(&error), head, "note the catalog's head");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place of its own.
    fn directory(name: &str) -> std::path::PathBuf {
        let path =
            std::env::temp_dir().join(format!("linesman-kept-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A first start that was cut off anywhere is finished; a key that was lost is not made a second time.
    #[test]
    fn only_the_first_start_may_lack_the_hubs_key() {
        let data = directory("key");
        let path = data.join("hub.key");
        let (first, later) = (
            Before::default(),
            Before {
                started: true,
                head: None,
            },
        );
        assert_eq!(first.has_key(&data), Ok(()));
        let why = later.has_key(&data).unwrap_err();
        // Where a volume is not mounted, another key would part the hub from all clusters.
        let mount = "see that the data directory's volume is mounted, which replicas share; else restore it from the backup; ";
        assert!(why.next.starts_with(mount), "{why:?}");
        // The hub has told somebody of its key, whatever its records say.
        std::fs::write(data.join("trust.json"), "{}").unwrap();
        assert_eq!(first.has_key(&data), Err(why));
        std::fs::write(&path, "").unwrap();
        assert_eq!(later.has_key(&data), Ok(()));
        std::fs::remove_dir_all(data).unwrap();
    }

    #[tokio::test]
    async fn a_catalog_that_is_gone_or_older_is_found_out() {
        let data = directory("catalog");
        let repo = data.join("catalog.git");
        let others = git::Others::Nobody;
        let later = |head: Option<&str>| Before {
            started: true,
            head: head.map(str::to_owned),
        };
        let refused = async |before: &Before| {
            let error = before.has_all(&repo, others).await.unwrap_err();
            error.downcast::<CannotStart>().unwrap()
        };
        assert_eq!(refused(&later(None)).await, gone(&repo));
        // A clone can be put there.
        assert!(!repo.exists());
        git::ensure(&repo, &catalog::template(), others)
            .await
            .unwrap();
        let head = git::head(&repo, BRANCH).await.unwrap().unwrap();
        later(None).has_all(&repo, others).await.unwrap();
        later(Some(&head)).has_all(&repo, others).await.unwrap();
        let lost = "1".repeat(40);
        let before = later(Some(&lost));
        assert_eq!(refused(&before).await, behind(&repo, &lost));
        // Somebody says that it is meant: of this head, and of no other.
        let config = repo.join("config");
        let kept = std::fs::read_to_string(&config).unwrap();
        let say = |head: &str| {
            let said = format!("{kept}[linesman]\n\thead = {head}\n");
            std::fs::write(&config, said).unwrap();
        };
        say(&lost);
        assert_eq!(refused(&before).await, behind(&repo, &lost));
        say(&head);
        before.has_all(&repo, others).await.unwrap();
        // A repository without a commit.
        std::fs::remove_file(repo.join("refs/heads/main")).unwrap();
        assert_eq!(refused(&later(Some(&head))).await, gone(&repo));
        std::fs::remove_dir_all(data).unwrap();
    }

    /// Only what cannot be another thing than an older copy keeps a hub from starting, which may be long after it came about.
    #[tokio::test]
    async fn a_branch_that_was_moved_by_hand_is_no_older_copy() {
        let data = directory("moved");
        let repo = data.join("catalog.git");
        let others = git::Others::Nobody;
        git::ensure(&repo, &catalog::template(), others)
            .await
            .unwrap();
        let branch = repo.join("refs/heads/main");
        let older = std::fs::read_to_string(&branch).unwrap();
        let change = git::Change {
            files: [("a.yaml".to_owned(), b"a".to_vec())].into(),
            only_missing: false,
            gone: [].into(),
            author: git::Author::hub(),
            message: "a".to_owned(),
        };
        let made = git::commit(&repo, BRANCH, change).await;
        let newer = made.unwrap().unwrap();
        std::fs::write(&branch, &older).unwrap();
        let later = |head: &str| Before {
            started: true,
            head: Some(head.to_owned()),
        };
        let before = later(&newer);
        before.has_all(&repo, others).await.unwrap();
        // A note that is no commit's says nothing.
        later("none").has_all(&repo, others).await.unwrap();
        let (fan, rest) = newer.split_at(2);
        std::fs::remove_file(repo.join("objects").join(fan).join(rest)).unwrap();
        let error = before.has_all(&repo, others).await.unwrap_err();
        assert_eq!(
            error.downcast::<CannotStart>().unwrap(),
            behind(&repo, &newer)
        );
        // Where the history was cut off, nobody knows what it had.
        std::fs::write(repo.join("shallow"), older).unwrap();
        before.has_all(&repo, others).await.unwrap();
        std::fs::remove_dir_all(data).unwrap();
    }
}
