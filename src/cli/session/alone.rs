//! One process at a time: a file lock, which is waited for no longer than whoever has it may take.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

use super::private;
use crate::cli::exit::{Code, Failure};

/// How long another process may take.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(20);
/// One that takes so long is told of.
const SLOW: Duration = Duration::from_secs(2);

/// What another process does that has the lock, in words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doing {
    /// Another linesman …
    pub now: &'static str,
    /// Another linesman has …
    pub long: &'static str,
}

/// The lock of that file, until it is dropped; `tell` hears of a wait that is long.
pub(super) async fn alone(path: &Path, doing: Doing, mut tell: impl FnMut(&str)) -> Result<File> {
    let file = private()
        .open(path)
        .with_context(|| format!("open {}", path.display()))?;
    let (begun, mut told) = (Instant::now(), false);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                if !told && begun.elapsed() >= SLOW {
                    tell(&format!("another linesman {}", doing.now));
                    told = true;
                }
                sleep(LOOK).await;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Code::Failed,
                    format!("another linesman has {} for a minute", doing.long),
                    format!("see what holds it: fuser -v {}", path.display()),
                )
                .into());
            }
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("lock {}", path.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, keys};

    const DOING: Doing = Doing {
        now: "does it",
        long: "been doing it",
    };

    /// A minute is long for whoever sees nothing.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_another_process_is_told_once() {
        let name = keys::hex(&clock::random::<8>());
        let path = std::env::temp_dir().join(format!("linesman-alone-{name}.lock"));
        let other = private().open(&path).unwrap();
        for (takes, tells, fails) in [(1, 0, false), (5, 1, false), (90, 1, true)] {
            other.lock().unwrap();
            let mut said = Vec::new();
            let waits = alone(&path, DOING, |text| said.push(text.to_owned()));
            let ends = async {
                sleep(Duration::from_secs(takes)).await;
                other.unlock().unwrap();
            };
            let (waited, ()) = tokio::join!(waits, ends);
            assert_eq!(waited.is_err(), fails, "{takes}");
            assert_eq!(said, vec!["another linesman does it"; tells], "{takes}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
