//! What is told of another image for the agent: condition `AgentCurrent`. Pure.

use super::{Deployed, Failed, Stay, Step, Trial};
use crate::wire::report::Status;

/// What is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub status: Status,
    pub reason: &'static str,
    /// The image that it is about, a colon, the number of the wish where there is one, and how it stands.
    pub text: String,
}

/// What a condition's text begins with: whoever gave the wish knows by it that this is the word about his.
fn about(image: &str, wish: u64) -> String {
    if wish == 0 {
        return format!("{image}:");
    }
    format!("{image}: wish {wish}:")
}

/// While it is on trial.
fn trial_goes(trial: &Trial, evidence: Option<&str>) -> String {
    let text = format!(
        "{} on trial; by {} it is heard, or {} is back",
        about(&trial.image, trial.wish),
        trial.deadline,
        trial.previous
    );
    match evidence {
        Some(said) => format!("{text}; its Pod: {said}"),
        None => text,
    }
}

/// Condition `AgentCurrent`. `evidence` is what the Pod of an image on trial says about itself.
pub fn condition(
    step: &Step,
    deployed: &Deployed,
    own: &str,
    (wished, wish, evidence): (Option<&str>, u64, Option<&str>),
) -> Said {
    let wished = about(wished.unwrap_or(own), wish);
    let said = |status, reason, text| Said {
        status,
        reason,
        text,
    };
    let changing = |text: String| said(Status::False, "Changing", text);
    let waits = |why: &str| said(Status::False, "Waits", format!("{wished} {why}"));
    let failed = deployed.failed.as_ref();
    match step {
        Step::Stay(Stay::Unwished) => {
            let text = format!("{own}: no other image is wished");
            said(Status::True, "AsInstalled", text)
        }
        Step::Stay(Stay::Current) => {
            let text = format!("{} the agent runs it", about(own, wish));
            said(Status::True, "InForce", text)
        }
        Step::Stay(Stay::Rollout) | Step::Yield => changing(format!(
            "{wished} the Deployment has {}, this Pod runs {own}",
            deployed.image
        )),
        Step::Stay(Stay::Paused(window)) => waits(&format!("it {}", window.waits())),
        Step::Stay(Stay::Unheard) => match failed {
            Some(failed) => waits(&format!("{}; again when the hub is there", failed.why)),
            None => waits("it waits until the hub hears this agent"),
        },
        Step::Stay(Stay::Failed) | Step::Judge(_) => {
            let of = |f: &Failed| (about(&f.image, f.wish), f.why.clone());
            let (image, why) = failed.map_or((wished, String::new()), of);
            let text = format!("{image} {why}; {} serves", deployed.image);
            said(Status::False, "Returned", text)
        }
        Step::Return(failed) => changing(format!(
            "{} it is taken back: {}",
            about(&failed.image, failed.wish),
            failed.why
        )),
        Step::Try(_) | Step::Forget => changing(format!("{wished} it begins")),
        Step::Stay(Stay::OnTrial) | Step::Ask | Step::Lend(_) | Step::Confirm => {
            changing(match &deployed.trial {
                Some(trial) => trial_goes(trial, evidence),
                None => format!("{wished} on trial"),
            })
        }
    }
}
