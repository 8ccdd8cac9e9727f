//! Keeps the agent's own objects as the adoption YAML has them: looks once a minute, applies what differs, and puts it
//! on record. Rights that were taken from the agent it cannot give itself again: it says so.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::engine::MANAGER;
use super::health::Heart;
use super::observe;
use super::plan::{Class, Finding, Object, own, project};
use super::{Joined, News, enroll};
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::telemetry::HealMetrics;
use crate::wire::report::{ConditionType, HealRecord, HealResult, HealStep, Status};

const EVERY: Duration = Duration::from_mins(1);
const CALL: Duration = Duration::from_secs(10);

/// What the keeper of the agent's own objects needs.
pub(super) struct Keeping {
    pub(super) context: enroll::Context,
    pub(super) joined: watch::Receiver<Option<Joined>>,
    pub(super) heart: Heart,
    pub(super) metrics: HealMetrics,
}

/// What became of one object.
enum Kept {
    AsWanted,
    Applied,
    /// The API server gives nobody more rights than he has.
    Forbidden(String),
    Failed(String),
}

impl Keeping {
    /// Looks now and then, until stopped.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut open: BTreeMap<ObjectId, HealRecord> = BTreeMap::new();
        let mut lost: Option<String> = None;
        loop {
            self.heart.beat();
            let look = Box::pin(self.look(&mut open, &mut lost));
            if stop.run_until_cancelled(look).await.is_none() {
                return Ok(());
            }
            let pause = tokio::time::sleep(EVERY.mul_f64(0.9 + clock::unit() / 5.0));
            if stop.run_until_cancelled(pause).await.is_none() {
                return Ok(());
            }
        }
    }

    async fn look(&self, open: &mut BTreeMap<ObjectId, HealRecord>, lost: &mut Option<String>) {
        let Some(joined) = self.joined.borrow().clone() else {
            return;
        };
        let paused = joined.assignment.policy.paused_until.as_deref();
        if paused.and_then(clock::parse_rfc3339) > Some(clock::now()) {
            return;
        }
        let mut missing = Vec::new();
        for (id, wanted) in own::wanted() {
            self.heart.beat();
            match self.keep(&id, &wanted, open).await {
                Ok(Kept::Forbidden(why)) => missing.push(format!("{id}: {why}")),
                Ok(Kept::AsWanted | Kept::Applied | Kept::Failed(_)) => {}
                Err(error) => {
                    debug!(object = %id, error = format!("{error:#}"), "own object not looked at");
                    return;
                }
            }
        }
        let now = missing.join("; ");
        if lost.as_ref() != Some(&now) {
            let (status, reason) = if now.is_empty() {
                (Status::False, "Granted")
            } else {
                (Status::True, "RightsMissing")
            };
            self.context
                .condition(ConditionType::RightsLost, status, reason, &now)
                .await;
            *lost = Some(now);
        }
    }

    /// # Errors
    /// The API server does not answer.
    async fn keep(
        &self,
        id: &ObjectId,
        wanted: &Value,
        open: &mut BTreeMap<ObjectId, HealRecord>,
    ) -> Result<Kept> {
        let live = self.read(id).await?;
        let Some(finding) = own::differs(id, wanted, live.as_ref()) else {
            self.close(id, open).await;
            return Ok(Kept::AsWanted);
        };
        if !open.contains_key(id) {
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
        let outcome = match &kept {
            Kept::AsWanted | Kept::Applied => "ok",
            Kept::Forbidden(error) | Kept::Failed(error) => {
                warn!(object = %id, error, "own object not mended");
                error
            }
        };
        if let Some(record) = open.get_mut(id) {
            noted(record, live.is_none(), outcome, clock::now());
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
        // The receiver ends with the process.
        drop(self.context.news.send(News::Heal(Box::new(record))).await);
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
            Ok(Err(kube::Error::Api(status))) if status.code == 403 && is_rights(id.kind) => {
                Kept::Forbidden(brief(&status.message))
            }
            Ok(Err(error)) => Kept::Failed(brief(&error.to_string())),
            Err(_) => Kept::Failed("no answer in time".to_owned()),
        }
    }
}

fn is_rights(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::ClusterRole | Kind::ClusterRoleBinding | Kind::Role | Kind::RoleBinding
    )
}

fn opened(finding: &Finding, now: OffsetDateTime) -> HealRecord {
    HealRecord {
        id: uuid::Uuid::now_v7().to_string(),
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
    }
}

/// One step; the same again is not written down.
fn noted(record: &mut HealRecord, missing: bool, outcome: &str, now: OffsetDateTime) {
    let at = clock::rfc3339(now);
    record.acted_at.get_or_insert_with(|| at.clone());
    if record
        .steps
        .last()
        .is_some_and(|last| last.outcome == outcome)
    {
        return;
    }
    if outcome != "ok" {
        "apply the adoption YAML again: 'linesman cluster readopt'".clone_into(&mut record.next);
    }
    record.steps.push(HealStep {
        action: if missing { "create" } else { "apply" }.to_owned(),
        object: record.object.clone(),
        at,
        outcome: outcome.to_owned(),
    });
}

fn brief(text: &str) -> String {
    text.chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_again_and_again_is_written_down_once_with_the_way_out() {
        let id = ObjectId::new(Kind::ClusterRole, "", "linesman-agent");
        let finding = Finding::new(Class::AgentDrift, &id, "differs at /rules");
        let now = clock::parse_rfc3339("2026-01-01T00:00:00Z").unwrap();
        let mut record = opened(&finding, now);
        assert_eq!((record.number, record.result), (49, HealResult::Open));
        for _ in 0..3 {
            noted(
                &mut record,
                false,
                "attempting to grant extra privileges",
                now,
            );
        }
        noted(&mut record, false, "ok", now);
        let steps: Vec<&str> = record.steps.iter().map(|s| s.outcome.as_str()).collect();
        assert_eq!(steps, ["attempting to grant extra privileges", "ok"]);
        assert!(
            record.next.contains("linesman cluster readopt"),
            "{record:?}"
        );
        assert_eq!(record.acted_at.as_deref(), Some("2026-01-01T00:00:00.000Z"));
    }
}
