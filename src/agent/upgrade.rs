//! Another image for the agent itself, by the hub's wish: acts on what [`crate::agent::plan::upgrade`] decides.
//!
//! The Pod that leads goes on until one of the new image asks for the Lease. It gives it away and stands by; the Deployment
//! keeps it, because the new one is not ready before the hub has acknowledged a report of it. Whoever sees the end of
//! the trial's time first puts the image of before back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::enroll::FIELD_MANAGER;
use super::enroll::stored::{self, within};
use super::gitline::label::{self, Unmarked};
use super::lease::Candidate;
use super::plan::upgrade::{
    ASKS, DEADLINE, Deployed, FAILED, Failed, Lending, PREVIOUS, Part, Seen, Step, TRIED, Trial,
    Turn, WISH, decide, patience,
};
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::manifests;

mod lead;
mod made;

pub(super) use lead::Upgrading;
use made::made_from;

const RETRY: Duration = Duration::from_secs(1);
/// Of what a Pod says about itself.
const LONGEST: usize = 300;
const CONTAINER: &str = "agent";

/// One process of an image, and what it remembers of a trial; clones are the same.
#[derive(Clone)]
pub(super) struct Upgrade(Arc<Shared>);

struct Shared {
    kube: kube::Client,
    namespace: String,
    pod: String,
    /// The image that this process runs from.
    own: String,
    memory: Mutex<Memory>,
    /// Whether this is the new one, and not confirmed.
    on_trial: watch::Sender<bool>,
    /// Who gets the Lease when this one stops to lead; empty = whoever comes.
    heir: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Memory {
    trial: Option<Sight>,
    /// What the Lease said of this Pod when the process began.
    relapsed: Option<bool>,
}

/// A trial as this process saw it first.
struct Sight {
    trial: Trial,
    since: Instant,
    patience: Duration,
    lending: Lending,
}

/// How a process that does not lead is to go on.
pub(super) enum Stance {
    /// It leads where nobody else does.
    Rival,
    /// The same, but it is on trial.
    OnTrial,
    /// It does nothing any more.
    Out(String),
}

impl Upgrade {
    /// Asks the cluster which image this is; `built` is what the process was told, for those that are in no Pod. `None`
    /// where `stop` came first.
    pub(super) async fn new(
        kube: &kube::Client,
        (namespace, pod): (&str, &str),
        built: &str,
        (heart, stop): (&Heart, &CancellationToken),
    ) -> Option<Self> {
        let own = loop {
            heart.rests(stored::DEADLINE.saturating_mul(2) + RETRY);
            match made_from(kube, namespace, pod).await {
                Ok(found) => break found,
                Err(error) if is_refused(&error) => break None,
                Err(error) => debug!(error = format!("{error:#}"), "own Pod not read"),
            }
            stop.run_until_cancelled(sleep(RETRY)).await?;
        };
        Some(Self(Arc::new(Shared {
            kube: kube.clone(),
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            own: own.unwrap_or_else(|| built.to_owned()),
            memory: Mutex::default(),
            on_trial: watch::Sender::new(false),
            heir: watch::Sender::new(None),
        })))
    }

    pub(super) fn on_trial(&self) -> watch::Receiver<bool> {
        self.0.on_trial.subscribe()
    }

    /// For the one that keeps the Lease: whom it goes to, where it is given away.
    pub(super) fn heir(&self) -> watch::Receiver<Option<String>> {
        self.0.heir.send_replace(None);
        self.0.heir.subscribe()
    }

    /// Whether the Lease was given away.
    pub(super) fn stepped_back(&self) -> bool {
        self.0.heir.borrow().is_some()
    }

    /// Takes the label of the one that leads away from this Pod: Git over the line goes to another. Whether it is away.
    pub(super) async fn unmark(&self, stop: &CancellationToken) -> bool {
        let Shared {
            kube,
            namespace,
            pod,
            ..
        } = &*self.0;
        label::unmark(kube, namespace, pod, stop).await
    }

    /// The same for as long as this one stands by.
    pub(super) async fn stays_unmarked(&self, label: &mut Unmarked, stop: &CancellationToken) {
        let place = (self.0.namespace.as_str(), self.0.pod.as_str());
        label.keep(&self.0.kube, place, stop).await;
    }

