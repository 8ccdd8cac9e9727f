//! Keeps the agent's own objects as the adoption YAML has them: looks once a minute, applies what differs, and puts it
//! on record. What differs by other YAML is left to the agent that it brings. Rights that were taken from the agent it
//! cannot give itself again: it says just which ones are missing, by the API server's own word on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::EventType;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::calls::{Calls, lacks_right};
use super::engine::{MANAGER, Policy};
use super::gate::policy;
use super::lease::Term;
use super::observe;
use super::plan::{Class, Finding, Object, own, project, rights as needs, window};
use super::{Joined, News, enroll};
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::manifests::AGENT;
use crate::telemetry::HealMetrics;
use crate::wire::report::{ConditionType, HealRecord, HealResult, HealStep, Scene, Status};

pub(super) mod rights;

const EVERY: Duration = Duration::from_mins(1);
/// While rights are missing: whoever gives them back wants to see it.
const SOON: Duration = Duration::from_secs(20);
/// Own rights are reviewed this often where nothing was refused.
const REVIEW: Duration = Duration::from_mins(5);
/// Between a look and the next that a refusal calls for.
const SPACING: Duration = Duration::from_secs(5);
/// Of a condition's message, so that what to do still fits.
const LONGEST: usize = 900;
const READOPT: &str = "apply the adoption YAML again: 'linesman cluster readopt'";
const CALL: Duration = Duration::from_secs(10);
/// Steps that are written down for one heal.
const MAX_STEPS: usize = 40;

/// What the keeper of the agent's own objects needs.
pub(super) struct Keeping {
    pub(super) context: enroll::Context,
    pub(super) joined: watch::Receiver<Option<Joined>>,
    pub(super) owner: watch::Receiver<Option<policy::Policy>>,
    pub(super) heart: Heart,
    pub(super) metrics: HealMetrics,
    /// A write of the watchdog's was refused for want of a right.
    pub(super) refused: Arc<Notify>,
    /// Nothing is mended while the API server is not well.
    pub(super) calls: Calls,
    pub(super) term: Term,
}

/// What one look leaves for the next.
#[derive(Default)]
struct Memory {
    open: BTreeMap<ObjectId, HealRecord>,
    /// What differs and is not judged yet: whoever applies other adoption YAML applies the Deployment last.
    doubted: BTreeSet<ObjectId>,
    /// What was told of rights; none = nothing yet.
    told: Option<String>,
    /// When the API server last said which rights there are, and those that are missing.
    reviewed: Option<Instant>,
    missing: String,
}

impl Memory {
    fn wait(&self) -> Duration {
        let lost = self.told.as_ref().is_some_and(|told| !told.is_empty());
        let every = if !self.doubted.is_empty() {
            SPACING
        } else if lost {
            SOON
        } else {
            EVERY
        };
        every.mul_f64(0.9 + clock::unit() / 5.0)
    }
}

/// What became of one object.
enum Kept {
    AsWanted,
    /// It differs, perhaps as other adoption YAML has it, whose agent is to keep it.
    Doubted,
    Applied,
    /// The API server gives nobody more rights than he has.
    Forbidden(String),
    Failed(String),
}

impl Kept {
    /// In a record.
    fn outcome(&self) -> &str {
        match self {
            Self::AsWanted | Self::Doubted | Self::Applied => "ok",
            Self::Forbidden(error) | Self::Failed(error) => error,
        }
    }
}

