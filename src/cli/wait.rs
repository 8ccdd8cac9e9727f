//! Waiting until the hub says that something is over.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::duration;
use super::exit::{Code, Failure};
use super::interrupt;
use super::progress::Progress;
use crate::client::{Cause, Error};

const EVERY: Duration = Duration::from_millis(500);
/// So long the first answer may take, however short the time is.
pub(super) const LEAST: Duration = Duration::from_secs(1);

/// The hub has not answered since it was last asked: nothing is known of what is waited for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Silence {
    why: String,
    next: String,
}

impl Silence {
    pub(super) fn of(error: &Error) -> Self {
        Self {
            why: format!("the hub did not answer: {error}"),
            next: error.next(),
        }
    }

    /// The time ended before an answer or an error came.
    pub(super) fn whole(hub: &str) -> Self {
        Self {
            why: "the hub did not answer".to_owned(),
            next: Cause::Timeout.next(hub),
        }
    }

    pub(super) fn failure(self, limit: Duration) -> Failure {
        let text = format!("{} passed and {}", duration::show(limit), self.why);
        Failure::new(Code::Timeout, text, self.next)
    }
}

/// What an answer of the hub says.
#[derive(Debug)]
pub(super) enum Found<T> {
    Over(T),
    /// What it waits for now.
    Waits(String),
    Never(Failure),
}

impl<T> Found<T> {
    /// Over where it lacks nothing.
    pub(super) fn of(value: T, lack: Option<String>) -> Self {
        lack.map_or(Self::Over(value), Self::Waits)
    }
}

/// How long, and what a person does when that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience<'a> {
    pub(super) limit: Duration,
    pub(super) next: &'a str,
}

/// Asks until `what` is so, and tells what that waits for; gives the seconds that it took, too. A hub that is away for a
/// moment is waited for as well.
pub(super) async fn until<T>(
    what: &str,
    patience: Patience<'_>,
    ask: impl AsyncFnMut() -> Result<Found<T>, Error>,
) -> Result<(T, f64)> {
    let limit = duration::show(patience.limit);
    let mut progress = Progress::start(&format!("waiting until {what}, at most {limit}"));
    let ended = over(patience, &mut progress, ask).await;
    let took = progress.finish().as_secs_f64();
    Ok((ended?, took))
}

