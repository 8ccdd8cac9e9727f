//! Watches the owner's policy, the `ConfigMap` `linesman-policy`, and publishes what is in force: to the gate of the line,
//! and to whatever mends or changes the engine, also where no hub was ever reached. It is listed anew every minute ([`named`]), so that
//! no silence of its watch keeps a change from being heard.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::calls::named;
use super::enroll;
use super::gate::policy::{CONFIG_MAP, Policy};
use crate::agent::News;
use crate::clock;
use crate::wire::report::{Condition, ConditionType, Status};

/// A time too far ahead comes near by itself, and a report may have found no room.
const AGAIN: Duration = Duration::from_mins(1);
/// For so long it may be that the API server is just not there yet.
const UNREAD: Duration = Duration::from_secs(30);

/// What is told of the policy, in condition `PolicyAccepted`.
type Said = (Status, &'static str, String);

/// Runs until `stop`, and while somebody still goes by the policy. `None` is published until it was read for the first time.
pub(super) async fn keep(
    context: enroll::Context,
    publish: watch::Sender<Option<Policy>>,
    stop: CancellationToken,
) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(context.kube.clone(), &context.namespace);
    let mut events = named(maps, CONFIG_MAP).boxed();
    let over = async {
        stop.cancelled().await;
        publish.closed().await;
    };
    tokio::pin!(over);
    let began = Instant::now();
    let (mut listed, mut data, mut told) = (None, None, None);
    loop {
        let event = tokio::select! {
            () = &mut over => return Ok(()),
            event = events.next() => Some(event.context("the watch of linesman-policy ended")?),
            () = sleep(AGAIN) => None,
        };
        match event {
            Some(Ok(Event::Init)) => listed = None,
            Some(Ok(Event::InitApply(map))) => listed = map.data,
            Some(Ok(Event::InitDone)) => data = Some(listed.take().unwrap_or_default()),
            Some(Ok(Event::Apply(map))) => data = Some(map.data.unwrap_or_default()),
            Some(Ok(Event::Delete(_))) => data = Some(BTreeMap::new()),
            Some(Err(error)) => {
                debug!(%error, "watch of linesman-policy");
                if data.is_none() && began.elapsed() >= UNREAD {
                    tell(&context, &mut told, unread(&error));
                }
            }
            None => {}
        }
        if let Some(data) = &data {
            let said = settle(data, clock::now(), &publish);
            tell(&context, &mut told, said);
        }
    }
}

/// Puts the policy in force. An invalid one leaves the old one; where there is none, nothing is allowed.
fn settle(
    data: &BTreeMap<String, String>,
    now: OffsetDateTime,
    publish: &watch::Sender<Option<Policy>>,
) -> Said {
    let error = match Policy::parse(data, now) {
        Ok(policy) => {
            let policy = Some(policy);
            publish.send_if_modified(|before| {
                let changed = *before != policy;
                *before = policy;
                changed
            });
            return (Status::True, "InForce", String::new());
        }
        Err(error) => error,
    };
    publish.send_if_modified(|before| {
        let first = before.is_none();
        before.get_or_insert_with(Policy::closed);
        first
    });
    let stays = if *publish.borrow() == Some(Policy::closed()) {
        "nothing passes the line and nothing is mended before it is valid"
    } else {
        "the policy before it stays in force"
    };
    let text = format!("ConfigMap {CONFIG_MAP}: {error}; {stays}");
    (Status::False, "Invalid", text)
}

fn unread(error: &watcher::Error) -> Said {
    let text = format!(
        "ConfigMap {CONFIG_MAP} cannot be read: {error}; nothing passes the line and nothing is mended before it is"
    );
    (Status::False, "Unread", text)
}

