//! Tells the hub and the cluster what happened: news once per change, Events, and heals that outlive the process.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::Context;
use crate::agent::News;
use crate::agent::engine::MANAGER;
use crate::manifests::{AGENT, HEALS_MAP};
use crate::wire::id::Digest;
use crate::wire::report::{
    Condition, ConditionType, HealRecord, HealResult, Status, StepName, StepReport, StepState,
};

/// Closed heals that are kept in the cluster, so that none is lost while the hub is away.
const MAX_KEPT: usize = 50;
const CALL: Duration = Duration::from_secs(3);

pub(super) struct Teller {
    news: mpsc::Sender<News>,
    maps: Api<ConfigMap>,
    namespace: String,
    events: Recorder,
    steps: BTreeMap<StepName, (StepState, String)>,
    /// The install that the steps are about.
    episode: Option<Digest>,
    conditions: BTreeMap<String, (Status, String, String)>,
    revision: String,
    kept: VecDeque<HealRecord>,
}

impl Teller {
    pub(super) fn new(context: &Context, news: mpsc::Sender<News>) -> Self {
        let reporter = Reporter {
            controller: AGENT.to_owned(),
            instance: Some(context.pod.clone()),
        };
        Self {
            news,
            maps: Api::namespaced(context.kube.clone(), &context.namespace),
            namespace: context.namespace.clone(),
            events: Recorder::new(context.kube.clone(), reporter),
            steps: BTreeMap::new(),
            episode: None,
            conditions: BTreeMap::new(),
            revision: String::new(),
            kept: VecDeque::new(),
        }
    }

    /// Sends again what an earlier process kept; the hub stores each heal once.
    pub(super) async fn resume(&mut self) {
        let found = timeout(CALL, self.maps.get_opt(HEALS_MAP)).await;
        let map = found.ok().and_then(Result::ok).flatten();
        let text = map
            .and_then(|m| m.data)
            .and_then(|mut d| d.remove("heals.json"));
        let kept: Vec<HealRecord> = text
            .and_then(|t| serde_json::from_str(&t).ok())
            .unwrap_or_default();
        self.kept = kept.into_iter().rev().take(MAX_KEPT).rev().collect();
        for heal in self.kept.clone() {
            self.send(News::Heal(Box::new(heal))).await;
        }
    }

    /// The steps of one install are told until it is done; heals of later days are no steps.
    pub(super) async fn steps(&mut self, steps: Vec<StepReport>, install: &Digest) {
        if self.episode.as_ref() != Some(install) {
            self.episode = Some(install.clone());
            self.steps.clear();
        }
        let over = self
            .steps
            .get(&StepName::Adopted)
            .is_some_and(|(state, _)| *state == StepState::Done);
        if over {
            return;
        }
        for step in steps {
            let now = (step.state, step.reason.clone());
            if self.steps.get(&step.step) != Some(&now) {
                info!(step = %step.step, state = ?step.state, reason = step.reason, "adoption");
                let name = step.step;
                if self.send(News::Step(step)).await {
                    self.steps.insert(name, now);
                }
            }
        }
    }

    pub(super) async fn conditions(&mut self, conditions: Vec<Condition>) {
        for condition in conditions {
            let name = format!("{:?}", condition.kind);
            let now = (
                condition.status,
                condition.reason.clone(),
                condition.message.clone(),
            );
            let before = self.conditions.get(&name);
            if before == Some(&now) {
                continue;
            }
            let turned = before.is_some_and(|b| b.0 != now.0)
                || condition.kind == ConditionType::EngineInstalled;
            if turned {
                info!(condition = ?condition.kind, status = ?condition.status, reason = condition.reason, message = condition.message, "condition");
            }
            if self.send(News::Condition(condition)).await {
                self.conditions.insert(name, now);
            }
        }
    }

    pub(super) async fn revision(&mut self, revision: String) {
        let new = !revision.is_empty() && revision != self.revision;
        if new && self.send(News::Revision(revision.clone())).await {
            self.revision = revision;
        }
    }

    pub(super) async fn heal(&mut self, heal: HealRecord) {
        let closed = heal.restored_at.is_some();
        info!(
            class = heal.class, object = heal.object, evidence = heal.evidence, result = ?heal.result,
            detected = heal.detected_at, acted = heal.acted_at, restored = heal.restored_at, "heal"
        );
        self.publish(&heal).await;
        if closed {
            self.kept.push_back(heal.clone());
            while self.kept.len() > MAX_KEPT {
                self.kept.pop_front();
            }
            self.keep().await;
        }
        self.send(News::Heal(Box::new(heal))).await;
    }

    async fn publish(&self, heal: &HealRecord) {
        let note = match &heal.restored_at {
            None => format!("{} {}", heal.object, heal.evidence),
            Some(_) if heal.result == HealResult::Reported => format!("{}: is over", heal.object),
            Some(_) => {
                let steps: Vec<&str> = heal.steps.iter().map(|s| s.action.as_str()).collect();
                format!(
                    "{}: function is restored, after {}",
                    heal.object,
                    steps.join(", ")
                )
            }
        };
        let event = Event {
            type_: if heal.restored_at.is_some() {
                EventType::Normal
            } else {
                EventType::Warning
            },
            reason: heal.class.clone(),
            note: Some(note.chars().take(1000).collect()),
            action: if heal.restored_at.is_some() {
                "Restored"
            } else {
                "Detected"
            }
            .to_owned(),
            secondary: None,
        };
        let agent = ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(AGENT.to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        };
        match timeout(CALL, self.events.publish(&event, &agent)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "no Event was written"),
            Err(_) => debug!("no Event was written in time"),
        }
    }

    async fn keep(&self) {
        let kept: Vec<&HealRecord> = self.kept.iter().collect();
        let Ok(text) = serde_json::to_string(&kept) else {
            return;
        };
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": HEALS_MAP, "namespace": self.namespace},
            "data": {"heals.json": text},
        });
        let params = PatchParams::apply(MANAGER).force();
        match timeout(
            CALL,
            self.maps.patch(HEALS_MAP, &params, &Patch::Apply(&body)),
        )
        .await
        {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(%error, "heals are not kept in the cluster"),
            Err(_) => warn!("heals are not kept in the cluster: no answer in time"),
        }
    }

    /// No heal waits for whoever carries the news to the hub.
    async fn send(&self, news: News) -> bool {
        match self
            .news
            .send_timeout(news, Duration::from_millis(500))
            .await
        {
            Ok(()) => true,
            Err(error) => {
                debug!(%error, "nobody takes the news");
                false
            }
        }
    }
}
