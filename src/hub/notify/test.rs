//! A notice of nothing, for whoever wants to know whether notices arrive before one is needed.

use futures_util::future::join_all;
use time::OffsetDateTime;

use super::board::{Notice, Severity, State};
use super::deliver::{Failed, tried};
use super::letter::Letter;
use crate::clock;
use crate::hub::Hub;
use crate::wire::api::Check;

/// Its class, which no trouble has.
const CLASS: &str = "Test";
const FIX: &str = "look at the receiver, and at the hub's --notify-… flags";

/// Sends one to each sink, once, and says what became of it.
pub async fn send(hub: &Hub, by: &str) -> Vec<Check> {
    let now = clock::now();
    let letter = Letter {
        id: clock::id(),
        at: clock::rfc3339(now),
        hub_id: hub.id.clone(),
        hub_url: hub.config.url.clone(),
        notice: notice(by, now),
    };
    let letter = &letter;
    let sinks = hub.config.notify.sinks.iter();
    let tries = sinks.map(|sink| async move {
        let ended = tried(hub, sink, letter).await;
        told(sink.name(), ended)
    });
    join_all(tries).await
}

fn notice(by: &str, now: OffsetDateTime) -> Notice {
    Notice {
        state: State::Open,
        severity: Severity::Info,
        class: CLASS.to_owned(),
        clusters: Vec::new(),
        clusters_total: 0,
        text: format!("a test by {by}: nothing is wrong, and notices arrive"),
        since: clock::rfc3339(now),
        next: Some("nothing is to be done".to_owned()),
    }
}

fn told(sink: &str, ended: Result<(), Failed>) -> Check {
    let (ok, found) = match ended {
        Ok(()) => (true, "took it".to_owned()),
        Err(Failed::Passing(why) | Failed::ForGood(why)) => (false, why),
    };
    Check {
        name: sink.to_owned(),
        ok,
        found,
        fix: if ok { String::new() } else { FIX.to_owned() },
    }
}