/// Says it once. What finds no room now is said again later; what is in force does not wait for it.
fn tell(context: &enroll::Context, told: &mut Option<Said>, said: Said) {
    if told.as_ref() == Some(&said) {
        return;
    }
    let (status, reason, message) = said.clone();
    if status == Status::True {
        info!("owner's policy in force");
    } else {
        warn!(reason, message, "owner's policy");
    }
    let condition = Condition {
        kind: ConditionType::PolicyAccepted,
        status,
        reason: reason.to_owned(),
        message,
        since: clock::rfc3339(clock::now()),
    };
    if context.news.try_send(News::Condition(condition)).is_err() {
        debug!("policy condition not reported yet");
        return;
    }
    *told = Some(said);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::gate::policy::{Heal, Mending};

    fn at(text: &str) -> OffsetDateTime {
        clock::parse_rfc3339(text).unwrap()
    }

    fn data(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = rows.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        owned.collect()
    }

    fn off() -> Policy {
        Policy {
            mending: Mending {
                heal: Heal::Off,
                paused_until: None,
            },
            ..Policy::default()
        }
    }

    #[test]
    fn an_invalid_policy_leaves_the_one_before_and_says_why_until_it_is_mended() {
        let now = at("2026-11-21T00:00:00Z");
        let (publish, policy) = watch::channel(None);
        let accepted: Said = (Status::True, "InForce", String::new());
        let rows = |rows: &[(&str, &str)]| settle(&data(rows), now, &publish);
        assert_eq!(rows(&[("heal", "off")]), accepted);
        assert_eq!(*policy.borrow(), Some(off()));
        for (key, value, why) in [
            (
                "heal",
                "no",
                "'heal: no' cannot be read; write on, safe or off",
            ),
            (
                "pausedUntil",
                "tomorrow",
                "'pausedUntil: tomorrow' cannot be read; write a time such as 2026-11-21T18:00:00Z",
            ),
            (
                "pausedUntil",
                "2026-11-22T00:00:01Z",
                "'pausedUntil: 2026-11-22T00:00:01Z' is more than a day ahead; write a nearer time, and a later one \
                 before it is over",
            ),
        ] {
            let text =
                format!("ConfigMap linesman-policy: {why}; the policy before it stays in force");
            assert_eq!(rows(&[(key, value)]), (Status::False, "Invalid", text));
            assert_eq!(*policy.borrow(), Some(off()));
        }
        // What is in force is in force again: that is told, too.
        assert_eq!(rows(&[("heal", "off")]), accepted);
        assert_eq!(rows(&[]), accepted);
        assert_eq!(*policy.borrow(), Some(Policy::default()));
    }

    #[test]
    fn where_nothing_valid_was_read_nothing_is_allowed() {
        let now = at("2026-11-21T00:00:00Z");
        let (publish, policy) = watch::channel(None);
        for _ in 0..2 {
            let said = settle(&data(&[("heal", "of")]), now, &publish);
            let text = "ConfigMap linesman-policy: 'heal: of' cannot be read; write on, safe or off; nothing passes \
                        the line and nothing is mended before it is valid";
            assert_eq!(said, (Status::False, "Invalid", text.to_owned()));
            assert_eq!(*policy.borrow(), Some(Policy::closed()));
        }
        settle(&data(&[]), now, &publish);
        assert_eq!(*policy.borrow(), Some(Policy::default()));
    }

    #[test]
    fn a_time_too_far_ahead_counts_as_soon_as_it_is_near_enough() {
        let (publish, policy) = watch::channel(None);
        let until = at("2026-11-22T00:00:00Z");
        let rows = data(&[("pausedUntil", "2026-11-22T01:00:00+01:00")]);
        let seen = ["2026-11-20T23:59:59Z", "2026-11-21T00:00:00Z"].map(|now| {
            let (status, ..) = settle(&rows, at(now), &publish);
            (status, policy.borrow().clone().unwrap().mending)
        });
        let paused = |heal, paused_until| Mending { heal, paused_until };
        assert_eq!(
            seen,
            [
                (Status::False, paused(Heal::Unclear, None)),
                (Status::True, paused(Heal::On, Some(until))),
            ]
        );
    }
}
