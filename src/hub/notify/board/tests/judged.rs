//! What is a trouble of one cluster, how bad it is, and in which words.

use super::*;

/// F50: since when, and how the line ended.
#[test]
fn a_lost_agent_is_told_with_its_silence() {
    let mut board = Board::default();
    let mut away = with("eu1", ConditionType::LineUp, Status::False, "Down");
    away.phase = Phase::Offline;
    away.conditions[0].message = "no byte for 25 s".to_owned();
    away.conditions[0].since = "2026-01-01T00:00:19.000Z".to_owned();
    let notices = board.look(START, REMIND, &[away]);
    let told: Vec<_> = notices
        .iter()
        .map(|n| (n.class.as_str(), n.text.as_str()))
        .collect();
    let text = "not heard since 2026-01-01T00:00:19.000Z; the last line: no byte for 25 s";
    assert_eq!(told, [("AgentLost", text)]);
}

/// F57: somebody may have a copy of the cluster's keys.
#[test]
fn a_duplicate_agent_is_told_at_once_as_the_worst() {
    let mut board = Board::default();
    let mut twins = seen("eu1", Phase::Healthy);
    twins.heals = vec![heal("DuplicateAgent", HealResult::Reported)];
    let notices = board.look(START, REMIND, &[twins]);
    let told: Vec<_> = notices
        .iter()
        .map(|n| (n.state, n.severity, n.class.as_str()))
        .collect();
    assert_eq!(told, [(State::Open, Severity::Critical, "DuplicateAgent")]);
}

/// F28: whoever leads a root elsewhere would have the cluster follow him. What a condition says of it makes it no less.
#[test]
fn a_root_that_is_led_elsewhere_is_told_as_the_worst() {
    let mut board = Board::default();
    let mut led = with(
        "eu1",
        ConditionType::Quarantined,
        Status::True,
        "SourceAltered",
    );
    led.heals = vec![heal("SourceAltered", HealResult::Reported)];
    let mut notices = board.look(START, REMIND, std::slice::from_ref(&led));
    notices.extend(board.look(START + Duration::minutes(1), REMIND, &[led]));
    let told: Vec<_> = notices
        .iter()
        .map(|n| (n.state, n.severity, n.class.as_str()))
        .collect();
    assert_eq!(told, [(State::Open, Severity::Critical, "SourceAltered")]);
}

#[test]
fn in_a_window_its_beginning_and_end_are_told_and_what_is_wrong_behind_it() {
    let mut board = Board::default();
    let mut paused = with("eu1", ConditionType::Paused, Status::True, "Maintenance");
    let broken = with(
        "eu1",
        ConditionType::EngineHealthy,
        Status::False,
        "ScaledToZero",
    );
    paused.conditions.extend(broken.conditions.clone());
    let paused = [paused];
    assert_eq!(
        at(&mut board, 0, &paused),
        one(State::Open, "Paused", "eu1")
    );
    assert_eq!(at(&mut board, 3000, &paused), []);
    let over = [broken];
    assert_eq!(at(&mut board, 3600, &over), []);
    assert_eq!(
        at(&mut board, 3660, &over),
        [
            one(State::Open, "ScaledToZero", "eu1"),
            one(State::Resolved, "Paused", "eu1")
        ]
        .concat()
    );
}

/// Nobody waits for an end that does not come.
#[test]
fn where_the_owner_switched_healing_off_faults_are_told_all_the_same() {
    let mut board = Board::default();
    let mut off = with("eu1", ConditionType::Paused, Status::True, "HealOff");
    let broken = with(
        "eu1",
        ConditionType::EngineHealthy,
        Status::False,
        "ScaledToZero",
    );
    off.conditions.extend(broken.conditions);
    let off = [off];
    assert_eq!(at(&mut board, 0, &off), one(State::Open, "Paused", "eu1"));
    assert_eq!(
        at(&mut board, 60, &off),
        one(State::Open, "ScaledToZero", "eu1")
    );
}

#[test]
fn a_condition_that_holds_is_no_trouble() {
    for (kind, status, reason) in [
        (ConditionType::HostKeyMismatch, Status::False, "KeyIsKnown"),
        (ConditionType::EngineHealthy, Status::True, "Healthy"),
        (ConditionType::Synced, Status::Unknown, "Unknown"),
        (
            ConditionType::DeployKeyRegistered,
            Status::False,
            "Rotating",
        ),
        (ConditionType::LineUp, Status::False, "Disconnected"),
    ] {
        let mut board = Board::default();
        let fleet = [with("eu1", kind, status, reason)];
        at(&mut board, 0, &fleet);
        assert_eq!(at(&mut board, 3600, &fleet), [], "{kind:?}");
    }
}
