//! One cluster's line as this hub sees it at this moment.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};

use super::super::Caller;
use super::super::problem::Problem;
use super::find;
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::hub::replica::lines::{self, Elsewhere};
use crate::wire::api::{LineClass, LineDetail};

pub(super) async fn show(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<LineDetail>, Problem> {
    caller.require(&hub, Role::Viewer, "line.show").await?;
    let cluster = find(&hub, &name).await?;
    let elsewhere = Elsewhere::of(&hub, &cluster.name).await?;
    let here = hub.tunnels.view_of(&cluster.name, &cluster.id);
    let ours = here.up.as_ref().map(|facts| facts.epoch);
    let view = elsewhere.view(&cluster.name, here);
    let (since, last_cause) = view.last_end(lines::counted(&hub, cluster.epoch));
    let at = view.up.filter(|facts| ours != Some(facts.epoch));
    let mut detail = LineDetail {
        replica: match &hub.replica {
            Some(own) => own.record.id.clone(),
            None => hub.id.clone(),
        },
        epoch: cluster.epoch,
        since: since.map(clock::rfc3339),
        parked: count(hub.tunnels.parked(&cluster.name)),
        denied: hub.tunnels.denials(&cluster.name, &cluster.id),
        last_cause,
        ..LineDetail::default()
    };
    if let (Some(facts), Some(other)) = (at, elsewhere.at(&cluster.name)) {
        // What it carries is known there.
        detail = LineDetail {
            replica: other.peer.id.clone(),
            up: true,
            epoch: facts.epoch,
            since: Some(clock::rfc3339(facts.since)),
            remote: Some(facts.remote),
            instance: Some(facts.instance),
            ..detail
        };
    } else if ours.is_some()
        && let Some((facts, load)) = hub.tunnels.load(&cluster.name)
    {
        let streams = [
            ("api", load.api),
            ("git", load.git),
            ("report", load.report),
            ("other", load.other),
        ];
        let classes = load.classes.named().map(|(class, load)| {
            let told = LineClass {
                sent: load.sent,
                received: load.received,
                queue_micros: load.delay.map(micros),
            };
            (class.to_owned(), told)
        });
        detail = LineDetail {
            up: true,
            draining: facts.draining,
            epoch: facts.epoch,
            since: Some(clock::rfc3339(facts.since)),
            remote: Some(facts.remote),
            instance: Some(facts.instance),
            cap_seconds: facts.cap.map(|cap| cap.as_secs()),
            rtt_micros: facts.rtt.map(micros),
            classes: classes.into(),
            streams: streams.map(|(kind, n)| (kind.to_owned(), count(n))).into(),
            opened: facts.opened,
            sent: facts.sent,
            received: facts.received,
            unread: count(load.unread),
            credit_stalls: load.stalls,
            ..detail
        };
    }
    Ok(Json(detail))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
