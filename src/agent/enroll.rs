//! Adoption up to the engine: keys, join, the line, the proof of the Git path, the bundle. Every step can be resumed.
//!
//! What was reached is derived from what the cluster holds: Secret `linesman-keys` (made before the first word),
//! Secret `linesman-state` (the hub's answer), ConfigMap `linesman-bundle`. An agent that finds all three starts
//! healing without hub and Git host. [`join`] keeps the second and the token out of the cluster, [`keyring`] the first,
//! [`prepare`] the rest, and publishes [`crate::agent::Desired`]; [`rotate`] replaces keys.

pub mod answer;
pub mod bundle;
mod engine_keys;
pub mod gitpath;
mod hostkeys;
pub mod join;
pub mod keep;
pub mod keyring;
pub mod places;
pub mod prepare;
pub mod removal;
pub mod rotate;
pub mod stored;
pub mod told;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tracing::debug;

use crate::agent::News;
use crate::agent::fault::{Edge, Faults};
use crate::agent::lease::Term;
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::manifests::{self, EngineNamespaces, scope::Extent};
use crate::wire::api::AgentBuild;
use crate::wire::id::ClusterName;
use crate::wire::report::{Condition, ConditionType, Status, StepName, StepReport, StepState};

/// The field manager of all that the agent applies for itself.
pub const FIELD_MANAGER: &str = "linesman-agent";
/// Longest reason of a step, longest message of a condition.
const LONGEST_REASON: usize = 1 << 10;

/// What the parts of an enrolment share.
#[derive(Clone)]
pub struct Context {
    pub kube: kube::Client,
    /// The agent's own namespace.
    pub namespace: String,
    pub engines: EngineNamespaces,
    /// How far the rights reach that the adoption YAML gave.
    pub extent: Extent,
    pub pod: String,
    pub cluster: ClusterName,
    pub build: AgentBuild,
    pub faults: Faults,
    pub news: mpsc::Sender<News>,
    /// Of the task that this one is for, where it has one.
    pub heart: Option<Heart>,
}

impl Context {
    /// The same for a task with this heart, which is to beat with each of the calls that it makes.
    #[must_use]
    pub fn of(&self, kube: &kube::Client, term: &Term, heart: &Heart) -> Self {
        Self {
            kube: term.client(kube, Some(heart.clone())),
            heart: Some(heart.clone()),
            ..self.clone()
        }
    }

    /// An Event on the agent's Deployment; one that cannot be written is no reason to stop.
    pub async fn event(&self, kind: EventType, reason: &str, note: &str) {
        let reporter = Reporter {
            controller: FIELD_MANAGER.to_owned(),
            instance: Some(self.pod.clone()),
        };
        let object = ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(manifests::AGENT.to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(clip(note)),
            action: "Adopt".to_owned(),
            secondary: None,
        };
        let recorder = Recorder::new(self.kube.clone(), reporter);
        if let Err(error) = recorder.publish(&event, &object).await {
            debug!(%error, reason, "event not written");
        }
    }

    /// Sends a condition; the reporter keeps `since` while the status stays.
    pub async fn condition(&self, kind: ConditionType, status: Status, reason: &str, text: &str) {
        let condition = observed(kind, status, reason, text);
        self.tell(News::Condition(condition)).await;
    }

    /// Whether the agent itself reads the catalog.
    pub async fn own_git(&self, status: Status, reason: &str, text: &str) {
        let condition = observed(ConditionType::GitReachable, status, reason, text);
        self.tell(News::OwnGit(condition)).await;
    }

    pub async fn tell(&self, news: News) {
        let sent = self.news.send(news);
        // The receiver ends with the process. Whether it takes any is for its own heart to say.
        let _ended = match &self.heart {
            Some(heart) => heart.through(sent).await,
            None => sent.await,
        };
    }
}

fn observed(kind: ConditionType, status: Status, reason: &str, text: &str) -> Condition {
    Condition {
        kind,
        status,
        reason: reason.to_owned(),
        message: clip(text),
        since: clock::rfc3339(clock::now()),
    }
}

/// One step's way through an adoption: tells each change once, and is where tests kill the process.
pub struct Progress {
    context: Context,
    step: StepName,
    told: Option<(StepState, String)>,
}

impl Progress {
    pub fn new(context: &Context, step: StepName) -> Self {
        Self {
            context: context.clone(),
            step,
            told: None,
        }
    }

    pub async fn running(&mut self) {
        if self.told.is_none() {
            self.context.faults.at(self.step, Edge::Before);
            self.set(StepState::Running, "").await;
        }
    }

    pub async fn waiting(&mut self, reason: &str) {
        if !self.is_done() {
            self.set(StepState::Waiting, reason).await;
        }
    }

    pub async fn failed(&mut self, reason: &str) {
        if !self.is_done() {
            self.set(StepState::Failed, reason).await;
        }
    }

    pub async fn done(&mut self) {
        if !self.is_done() {
            self.context.faults.at(self.step, Edge::After);
            self.set(StepState::Done, "").await;
        }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.told, Some((StepState::Done, _)))
    }

    async fn set(&mut self, state: StepState, reason: &str) {
        let now = (state, clip(reason));
        if self.told.as_ref() == Some(&now) {
            return;
        }
        tracing::info!(step = %self.step, ?state, reason, "adoption");
        self.told = Some(now.clone());
        let report = StepReport {
            step: self.step,
            state,
            reason: now.1,
            at: clock::rfc3339(clock::now()),
        };
        self.context.tell(News::Step(report)).await;
    }
}

fn clip(text: &str) -> String {
    let mut end = text.len().min(LONGEST_REASON);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
