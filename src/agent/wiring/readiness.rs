//! Whether the agent is ready.

use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::agent::Joined;
use crate::agent::health::Readiness;
use crate::agent::link::LinkState;

/// Ready by HTTPS: so long after the last acknowledged report.
const HEARD: Duration = Duration::from_secs(45);

/// Says what is true of the way to the hub.
pub(super) async fn run(
    ready: watch::Sender<Readiness>,
    joined: watch::Receiver<Option<Joined>>,
    (line, acked, on_trial): (
        watch::Receiver<LinkState>,
        watch::Receiver<Option<Instant>>,
        watch::Receiver<bool>,
    ),
    stop: CancellationToken,
) -> Result<()> {
    loop {
        let now = if *on_trial.borrow() {
            // Ready, the Deployment would end the one that can still go back.
            Readiness::NotReady("on trial until the hub has acknowledged a report".to_owned())
        } else {
            judge(
                joined.borrow().is_some(),
                &line.borrow(),
                acked.borrow().map(|at| at.elapsed()),
            )
        };
        ready.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
        let pause = sleep(Duration::from_millis(500));
        if stop.run_until_cancelled(pause).await.is_none() {
            return Ok(());
        }
    }
}

fn judge(joined: bool, line: &LinkState, acked: Option<Duration>) -> Readiness {
    match (joined, line) {
        (false, _) => Readiness::NotReady("not joined yet".to_owned()),
        (true, LinkState::Up { .. }) => Readiness::Ready("line up".to_owned()),
        (true, LinkState::Down { cause, .. }) => match acked {
            Some(ago) if ago <= HEARD => {
                Readiness::Ready(format!("reporting over HTTPS; line down: {cause}"))
            }
            _ => Readiness::NotReady(format!("the hub is not reached: {cause}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn readiness_follows_the_way_to_the_hub() {
        let down = LinkState::Down {
            since: clock::now(),
            cause: "connection refused".into(),
            attempt: 3,
            strange: false,
        };
        let text = "the hub is not reached: connection refused".to_owned();
        assert_eq!(judge(true, &down, None), Readiness::NotReady(text.clone()));
        let late = Some(Duration::from_mins(2));
        assert_eq!(judge(true, &down, late), Readiness::NotReady(text));
        let lately = Some(Duration::from_secs(5));
        assert!(matches!(judge(true, &down, lately), Readiness::Ready(_)));
        assert_eq!(
            judge(false, &down, lately),
            Readiness::NotReady("not joined yet".into())
        );
    }
}
