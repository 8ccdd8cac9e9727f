//! Keeps a Secret of ours as it is in memory: deleted or garbled, it is back at once. Where somebody goes on with that it is back
//! less often, and people are told: else both would write as fast as they can.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret as Object;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::stored::{data, secrets, write};
use super::{Context, FIELD_MANAGER};
use crate::agent::calls;
use crate::agent::identity::SecretData;
use crate::agent::plan::pace;

const RETRY: Duration = Duration::from_secs(2);
/// Between two Events about one fight.
const TELL: Duration = Duration::from_hours(1);
const CALL: Duration = Duration::from_secs(10);
/// Reason of the Event.
const FOUGHT: &str = "SecretFought";

/// Watches Secret `name` until `stop`, and writes `wanted` where `same` says that it is not there. Whoever wants something else
/// writes it first; whether that went well is looked at a little later. What the watch does not hear is seen
/// two and a half minutes later, or three and a half where that list hangs.
pub async fn secret(
    context: Context,
    name: &'static str,
    mut wanted: watch::Receiver<Option<SecretData>>,
    same: impl Fn(&SecretData) -> bool,
    stop: CancellationToken,
) -> Result<()> {
    let api = secrets(&context.kube, &context.namespace);
    let events = calls::object(api.clone(), name);
    tokio::pin!(events);
    let mut fight = Fight::new();
    let mut seen = None::<SecretData>;
    // When it is looked at; none = it is as it has to be.
    let mut due = None::<Instant>;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.next() => match event {
                Some(Ok(object)) => {
                    fight.by = object.as_ref().and_then(writer);
                    seen = object.map(|object| data(&object));
                    let wrong = !seen.as_ref().is_some_and(&same);
                    due = wrong.then(|| fight.next());
                }
                Some(Err(error)) => debug!(%error, name, "watch failed"),
                None => anyhow::bail!("the watch of Secret {name} ended"),
            },
            Ok(()) = wanted.changed() => {
                let known = due.take().filter(|_| !seen.as_ref().is_some_and(&same));
                due = known.or_else(|| Some(Instant::now() + RETRY));
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
        if due.is_none_or(|at| at > Instant::now()) {
            continue;
        }
        due = None;
        if seen.as_ref().is_some_and(&same) {
            continue;
        }
        let Some(data) = wanted.borrow().clone() else {
            due = Some(Instant::now() + RETRY);
            continue;
        };
        warn!(name, "secret missing or changed; writing it again");
        let written = write(&api, name, &data).await;
        fight.tried();
        match written {
            Ok(()) => fight.tell(&context, name).await,
            Err(error) => {
                warn!(error = format!("{error:#}"), "secret not written");
                due = Some(fight.next());
            }
        }
    }
}

/// Whoever else wrote the Secret last, by the name of its field manager.
fn writer(object: &Object) -> Option<String> {
    let others = object.managed_fields().iter();
    let others = others.filter(|by| by.manager.as_deref() != Some(FIELD_MANAGER));
    others.max_by_key(|by| by.time.clone())?.manager.clone()
}

/// The writes of late, by a clock that nobody sets.
struct Fight {
    began: Instant,
    tries: Vec<OffsetDateTime>,
    by: Option<String>,
    told: Option<Instant>,
}

impl Fight {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            tries: Vec::new(),
            by: None,
            told: None,
        }
    }

    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + self.began.elapsed()
    }

    fn tried(&mut self) {
        self.tries.push(self.now());
        let surplus = self.tries.len().saturating_sub(pace::MAX_ATTEMPTS);
        self.tries.drain(..surplus);
    }

    /// How long the next write waits for the last one.
    fn pause(&self) -> Duration {
        let now = self.now();
        let next = pace::again(&self.tries, now).map(|at| at - now);
        next.and_then(|pause| pause.try_into().ok())
            .unwrap_or_default()
    }

    fn next(&self) -> Instant {
        Instant::now() + self.pause()
    }

    /// Says that somebody goes on with it, once in a while.
    async fn tell(&mut self, context: &Context, name: &str) {
        let pause = self.pause();
        if pause <= RETRY || self.told.is_some_and(|at| at.elapsed() < TELL) {
            return;
        }
        self.told = Some(Instant::now());
        let by = match &self.by {
            Some(by) => format!("changed by '{by}'"),
            None => "deleted".to_owned(),
        };
        let place = &context.namespace;
        let note = format!(
            "Secret {name} is {by} as soon as it is written, so that it is written less often; find out who does that, and stop it: \
             'kubectl --namespace {place} get secret {name} --show-managed-fields --output jsonpath=\"{{.metadata.managedFields}}\"', \
             or the API server's audit log"
        );
        warn!(reason = FOUGHT, "{note}");
        let told = context.event(EventType::Warning, FOUGHT, &note);
        if timeout(CALL, told).await.is_err() {
            debug!(name, "the fight over it is not told");
        }
    }
}

#[cfg(test)]
mod tests;