    /// How giving the Lease away went: only where it was `freed` the new image's Pod could lead.
    pub(super) fn gave(&self, freed: bool) {
        let heir = self.0.heir.borrow().clone();
        let lends = heir.is_some_and(|pod| !pod.is_empty());
        if let (true, Some(sight)) = (lends, self.memory().trial.as_mut()) {
            sight.lending = if freed {
                Lending::Done
            } else {
                Lending::Failed
            };
        }
    }

    /// What a process that does not lead has to do about a trial.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn stand(&self, candidate: &Candidate) -> Result<Stance> {
        let Some((deployed, version)) = self.deployed().await? else {
            return Ok(Stance::Rival);
        };
        let part = deployed.part(&self.0.own).map(|(part, _)| part);
        let known = self.memory().relapsed;
        let relapsed = match known {
            Some(relapsed) => relapsed,
            None => candidate.is_named().await?,
        };
        let left = self.left(&deployed);
        self.memory().relapsed = Some(relapsed);
        self.0.on_trial.send_replace(part == Some(Part::New));
        let step = decide(&self.seen(&deployed, left, Turn::Waits { relapsed }));
        match &step {
            Step::Ask => {
                let asks = json!({ (ASKS): self.0.pod });
                self.write(&version, &asks, None).await?;
            }
            Step::Return(failed) => {
                self.put_back(&deployed, &version, failed).await?;
                // One that led in a former life has its name there; the old one need not wait until that is stale.
                candidate.release().await;
            }
            Step::Stay(_)
            | Step::Try(_)
            | Step::Lend(_)
            | Step::Confirm
            | Step::Judge(_)
            | Step::Yield
            | Step::Forget => {}
        }
        Ok(match (step, part) {
            (Step::Yield, _) | (Step::Return(_), Some(Part::New)) => {
                Stance::Out(format!("image {} was taken back", self.0.own))
            }
            (_, Some(Part::New)) => Stance::OnTrial,
            (_, Some(Part::Old) | None) => Stance::Rival,
        })
    }

