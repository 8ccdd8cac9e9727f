//! Keeps a Secret of ours as it is in memory: deleted or garbled, it is back within seconds.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret as Object;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::stored::{data, write};
use crate::agent::identity::SecretData;

const RETRY: Duration = Duration::from_secs(2);

/// Watches Secret `name` until `stop`, and writes `wanted` where `same` says that it is not there.
pub async fn secret(
    api: Api<Object>,
    name: &'static str,
    wanted: watch::Receiver<Option<SecretData>>,
    same: impl Fn(&SecretData) -> bool,
    stop: CancellationToken,
) -> Result<()> {
    let events = watcher::watch_object(api.clone(), name).default_backoff();
    tokio::pin!(events);
    let mut wrong = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.next() => match event {
                Some(Ok(seen)) => {
                    wrong = !seen.is_some_and(|object| same(&data(&object)));
                }
                Some(Err(error)) => debug!(%error, name, "watch failed"),
                None => anyhow::bail!("the watch of Secret {name} ended"),
            },
            () = tokio::time::sleep(RETRY), if wrong => {}
        }
        let data = wanted.borrow().clone();
        if let (true, Some(data)) = (wrong, data) {
            warn!(name, "secret missing or changed; writing it again");
            match write(&api, name, &data).await {
                Ok(()) => wrong = false,
                Err(error) => warn!(error = format!("{error:#}"), "secret not written"),
            }
        }
    }
}
