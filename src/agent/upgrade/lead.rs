//! The part of the one that leads: begins a trial, gives the Lease away, ends the trial.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::runtime::events::EventType;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Upgrade, over};
use crate::agent::Joined;
use crate::agent::engine::Policy;
use crate::agent::enroll::{self, stored};
use crate::agent::gate::policy;
use crate::agent::lease::Term;
use crate::agent::link::LinkState;
use crate::agent::plan::upgrade::{
    DEADLINE, Deployed, FAILED, Failed, Lead, PREVIOUS, Part, Said, Stay, Step, TRIED, Turn, WISH,
    WITHIN, condition, decide, rewritten,
};
use crate::agent::plan::window;
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::wire::api::Assignment;
use crate::wire::report::ConditionType;

/// Between looks while an image is on trial.
const SOON: Duration = Duration::from_secs(1);
/// While it is not known yet whether the image or the hub was to blame.
const SETTLING: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_mins(1);
/// The calls of one look, all at the end of their time: to the Deployment, to the Pods, to try and to write, and to free the label.
const LONGEST: Duration = stored::DEADLINE.saturating_mul(6);
/// The hub hears this agent, also without a line: so long after the last acknowledged report.
const HEARD: Duration = Duration::from_secs(45);

/// What it needs.
pub(in crate::agent) struct Upgrading {
    pub(in crate::agent) upgrade: Upgrade,
    pub(in crate::agent) context: enroll::Context,
    pub(in crate::agent) joined: watch::Receiver<Option<Joined>>,
    pub(in crate::agent) owner: watch::Receiver<Option<policy::Policy>>,
    pub(in crate::agent) line: watch::Receiver<LinkState>,
    pub(in crate::agent) acked: watch::Receiver<Option<Instant>>,
    pub(in crate::agent) heart: Heart,
    pub(in crate::agent) term: Term,
}

/// What one look leaves for the next.
#[derive(Default)]
struct Told {
    condition: Option<Said>,
    failed: Option<Instant>,
}

enum Next {
    Look(Duration),
    /// Another one is to lead.
    StepBack,
}

