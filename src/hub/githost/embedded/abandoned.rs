//! Lock files that nobody holds any more: their git was killed, with its hub or for want of memory. Until they are gone every
//! push fails, so they are looked for while the hub serves, and not only when it starts.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::error;

use super::ending::Running;
use crate::hub::git::{self, Lock};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);
/// Git and the hub hold a lock while they write a reference. Other replicas do, too, which cannot be asked: by a lock that is the
/// same for so long, nobody does.
const ABANDONED: Duration = Duration::from_secs(30);

/// The locks that were there at the last look, and since when.
#[derive(Default)]
struct Seen(Vec<(Lock, Instant)>);

impl Seen {
    /// Which of these are nobody's. While a push runs here it may be its own.
    fn abandoned(&mut self, now: Instant, found: Vec<Lock>, pushing: bool) -> Vec<Lock> {
        let since = |lock: &Lock| {
            let known = self.0.iter().find(|(known, _)| known == lock);
            known.map_or(now, |(_, since)| *since)
        };
        self.0 = found
            .into_iter()
            .map(|lock| {
                let since = since(&lock);
                (lock, since)
            })
            .collect();
        let old = self
            .0
            .iter()
            .filter(|(_, since)| !pushing && now - *since >= ABANDONED);
        old.map(|(lock, _)| lock.clone()).collect()
    }
}

/// Takes them away, for as long as it is asked.
pub(super) async fn clear(repo: PathBuf, pushes: Running) {
    let mut seen = Seen::default();
    loop {
        if let Err(error) = look(&repo, &mut seen, &pushes).await {
            error!(
                error = format!("{error:#}"),
                "look for locks that nobody holds"
            );
        }
        sleep(LOOK).await;
    }
}

async fn look(repo: &std::path::Path, seen: &mut Seen, pushes: &Running) -> anyhow::Result<()> {
    let found = git::locks(repo).await?;
    for lock in seen.abandoned(Instant::now(), found, pushes.any()) {
        git::unlock(lock).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::time::timeout;

    use super::*;

    struct Repo(PathBuf);

    impl Repo {
        fn new() -> Self {
            let name = crate::keys::hex(&crate::clock::random::<8>());
            let path = std::env::temp_dir().join(format!("linesman-locks-{name}"));
            std::fs::create_dir_all(path.join("refs/heads")).unwrap();
            Self(path)
        }

        fn lock(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, "").unwrap();
            path
        }

        async fn locks(&self) -> Vec<Lock> {
            git::locks(&self.0).await.unwrap()
        }
    }

    impl Drop for Repo {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn paths(locks: Vec<Lock>) -> Vec<PathBuf> {
        locks.into_iter().map(|lock| lock.path).collect()
    }

    /// H29
    #[tokio::test]
    async fn only_the_same_lock_for_long_is_nobodys_and_none_while_a_push_runs() {
        let repo = Repo::new();
        let [branch, packed] = ["refs/heads/main.lock", "packed-refs.lock"].map(|n| repo.lock(n));
        let start = Instant::now();
        let mut seen = Seen::default();
        let mut at = async |after: u64, pushing| {
            let found = repo.locks().await;
            let now = start + Duration::from_secs(after);
            paths(seen.abandoned(now, found, pushing))
        };
        let none: [PathBuf; 0] = [];
        assert_eq!(at(0, false).await, none);
        assert_eq!(at(29, false).await, none);
        // Somebody took it anew: that is another lock, and beside the first no file has its number.
        let other = repo.lock("refs/heads/other.lock");
        std::fs::rename(&other, &branch).unwrap();
        assert_eq!(at(30, true).await, none);
        assert_eq!(at(31, false).await, std::slice::from_ref(&packed));
        std::fs::remove_file(&packed).unwrap();
        assert_eq!(at(59, false).await, none);
        assert_eq!(at(60, false).await, [branch]);
    }

    /// H29
    #[tokio::test]
    async fn a_lock_that_was_taken_anew_since_the_look_stays() {
        let repo = Repo::new();
        let path = repo.lock("refs/heads/main.lock");
        let seen = repo.locks().await;
        let other = repo.lock("refs/heads/other.lock");
        std::fs::rename(&other, &path).unwrap();
        for lock in seen {
            git::unlock(lock).await.unwrap();
        }
        assert!(path.exists());
        for lock in repo.locks().await {
            git::unlock(lock).await.unwrap();
        }
        assert!(!path.exists());
    }

    /// H29: by a clock that stands still but for these waits.
    #[tokio::test(start_paused = true)]
    async fn a_lock_that_was_left_behind_is_gone_within_a_minute_while_the_hub_runs() {
        async fn gone(path: &Path) {
            while path.exists() {
                sleep(Duration::from_secs(1)).await;
            }
        }
        let repo = Repo::new();
        let path = repo.lock("refs/heads/main.lock");
        let began = Instant::now();
        let clear = clear(repo.0.clone(), Running::default());
        let within = async {
            tokio::select! {
                () = clear => {}
                () = gone(&path) => {}
            }
        };
        timeout(Duration::from_mins(1), within).await.unwrap();
        assert!(began.elapsed() >= ABANDONED, "{:?}", began.elapsed());
    }
}
