//! Waiting until the hub says that something is over.

use std::time::Duration;

use anyhow::Result;

use super::duration;
use super::exit::{Code, Failure};
use super::progress::Progress;
use crate::client::Error;

const EVERY: Duration = Duration::from_millis(500);

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
    let ends = tokio::time::Instant::now() + limit;
    let mut why = "the hub did not answer".to_owned();
    loop {
        match ask().await {
            Ok(Found::Over(value)) => return Ok(value),
            Ok(Found::Never(failure)) => return Err(failure.into()),
            Ok(Found::Waits(lack)) => {
                progress.say(&lack);
                why = lack;
            }
            Err(e) if e.is_passing() => progress.say(&format!("{e}; asking again")),
            Err(e) => return Err(e.into()),
        }
        let now = tokio::time::Instant::now();
        if now >= ends {
            let text = format!("{} passed and {why}", duration::show(limit));
            return Err(Failure::new(Code::Timeout, text, next).into());
        }
        tokio::time::sleep(EVERY.min(ends - now)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
