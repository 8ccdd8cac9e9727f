//! Another image for the agent itself: whether to try it, whether it works, when the one before comes back. Pure.
//!
//! All that is to be remembered is on the agent's Deployment, so that old and new Pod see the same and every write is
//! refused where the other one wrote meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::window::Window;
use crate::clock;
use crate::wire::id::ClusterName;

mod said;
pub use said::{Said, condition};

/// The image that comes back; present while another one is on trial.
pub const PREVIOUS: &str = "linesman.dev/previous-image";
/// The image on trial. Where the Deployment has another one, somebody changed it by hand, and there is no trial.
pub const TRIED: &str = "linesman.dev/upgrade-image";
/// The number of the wish that it is tried for; absent = the hub gives none.
pub const WISH: &str = "linesman.dev/upgrade-wish";
/// RFC 3339: by then one of the two serves.
pub const DEADLINE: &str = "linesman.dev/upgrade-deadline";
/// The Pod of the new image that is ready to take over.
pub const ASKS: &str = "linesman.dev/upgrade-asks";
/// [`Failed`], as JSON.
pub const FAILED: &str = "linesman.dev/upgrade-failed";

/// From the change of the image until the one before serves again, should the new one not be heard.
pub const WITHIN: Duration = Duration::from_mins(2);
/// What the way back may take of it.
const BACK: Duration = Duration::from_secs(20);
/// With less left than this nobody takes over: a line and a first report need some seconds.
const LEAST: Duration = Duration::from_secs(15);
/// How often one image is tried, where the hub was away each time.
const TRIES: u32 = 3;
/// Whom the hub hears so soon after the return shows that the hub was there: it is the image that was not heard.
const SETTLES: Duration = Duration::from_mins(1);

/// What the agent's Deployment says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deployed {
    pub image: String,
    pub trial: Option<Trial>,
    pub failed: Option<Failed>,
}

/// A change of the image that nobody has confirmed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub image: String,
    pub previous: String,
    pub deadline: String,
    pub asks: Option<String>,
    /// The number of the wish; 0 = the hub gives none.
    pub wish: u64,
}

/// An image that was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub image: String,
    /// Of which wish: for another one it is tried anew.
    #[serde(default)]
    pub wish: u64,
    pub tries: u32,
    pub blame: Blame,
    pub why: String,
}

/// Whose fault it is that nobody heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    Image,
    /// The hub was away, or the API server, so that it never led.
    Hub,
    /// It took over and was not heard: that shows when the one of before is heard again.
    Open,
}

impl Failed {
    pub fn is_final(&self) -> bool {
        self.blame == Blame::Image || self.tries >= TRIES
    }
}

impl Deployed {
    pub fn read(image: &str, annotations: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| annotations.get(key).filter(|t| !t.is_empty()).cloned();
        let trial = || {
            Some(Trial {
                image: text(TRIED)?,
                previous: text(PREVIOUS)?,
                deadline: text(DEADLINE)?,
                asks: text(ASKS),
                wish: text(WISH).and_then(|n| n.parse().ok()).unwrap_or_default(),
            })
        };
        let failed = || serde_json::from_str(&text(FAILED)?).ok();
        Self {
            image: image.to_owned(),
            trial: trial(),
            failed: failed(),
        }
    }

