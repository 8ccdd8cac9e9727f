//! Reports and lines to each cluster's state.

use time::{Duration, OffsetDateTime};

use crate::wire::report::{
    Condition, ConditionType, Phase, Status, StepName, StepReport, StepState,
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

/// Whether the agent that was heard last at `last_heard` is lost.
pub fn beat(
    now: OffsetDateTime,
    hub_started: OffsetDateTime,
    line_up: bool,
    last_heard: Option<OffsetDateTime>,
) -> Beat {
    match last_heard {
        None => Beat::Never,
        Some(heard) if line_up || now - heard <= OFFLINE_AFTER => Beat::Heard,
        Some(_) if now - hub_started < START_GRACE => Beat::Unjudged,
        Some(since) => Beat::Lost { since },
    }
}

/// The one word for a cluster, worst first: a conflict hides an outage, an outage hides a fault.
pub fn phase(now: OffsetDateTime, seen: Seen<'_>) -> Phase {
    let is = |kind, status| {
        seen.conditions
            .iter()
            .any(|c| c.kind == kind && c.status == status)
    };
    if is(ConditionType::JoinConflict, Status::True) {
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
    let unwell = is(ConditionType::EngineHealthy, Status::False);
    let paused = is(ConditionType::Paused, Status::True);
    // In a window nothing is mended.
    if seen.open_heals > 0 && !paused {
        return Phase::Healing;
    }
    if unwell || is(ConditionType::RightsLost, Status::True) {
        return Phase::Broken;
    }
    let degraded = [
        (ConditionType::Synced, Status::False),
        (ConditionType::EngineCurrent, Status::False),
        (ConditionType::AgentCurrent, Status::False),
        (ConditionType::ChildrenReady, Status::False),
        (ConditionType::GitReachable, Status::False),
        (ConditionType::HostKeyMismatch, Status::True),
        (ConditionType::Quarantined, Status::True),
        (ConditionType::LineUp, Status::False),
        (ConditionType::HubUnderstood, Status::False),
    ];
    if degraded.into_iter().any(|(kind, status)| is(kind, status)) {
        return Phase::Degraded;
    }
    if paused || is(ConditionType::ObserveOnly, Status::True) {
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
mod tests {
    use super::*;

    const START: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn step(step: StepName, state: StepState) -> StepReport {
        StepReport {
            step,
            state,
            reason: String::new(),
            at: String::new(),
        }
    }

    fn condition(kind: ConditionType, status: Status) -> Condition {
        Condition {
            kind,
            status,
            reason: String::new(),
            message: String::new(),
            since: String::new(),
        }
    }

    fn seconds(n: i64) -> OffsetDateTime {
        START + Duration::seconds(n)
    }

    /// H46: 25 s until a silent line is dead, 15 s more, and the sweep: at most 45 s.
    #[test]
    fn a_cluster_without_a_line_is_offline_after_fifteen_seconds() {
        let adopted = [step(StepName::Adopted, StepState::Done)];
        let seen = |line_up| Seen {
            hub_started: START,
            line_up,
            last_heard: Some(seconds(100)),
            steps: &adopted,
            conditions: &[],
            open_heals: 0,
        };
        assert_eq!(phase(seconds(115), seen(false)), Phase::Healthy);
        assert_eq!(phase(seconds(116), seen(false)), Phase::Offline);
        assert_eq!(phase(seconds(900), seen(true)), Phase::Healthy);
    }

    /// F50: lost since it was heard last, and never where the hub could not have heard it.
    #[test]
    fn an_agent_is_lost_since_it_was_heard_last() {
        let lost = |n| Beat::Lost { since: seconds(n) };
        for (now, started, line_up, heard, expected) in [
            (115, 0, false, Some(100), Beat::Heard),
            (116, 0, false, Some(100), lost(100)),
            (900, 0, true, Some(100), Beat::Heard),
            (900, 0, false, None, Beat::Never),
            (1044, 1000, false, Some(100), Beat::Unjudged),
            (1045, 1000, false, Some(100), lost(100)),
        ] {
            let beat = beat(seconds(now), seconds(started), line_up, heard.map(seconds));
            assert_eq!(beat, expected, "{now} {started} {line_up} {heard:?}");
        }
    }

    #[test]
    fn a_young_hub_says_unknown_and_not_offline() {
        let seen = Seen {
            hub_started: seconds(1000),
            line_up: false,
            last_heard: Some(seconds(100)),
            steps: &[],
            conditions: &[],
            open_heals: 0,
        };
        assert_eq!(phase(seconds(1044), seen), Phase::Unknown);
        assert_eq!(phase(seconds(1045), seen), Phase::Offline);
    }

    #[test]
    fn what_the_catalog_brought_degrades_a_cluster_whose_root_is_synced() {
        let seen = Seen {
            hub_started: START,
            line_up: true,
            last_heard: Some(seconds(100)),
            steps: &[step(StepName::Adopted, StepState::Done)],
            conditions: &[
                condition(ConditionType::Synced, Status::True),
                condition(ConditionType::ChildrenReady, Status::False),
            ],
            open_heals: 0,
        };
        assert_eq!(phase(seconds(200), seen), Phase::Degraded);
    }

    #[test]
    fn a_fault_in_a_window_is_not_called_healing() {
        let mut conditions = vec![
            condition(ConditionType::Paused, Status::True),
            condition(ConditionType::EngineHealthy, Status::False),
        ];
        let word = |conditions: &[Condition]| {
            let seen = Seen {
                hub_started: START,
                line_up: true,
                last_heard: Some(seconds(100)),
                steps: &[step(StepName::Adopted, StepState::Done)],
                conditions,
                open_heals: 1,
            };
            phase(seconds(200), seen)
        };
        assert_eq!(word(&conditions), Phase::Broken);
        conditions.pop();
        assert_eq!(word(&conditions), Phase::Paused);
    }

    #[test]
    fn the_worst_word_wins() {
        use ConditionType::{EngineHealthy, JoinConflict, Paused, Synced};
        use StepState::{Done, Failed, Running};
        let cases: [(&[StepReport], &[Condition], u32, Phase); 9] = [
            (&[], &[], 0, Phase::Joining),
            (
                &[step(StepName::Bundle, Running)],
                &[],
                0,
                Phase::Installing,
            ),
            (&[step(StepName::Git, Failed)], &[], 0, Phase::Degraded),
            (&[step(StepName::Adopted, Done)], &[], 0, Phase::Healthy),
            (
                &[step(StepName::Adopted, Done)],
                &[condition(Synced, Status::False)],
                0,
                Phase::Degraded,
            ),
            (
                &[step(StepName::Adopted, Done)],
                &[condition(EngineHealthy, Status::False)],
                0,
                Phase::Broken,
            ),
            (
                &[step(StepName::Adopted, Done)],
                &[condition(EngineHealthy, Status::False)],
                1,
                Phase::Healing,
            ),
            (
                &[step(StepName::Adopted, Done)],
                &[condition(Paused, Status::True)],
                0,
                Phase::Paused,
            ),
            (
                &[],
                &[condition(JoinConflict, Status::True)],
                0,
                Phase::Conflict,
            ),
        ];
        for (steps, conditions, open_heals, expected) in cases {
            let seen = Seen {
                hub_started: START,
                line_up: true,
                last_heard: Some(seconds(100)),
                steps,
                conditions,
                open_heals,
            };
            assert_eq!(phase(seconds(200), seen), expected);
        }
        let never = Seen {
            hub_started: START,
            line_up: false,
            last_heard: None,
            steps: &[],
            conditions: &[],
            open_heals: 0,
        };
        assert_eq!(phase(seconds(200), never), Phase::Pending);
    }
}
