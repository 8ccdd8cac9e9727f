//! Reports and lines to each cluster's state.

use time::{Duration, OffsetDateTime};

use crate::wire::report::{
    Condition, ConditionType, Phase, Status, StepName, StepReport, StepState, Weight, weights,
};

/// A line counts as dead 25 s after its last byte; this long after that without a new one the cluster is offline.
pub const OFFLINE_AFTER: Duration = Duration::seconds(15);
/// For this long after its start a hub does not call a cluster offline: the agents are still coming back.
pub const START_GRACE: Duration = Duration::seconds(45);

/// What the hub holds of one cluster when it is asked for its phase.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// When this hub began to listen.
    pub hub_started: OffsetDateTime,
    pub line_up: bool,
    /// The last report, or the end of the last line, whichever is later; `None` = the agent never joined.
    pub last_heard: Option<OffsetDateTime>,
    pub steps: &'a [StepReport],
    pub conditions: &'a [Condition],
    pub open_heals: u32,
}

/// How an agent is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// It never joined.
    Never,
    Heard,
    /// It is silent, and this hub has not listened for long enough to say more.
    Unjudged,
    /// F50.
    Lost {
        since: OffsetDateTime,
    },
}

impl Beat {
    /// The same where its last word is known to be older than what it was judged by: that a line fell silent is known later.
    #[must_use]
    pub fn silent_since(self, word: Option<OffsetDateTime>) -> Self {
        match (self, word) {
            (Self::Lost { since }, Some(word)) => Self::Lost {
                since: since.min(word),
            },
            (beat, _) => beat,
        }
    }
}

/// Whether the agent that was heard last at `last_heard` is lost. What is yet to come is of a clock that was ahead: by that nobody
/// is heard, and no hub is young.
pub fn beat(
    now: OffsetDateTime,
    hub_started: OffsetDateTime,
    line_up: bool,
    last_heard: Option<OffsetDateTime>,
) -> Beat {
    let listens = now - hub_started;
    match last_heard {
        None => Beat::Never,
        Some(heard) if line_up || (now - heard).abs() <= OFFLINE_AFTER => Beat::Heard,
        // A clock that is set back by a little makes no hub old.
        Some(_) if listens.abs() < START_GRACE => Beat::Unjudged,
        Some(since) if since <= now => Beat::Lost { since },
        // It may have been heard at any time before this hub began to listen.
        Some(_) => Beat::Lost {
            since: hub_started.min(now),
        },
    }
}

/// The last of these times at which an agent was heard. One that is yet to come counts where there is no other.
pub fn last_word(
    now: OffsetDateTime,
    heard: impl IntoIterator<Item = OffsetDateTime>,
) -> Option<OffsetDateTime> {
    let is_past = |at: OffsetDateTime| at <= now + OFFLINE_AFTER;
    heard.into_iter().max_by_key(|at| (is_past(*at), *at))
}

/// The last word of an agent, of which so much is known: `known` is when the end of its line was, `spoke` its last words by the
/// line and beside it. Without a sign of life after that end, `word` is that end.
pub fn spoken(
    now: OffsetDateTime,
    word: Option<OffsetDateTime>,
    known: Option<OffsetDateTime>,
    spoke: [Option<OffsetDateTime>; 2],
) -> Option<OffsetDateTime> {
    match (word, known) {
        (Some(word), Some(known)) if word <= known => last_word(now, spoke.into_iter().flatten()),
        _ => word,
    }
}

/// The one word for a cluster, worst first: a conflict hides an outage, an outage hides a fault.
pub fn phase(now: OffsetDateTime, seen: Seen<'_>) -> Phase {
    let is = |kind| {
        seen.conditions
            .iter()
            .any(|c| c.kind == kind && c.status == Status::True)
    };
    let said = seen.conditions.iter().map(Condition::said);
    let found: Vec<Weight> = weights(said).flatten().collect();
    let weighs = |weight: Weight| found.contains(&weight);
    if weighs(Weight::Conflict) {
        return Phase::Conflict;
    }
    match beat(now, seen.hub_started, seen.line_up, seen.last_heard) {
        Beat::Never => return Phase::Pending,
        Beat::Unjudged => return Phase::Unknown,
        Beat::Lost { .. } => return Phase::Offline,
        Beat::Heard => {}
    }
    let adopted = seen
        .steps
        .iter()
        .any(|s| s.step == StepName::Adopted && s.state == StepState::Done);
    if !adopted {
        return adopting(seen.steps);
    }
    // In a window nothing is mended.
    if seen.open_heals > 0 && !is(ConditionType::Paused) {
        return Phase::Healing;
    }
    if weighs(Weight::Broken) {
        return Phase::Broken;
    }
    if weighs(Weight::Degraded) {
        return Phase::Degraded;
    }
    if weighs(Weight::Paused) {
        return Phase::Paused;
    }
    Phase::Healthy
}

fn adopting(steps: &[StepReport]) -> Phase {
    let failed = steps.iter().any(|s| s.state == StepState::Failed);
    let installing = steps.iter().any(|s| s.step >= StepName::Bundle);
    match (failed, installing) {
        (true, _) => Phase::Degraded,
        (false, true) => Phase::Installing,
        (false, false) => Phase::Joining,
    }
}

#[cfg(test)]
mod tests;