    /// The trial that is under way, with the part that a process of this image has in it.
    pub fn part(&self, own: &str) -> Option<(Part, &Trial)> {
        let trial = self.trial.as_ref()?;
        if trial.image != self.image || trial.image == trial.previous {
            return None;
        }
        if own == trial.image {
            Some((Part::New, trial))
        } else if own == trial.previous {
            Some((Part::Old, trial))
        } else {
            None
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Old,
    New,
}

/// How long a process that sees a trial for the first time waits for its end, by its own monotonic clock from then on.
/// A wall clock that is wrong makes that shorter, never longer. The new one does not judge itself by a deadline from
/// another node's clock.
pub fn patience(part: Part, trial: &Trial, now: OffsetDateTime) -> Duration {
    let all = WITHIN.saturating_sub(BACK);
    match (part, clock::parse_rfc3339(&trial.deadline)) {
        (Part::Old, Some(deadline)) => {
            let left = Duration::try_from(deadline - now).unwrap_or_default();
            left.saturating_sub(BACK).min(all)
        }
        (Part::Old, None) | (Part::New, _) => all,
    }
}

/// What one process sees.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    pub own: &'a str,
    pub pod: &'a str,
    pub deployed: &'a Deployed,
    /// What is left of [`patience`].
    pub left: Duration,
    pub turn: Turn<'a>,
}

#[derive(Debug, Clone)]
pub enum Turn<'a> {
    Leads(Lead<'a>),
    /// `relapsed`: it began, and the Lease had its name already. It led in a former life and ended without letting go.
    Waits {
        relapsed: bool,
    },
}

/// Whether the one that leads gave the Lease to the new one before, in this trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lending {
    #[default]
    NotYet,
    /// It could not write that: the new one did not lead.
    Failed,
    Done,
}

/// What the one that leads knows besides.
#[derive(Debug, Clone, Default)]
pub struct Lead<'a> {
    pub wished: Option<&'a str>,
    /// The number of that wish: another one where the image was withdrawn and given anew, be it seen in between or not.
    pub wish: u64,
    /// What is wished, or what the owner allows, is not known yet: it was not read since the start.
    pub unknown: bool,
    pub paused: Option<Window>,
    /// The hub hears it now.
    pub heard: bool,
    /// The hub has acknowledged a report since it leads.
    pub acked: bool,
    pub lending: Lending,
    /// How long it leads and sees [`Failed`].
    pub settling: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Stay(Stay),
    /// Give the Deployment this image.
    Try(String),
    /// Say that this Pod can take over.
    Ask,
    /// Let this Pod lead.
    Lend(String),
    /// The trial is over, and it works.
    Confirm,
    /// The image of before comes back.
    Return(Failed),
    /// Keep this of an image that was taken back.
    Judge(Failed),
    /// It was taken back: let go of everything.
    Yield,
    /// What the Deployment says besides its image is of no use any more.
    Forget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// No image is wished.
    Unwished,
    Current,
    /// The Deployment is to make another Pod of this one.
    Rollout,
    Paused(Window),
    Unheard,
    OnTrial,
    Failed,
}

pub fn decide(seen: &Seen<'_>) -> Step {
    let deployed = seen.deployed;
    match (deployed.part(seen.own), &seen.turn) {
        (Some((part, trial)), Turn::Leads(lead)) => leading(seen, part, trial, lead),
        (Some((part, trial)), Turn::Waits { relapsed }) => waiting(seen, part, trial, *relapsed),
        (None, _) if taken_back(seen) => Step::Yield,
        (None, Turn::Waits { .. }) => Step::Stay(Stay::Rollout),
        (None, Turn::Leads(lead)) => untried(seen, lead),
    }
}

/// This process runs the image that was taken back. One that somebody put there by hand later is another matter.
fn taken_back(seen: &Seen<'_>) -> bool {
    let failed = seen.deployed.failed.as_ref();
    seen.deployed.image != seen.own && failed.is_some_and(|failed| failed.image == seen.own)
}

fn leading(seen: &Seen<'_>, part: Part, trial: &Trial, lead: &Lead<'_>) -> Step {
    match part {
        Part::New if lead.acked => Step::Confirm,
        Part::Old
            if seen.left.is_zero() && trial.asks.is_some() && lead.lending != Lending::Done =>
        {
            let (blame, why) = match (lead.lending, lead.heard) {
                (Lending::Failed, _) => (Blame::Hub, "the Lease could not be given to its Pod"),
                (_, true) => (Blame::Image, "its Pod was ready too late"),
                (_, false) => (Blame::Hub, "the hub was away"),
            };
            Step::Return(failed(seen.deployed, trial, blame, why))
        }
        _ if seen.left.is_zero() => Step::Return(silent(seen.deployed, trial)),
        Part::New => Step::Stay(Stay::OnTrial),
        Part::Old if lead.lending == Lending::Done => {
            let why = "it took over and ended before the hub had acknowledged a report of it";
            Step::Return(failed(seen.deployed, trial, Blame::Image, why))
        }
        Part::Old => match &trial.asks {
            Some(pod) if lead.heard && seen.left >= LEAST => Step::Lend(pod.clone()),
            Some(_) if !lead.heard => Step::Stay(Stay::Unheard),
            Some(_) | None => Step::Stay(Stay::OnTrial),
        },
    }
}

