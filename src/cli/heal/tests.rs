use super::*;
use crate::wire::api::{StoryLine, ToldCondition, Took};
use crate::wire::report::{HealStep, Phase, Scene};

pub(super) fn heal(id: &str) -> ToldHeal {
    ToldHeal {
        cluster: "eu1".parse().unwrap(),
        heal: ToldHealRecord {
            id: id.to_owned(),
            class: "ObjectMissing".to_owned(),
            number: 1,
            meaning: "an object is gone".to_owned(),
            object: "Deployment flux-system/source-controller".to_owned(),
            evidence: "deleted".to_owned(),
            writer: "kubectl".to_owned(),
            revision: String::new(),
            commit: String::new(),
            steps: Vec::new(),
            fault_at: Some("2026-01-01T00:00:00.000Z".to_owned()),
            detected_at: "2026-01-01T00:00:00.200Z".to_owned(),
            acted_at: Some("2026-01-01T00:00:00.300Z".to_owned()),
            restored_at: Some("2026-01-01T00:00:09.000Z".to_owned()),
            result: HealResult::Healed.into(),
            next: String::new(),
            scene: Scene::default(),
        },
        took: Took {
            detect_ms: Some(200),
            act_ms: Some(100),
            restore_ms: Some(8_700),
        },
        author: None,
        through_hub: None,
        story: vec![
            StoryLine {
                at: "2025-12-31T23:00:00.000Z".to_owned(),
                text: "somebody committed it".to_owned(),
            },
            StoryLine {
                at: "2026-01-01T00:00:00.300Z".to_owned(),
                text: "create Deployment: ok".to_owned(),
            },
        ],
    }
}

#[test]
fn a_heal_is_found_by_a_part_of_its_id_that_names_one() {
    let heals = [heal("0199-a-1111"), heal("0199-b-2222")];
    let id = |part: &str| find(&heals, part, 3).unwrap().heal.id.clone();
    assert_eq!([id("2222"), id("0199-a")], ["0199-b-2222", "0199-a-1111"]);
    let failed = |heals: &[ToldHeal], part: &str| {
        let failure = find(heals, part, 3).unwrap_err();
        (failure.code, failure.message)
    };
    let among = |all: &str| (Code::NotFound, format!("no heal '{all}'"));
    assert_eq!(failed(&heals, "0199").0, Code::Usage);
    assert_eq!(failed(&heals, "3"), among("3"));
    assert_eq!(failed(&heals[..1], ""), among(""));
    assert_eq!(short_id("0199-a-1111"), "1111");
}

#[test]
fn where_older_heals_were_not_looked_at_none_is_denied() {
    let failure = find(&[heal("0199-a-1111"), heal("0199-b-2222")], "3", 2).unwrap_err();
    assert_eq!(failure.code, Code::NotFound);
    assert_eq!(failure.message, "no heal '3' among the newest 2");
    assert!(failure.next.contains("the whole id"), "{}", failure.next);
}

#[test]
fn revisions_are_as_short_as_in_the_list_of_clusters() {
    let mut view = heal("1");
    let commit = "3f2a".repeat(10);
    view.heal.revision = format!("main@sha1:{commit}");
    view.heal.commit = commit;
    let (columns, now) = (&COLUMNS, time::OffsetDateTime::UNIX_EPOCH);
    let cell = |title: &str| {
        let column = columns.iter().find(|column| column.title == title);
        (column.unwrap().cell)(&view, now)
    };
    let cells = [cell("REVISION"), cell("COMMIT")];
    assert_eq!(cells, ["main@3f2a3f2a", "3f2a3f2a"]);
}

/// Who looks in the night would wait for what does not come.
#[test]
fn an_open_heal_says_that_it_is_being_mended_or_what_keeps_it_from_that() {
    let open = |id: &str| {
        let mut view = heal(id);
        view.heal.result = HealResult::Open.into();
        view.heal.restored_at = None;
        view
    };
    let mut other = open("4");
    other.cluster = "us1".parse().unwrap();
    let mut by_hand = open("3");
    "free the disk".clone_into(&mut by_hand.heal.next);
    let heals = [heal("1"), open("2"), by_hand, other];
    let told = |kind: ConditionType, status: Status, message: &str| {
        let said = ToldCondition {
            kind: kind.into(),
            status: status.into(),
            reason: String::new(),
            message: message.to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        };
        let cluster = cluster::wait::tests::cluster(Phase::Broken, &[], vec![said]);
        let mut heals = heals.clone();
        hold_back(&cluster, &mut heals);
        heals.map(|view| next(&view.heal))
    };
    let mended = "it is being mended";
    let (window, end) = (
        "until 2026-01-01T00:05:00Z: db work; end it: linesman cluster resume eu1",
        "nothing is mended until 2026-01-01T00:05:00Z: db work; end it: linesman cluster resume eu1",
    );
    for (kind, status, message, second) in [
        (ConditionType::Paused, Status::False, "", mended),
        (ConditionType::Paused, Status::Unknown, window, mended),
        (ConditionType::Synced, Status::True, "", mended),
        (ConditionType::Paused, Status::True, window, end),
        (
            ConditionType::ObserveOnly,
            Status::True,
            "Helm's",
            "nothing is mended: Helm's",
        ),
    ] {
        let expected = ["nothing", second, "free the disk", mended];
        assert_eq!(told(kind, status, message), expected, "{kind:?} {status:?}");
    }
}

#[test]
fn an_open_heal_whose_last_write_was_refused_says_by_what() {
    let told = |action: &str, outcome: &str| {
        let mut view = heal("1");
        view.heal.result = HealResult::Open.into();
        view.heal.steps = vec![HealStep {
            action: action.to_owned(),
            object: "Deployment argocd/argocd-redis".to_owned(),
            at: "2026-01-01T00:00:01.000Z".to_owned(),
            outcome: outcome.to_owned(),
        }];
        next(&view.heal)
    };
    let mended = "it is being mended";
    for (action, outcome, expected) in [
        ("create", "ok", mended),
        ("commit", "main@sha1:3f2a came", mended),
        (
            "create",
            "forbidden: frozen",
            "create did not work, and is tried again: forbidden: frozen",
        ),
    ] {
        assert_eq!(told(action, outcome), expected, "{action} {outcome}");
    }
}

#[test]
fn milliseconds_are_shown_as_tenths_of_seconds() {
    for (millis, text) in [
        (None, ""),
        (Some(0), "0.0s"),
        (Some(49), "0.0s"),
        (Some(50), "0.1s"),
        (Some(12_345), "12.3s"),
    ] {
        assert_eq!(seconds(millis), text);
    }
}
