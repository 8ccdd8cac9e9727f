//! Looks for incidents, and tells agents to put back only what is missing while there is one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::audit::Entry;
use super::incident::{self, Incident};
use super::store::{Noted, Store, StoreError};
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

/// As a hub finds it at its start, on record: agents do not mend everything at once because it was started again.
pub async fn standing(store: &Store) -> Result<Standing, StoreError> {
    Ok(Standing::new(recorded(store).await?))
}

async fn recorded(store: &Store) -> Result<Option<Incident>, StoreError> {
    let noted = store.noted(Noted::Incident).await?;
    Ok(noted.as_deref().and_then(Incident::parse))
}

/// One look at this time: tells the agents what changed.
pub async fn look(hub: &Hub, now: OffsetDateTime) {
    // As exact as the record, so that what stands is the same there and here.
    let now = now.truncate_to_millisecond();
    let read = async {
        let seen = hub.store.acted(now - incident::WITHIN).await?;
        // Not by what this process knows: another one may have left it behind.
        Ok::<_, StoreError>((seen, recorded(&hub.store).await?))
    };
    let (seen, before) = match read.await {
        Ok(read) => read,
        Err(_) if hub.store.is_away() => return,
        Err(error) => {
            tracing::error!(error = %chain_of(&error), "look for one cause in many clusters");
            return;
        }
    };
    let found = incident::judge(now, seen.fleet, &seen.acted, before.as_ref());
    if found != before {
        // The other replicas hold their agents back as well; where it cannot be kept, the next look tries again.
        let text = found.as_ref().map(Incident::text);
        if let Err(error) = hub.store.note(Noted::Incident, text).await {
            tracing::error!(error = %chain_of(&error), "keep on record that an incident stands");
            return;
        }
    }
    let begins = found.is_some() && before.is_none();
    let ends = found.is_none() && before.is_some();
    let changed = hub.incident.send_if_modified(|standing| {
        let other = *standing != found;
        standing.clone_from(&found);
        other
    });
    if let Some(incident) = found.or(before).filter(|_| begins || ends) {
        told(hub, &incident, ends).await;
    }
    if changed {
        api::clusters::announce_changed(hub).await;
    }
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