impl Keeping {
    /// Looks now and then, and where something was refused, until stopped.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut memory = Memory::default();
        loop {
            self.heart.beat();
            let look = Box::pin(self.look(&mut memory));
            if stop.run_until_cancelled(look).await.is_none() {
                return Ok(());
            }
            // Of two replicas the one that leads keeps them.
            let leads = self.term.holds();
            self.metrics
                .drifts(if leads { memory.open.len() } else { 0 });
            let wait = memory.wait();
            self.heart.rests(wait.max(SPACING));
            let pause = async {
                tokio::time::sleep(SPACING).await;
                timeout(wait.saturating_sub(SPACING), self.refused.notified()).await
            };
            match stop.run_until_cancelled(pause).await {
                Some(Ok(())) => memory.reviewed = None,
                Some(Err(_)) => {}
                None => return Ok(()),
            }
        }
    }

    async fn look(&self, memory: &mut Memory) {
        let Some(joined) = self.joined.borrow().clone() else {
            return;
        };
        if !self.term.holds() || self.calls.gate().is_shut() {
            return;
        }
        let owner = self.owner.borrow().as_ref().map(|p| p.mending);
        let policy = Policy::of(&joined.assignment.policy, owner);
        if window::paused(clock::now(), &policy).is_some() {
            return;
        }
        // That the owner's policy cannot be read may come of a right that is gone, which is told then, too.
        let all = owner.map(|_| own::wanted(&self.context.engines, self.context.extent));
        let mut refused = Vec::new();
        for (id, wanted) in all.into_iter().flatten() {
            self.heart.beat();
            match self.keep(&id, &wanted, memory).await {
                Ok(Kept::Forbidden(why)) => refused.push(format!("{id}: {why}")),
                Ok(Kept::AsWanted | Kept::Doubted | Kept::Applied | Kept::Failed(_)) => {}
                Err(error) if is_forbidden(&error) => {
                    refused.push(brief(&format!("{error:#}")));
                }
                Err(error) => {
                    debug!(object = %id, error = format!("{error:#}"), "own object not looked at");
                    return;
                }
            }
        }
        self.heart.beat();
        self.review(!refused.is_empty(), memory).await;
        let lacks = Some(&memory.missing).filter(|lacks| !lacks.is_empty());
        let lacks = lacks.map(|lacks| format!("the agent may not {lacks}"));
        // Where the review says nothing, what was refused does.
        let now = lacks.or_else(|| {
            refused
                .into_iter()
                .reduce(|all, one| format!("{all}; {one}"))
        });
        let now = now.map_or_else(String::new, |now| {
            let now: String = now.chars().take(LONGEST).collect();
            format!("{now}; {READOPT}")
        });
        if memory.told.as_ref() != Some(&now) {
            let (status, reason) = if now.is_empty() {
                (Status::False, "Granted")
            } else {
                (Status::True, "RightsMissing")
            };
            self.context
                .condition(ConditionType::RightsLost, status, reason, &now)
                .await;
            memory.told = Some(now);
        }
    }

    /// Asks which rights there are: now and then, and while some are known to be missing.
    async fn review(&self, refused: bool, memory: &mut Memory) {
        let young = memory.reviewed.is_some_and(|at| at.elapsed() < REVIEW);
        if young && !refused && memory.missing.is_empty() {
            return;
        }
        let (kube, extent) = (&self.context.kube, self.context.extent);
        match rights::missing(kube, &self.context.engines, extent).await {
            Ok(missing) => {
                memory.missing = needs::told(&missing);
                memory.reviewed = Some(Instant::now());
            }
            Err(error) => debug!(error = format!("{error:#}"), "own rights not reviewed"),
        }
    }

    /// # Errors
    /// The API server does not answer.
    async fn keep(&self, id: &ObjectId, wanted: &Value, memory: &mut Memory) -> Result<Kept> {
        let live = self.read(id).await?;
        let Memory { open, doubted, .. } = memory;
        let Some(finding) = own::differs(id, wanted, live.as_ref()) else {
            doubted.remove(id);
            self.close(id, open).await;
            return Ok(Kept::AsWanted);
        };
        if !open.contains_key(id) {
            // YAML takes nothing away.
            if live.is_some() && (doubted.insert(id.clone()) || self.rolls_out().await) {
                return Ok(Kept::Doubted);
            }
            doubted.remove(id);
            let record = opened(&finding, clock::now());
            info!(object = %id, evidence = finding.evidence, writer = finding.writer, "own object differs");
            let note = format!("{id} {}", finding.evidence);
            self.context
                .event(EventType::Warning, Class::AgentDrift.as_str(), &note)
                .await;
            self.tell(record.clone()).await;
            open.insert(id.clone(), record);
        }
        let kept = self.apply(id, wanted).await;
        let fails = matches!(kept, Kept::Forbidden(_) | Kept::Failed(_));
        if fails {
            let error = kept.outcome();
            warn!(object = %id, error, "own object not mended");
        }
        if let Some(record) = open.get_mut(id)
            && noted(record, live.is_none(), &kept, clock::now())
            && fails
        {
            // What stays open for that is told with what was tried, and who can help.
            self.tell(record.clone()).await;
        }
        if matches!(kept, Kept::Applied) {
            // Applied is not yet as wanted: it is read again.
            let live = self.read(id).await?;
            if own::differs(id, wanted, live.as_ref()).is_none() {
                self.close(id, open).await;
            }
        }
        Ok(kept)
    }

    async fn close(&self, id: &ObjectId, open: &mut BTreeMap<ObjectId, HealRecord>) {
        let Some(mut record) = open.remove(id) else {
            return;
        };
        record.restored_at = Some(clock::rfc3339(clock::now()));
        record.result = HealResult::Healed;
        record.next = String::new();
        self.metrics.ended(&record);
        self.context
            .event(
                EventType::Normal,
                Class::AgentDrift.as_str(),
                &format!("{id} is as the adoption YAML has it again"),
            )
            .await;
        self.tell(record).await;
    }

    async fn tell(&self, record: HealRecord) {
        self.context.tell(News::Heal(Box::new(record))).await;
    }

    /// Whether the agent's Deployment replaces its Pods. Where it cannot be read, it does not.
    async fn rolls_out(&self) -> bool {
        let (kube, namespace) = (&self.context.kube, &self.context.namespace);
        let deployments: Api<Deployment> = Api::namespaced(kube.clone(), namespace);
        let read = timeout(CALL, deployments.get_opt(AGENT)).await;
        matches!(&read, Ok(Ok(Some(live))) if rolls_out(live))
    }

    async fn read(&self, id: &ObjectId) -> Result<Option<Object>> {
        let api = observe::api(&self.context.kube, id.kind, &id.namespace);
        let read = timeout(CALL, api.get_opt(&id.name)).await;
        let live = read
            .with_context(|| format!("read {id}: no answer"))?
            .with_context(|| format!("read {id}"))?;
        Ok(live.map(|live| project::object(id.kind, live)))
    }

    async fn apply(&self, id: &ObjectId, wanted: &Value) -> Kept {
        let api = observe::api(&self.context.kube, id.kind, &id.namespace);
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(wanted);
        match timeout(CALL, api.patch(&id.name, &params, &patch)).await {
            Ok(Ok(_)) => Kept::Applied,
            Ok(Err(kube::Error::Api(status)))
                if lacks_right(&status) || status.code == 403 && is_rights(id.kind) =>
            {
                Kept::Forbidden(brief(&status.message))
            }
            Ok(Err(kube::Error::Api(status))) if !status.message.is_empty() => {
                Kept::Failed(brief(&status.message))
            }
            Ok(Err(error)) => Kept::Failed(brief(&error.to_string())),
            Err(_) => Kept::Failed("no answer in time".to_owned()),
        }
    }
}

