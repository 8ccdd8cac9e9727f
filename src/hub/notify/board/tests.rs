use time::macros::datetime;

use super::*;
use crate::wire::report::{ConditionType, Scene, Status};

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

/// An agent that tells of a new class at each look, and of many at once, is one voice among others.
#[test]
fn classes_that_nobody_knows_take_a_few_places_of_each_cluster() {
    let mut board = Board::default();
    let mut told = Vec::new();
    for round in 0..20 {
        let mut loud = seen("eu1", Phase::Healthy);
        let made_up = (0..100).map(|n| heal(&format!("Made{round}Up{n}"), HealResult::Open));
        loud.heals = made_up.collect();
        loud.heals.push(heal("ObjectMissing", HealResult::Open));
        let mut other = seen("us1", Phase::Healthy);
        other.heals = vec![heal("OfALaterAgent", HealResult::Open)];
        told.extend(at(&mut board, round * 60, &[loud, other]));
        assert_eq!(board.surplus, 0, "{round}");
    }
    let of = |name: &str| {
        let its = told.iter().filter(|(_, _, clusters)| *clusters == [name]);
        its.map(|(_, class, _)| class.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("us1"), ["OfALaterAgent"]);
    assert_eq!(of("eu1"), ["ObjectMissing", OTHER]);
    let key: Key = ("eu1".parse().unwrap(), OTHER.to_owned());
    let said = "100 faults more, of classes that this hub does not know";
    assert_eq!(board.troubles()[&key].text, said);
}

#[test]
fn heals_of_classes_that_nobody_knows_are_told_a_few_times_of_each_cluster() {
    let mut board = Board::default();
    let name = |name: &str| name.parse::<ClusterName>().unwrap();
    let healed = |of: &str, class: &str| (name(of), heal(class, HealResult::Healed));
    let made_up = (0..1_000).map(|n| healed("eu1", &format!("MadeUp{n}")));
    let mut all: Vec<_> = made_up.collect();
    all.push(healed("us1", "OfALaterAgent"));
    let told = told(&board.healed(START, &all));
    let of = |name: &str| {
        let its = told.iter().filter(|(_, _, clusters)| *clusters == [name]);
        its.count()
    };
    assert_eq!((of("eu1"), of("us1")), (STRANGE + 1, 1));
}

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
fn what_comes_of_a_trouble_is_not_told_beside_it() {
    let mut board = Board::default();
    let mut all = with(
        "eu1",
        ConditionType::HostKeyMismatch,
        Status::True,
        "OtherKey",
    );
    for (kind, reason) in [
        (ConditionType::GitReachable, "NotRead"),
        (ConditionType::Synced, "NotSynced"),
    ] {
        let more = with("eu1", kind, Status::False, reason);
        all.conditions.extend(more.conditions);
    }
    let fleet = [all];
    assert_eq!(
        at(&mut board, 0, &fleet),
        one(State::Open, "HostKeyMismatch", "eu1")
    );
    assert_eq!(at(&mut board, 3600, &fleet), []);
    let later = [with(
        "eu1",
        ConditionType::Synced,
        Status::False,
        "NotSynced",
    )];
    at(&mut board, 3700, &later);
    assert_eq!(
        at(&mut board, 4000, &later),
        [
            one(State::Open, "NotSynced", "eu1"),
            one(State::Resolved, "HostKeyMismatch", "eu1")
        ]
        .concat()
    );
}

/// Nobody can say that it is over while what it comes of by now is there; and that is told instead.
#[test]
fn what_was_told_before_its_cause_stays_as_it_is_until_that_is_over() {
    let mut board = Board::default();
    let kind = ConditionType::Synced;
    let alone = [with("eu1", kind, Status::False, "NotSynced")];
    let kind = ConditionType::GitReachable;
    let git = [with("eu1", kind, Status::False, "GitUnreachable")];
    let mut both = git.clone();
    both[0].conditions.extend(alone[0].conditions.clone());
    let well = [seen("eu1", Phase::Healthy)];
    let mut look = |seconds, fleet: &[Seen]| at(&mut board, seconds, fleet);
    assert_eq!(look(0, &alone), []);
    assert_eq!(look(300, &alone), one(State::Open, "NotSynced", "eu1"));
    assert_eq!(look(400, &both), []);
    assert_eq!(look(459, &both), []);
    assert_eq!(look(460, &both), one(State::Open, "GitUnreachable", "eu1"));
    assert_eq!(look(1000, &both), []);
    // The same condition has other words now.
    assert_eq!(look(1010, &git), []);
    assert_eq!(look(1100, &git), []);
    assert_eq!(look(14_700, &both), []);
    let reminded = |class| one(State::Reminder, class, "eu1");
    assert_eq!(look(14_860, &both), reminded("GitUnreachable"));
    assert_eq!(look(14_900, &alone), reminded("NotSynced"));
    let over = |class| one(State::Resolved, class, "eu1");
    assert_eq!(look(14_960, &alone), over("GitUnreachable"));
    assert_eq!(look(15_000, &well), []);
    assert_eq!(look(15_060, &well), over("NotSynced"));
}

#[test]
fn what_comes_of_a_trouble_is_over_with_it_unless_it_was_before() {
    let kind = ConditionType::Synced;
    let alone = [with("eu1", kind, Status::False, "NotSynced")];
    let kind = ConditionType::HostKeyMismatch;
    let cause = [with("eu1", kind, Status::True, "OtherKey")];
    let well = [seen("eu1", Phase::Healthy)];
    let over = |class| one(State::Resolved, class, "eu1");
    let begun = one(State::Open, "HostKeyMismatch", "eu1");

    let mut board = Board::default();
    at(&mut board, 0, &alone);
    at(&mut board, 300, &alone);
    assert_eq!(at(&mut board, 400, &cause), begun);
    assert_eq!(at(&mut board, 500, &well), []);
    let both = [over("HostKeyMismatch"), over("NotSynced")].concat();
    assert_eq!(at(&mut board, 560, &well), both);

    let mut board = Board::default();
    at(&mut board, 0, &alone);
    at(&mut board, 300, &alone);
    assert_eq!(at(&mut board, 310, &well), []);
    assert_eq!(at(&mut board, 340, &cause), begun);
    assert_eq!(at(&mut board, 369, &cause), []);
    assert_eq!(at(&mut board, 370, &cause), over("NotSynced"));
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
