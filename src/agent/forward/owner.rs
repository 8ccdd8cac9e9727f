//! Watches the owner's policy, the `ConfigMap` `linesman-policy`, and publishes what is in force.

use std::collections::BTreeMap;

use anyhow::Result;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_objects};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::agent::News;
use crate::agent::gate::policy::{CONFIG_MAP, Policy};
use crate::clock;
use crate::wire::report::{Condition, ConditionType, Status};

/// Runs until `stop`. `None` is published until the policy was read for the first time.
pub async fn keep(
    kube: kube::Client,
    namespace: String,
    publish: watch::Sender<Option<Policy>>,
    news: mpsc::Sender<News>,
    stop: CancellationToken,
) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(kube, &namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let mut events = watch_objects(maps, only).default_backoff().boxed();
    let mut listed = None;
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        match event {
            Ok(Event::Init) => listed = None,
            Ok(Event::InitApply(map)) => listed = Some(map),
            Ok(Event::InitDone) => settle(listed.take(), &publish, &news),
            Ok(Event::Apply(map)) => settle(Some(map), &publish, &news),
            Ok(Event::Delete(_)) => settle(None, &publish, &news),
            Err(error) => debug!(%error, "watch of linesman-policy"),
        }
    }
    Ok(())
}

/// Puts the policy in force. An invalid one leaves the old one, or closes the line where there is none.
fn settle(
    map: Option<ConfigMap>,
    publish: &watch::Sender<Option<Policy>>,
    news: &mpsc::Sender<News>,
) {
    let data: BTreeMap<String, String> = map.and_then(|map| map.data).unwrap_or_default();
    let (status, reason, message) = match Policy::parse(&data) {
        Ok(policy) => {
            let changed = publish.send_if_modified(|now| {
                let changed = now.as_ref() != Some(&policy);
                *now = Some(policy);
                changed
            });
            if !changed {
                return;
            }
            info!(keys = data.len(), "owner's policy in force");
            (Status::True, "InForce", String::new())
        }
        Err(error) => {
            warn!(%error, "owner's policy is invalid");
            publish.send_if_modified(|now| {
                let first = now.is_none();
                now.get_or_insert_with(Policy::closed);
                first
            });
            let text =
                format!("ConfigMap {CONFIG_MAP}: {error}; the policy before it stays in force");
            (Status::False, "Invalid", text)
        }
    };
    let condition = Condition {
        kind: ConditionType::PolicyAccepted,
        status,
        reason: reason.to_owned(),
        message,
        since: clock::rfc3339(clock::now()),
    };
    // A report that is not taken now is made again at the next change; access does not wait for it.
    if news.try_send(News::Condition(condition)).is_err() {
        debug!("policy condition not reported");
    }
}