impl Upgrading {
    /// Looks until stopped; ends where another one is to lead, and with it all parts of this one.
    pub(in crate::agent) async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut joined = self.joined.clone();
        let mut told = Told::default();
        loop {
            self.heart.beat();
            joined.mark_unchanged();
            let calls = self.heart.wait(LONGEST);
            let look = Box::pin(self.look(&mut told));
            let wait = match stop.run_until_cancelled(look).await {
                Some(Ok(Next::Look(wait))) => wait,
                Some(Ok(Next::StepBack)) | None => return Ok(()),
                Some(Err(error)) => {
                    debug!(error = format!("{error:#}"), "agent's image not looked at");
                    SOON
                }
            };
            drop(calls);
            self.heart.rests(wait);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(wait) => {}
                changed = joined.changed() => changed.context("the task that joins has ended")?,
            }
        }
    }

    async fn look(&self, told: &mut Told) -> Result<Next> {
        let upgrade = &self.upgrade;
        let Some((deployed, version)) = upgrade.deployed().await? else {
            return Ok(Next::Look(EVERY));
        };
        if !self.term.holds() {
            return Ok(Next::Look(SOON));
        }
        let part = deployed.part(&upgrade.0.own).map(|(part, _)| part);
        upgrade.0.on_trial.send_replace(part == Some(Part::New));
        let joined = self.joined.borrow().clone();
        let assignment = joined.map(|joined| joined.assignment);
        let left = upgrade.left(&deployed);
        let lead = self.lead(&deployed, assignment.as_ref(), told);
        let step = decide(&upgrade.seen(&deployed, left, Turn::Leads(lead)));
        if assignment.is_some() || part.is_some() {
            self.tell(&step, &deployed, assignment.as_ref(), told).await;
        }
        self.act(step, part, &deployed, &version).await
    }

    fn lead<'a>(
        &self,
        deployed: &Deployed,
        assignment: Option<&'a Assignment>,
        told: &mut Told,
    ) -> Lead<'a> {
        let failed = deployed.failed.as_ref();
        told.failed = failed.map(|_| told.failed.unwrap_or_else(Instant::now));
        let owner = self.owner.borrow().as_ref().map(|p| p.mending);
        let policy = assignment.map(|a| Policy::of(&a.policy, owner));
        let acked = *self.acked.borrow();
        let up = matches!(*self.line.borrow(), LinkState::Up { .. });
        let memory = self.upgrade.memory();
        Lead {
            wished: assignment.and_then(|a| a.agent_image.as_deref()),
            wish: assignment.map_or(0, |a| a.agent_image_wish),
            unknown: assignment.is_none() || owner.is_none(),
            paused: policy.and_then(|policy| window::paused(clock::now(), &policy)),
            heard: up || acked.is_some_and(|at| at.elapsed() <= HEARD),
            acked: acked.is_some(),
            lending: memory.trial.as_ref().map(|s| s.lending).unwrap_or_default(),
            settling: told.failed.map(|at| at.elapsed()).unwrap_or_default(),
        }
    }

    async fn act(
        &self,
        step: Step,
        part: Option<Part>,
        deployed: &Deployed,
        version: &str,
    ) -> Result<Next> {
        let upgrade = &self.upgrade;
        match step {
            Step::Stay(_) | Step::Ask => {
                let open = deployed.failed.as_ref().is_some_and(|f| !f.is_final());
                return Ok(Next::Look(match (part, open) {
                    (Some(_), _) => SOON,
                    (None, true) => SETTLING,
                    (None, false) => EVERY,
                }));
            }
            Step::Try(image) => self.begin(&image, deployed, version).await?,
            Step::Lend(pod) => {
                info!(pod, "the new image's Pod is to lead now");
                return Ok(self.step_back(pod).await);
            }
            Step::Confirm => {
                upgrade.write(version, &over(), None).await?;
                info!(image = upgrade.0.own, "the hub hears this image: it stays");
                let note = format!("the agent runs {}", upgrade.0.own);
                self.event(EventType::Normal, "AgentUpgraded", &note).await;
            }
            Step::Return(failed) => {
                let failed = upgrade.put_back(deployed, version, &failed).await?;
                let note = format!("image {} was taken back: {}", failed.image, failed.why);
                self.event(EventType::Warning, "AgentReturned", &note).await;
                if part == Some(Part::New) {
                    return Ok(self.step_back(String::new()).await);
                }
            }
            Step::Judge(failed) => {
                let text = serde_json::to_string(&failed)?;
                let annotations = json!({ (FAILED): text });
                upgrade.write(version, &annotations, None).await?;
            }
            Step::Yield => return Ok(self.step_back(String::new()).await),
            Step::Forget => upgrade.write(version, &over(), None).await?,
        }
        Ok(Next::Look(Duration::ZERO))
    }

    async fn begin(&self, image: &str, deployed: &Deployed, version: &str) -> Result<()> {
        let wish = self.wish();
        let becomes = self.upgrade.becomes(version, image).await?;
        if becomes != image {
            let failed = rewritten((image, wish), &becomes, &self.context.cluster);
            return self.refuse(&failed, version).await;
        }
        let same = |failed: &&Failed| failed.image == image && failed.wish == wish;
        let before = deployed.failed.as_ref().filter(same);
        let mut annotations = over();
        annotations[PREVIOUS] = json!(deployed.image);
        annotations[TRIED] = json!(image);
        annotations[DEADLINE] = json!(clock::rfc3339(clock::now() + WITHIN));
        if wish != 0 {
            annotations[WISH] = json!(wish.to_string());
        }
        if let Some(before) = before {
            annotations[FAILED] = json!(serde_json::to_string(before)?);
        }
        let upgrade = &self.upgrade;
        upgrade.write(version, &annotations, Some(image)).await?;
        info!(image, before = deployed.image, "agent's image on trial");
        let note = format!("image {image} is on trial; {} goes on", deployed.image);
        self.event(EventType::Normal, "AgentUpgrade", &note).await;
        Ok(())
    }

    /// Keeps why an image was not tried: it is not until another one is wished.
    async fn refuse(&self, failed: &Failed, version: &str) -> Result<()> {
        let mut annotations = over();
        annotations[FAILED] = json!(serde_json::to_string(failed)?);
        self.upgrade.write(version, &annotations, None).await?;
        let note = format!("image {} is not tried: {}", failed.image, failed.why);
        warn!(
            image = failed.image,
            why = failed.why,
            "agent's image not tried"
        );
        self.event(EventType::Warning, "AgentReturned", &note).await;
        Ok(())
    }

    fn wish(&self) -> u64 {
        let joined = self.joined.borrow();
        joined.as_ref().map_or(0, |j| j.assignment.agent_image_wish)
    }

    async fn step_back(&self, heir: String) -> Next {
        // Where that fails, standing by does it.
        self.upgrade.unmark(&CancellationToken::new()).await;
        self.upgrade.0.heir.send_replace(Some(heir));
        Next::StepBack
    }

    /// What the Pod of another image on trial says about itself, where that is more than that it begins.
    async fn evidence(&self, step: &Step, deployed: &Deployed) -> Option<String> {
        let trial = deployed.trial.as_ref()?;
        let waits = *step == Step::Stay(Stay::OnTrial) && trial.image != self.upgrade.0.own;
        if !waits {
            return None;
        }
        let said = self.upgrade.evidence(&trial.image).await;
        said.filter(|said| !said.starts_with("ContainerCreating"))
    }

    async fn event(&self, kind: EventType, reason: &str, note: &str) {
        self.context.event(kind, reason, note).await;
    }

    async fn tell(
        &self,
        step: &Step,
        deployed: &Deployed,
        assignment: Option<&Assignment>,
        told: &mut Told,
    ) {
        let wished = assignment.and_then(|a| a.agent_image.as_deref());
        let wish = assignment.map_or(0, |a| a.agent_image_wish);
        let evidence = self.evidence(step, deployed).await;
        let of = (wished, wish, evidence.as_deref());
        let said = condition(step, deployed, &self.upgrade.0.own, of);
        if told.condition.as_ref() == Some(&said) {
            return;
        }
        let kind = ConditionType::AgentCurrent;
        self.context
            .condition(kind, said.status, said.reason, &said.text)
            .await;
        told.condition = Some(said);
    }
}
