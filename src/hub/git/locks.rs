//! Lock files in the catalog repository. A process that is killed leaves its own behind, and every later write of what it
//! locked fails on them.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{BRANCH, Others, blocking, open, tip};

/// Of those who make a repository, which is done by one at a time.
const MAKING: [&str; 2] = ["HEAD.lock", "config.lock"];
/// Of those who push, beside the references' own.
const PUSHING: [&str; 2] = ["packed-refs.lock", "shallow.lock"];

/// A lock file as it was seen. Who takes the lock anew makes another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub path: PathBuf,
    file: u64,
    /// Seconds and nanoseconds, by the file system's clock.
    made: (i64, i64),
}

impl Lock {
    /// None = it is gone.
    fn at(path: PathBuf) -> Result<Option<Self>> {
        match std::fs::symlink_metadata(&path) {
            Ok(meta) => Ok(Some(Self {
                file: meta.ino(),
                made: (meta.mtime(), meta.mtime_nsec()),
                path,
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(error).with_context(|| format!("look at the lock {}", path.display()))
            }
        }
    }
}

/// The locks that are held, or were left behind.
pub async fn locks(repo: &Path) -> Result<Vec<Lock>> {
    let repo = repo.to_owned();
    blocking(move || {
        let paths = paths(&repo, &[MAKING, PUSHING].concat());
        let found = paths
            .into_iter()
            .filter_map(|path| Lock::at(path).transpose());
        found.collect()
    })
    .await
}

/// Takes a lock away that nobody holds, unless another one is in its place by now.
pub async fn unlock(lock: Lock) -> Result<()> {
    blocking(move || {
        if Lock::at(lock.path.clone())?.as_ref() == Some(&lock) {
            remove(&lock.path);
        }
        Ok(())
    })
    .await
}

/// At the start. Who is alone in the data directory has no lock in it yet: what is there is nobody's. Beside other replicas
/// only what hinders the making is, which they do not do meanwhile.
pub(super) fn clear(repo: &Path, others: Others) {
    let alone = match others {
        Others::Nobody => true,
        // There is nothing to push to yet.
        Others::Replicas => !open(repo).is_ok_and(|git| matches!(tip(&git, BRANCH), Ok(Some(_)))),
    };
    let left = if alone {
        paths(repo, &[MAKING, PUSHING].concat())
    } else {
        MAKING.iter().map(|name| repo.join(name)).collect()
    };
    for path in &left {
        remove(path);
    }
}

fn remove(path: &Path) {
    if std::fs::remove_file(path).is_ok() {
        tracing::warn!(lock = %path.display(), "removed a stale lock in the catalog repository");
    }
}

/// Where locks are, these and the references'.
fn paths(repo: &Path, names: &[&str]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = names.iter().map(|name| repo.join(name)).collect();
    let mut folders = vec![repo.join("refs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "lock") {
                found.push(path);
            }
        }
    }
    found
}
