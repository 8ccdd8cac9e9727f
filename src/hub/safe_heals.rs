//! Looks for incidents, and tells agents to put back only what is missing while there is one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::audit::Entry;
use super::incident::{self, Incident};
use super::store::Noted;
use super::{Hub, api, chain_of};
use crate::clock;

const LOOK: Duration = Duration::from_secs(15);

/// The incident that stands, of which assignments tell.
pub type Standing = watch::Sender<Option<Incident>>;

/// Judges the fleet again and again until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let wait = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while wait().await.is_some() {
        look(&hub, clock::now()).await;
    }
    Ok(())
}

/// One look at this time: tells the agents what changed.
pub async fn look(hub: &Hub, now: OffsetDateTime) {
    let seen = match hub.store.acted(now - incident::WITHIN).await {
        Ok(seen) => seen,
        Err(error) => {
            tracing::error!(error = %chain_of(&error), "look for one cause in many clusters");
            return;
        }
    };
    let before = hub.incident.borrow().clone();
    let found = incident::judge(now, seen.fleet, &seen.acted, before.as_ref());
    if found == before {
        return;
    }
    let begins = found.is_some() && before.is_none();
    let ends = found.is_none();
    if hub.replica.is_some() {
        // The others hold their agents back as well; where they cannot be told, the next look tries again.
        let text = found.as_ref().map(Incident::text);
        if let Err(error) = hub.store.note(Noted::Incident, text).await {
            tracing::error!(error = %chain_of(&error), "tell the other replicas of an incident");
            return;
        }
    }
    hub.incident.send_replace(found.clone());
    if let Some(incident) = found.or(before).filter(|_| begins || ends) {
        told(hub, &incident, ends).await;
    }
    api::clusters::announce_changed(hub).await;
}

/// That it begins or ends goes on record.
async fn told(hub: &Hub, incident: &Incident, over: bool) {
    let reason = incident.reason();
    let action = if over {
        tracing::info!(class = incident.class, "agents mend everything again");
        "incident.end"
    } else {
        tracing::warn!(
            class = incident.class,
            reason,
            "agents only put back what is missing"
        );
        "incident.begin"
    };
    let entry = Entry {
        actor: "hub".to_owned(),
        action: action.to_owned(),
        target: incident.class.clone(),
        reason: Some(reason),
        ..Entry::default()
    };
    if hub.audit.event(entry).await.is_err() {
        tracing::error!(
            class = incident.class,
            "an incident could not be put on record"
        );
    }
}
