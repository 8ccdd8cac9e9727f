//! Tells the hub and the cluster what happened: news once per change, and Events. The report task keeps what the hub
//! has not taken yet.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::events::{Outbox, Posting};
use super::record::{ALARM, WAITS};
use super::{Context, Watchdog};
use crate::agent::News;
use crate::bundle::ObjectId;
use crate::heal::COMMIT;
use crate::lifetime::hearts::Heart;
use crate::manifests::AGENT;
use crate::wire::id::Digest;
use crate::wire::report::{
    Condition, ConditionType, HealRecord, HealResult, Status, StepName, StepReport, StepState,
};

/// Reasons of Events that are about no heal: what is to be brought back is not on record, or without its inventory, or is given up; a
/// record cannot be read.
pub(super) const UNRECORDED: &str = "NotOnRecord";
pub(super) const BARE: &str = "InventoryNotKept";
pub(super) const GIVEN_UP: &str = "NotBroughtBack";
pub(super) const UNREADABLE: &str = crate::agent::report::UNREADABLE;
/// Heals that wait for somebody to take the news.
const MAX_UNTOLD: usize = 256;

pub(super) struct Teller {
    news: mpsc::Sender<News>,
    /// The watchdog's, which has many news at a time.
    heart: Heart,
    namespace: String,
    /// Where the engine is.
    home: String,
    events: Outbox,
    steps: BTreeMap<StepName, (StepState, String)>,
    /// The install that the steps are about.
    episode: Option<Digest>,
    conditions: BTreeMap<String, (Status, String, String)>,
    revision: String,
    /// Whether somebody has taken which heals go on.
    says_what_is_open: bool,
}

impl Teller {
    pub(super) fn new(context: &Context, news: mpsc::Sender<News>) -> Self {
        Self {
            news,
            heart: context.heart.clone(),
            namespace: context.namespace.clone(),
            home: String::new(),
            events: Outbox::new(context),
            steps: BTreeMap::new(),
            episode: None,
            conditions: BTreeMap::new(),
            revision: String::new(),
            says_what_is_open: false,
        }
    }

    /// Events about what is in the engine's namespace are Events about just that.
    pub(super) fn at_home_in(&mut self, namespace: &str) {
        namespace.clone_into(&mut self.home);
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

    /// Which heals go on, of those of before, too. It is told once, as soon as somebody takes it.
    async fn goes_on(&mut self, open: Vec<String>) {
        self.says_what_is_open = self.send(News::GoesOn(open)).await;
    }

    /// False = nobody takes it now.
    pub(super) async fn heal(&mut self, heal: &HealRecord) -> bool {
        if !self.send(News::Heal(Box::new(heal.clone()))).await {
            return false;
        }
        info!(
            class = heal.class, object = heal.object, evidence = heal.evidence, result = ?heal.result,
            detected = heal.detected_at, acted = heal.acted_at, restored = heal.restored_at, "heal"
        );
        self.publish(heal);
        true
    }

    /// What people have to know of the agent itself: in the log and as an Event on its Deployment.
    pub(super) fn warn(&self, reason: &str, note: &str) {
        warn!(reason, "{note}");
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note.chars().take(1000).collect()),
            action: "Told".to_owned(),
            secondary: None,
        };
        self.events.put(Posting {
            event,
            about: None,
            instead: self.agent(),
        });
    }

    fn agent(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(AGENT.to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        }
    }

    fn publish(&self, heal: &HealRecord) {
        let alarm = heal.steps.last().filter(|s| s.action == ALARM);
        let commit = heal.steps.last().filter(|s| s.action == COMMIT);
        let note = match &heal.restored_at {
            _ if commit.is_some() => {
                let said = commit.map(|s| s.outcome.as_str()).unwrap_or_default();
                format!("{}: {said}", heal.object)
            }
            None if alarm.is_some() => {
                let said = alarm.map(|s| s.outcome.as_str()).unwrap_or_default();
                format!("{}: {said}", heal.object)
            }
            None => format!("{} {}", heal.object, heal.evidence),
            Some(_) if !heal.scene.remade.is_empty() => again(heal),
            Some(_) if heal.result == HealResult::Reported => format!("{}: is over", heal.object),
            Some(_) => {
                let steps = heal.steps.iter().map(|s| s.action.as_str());
                let steps: Vec<&str> = steps.filter(|action| *action != WAITS).collect();
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
        let about = regarding(heal, &self.home);
        self.events.put(Posting {
            event,
            about,
            instead: self.agent(),
        });
    }

    /// No heal waits for whoever carries the news to the hub.
    async fn send(&self, news: News) -> bool {
        self.heart.stirs();
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

/// The object that a heal is about, where it is in the engine's namespace `home`: an Event is kept beside what it is about.
fn regarding(heal: &HealRecord, home: &str) -> Option<ObjectReference> {
    let id: ObjectId = heal.object.parse().ok()?;
    let uid = Some(heal.scene.uid.clone()).filter(|uid| !uid.is_empty());
    (!home.is_empty() && id.namespace == home).then(|| ObjectReference {
        api_version: Some(id.kind.api_version()),
        kind: Some(id.kind.as_str().to_owned()),
        name: Some(id.name),
        namespace: Some(id.namespace),
        uid,
        ..ObjectReference::default()
    })
}

/// What a collapse cost.
fn again(heal: &HealRecord) -> String {
    let remade = &heal.scene.remade;
    format!(
        "{}: {} objects were gone, and the engine made them again: {}",
        heal.object,
        remade.count,
        remade.objects.join(", ")
    )
}

impl Watchdog {
    /// Tells of heals, in order, and then which of them go on; what nobody takes now is told again at the next turn.
    pub(super) async fn tell(&mut self, heals: Vec<HealRecord>) {
        let mut all = std::mem::take(&mut self.untold);
        all.extend(heals);
        let mut all = all.into_iter();
        while let Some(heal) = all.next() {
            if !self.teller.heal(&heal).await {
                self.untold = std::iter::once(heal).chain(all).collect();
                let over = self.untold.len().saturating_sub(MAX_UNTOLD);
                if over > 0 {
                    warn!(heals = over, "nobody takes the news: heals are not told");
                    self.untold.drain(..over);
                }
                return;
            }
        }
        if !self.teller.says_what_is_open {
            let open = self.records.open_ids();
            self.teller.goes_on(open).await;
        }
    }
}

#[cfg(test)]
mod tests;
