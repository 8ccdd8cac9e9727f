use time::macros::datetime;

use super::*;
use crate::wire::report::{ConditionType, Scene, Status};

mod follows;
mod judged;
mod strange;

const START: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);
const REMIND: Option<Duration> = Some(Duration::hours(4));

fn seen(cluster: &str, phase: Phase) -> Seen {
    Seen {
        cluster: cluster.parse().unwrap(),
        phase,
        conditions: Vec::new(),
        heals: Vec::new(),
    }
}

fn with(cluster: &str, kind: ConditionType, status: Status, reason: &str) -> Seen {
    Seen {
        conditions: vec![Condition {
            kind,
            status,
            reason: reason.to_owned(),
            message: format!("about {reason}"),
            since: String::new(),
        }],
        ..seen(cluster, Phase::Degraded)
    }
}

fn heal(class: &str, result: HealResult) -> HealRecord {
    HealRecord {
        class: class.to_owned(),
        object: "Deployment flux-system/source-controller".to_owned(),
        evidence: "not found".to_owned(),
        detected_at: "2026-01-01T00:00:00Z".to_owned(),
        restored_at: Some("2026-01-01T00:00:03Z".to_owned()),
        result,
        id: "0197".to_owned(),
        number: 1,
        meaning: String::new(),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: None,
        acted_at: None,
        next: String::new(),
        scene: Scene::default(),
    }
}

/// State, class and clusters of what is told at the time.
fn at(board: &mut Board, seconds: i64, fleet: &[Seen]) -> Vec<(State, String, Vec<String>)> {
    let notices = board.look(START + Duration::seconds(seconds), REMIND, fleet);
    told(&notices)
}

fn told(notices: &[Notice]) -> Vec<(State, String, Vec<String>)> {
    let clusters = |n: &Notice| n.clusters.iter().map(ToString::to_string).collect();
    notices
        .iter()
        .map(|n| (n.state, n.class.clone(), clusters(n)))
        .collect()
}

fn one(state: State, class: &str, cluster: &str) -> Vec<(State, String, Vec<String>)> {
    vec![(state, class.to_owned(), vec![cluster.to_owned()])]
}

#[test]
fn a_trouble_is_told_once_again_while_it_lasts_and_when_it_is_over() {
    let mut board = Board::default();
    let away = [seen("eu1", Phase::Offline)];
    let well = [seen("eu1", Phase::Healthy)];
    let mut look = |seconds, fleet: &[Seen]| at(&mut board, seconds, fleet);
    assert_eq!(look(0, &away), one(State::Open, "AgentLost", "eu1"));
    assert_eq!(look(10, &away), []);
    assert_eq!(look(4 * 3600 - 1, &away), []);
    assert_eq!(
        look(4 * 3600, &away),
        one(State::Reminder, "AgentLost", "eu1")
    );
    let back = 5 * 3600;
    assert_eq!(look(back, &well), []);
    assert_eq!(look(back + 59, &well), []);
    assert_eq!(
        look(back + 60, &well),
        one(State::Resolved, "AgentLost", "eu1")
    );
    assert_eq!(look(back + 120, &well), []);
    assert_eq!(look(back + 660, &well), []);
    assert_eq!(board.troubles().len(), 0);
}

#[test]
fn what_comes_and_goes_is_one_trouble() {
    let mut board = Board::default();
    let away = [seen("eu1", Phase::Offline)];
    let well = [seen("eu1", Phase::Healthy)];
    let mut look = |seconds, fleet: &[Seen]| at(&mut board, seconds, fleet);
    assert_eq!(look(0, &away), one(State::Open, "AgentLost", "eu1"));
    for minute in 1..10 {
        assert_eq!(look(minute * 60, &well), []);
        assert_eq!(look(minute * 60 + 30, &away), []);
    }
    assert_eq!(look(600, &well), []);
    assert_eq!(look(660, &well), one(State::Resolved, "AgentLost", "eu1"));
    // Back soon after its end was told: it has to stay before that is news.
    assert_eq!(look(700, &away), []);
    assert_eq!(look(1199, &away), []);
    assert_eq!(look(1200, &away), one(State::Open, "AgentLost", "eu1"));
}

/// At its beginning, when it was told last, and at its end.
#[test]
fn what_was_noted_by_a_clock_that_was_ahead_is_told_when_it_has_lasted() {
    let mut board = Board::default();
    let wrong = with(
        "eu1",
        ConditionType::EngineHealthy,
        Status::False,
        "BadImage",
    );
    let (wrong, well) = ([wrong], [seen("eu1", Phase::Healthy)]);
    let mut look = |seconds, fleet: &[Seen]| at(&mut board, seconds, fleet);
    let (ahead, hours) = (7200, 4 * 3600);
    assert_eq!(look(ahead, &wrong), []);
    assert_eq!(look(10, &wrong), []);
    assert_eq!(look(70, &wrong), one(State::Open, "BadImage", "eu1"));
    let again = one(State::Reminder, "BadImage", "eu1");
    assert_eq!(look(ahead + hours, &wrong), again);
    assert_eq!(look(80, &wrong), []);
    assert_eq!(look(80 + hours, &wrong), again);
    assert_eq!(look(ahead + hours, &well), []);
    assert_eq!(look(90 + hours, &well), []);
    let over = one(State::Resolved, "BadImage", "eu1");
    assert_eq!(look(150 + hours, &well), over);
}

