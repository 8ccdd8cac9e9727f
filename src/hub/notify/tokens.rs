//! Looks now and then for tokens that are about to end, and has people told of them: [`due`] says of which, and when.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::Queue;
use super::board::Notice;
use super::deliver::post;
use crate::clock;
use crate::hub::Hub;
use crate::hub::store::Noted;

pub mod due;

/// Between looks: an end that is days away is not told by the minute, and tokens that were made together are told together.
const LOOK: Duration = Duration::from_hours(1);

pub(super) async fn watch(
    hub: Arc<Hub>,
    queues: Vec<Queue>,
    stop: CancellationToken,
) -> Result<()> {
    loop {
        match stop.run_until_cancelled(look(&hub)).await {
            None => return Ok(()),
            Some(Ok(notices)) => {
                for notice in notices {
                    post(&hub, &queues, notice);
                }
            }
            Some(Err(error)) => {
                tracing::error!(error = format!("{error:#}"), "look for tokens that end");
            }
        }
        let wait = tokio::time::sleep(LOOK);
        if stop.run_until_cancelled(wait).await.is_none() {
            return Ok(());
        }
    }
}

/// That it is told is stored before it is: a hub that is killed in between leaves it to the next time, instead of telling it twice.
async fn look(hub: &Hub) -> Result<Vec<Notice>> {
    let now = clock::now();
    let tokens = hub.store.api_tokens(None, now).await?;
    let told = hub.store.noted(Noted::TokensTold).await?;
    let told = told.as_deref().and_then(clock::parse_rfc3339);
    let notices = due::due(&tokens, told, now);
    if !notices.is_empty() {
        let text = Some(clock::rfc3339(now));
        hub.store.note(Noted::TokensTold, text).await?;
    }
    Ok(notices)
}