/// Whether there are Pods of another template than the Deployment has now. One that does not get on is waited for no longer than
/// Kubernetes waits (`progressDeadlineSeconds`).
fn rolls_out(live: &Deployment) -> bool {
    let Some(status) = &live.status else {
        return false;
    };
    let mut conditions = status.conditions.iter().flatten();
    let stuck = conditions.any(|c| c.type_ == "Progressing" && c.status == "False");
    let unseen = status.observed_generation < live.metadata.generation;
    unseen || !stuck && status.updated_replicas < status.replicas
}

/// Whether the API server did not let the agent see it.
fn is_forbidden(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<kube::Error>();
    cause.is_some_and(|e| matches!(e, kube::Error::Api(status) if status.code == 403))
}

fn is_rights(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::ClusterRole | Kind::ClusterRoleBinding | Kind::Role | Kind::RoleBinding
    )
}

fn opened(finding: &Finding, now: OffsetDateTime) -> HealRecord {
    HealRecord {
        id: clock::id(),
        class: finding.class.as_str().to_owned(),
        number: finding.class.about().number,
        meaning: finding.class.about().seen.to_owned(),
        object: finding.object.to_string(),
        evidence: finding.evidence.clone(),
        writer: finding.writer.clone(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: finding.fault_at.map(clock::rfc3339),
        detected_at: clock::rfc3339(now),
        acted_at: None,
        restored_at: None,
        result: HealResult::Open,
        next: String::new(),
        scene: Scene::default(),
    }
}

/// One step; the same again is not written down. Whether it was.
fn noted(record: &mut HealRecord, missing: bool, kept: &Kept, now: OffsetDateTime) -> bool {
    let at = clock::rfc3339(now);
    record.acted_at.get_or_insert_with(|| at.clone());
    let outcome = kept.outcome();
    let again = record.steps.iter().any(|step| step.outcome == outcome);
    if again || record.steps.len() >= MAX_STEPS {
        return false;
    }
    match kept {
        Kept::AsWanted | Kept::Doubted | Kept::Applied => {}
        Kept::Forbidden(_) => READOPT.clone_into(&mut record.next),
        Kept::Failed(error) => {
            record.next = format!(
                "ask whoever runs the cluster's API server, or the admission webhook that is named, why it is not taken: {error}"
            );
        }
    }
    record.steps.push(HealStep {
        action: if missing { "create" } else { "apply" }.to_owned(),
        object: record.object.clone(),
        at,
        outcome: outcome.to_owned(),
    });
    true
}

fn brief(text: &str) -> String {
    text.chars().take(500).collect()
}

#[cfg(test)]
mod tests;
