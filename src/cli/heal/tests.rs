use super::*;
use crate::wire::api::{CommitView, StoryLine, ToldCondition};
use crate::wire::report::{ObjectCondition, ObjectEvent, Phase};

fn heal(id: &str) -> ToldHeal {
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
fn what_a_cluster_says_does_not_write_over_the_rest() {
    let mut view = heal("0199-a-1111");
    view.heal.evidence = "a\u{1b}[2K\rb\n\tc\u{1b}]52;c;eA==\u{7}".to_owned();
    let text = describe(&view);
    assert!(
        !text.contains("\u{1b}[2K") && !text.contains('\r'),
        "{text:?}"
    );
    let evidence = "evidence\n  a\u{fffd}[2K\u{fffd}b\n  \tc\u{fffd}]52;c;eA==\u{fffd}\n";
    assert!(text.contains(evidence), "{text:?}");
}

#[test]
fn a_heal_is_told_with_its_times_since_the_fault() {
    let text = describe(&heal("0199-a-1111"));
    for part in [
        "F1 ObjectMissing: an object is gone",
        "detect 0.2s, act 0.1s, restore 8.7s",
        "none: it did not come from Git",
        "evidence\n  deleted\n",
        "2026-01-01T00:00:00.300Z  0.3s   create Deployment: ok",
        "2025-12-31T23:00:00.000Z  -      somebody committed it",
        "next           nothing",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
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
        let cluster = crate::cli::cluster::wait::tests::cluster(Phase::Broken, &[], vec![said]);
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
fn what_was_around_the_fault_is_told() {
    let mut view = heal("0199-a-1111");
    view.heal.scene = Scene {
        uid: "7c0e".to_owned(),
        conditions: vec![ObjectCondition {
            kind: "Available".to_owned(),
            status: "False".to_owned(),
            reason: "NoPods".to_owned(),
            message: "no minimum".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        }],
        events: vec![ObjectEvent {
            at: "2026-01-01T00:00:00.000Z".to_owned(),
            kind: "Warning".to_owned(),
            object: "Pod a-7f".to_owned(),
            reason: "BackOff".to_owned(),
            message: "restarting".to_owned(),
            count: 3,
        }],
        log: vec!["starting".to_owned(), "panic: no".to_owned()],
        revision_after: "main@sha1:2".to_owned(),
        remade: Remade {
            count: 3,
            objects: vec!["ConfigMap shop/a".to_owned(), "Secret shop/b".to_owned()],
        },
    };
    let text = describe(&view);
    for part in [
        "uid            7c0e\n",
        "catalog after  main@sha1:2\n",
        "made again     3 objects that were gone\n",
        "LOG BEFORE\nstarting\npanic: no\n",
        "MADE AGAIN\nConfigMap shop/a\nSecret shop/b\nand 1 more\n",
        "Available       False   2026-01-01T00:00:00Z  NoPods  no minimum\n",
        "2026-01-01T00:00:00.000Z  Warning  3 x    Pod a-7f  BackOff  restarting\n",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn who_committed_it_is_told() {
    let mut view = heal("0199-a-1111");
    view.heal.commit = "main@sha1:3f2a".to_owned();
    assert_eq!(commit(&view), "main@sha1:3f2a");
    view.author = Some(CommitView {
        id: "3f2a".to_owned(),
        author: "Ann <ann@example.com>".to_owned(),
        at: "2026-01-01T00:00:00.000Z".to_owned(),
        subject: "Faster".to_owned(),
    });
    assert_eq!(
        commit(&view),
        "3f2a by Ann <ann@example.com> at 2026-01-01T00:00:00.000Z: Faster"
    );
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