fn waiting(seen: &Seen<'_>, part: Part, trial: &Trial, relapsed: bool) -> Step {
    match part {
        Part::New if relapsed => {
            let why = "it took over and ended before the hub had acknowledged a report of it";
            Step::Return(failed(seen.deployed, trial, Blame::Image, why))
        }
        _ if seen.left.is_zero() => Step::Return(silent(seen.deployed, trial)),
        Part::New if trial.asks.as_deref() != Some(seen.pod) => Step::Ask,
        Part::New | Part::Old => Step::Stay(Stay::OnTrial),
    }
}

/// One that never asked has no excuse: for that it needs nobody but the API server.
fn silent(deployed: &Deployed, trial: &Trial) -> Failed {
    if trial.asks.is_some() {
        let why = "the hub acknowledged no report of it in time";
        return failed(deployed, trial, Blame::Open, why);
    }
    let why = "no Pod of it was ready to take over in time";
    failed(deployed, trial, Blame::Image, why)
}

fn failed(deployed: &Deployed, trial: &Trial, blame: Blame, why: &str) -> Failed {
    let before = deployed.failed.as_ref();
    let same = |before: &&Failed| before.image == trial.image && before.wish == trial.wish;
    let before = before.filter(same);
    Failed {
        image: trial.image.clone(),
        wish: trial.wish,
        tries: before.map_or(0, |before| before.tries).saturating_add(1),
        blame,
        why: why.to_owned(),
    }
}

/// An image of which the cluster's admission makes another one. Under its own name it is never there, and who goes by names would try it
/// without an end: people give the name that it has there.
pub fn rewritten((image, wish): (&str, u64), becomes: &str, cluster: &ClusterName) -> Failed {
    Failed {
        image: image.to_owned(),
        wish,
        tries: 1,
        blame: Blame::Image,
        why: format!(
            "the cluster's admission makes {becomes} of it; give that name: 'linesman cluster upgrade {cluster} --image {becomes}'"
        ),
    }
}

fn untried(seen: &Seen<'_>, lead: &Lead<'_>) -> Step {
    let deployed = seen.deployed;
    if lead.unknown {
        return Step::Stay(Stay::Unheard);
    }
    let stale = deployed.trial.is_some() || deployed.failed.is_some();
    let Some(wished) = lead.wished else {
        return if stale {
            Step::Forget
        } else {
            Step::Stay(Stay::Unwished)
        };
    };
    let anew = |failed: &Failed| failed.image == wished && failed.wish != lead.wish;
    let anew = deployed.failed.as_ref().is_some_and(anew);
    if wished == deployed.image && stale || deployed.trial.is_some() || anew {
        return Step::Forget;
    }
    if seen.own != deployed.image {
        return Step::Stay(Stay::Rollout);
    }
    if wished == deployed.image {
        return Step::Stay(Stay::Current);
    }
    if let Some(failed) = deployed.failed.as_ref().filter(|f| f.image == wished) {
        if failed.is_final() {
            return Step::Stay(Stay::Failed);
        }
        if failed.blame == Blame::Open && lead.heard && lead.settling < SETTLES {
            let judged = Failed {
                blame: Blame::Image,
                ..failed.clone()
            };
            return Step::Judge(judged);
        }
    }
    match (lead.paused, lead.heard) {
        (Some(window), _) => Step::Stay(Stay::Paused(window)),
        (None, false) => Step::Stay(Stay::Unheard),
        (None, true) => Step::Try(wished.to_owned()),
    }
}

#[cfg(test)]
mod tests;