#[test]
fn a_heal_and_the_condition_that_tells_of_it_are_one_trouble() {
    let mut board = Board::default();
    let both = [Seen {
        heals: vec![heal("BadImage", HealResult::Open)],
        ..with(
            "eu1",
            ConditionType::EngineHealthy,
            Status::False,
            "BadImage",
        )
    }];
    assert_eq!(at(&mut board, 0, &both), []);
    // What is mended within a minute calls nobody.
    assert_eq!(
        at(&mut board, 60, &both),
        one(State::Open, "BadImage", "eu1")
    );
    let text = &board.troubles().values().next().unwrap().text;
    assert_eq!(text, "about BadImage");
}

#[test]
fn what_is_mended_in_time_is_told_as_healed_and_not_again_within_the_hour() {
    let mut board = Board::default();
    let name: ClusterName = "eu1".parse().unwrap();
    let mended = [(name.clone(), heal("ObjectMissing", HealResult::Healed))];
    let notices = board.healed(START, &mended);
    assert_eq!(
        notices[0].text,
        "Deployment flux-system/source-controller: not found; mended in 3 s"
    );
    assert_eq!(told(&notices), one(State::Healed, "ObjectMissing", "eu1"));
    assert_eq!(board.healed(START + Duration::minutes(59), &mended), []);
    let mut again = mended.clone();
    again[0].1.restored_at = Some("2026-01-01T01:00:00Z".to_owned());
    let later = board.healed(START + Duration::hours(1), &again);
    assert_eq!(told(&later), one(State::Healed, "ObjectMissing", "eu1"));
    // What an agent tells a hub that was away for long is history.
    assert_eq!(board.healed(START + Duration::hours(9), &mended), []);
    // What a clock told that was ahead is told again.
    let mut board = Board::default();
    assert_eq!(board.healed(START + Duration::hours(1), &again).len(), 1);
    assert_eq!(board.healed(START, &mended), notices);
    // One that was told as a trouble is told as over, by the look.
    let mut board = Board::default();
    let open = [Seen {
        heals: vec![heal("ObjectMissing", HealResult::Open)],
        ..seen("eu1", Phase::Healing)
    }];
    at(&mut board, 0, &open);
    assert_eq!(
        at(&mut board, 60, &open),
        one(State::Open, "ObjectMissing", "eu1")
    );
    assert_eq!(board.healed(START + Duration::seconds(61), &mended), []);
}

#[test]
fn many_clusters_with_one_cause_share_a_notice() {
    let mut board = Board::default();
    let fleet: Vec<Seen> = (0..200)
        .map(|n| seen(&format!("c{n:03}"), Phase::Offline))
        .collect();
    let notices = board.look(START, REMIND, &fleet);
    assert_eq!(notices.len(), 1);
    assert_eq!(
        (notices[0].clusters.len(), notices[0].clusters_total),
        (50, 200)
    );
    assert_eq!(notices[0].severity, Severity::Critical);
}

#[test]
fn of_a_cluster_that_is_away_or_not_judged_yet_nothing_else_is_over() {
    let mut board = Board::default();
    let wrong = [with(
        "eu1",
        ConditionType::HostKeyMismatch,
        Status::True,
        "OtherKey",
    )];
    assert_eq!(
        at(&mut board, 0, &wrong),
        one(State::Open, "HostKeyMismatch", "eu1")
    );
    let unknown = [seen("eu1", Phase::Unknown)];
    assert_eq!(at(&mut board, 300, &unknown), []);
    let away = [seen("eu1", Phase::Offline)];
    assert_eq!(
        at(&mut board, 600, &away),
        one(State::Open, "AgentLost", "eu1")
    );
    assert_eq!(at(&mut board, 1200, &away), []);
    assert_eq!(at(&mut board, 1300, &wrong), []);
    assert_eq!(
        at(&mut board, 1360, &wrong),
        one(State::Resolved, "AgentLost", "eu1")
    );
}

#[test]
fn a_removed_cluster_is_forgotten_without_a_word() {
    let mut board = Board::default();
    at(&mut board, 0, &[seen("eu1", Phase::Offline)]);
    assert_eq!(at(&mut board, 600, &[]), []);
    assert_eq!(board.troubles().len(), 0);
}

#[test]
fn what_was_told_is_not_told_again_after_a_restart() {
    let mut board = Board::default();
    let away = [seen("eu1", Phase::Offline)];
    at(&mut board, 0, &away);
    let kept: Vec<(Key, Trouble)> = board
        .troubles()
        .iter()
        .map(|(key, trouble)| {
            let text = serde_json::to_string(trouble).unwrap();
            (key.clone(), serde_json::from_str(&text).unwrap())
        })
        .collect();
    let mut board = Board::of(kept);
    assert_eq!(at(&mut board, 60, &away), []);
    let well = [seen("eu1", Phase::Healthy)];
    at(&mut board, 70, &well);
    assert_eq!(
        at(&mut board, 130, &well),
        one(State::Resolved, "AgentLost", "eu1")
    );
}

#[test]
fn troubles_are_bounded_and_the_surplus_is_counted() {
    let mut board = Board::default();
    let fleet: Vec<Seen> = (0..=MAX_TROUBLES)
        .map(|n| seen(&format!("c{n}"), Phase::Offline))
        .collect();
    let notices = board.look(START, REMIND, &fleet);
    assert_eq!(notices[0].clusters_total, MAX_TROUBLES);
    assert_eq!(board.surplus, 1);
}