async fn over<T>(
    Patience { limit, next }: Patience<'_>,
    progress: &mut Progress,
    mut ask: impl AsyncFnMut() -> Result<Found<T>, Error>,
) -> Result<T> {
    let began = Instant::now();
    let ends = began + limit;
    let mut until = ends.max(began + LEAST);
    let mut why = Err(Silence::whole("the hub"));
    let mut asked = began;
    loop {
        match interrupt::cut_at(until, ask()).await {
            Ok(Ok(Found::Over(value))) => return Ok(value),
            Ok(Ok(Found::Never(failure))) => return Err(failure.into()),
            Ok(Ok(Found::Waits(lack))) => {
                progress.say(&lack);
                why = Ok(lack);
            }
            Ok(Err(e)) if e.is_passing() => {
                progress.say(&format!("{e}; asking again"));
                why = Err(Silence::of(&e));
            }
            Ok(Err(e)) => return Err(e.into()),
            // One that had no time to answer says nothing of the hub, whatever came to its end behind that.
            Err(_) if until.duration_since(asked) < LEAST => {}
            Err(_) => why = why.and_then(|_| Err(Silence::whole("the hub"))),
        }
        until = ends;
        let now = Instant::now();
        if now >= ends {
            let failure = match why {
                Ok(lack) => {
                    let text = format!("{} passed and {lack}", duration::show(limit));
                    Failure::new(Code::Timeout, text, next)
                }
                Err(silence) => silence.failure(limit),
            };
            return Err(failure.into());
        }
        tokio::time::sleep(EVERY.min(ends - now)).await;
        asked = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cli::interrupt::Interrupt;

    const PATIENCE: Patience<'_> = Patience {
        limit: Duration::from_secs(2),
        next: "look closer",
    };

    fn failure(error: &anyhow::Error) -> &Failure {
        error.downcast_ref().expect("a failure")
    }

    #[tokio::test(start_paused = true)]
    async fn it_asks_until_it_is_over() {
        let mut left = 3;
        let asked = until("it is done", PATIENCE, async || {
            left -= 1;
            Ok(Found::of(left, (left > 0).then(|| format!("{left} left"))))
        });
        assert_eq!(asked.await.unwrap().0, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_its_time_names_what_lacked_last() {
        let asked = until("it is done", PATIENCE, async || {
            Ok(Found::<()>::Waits("the line is down".to_owned()))
        });
        let error = asked.await.unwrap_err();
        let expected = Failure::new(
            Code::Timeout,
            "2s passed and the line is down",
            "look closer",
        );
        assert_eq!(failure(&error), &expected);
    }

    /// A hub that is gone is not a cluster that is late; the word before says nothing any more.
    #[tokio::test(start_paused = true)]
    async fn a_hub_that_went_away_is_blamed_itself() {
        let mut calls = 0;
        let asked = until("it is done", PATIENCE, async || {
            calls += 1;
            if calls == 1 {
                return Ok(Found::<()>::Waits("the line is down".to_owned()));
            }
            Err(Error::Unreachable {
                operation: "show cluster eu1".to_owned(),
                hub: "https://hub".to_owned(),
                cause: Cause::Timeout,
            })
        });
        let error = asked.await.unwrap_err();
        let expected = Failure::new(
            Code::Timeout,
            "2s passed and the hub did not answer: show cluster eu1: the hub does not answer in time",
            Cause::Timeout.next("https://hub"),
        );
        assert_eq!(failure(&error), &expected);
    }

    /// The time of a wait is kept, whatever a call of its own would take.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_does_not_outlive_the_wait() {
        let began = Instant::now();
        let asked = until("it is done", PATIENCE, async || {
            std::future::pending::<()>().await;
            Ok(Found::Over(()))
        });
        let error = asked.await.unwrap_err();
        assert_eq!(began.elapsed(), PATIENCE.limit);
        let expected = Failure::new(
            Code::Timeout,
            "2s passed and the hub did not answer",
            Cause::Timeout.next("the hub"),
        );
        assert_eq!(failure(&error), &expected);
    }

    /// H31: a refresh token is good once: where the end of the time cut its renewal in the middle, the session was over.
    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_being_renewed_at_the_end_of_the_time_is_kept() {
        let (began, takes) = (Instant::now(), 2 * PATIENCE.limit);
        let kept = Cell::new(false);
        let asked = until("it is done", PATIENCE, async || {
            let renews = async {
                tokio::time::sleep(takes).await;
                kept.set(true);
            };
            interrupt::to_its_end(interrupt::own().as_ref(), renews).await;
            Ok(Found::Over(()))
        });
        let error = Interrupt::default().ends(asked).await.unwrap_err();
        let found = (failure(&error).code, kept.get(), began.elapsed());
        assert_eq!(found, (Code::Timeout, true, takes));
    }

    /// A call that is cut a moment after it began is no silence of the hub's: what it said before stands.
    #[tokio::test(start_paused = true)]
    async fn a_call_without_time_to_answer_leaves_the_last_word() {
        let patience = Patience {
            limit: LEAST,
            ..PATIENCE
        };
        let text = format!("{} passed and the line is down", duration::show(LEAST));
        let expected = Failure::new(Code::Timeout, text, "look closer");
        // It is cut at the end, or behind the renewal of a session that is kept first.
        for renewal in [Duration::ZERO, 2 * LEAST] {
            let mut calls = 0;
            let asked = until("it is done", patience, async || {
                calls += 1;
                if calls > 1 {
                    let renews = tokio::time::sleep(renewal);
                    interrupt::to_its_end(interrupt::own().as_ref(), renews).await;
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(LEAST / 4).await;
                Ok(Found::<()>::Waits("the line is down".to_owned()))
            });
            let error = Interrupt::default().ends(asked).await.unwrap_err();
            assert_eq!(failure(&error), &expected, "{renewal:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_and_a_refusal_end_it_at_once() {
        let never = Failure::new(Code::Failed, "it was undone", "look closer");
        let asked = until("it is done", PATIENCE, async || {
            Ok(Found::<()>::Never(Failure::new(
                Code::Failed,
                "it was undone",
                "look closer",
            )))
        });
        assert_eq!(failure(&asked.await.unwrap_err()), &never);
        let asked = until("it is done", PATIENCE, async || {
            Err::<Found<()>, _>(Error::Tls("no roots".to_owned()))
        });
        assert!(asked.await.unwrap_err().is::<Error>());
    }
}
