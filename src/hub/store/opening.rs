//! Where the records are, and how a process takes them for itself: a data directory has one hub, or replicas of one, and one
//! database.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Result, Store, StoreError, postgres, sqlite};

/// Where the hub's records are.
#[derive(Debug, Clone, Default)]
pub enum Records {
    /// In the data directory.
    #[default]
    File,
    Server(postgres::Target),
}

/// In a data directory: says which database has the records, where that is not `hub.db` beside it.
const ELSEWHERE: &str = "database";
/// A hub that has just ended has let go of its directory by then: a program that it was about to start may hold it until it runs.
const LET_GO: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

impl Store {
    /// Takes the data directory and its records for this process, which shares them with others of its kind where it is one
    /// of several; makes what is not there yet.
    pub async fn open(data: &Path, records: &Records, share: Share) -> Result<Self> {
        let note = data.join(ELSEWHERE);
        let target = match records {
            Records::File => {
                if share == Share::Several {
                    return Err(StoreError::Refused(
                        "several replicas need PostgreSQL: give --database-url-file, or leave --peer-listen out".to_owned(),
                    ));
                }
                if let Ok(elsewhere) = std::fs::read_to_string(&note) {
                    return Err(StoreError::Refused(format!(
                        "the hub's records are in the database {}: give --database-url-file, or delete {} to begin with none",
                        elsewhere.trim(),
                        note.display()
                    )));
                }
                return Ok(Self::Sqlite(sqlite::Sqlite::open(data).await?));
            }
            Records::Server(target) => target,
        };
        let old = data.join("hub.db");
        if old.exists() {
            return Err(StoreError::Refused(format!(
                "{} has the hub's records, and nothing moves them to PostgreSQL: start with a data directory of its own",
                old.display()
            )));
        }
        let lock = lock(data, share).await?;
        let store = postgres::Postgres::open(target.clone(), share).await?;
        std::fs::write(&note, format!("{target}\n"))
            .map_err(|e| StoreError::Refused(format!("write {}: {e}", note.display())))?;
        Ok(Self::Postgres(store.keeping(lock)))
    }
}

/// Whether a process has its records to itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Share {
    #[default]
    Alone,
    /// With other replicas of the hub.
    Several,
}

impl Share {
    /// Who holds what this process wants, and what helps.
    pub(super) fn taken(self, by: &str) -> String {
        match self {
            Self::Alone => format!("another hub runs on {by}; stop it first"),
            Self::Several => format!(
                "a hub that is alone runs on {by}; stop it first, or start it with --peer-listen as well"
            ),
        }
    }
}

/// Takes the data directory for this process. A lock that the file system does not carry is an error: two hubs on
/// one database would each give out the same epochs.
pub(super) async fn lock(data: &Path, share: Share) -> Result<File> {
    let path = data.join("hub.lock");
    let refused = |why: String| StoreError::Refused(format!("lock {}: {why}", path.display()));
    let unlocked = |e: std::io::Error| refused(format!("{e}{}", helps(e.kind())));
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(unlocked)?;
    let began = Instant::now();
    loop {
        let taken = match share {
            Share::Alone => file.try_lock(),
            Share::Several => file.try_lock_shared(),
        };
        match taken {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if began.elapsed() < LET_GO => sleep(LOOK).await,
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(refused(share.taken("this data directory")));
            }
            Err(std::fs::TryLockError::Error(e)) => return Err(unlocked(e)),
        }
    }
}

/// What helps against what the system refuses in the data directory, as the end of a refusal; nothing where that is not known.
fn helps(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => {
            "; run it as the hub's user, or name a data directory of your own with --data"
        }
        ErrorKind::ReadOnlyFilesystem => "; name a data directory that can be written with --data",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room on its disk",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
