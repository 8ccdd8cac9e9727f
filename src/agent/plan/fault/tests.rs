//! `docs/faults.md` is made from the table: `LINESMAN_UPDATE_GOLDEN=1 cargo test --lib fault::tests` writes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::*;
use crate::heal;

fn budget(class: Class) -> String {
    match class.budget() {
        Budget::Spaced => "every 2 s, 30 s in a fight".to_owned(),
        Budget::Steady => "every 2 s".to_owned(),
        Budget::PerHour(n) => format!("{n} an hour, then 1"),
        Budget::Report => "–".to_owned(),
    }
}

fn left(class: Class) -> String {
    match (class.advice(), class.afterwards()) {
        (now, "") => now.to_owned(),
        ("", later) => format!("afterwards: {later}"),
        (now, later) => format!("{now}; afterwards: {later}"),
    }
}

fn page() -> String {
    let mut text = "# Faults\n\n\
        Made from the program's own table; a test keeps it so. `linesman heal list` shows the class of each heal, \
        `linesman heal show ID`\nits evidence, its steps and what is left to people.\n\n\
        With each heal are kept, as far as they are known: the object and its UID, who wrote it last and when, its conditions, the Events of ten minutes \
        about it\nor its Pods, and the catalog's revision before and after; of a collapse also what the engine had to make again. The column *evidence* says what comes to that.\n\n\
        *After* is how long a fault has to be there before it counts. The *budget* is per object and class; one of so many an hour\n\
        holds over a restart of the agent. A try that the API server did not serve (no answer, 429, 5xx), or before which the object could not be held back from Git, does not count. `–` = there is no safe step, it is reported. Nothing here ever deletes a CRD, a Namespace or a volume claim.\n\n\
        | # | class | what is seen | evidence | after | what Linesman does | budget | left to people |\n\
        |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut classes = Class::ALL.to_vec();
    classes.sort_by_key(|c| (c.about().number == 0, c.about().number));
    for class in classes {
        let row = class.about();
        let number = match row.number {
            0 => String::new(),
            n => format!("F{n}"),
        };
        writeln!(
            text,
            "| {number} | `{class}` | {} | {} | {} s | {} | {} | {} |",
            row.seen,
            row.evidence,
            row.debounce.whole_seconds(),
            row.does,
            budget(class),
            left(class),
        )
        .unwrap();
    }
    text
}

#[test]
fn the_printed_page_is_todays() {
    let path = "docs/faults.md";
    #[expect(
        clippy::disallowed_methods,
        reason = "a test that rewrites its golden file on demand"
    )]
    let update = std::env::var("LINESMAN_UPDATE_GOLDEN").is_ok();
    if update {
        std::fs::write(path, page()).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == page(),
        "docs/faults.md is old; run: LINESMAN_UPDATE_GOLDEN=1 cargo test --lib fault::tests"
    );
}

#[test]
fn each_number_has_one_class() {
    let numbered = Class::ALL.iter().map(|c| c.about().number);
    let mut all: Vec<u8> = numbered.filter(|n| *n > 0).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=57).collect::<Vec<u8>>());
    let names: BTreeSet<&str> = Class::ALL.iter().map(|c| c.as_str()).collect();
    assert_eq!(names.len(), Class::ALL.len());
}

/// Labels of metrics are closed sets that the hub knows, too.
#[test]
fn every_class_is_a_label() {
    let mut names: Vec<&str> = Class::ALL.iter().map(|c| c.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, heal::CLASSES);
}

/// F50, F57: the hub, which sees them, does not know the table.
#[test]
fn the_hub_tells_what_only_it_sees_in_the_words_of_the_table() {
    let told = |class: Class| {
        let row = class.about();
        (row.name, row.number, row.seen, row.advice)
    };
    let lost = (
        heal::AGENT_LOST,
        heal::AGENT_LOST_NUMBER,
        heal::AGENT_LOST_SEEN,
        heal::AGENT_LOST_ADVICE,
    );
    assert_eq!(told(Class::AgentLost), lost);
    let duplicate = (
        heal::DUPLICATE_AGENT,
        heal::DUPLICATE_AGENT_NUMBER,
        heal::DUPLICATE_AGENT_SEEN,
        heal::DUPLICATE_AGENT_ADVICE,
    );
    assert_eq!(told(Class::DuplicateAgent), duplicate);
}

/// A hold does not end by a commit alone.
#[test]
fn what_a_person_may_give_back_names_the_way() {
    for class in [
        Class::BadEngineCommit,
        Class::EngineUpgradeStuck,
        Class::EngineRemovedByCommit,
    ] {
        let told = class.afterwards();
        let names = told.contains("'linesman cluster lift NAME --reason TEXT'");
        assert!(names, "{class}: {told}");
    }
}

/// Who is told of a fault that nobody mends is told what to do.
#[test]
fn what_is_only_reported_names_the_next_action() {
    for class in Class::ALL {
        // Of these some are mended and some are not.
        let some = matches!(
            class,
            Class::UndecodableObject
                | Class::LeftoverFinalizers
                | Class::ArtifactLost
                | Class::Unschedulable
                | Class::GitSecretBad
        );
        let reported = class.budget() == Budget::Report || some;
        assert_eq!(reported, !class.advice().is_empty(), "{class}");
    }
}