    fn seen<'a>(&'a self, deployed: &'a Deployed, left: Duration, turn: Turn<'a>) -> Seen<'a> {
        Seen {
            own: &self.0.own,
            pod: &self.0.pod,
            deployed,
            left,
            turn,
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is left of the trial's time.
    fn left(&self, deployed: &Deployed) -> Duration {
        let mut memory = self.memory();
        let Some((part, trial)) = deployed.part(&self.0.own) else {
            memory.trial = None;
            return Duration::ZERO;
        };
        let same = |sight: &Sight| {
            (&sight.trial.image, &sight.trial.deadline) == (&trial.image, &trial.deadline)
        };
        if !memory.trial.as_ref().is_some_and(same) {
            memory.trial = Some(Sight {
                trial: trial.clone(),
                since: Instant::now(),
                patience: patience(part, trial, clock::now()),
                lending: Lending::default(),
            });
        }
        let left = |sight: &Sight| sight.patience.saturating_sub(sight.since.elapsed());
        memory.trial.as_ref().map(left).unwrap_or_default()
    }

    fn api(&self) -> Api<Deployment> {
        Api::namespaced(self.0.kube.clone(), &self.0.namespace)
    }

    /// The agent's Deployment with its version; none where there is none to be seen.
    async fn deployed(&self) -> Result<Option<(Deployed, String)>> {
        let read = match within(self.api().get_opt(manifests::AGENT)).await {
            Ok(read) => read,
            Err(error) if is_refused(&error) => None,
            Err(error) => return Err(error).context("read the agent's Deployment"),
        };
        let deployed = |live: Deployment| {
            let image = image(live.spec?.template.spec?.containers)?;
            let annotations = live.metadata.annotations.unwrap_or_default();
            let version = live.metadata.resource_version?;
            Some((Deployed::read(&image, &annotations), version))
        };
        Ok(read.and_then(deployed))
    }

    /// Refused where somebody else wrote meanwhile.
    async fn write(&self, version: &str, annotations: &Value, image: Option<&str>) -> Result<()> {
        let mut patch =
            json!({ "metadata": { "resourceVersion": version, "annotations": annotations } });
        if let Some(image) = image {
            patch["spec"] = running(image);
        }
        self.send(patch, false)
            .await
            .context("change the agent's Deployment")?;
        Ok(())
    }

    /// What the Deployment would have if it were given this image: the cluster's admission may write another one there, such as the same
    /// from a mirror.
    async fn becomes(&self, version: &str, wished: &str) -> Result<String> {
        let metadata = json!({ "resourceVersion": version });
        let patch = json!({ "metadata": metadata, "spec": running(wished) });
        let would = self.send(patch, true).await;
        let would = would.context("try another image in the agent's Deployment")?;
        let found = would.spec.and_then(|spec| spec.template.spec);
        let found = found.and_then(|spec| image(spec.containers));
        Ok(found.unwrap_or_else(|| wished.to_owned()))
    }

    async fn send(&self, patch: Value, dry_run: bool) -> Result<Deployment> {
        let params = PatchParams {
            dry_run,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(patch);
        within(self.api().patch(manifests::AGENT, &params, &patch)).await
    }

    /// The image of before, with the reason and what its Pod says.
    async fn put_back(
        &self,
        deployed: &Deployed,
        version: &str,
        failed: &Failed,
    ) -> Result<Failed> {
        let Some(trial) = &deployed.trial else {
            return Ok(failed.clone());
        };
        let mut failed = failed.clone();
        if let Some(told) = self.evidence(&trial.image).await {
            failed.why = format!("{}; {told}", failed.why);
        }
        let mut annotations = over();
        annotations[FAILED] = json!(serde_json::to_string(&failed)?);
        self.write(version, &annotations, Some(&trial.previous))
            .await?;
        warn!(
            image = trial.image,
            back = trial.previous,
            why = failed.why,
            "agent's image taken back"
        );
        Ok(failed)
    }

    /// What a Pod of this image says about itself.
    async fn evidence(&self, wanted: &str) -> Option<String> {
        let pods = Api::<Pod>::namespaced(self.0.kube.clone(), &self.0.namespace);
        let label = format!("app.kubernetes.io/name={}", manifests::AGENT);
        let params = ListParams::default().labels(&label).limit(50);
        let pods = within(pods.list(&params)).await.ok()?;
        let mut told = pods.items.into_iter().filter_map(|pod| {
            let of = image(pod.spec?.containers)?;
            let status = pod.status?;
            let containers = status.container_statuses.unwrap_or_default();
            let said = containers.iter().find_map(says);
            let unscheduled = || {
                let mut all = status.conditions.iter().flatten();
                let bad = all.find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
                bad.message.clone()
            };
            said.or_else(unscheduled).filter(|_| of == wanted)
        });
        told.next_back()
            .map(|told| told.chars().take(LONGEST).collect())
    }
}

/// Why a container does not run, or did not.
fn says(status: &ContainerStatus) -> Option<String> {
    let waits = status.state.as_ref().and_then(|s| s.waiting.as_ref());
    if let Some(waits) = waits {
        let reason = waits.reason.as_deref().unwrap_or("it waits");
        let message = waits.message.as_deref().unwrap_or_default();
        return Some(format!("{reason}: {message}"));
    }
    let last = status.last_state.as_ref()?.terminated.as_ref()?;
    let reason = last.reason.as_deref().unwrap_or("it ended");
    Some(format!(
        "{reason}, exit code {}, restarted {} times",
        last.exit_code, status.restart_count
    ))
}

/// What a Deployment says that runs this image.
fn running(image: &str) -> Value {
    let env = json!([{ "name": "LINESMAN_IMAGE", "value": image }]);
    let container = json!({ "name": CONTAINER, "image": image, "env": env });
    json!({
        // Both are there until one of them is confirmed.
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
        "template": { "spec": { "containers": [container] } },
    })
}

fn image(containers: Vec<Container>) -> Option<String> {
    let mut all = containers.into_iter();
    all.find(|c| c.name == CONTAINER)?.image
}

/// No annotation of a trial.
fn over() -> Value {
    json!({ (PREVIOUS): null, (TRIED): null, (DEADLINE): null, (ASKS): null, (WISH): null, (FAILED): null })
}

fn is_refused(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<kube::Error>();
    cause.is_some_and(|e| matches!(e, kube::Error::Api(status) if status.code == 403))
}

#[cfg(test)]
mod tests;
