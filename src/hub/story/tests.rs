use super::*;
use crate::wire::api::Took;
use crate::wire::report::{HealStep, Scene};

const ID: &str = "3f2a3f2a3f2a3f2a3f2a3f2a3f2a3f2a3f2a3f2a";

fn at(text: &str) -> String {
    format!("2026-01-01T00:00:{text}Z")
}

fn heal() -> HealRecord {
    let object = "Deployment flux-system/source-controller".to_owned();
    HealRecord {
        id: "0199-a-1111".to_owned(),
        class: "BadEngineCommit".to_owned(),
        number: 43,
        meaning: String::new(),
        object: object.clone(),
        evidence: String::new(),
        writer: "kustomize-controller".to_owned(),
        revision: format!("main@sha1:{ID}"),
        commit: format!("main@sha1:{ID}"),
        steps: vec![HealStep {
            action: "hold".to_owned(),
            object,
            at: at("10.300"),
            outcome: "ok".to_owned(),
        }],
        fault_at: Some(at("10")),
        detected_at: at("10.200"),
        acted_at: Some(at("10.300")),
        restored_at: Some(at("19")),
        result: HealResult::Healed,
        next: String::new(),
        scene: Scene::default(),
    }
}

fn ann() -> Made {
    Made {
        name: "Ann".to_owned(),
        email: "ann@example.com".to_owned(),
        at: 1_767_225_600,
        subject: "Faster".to_owned(),
    }
}

fn known() -> BTreeMap<String, Made> {
    BTreeMap::from([(ID.to_owned(), ann())])
}

fn whole(heal: HealRecord, made: &BTreeMap<String, Made>) -> HealView {
    told(view("eu1".parse().unwrap(), heal, made), made)
}

#[test]
fn revisions_of_both_engines_name_their_commit() {
    for (revision, id) in [
        (format!("main@sha1:{ID}"), Some(ID)),
        (format!("refs/heads/main@sha1:{ID}"), Some(ID)),
        (ID.to_owned(), Some(ID)),
        ("main@sha1:3f2a".to_owned(), None),
        ("v1.2".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(commit_id(&revision), id, "{revision}");
    }
}

#[test]
fn a_heal_is_told_in_order_with_who_committed_it() {
    let told = whole(heal(), &known());
    let took = Took {
        detect_ms: Some(200),
        act_ms: Some(100),
        restore_ms: Some(8_700),
    };
    assert_eq!(told.took, took);
    let lines = told.story.iter().map(|l| (l.at.clone(), l.text.as_str()));
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            (at("00.000"), "Ann <ann@example.com> committed 'Faster'"),
            (
                at("10"),
                "'kustomize-controller' wrote Deployment flux-system/source-controller"
            ),
            (at("10.200"), "seen, and called F43 BadEngineCommit"),
            (
                at("10.300"),
                "hold Deployment flux-system/source-controller: ok"
            ),
            (at("19"), "mended: the engine was asked, and works"),
        ]
    );
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut open = heal();
    (open.fault_at, open.acted_at, open.restored_at) = (None, None, None);
    (open.steps, open.number) = (Vec::new(), 0);
    let told = whole(open, &BTreeMap::new());
    assert_eq!(told.took, Took::default());
    assert_eq!(told.author, None);
    assert_eq!(told.story.len(), 1);
    assert_eq!(told.story[0].text, "seen, and called BadEngineCommit");
}

/// W20: those that came while the object was held back, too.
#[test]
fn each_commit_that_a_heal_names_is_told_with_who_made_it() {
    let other = "0".repeat(40);
    let came = |id: &str| HealStep {
        action: "commit".to_owned(),
        object: "Deployment flux-system/source-controller".to_owned(),
        at: at("30"),
        outcome: format!("main@sha1:{id} came while it is held back"),
    };
    let mut heal = heal();
    heal.steps.extend([came(&other), came("3f2a")]);
    let ids: Vec<&str> = commits(&heal).collect();
    assert_eq!(ids, [ID, &other]);
    let made = BTreeMap::from([(other.clone(), ann())]);
    let story = whole(heal, &made).story;
    let lines: Vec<&str> = story.iter().map(|l| l.text.as_str()).collect();
    let said = "commit Deployment flux-system/source-controller: main@sha1:";
    let came = "came while it is held back";
    assert_eq!(
        lines[lines.len() - 2..],
        [
            format!("{said}{other} {came}; Ann <ann@example.com> committed 'Faster'"),
            format!("{said}3f2a {came}"),
        ]
    );
}
