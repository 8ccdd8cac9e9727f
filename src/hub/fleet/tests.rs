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
        // The clock was ahead when the hub began to listen, or when it heard the agent last.
        (200, 7_400, false, Some(100), lost(100)),
        (200, 0, false, Some(7_400), lost(0)),
        (200, 7_400, false, Some(7_500), lost(200)),
        (200, 7_400, true, Some(7_500), Beat::Heard),
        (200, 190, false, Some(7_400), Beat::Unjudged),
        // It was ahead by a little, and is right now.
        (990, 1_000, false, Some(100), Beat::Unjudged),
        // Replicas' clocks differ a little.
        (200, 0, false, Some(215), Beat::Heard),
        (200, 0, false, Some(216), lost(0)),
    ] {
        let beat = beat(seconds(now), seconds(started), line_up, heard.map(seconds));
        assert_eq!(beat, expected, "{now} {started} {line_up} {heard:?}");
    }
}

/// L13: the end of a silent line is known 24.5 s after its last byte. It counts for when a cluster is offline, and the byte for since
/// when it is.
#[test]
fn a_line_that_fell_silent_was_heard_last_by_its_last_byte() {
    for (word, known, line, https, expected) in [
        // A line that said its end.
        (Some(100), Some(100), Some(100), None, Some(100)),
        (Some(100), Some(100), Some(75), None, Some(75)),
        (Some(100), Some(100), Some(75), Some(90), Some(90)),
        // It was heard since.
        (Some(110), Some(100), Some(75), Some(110), Some(110)),
        (Some(110), None, None, None, Some(110)),
        (None, None, None, None, None),
    ] {
        let told = spoken(
            seconds(120),
            word.map(seconds),
            known.map(seconds),
            [line, https].map(|at: Option<i64>| at.map(seconds)),
        );
        assert_eq!(told, expected.map(seconds), "{word:?} {known:?} {line:?}");
    }
    let lost = |since| Beat::Lost {
        since: seconds(since),
    };
    let since = |beat: Beat, word: Option<i64>| beat.silent_since(word.map(seconds));
    assert_eq!(since(lost(100), Some(75)), lost(75));
    assert_eq!(since(lost(100), Some(7_400)), lost(100));
    assert_eq!(since(lost(100), None), lost(100));
    assert_eq!(since(Beat::Heard, Some(75)), Beat::Heard);
}

#[test]
fn a_word_that_is_yet_to_come_counts_where_there_is_no_other() {
    for (heard, expected) in [
        (vec![], None),
        (vec![100, 150], Some(150)),
        (vec![100, 215], Some(215)),
        (vec![7_400, 100, 150], Some(150)),
        (vec![7_400, 7_500], Some(7_500)),
    ] {
        let last = last_word(seconds(200), heard.iter().copied().map(seconds));
        assert_eq!(last, expected.map(seconds), "{heard:?}");
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

fn word_of(conditions: &[Condition]) -> Phase {
    let seen = Seen {
        hub_started: START,
        line_up: true,
        last_heard: Some(seconds(100)),
        steps: &[step(StepName::Adopted, StepState::Done)],
        conditions,
        open_heals: 0,
    };
    phase(seconds(200), seen)
}

/// These left a cluster Healthy, so that `cluster wait --for healthy` was content where `doctor` failed.
#[test]
fn what_is_wrong_beside_the_engine_is_seen_in_the_phase_and_what_is_only_told_is_not() {
    use ConditionType as C;
    for (kind, status, reason, expected) in [
        (C::Guarded, Status::False, "Missing", Phase::Degraded),
        (C::Guarded, Status::True, "Refuses", Phase::Healthy),
        // Kubernetes below 1.30.
        (C::Guarded, Status::False, "NotServed", Phase::Healthy),
        (C::PolicyAccepted, Status::False, "Invalid", Phase::Degraded),
        (
            C::DeployKeyRegistered,
            Status::False,
            "Refused",
            Phase::Degraded,
        ),
        (C::HostKeysKnown, Status::False, "Missing", Phase::Degraded),
        (C::IdentityRevoked, Status::True, "Revoked", Phase::Degraded),
        (C::HealsTaken, Status::False, "TooMany", Phase::Degraded),
        (C::Uncovered, Status::True, "Refused", Phase::Degraded),
        (
            C::Uncovered,
            Status::True,
            "NamespaceMissing",
            Phase::Healthy,
        ),
        (C::Uncovered, Status::False, "Covered", Phase::Healthy),
        (
            C::EngineInstalled,
            Status::False,
            "ObjectsMissing",
            Phase::Healthy,
        ),
        (C::SnapshotFresh, Status::False, "NoneYet", Phase::Healthy),
        (C::GitOverLine, Status::False, "DialTimeout", Phase::Healthy),
        (C::SafeHealsOnly, Status::True, "HealSafe", Phase::Healthy),
        (C::EngineFromGit, Status::True, "FromGit", Phase::Healthy),
        (C::Synced, Status::Unknown, "Unproven", Phase::Healthy),
    ] {
        let told = Condition {
            reason: reason.to_owned(),
            ..condition(kind, status)
        };
        assert_eq!(word_of(&[told]), expected, "{kind:?} {status:?} {reason}");
    }
}

#[test]
fn beside_another_manager_a_cluster_without_our_guard_is_only_watched() {
    let observed = condition(ConditionType::ObserveOnly, Status::True);
    let unguarded = condition(ConditionType::Guarded, Status::False);
    assert_eq!(word_of(std::slice::from_ref(&unguarded)), Phase::Degraded);
    assert_eq!(word_of(&[observed, unguarded]), Phase::Paused);
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
