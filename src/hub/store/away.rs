//! A database's server that is away. Whatever needs it fails meanwhile, at each request and each pass: that is said once, when it
//! begins, and once more when the server is back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Store, StoreError};
use crate::clock;
use crate::hub::chain_of;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Whoever does not answer for so long is away.
const LIMIT: Duration = Duration::from_secs(2);
/// A server is back when each look found it for so long: one that comes and goes was away once.
const STEADY: Duration = Duration::from_secs(10);

/// What goes on without the records.
pub const MEANWHILE: &str = "no request to a cluster, call of the API, report or push is served; lines stay up, what runs on them goes \
                             on, and clusters go on healing and syncing";

/// Since when the server is away, as all handles of a store know it.
#[derive(Debug, Clone, Default)]
pub struct Away(Arc<Mutex<Option<String>>>);

impl Away {
    pub(super) fn since(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, since: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Says of an answer that did not come that the server is away, where that is known.
    pub(super) fn named<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        answer.map_err(|error| match error {
            StoreError::Database { .. } | StoreError::Silent(_) => match self.since() {
                Some(since) => StoreError::Away {
                    since,
                    source: Box::new(error),
                },
                None => error,
            },
            other => other,
        })
    }
}

/// What the looks found.
#[derive(Debug, Default)]
struct Absence {
    /// Of the first look that found nobody.
    began: Option<Instant>,
    /// Of the first one since then that found somebody, where all behind it did.
    answers: Option<Instant>,
}

/// What is said after a look.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Away,
    /// After so long.
    Back(Duration),
}

impl Absence {
    fn look(&mut self, found: bool, now: Instant) -> Option<Said> {
        let Some(began) = self.began else {
            self.began = (!found).then_some(now);
            return self.began.map(|_| Said::Away);
        };
        if !found {
            self.answers = None;
            return None;
        }
        let answers = *self.answers.get_or_insert(now);
        if now - answers < STEADY {
            return None;
        }
        *self = Self::default();
        Some(Said::Back(answers - began))
    }
}

/// Looks until `stop` whether the server is there, and takes writes.
pub async fn watch(store: Store, stop: CancellationToken) -> Result<()> {
    let Store::Postgres(server) = &store else {
        stop.cancelled().await;
        return Ok(());
    };
    let (mut absence, mut since) = (Absence::default(), String::new());
    while stop.run_until_cancelled(sleep(LOOK)).await.is_some() {
        let began = clock::now();
        let look = timeout(LIMIT, Box::pin(store.check()));
        let Some(found) = stop.run_until_cancelled(look).await else {
            return Ok(());
        };
        let why = match found {
            // It is there, and another hub has it: that is said where it is asked for.
            Ok(Ok(()) | Err(StoreError::Refused(_))) => None,
            Ok(Err(error)) => Some(chain_of(&error)),
            Err(_) => Some(format!("no answer within {} s", LIMIT.as_secs())),
        };
        let said = absence.look(why.is_none(), Instant::now());
        if said == Some(Said::Away) {
            since = clock::rfc3339(began);
        }
        server.away.set(why.is_some().then(|| since.clone()));
        match said {
            None => {}
            Some(Said::Away) => {
                tracing::error!(
                    error = why.unwrap_or_default(),
                    "the database is away since {since}: {MEANWHILE}"
                );
            }
            Some(Said::Back(after)) => {
                let seconds = after.as_secs();
                tracing::info!("the database, away since {since}, is back after {seconds} s");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_said_once_and_its_end_once() {
        let start = Instant::now();
        let mut absence = Absence::default();
        let mut said = |second: u64, found| {
            let now = start + Duration::from_secs(second);
            absence.look(found, now)
        };
        assert_eq!([said(0, true), said(1, true)], [None, None]);
        assert_eq!(said(2, false), Some(Said::Away));
        // It comes and goes.
        let looks = [(3, false), (4, true), (5, false), (14, true), (23, true)];
        assert!(
            looks
                .into_iter()
                .all(|(at, found)| said(at, found).is_none())
        );
        let back = Said::Back(Duration::from_secs(12));
        assert_eq!([said(24, true), said(25, true)], [Some(back), None]);
        assert_eq!(said(26, false), Some(Said::Away));
    }

    #[test]
    fn what_fails_meanwhile_says_since_when() {
        let away = Away::default();
        let silent = || Err::<(), _>(StoreError::Silent("read a cluster"));
        let said = |away: &Away, answer| away.named(answer).map_err(|error| chain_of(&error));
        let alone = "read a cluster: the database does not answer";
        assert_eq!(said(&away, silent()), Err(alone.to_owned()));
        away.set(Some("2026-11-21T08:00:00.000Z".to_owned()));
        let since = format!("the database is away since 2026-11-21T08:00:00.000Z: {alone}");
        assert_eq!(said(&away, silent()), Err(since));
        assert_eq!(said(&away, Ok(())), Ok(()));
        let full = StoreError::Full("too many".to_owned());
        assert_eq!(said(&away, Err(full)), Err("too many".to_owned()));
        away.set(None);
        assert_eq!(said(&away, silent()), Err(alone.to_owned()));
    }
}
