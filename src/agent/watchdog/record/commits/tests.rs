use super::*;
use crate::agent::plan::Finding;
use crate::agent::plan::History;
use crate::agent::watchdog::record::Resumed;
use crate::agent::watchdog::record::tests::{adopted, at, deployment, round, round_of};

fn broken(commit: &str) -> Vec<Finding> {
    let mut finding = Finding::new(Class::SourceAltered, &deployment(), "is broken");
    commit.clone_into(&mut finding.commit);
    vec![finding]
}

fn wait(came: Option<&str>) -> [Wait; 1] {
    [Wait {
        object: deployment(),
        revision: "main@sha1:a".to_owned(),
        came: came.map(|revision| (revision.to_owned(), at(600))),
    }]
}

/// A heal that a commit was the cause of, and that is over.
fn over() -> (Records, History) {
    let (mut records, mut history) = adopted();
    round_of(&mut records, &mut history, 0, broken("main@sha1:a"), None);
    let closed = round(&mut records, &mut history, 9, &[], None);
    assert_eq!(closed.len(), 1);
    (records, history)
}

fn named(told: &[HealRecord]) -> Vec<&str> {
    let steps = told.iter().flat_map(|heal| &heal.steps);
    steps.filter_map(commit_of).collect()
}

/// W20
#[test]
fn each_commit_that_comes_while_it_is_held_is_named_once_in_the_heal_that_held_it() {
    let (mut records, _) = over();
    assert_eq!(records.waited(at(20), &wait(None)), []);
    let told = records.waited(at(30), &wait(Some("main@sha1:b")));
    let step = &told[0].steps[0];
    assert_eq!(
        (step.at.as_str(), step.outcome.as_str()),
        (
            rfc3339(at(30)).as_str(),
            format!(
                "main@sha1:b came while it is held back until {}, for commits broke it again and again: the object stays without \
                 what this one has of it",
                rfc3339(at(600))
            )
            .as_str()
        )
    );
    assert_eq!(records.waited(at(31), &wait(Some("main@sha1:b"))), []);
    assert_eq!(records.waited(at(32), &wait(Some("main@sha1:a"))), []);
    let told = records.waited(at(40), &wait(Some("main@sha1:c")));
    assert_eq!(named(&told), ["main@sha1:b", "main@sha1:c"]);
    // It is given back: what comes later is no matter of this heal.
    assert_eq!(records.waited(at(50), &[]), []);
    assert_eq!(records.waited(at(60), &wait(Some("main@sha1:d"))), []);
}

/// W20: the heal is not over yet.
#[test]
fn a_commit_that_breaks_it_again_or_comes_meanwhile_is_named_in_the_open_heal() {
    let (mut records, mut history) = adopted();
    round_of(&mut records, &mut history, 0, broken("main@sha1:a"), None);
    let again = |records: &mut Records, history: &mut History, second, commit: &str| {
        round_of(records, history, second, broken(commit), None)
    };
    let told = again(&mut records, &mut history, 5, "main@sha1:b");
    assert_eq!(named(&told), ["main@sha1:b"]);
    assert_eq!(told[0].steps[0].outcome, "main@sha1:b broke it again");
    assert_eq!(again(&mut records, &mut history, 6, "main@sha1:b"), []);
    assert_eq!(again(&mut records, &mut history, 7, "main@sha1:a"), []);
    assert_eq!(again(&mut records, &mut history, 8, ""), []);
    assert_eq!(records.waited(at(9), &wait(Some("main@sha1:c"))), []);
    let told = again(&mut records, &mut history, 10, "main@sha1:a");
    assert_eq!(named(&told), ["main@sha1:b", "main@sha1:c"]);
}

#[test]
fn no_more_commits_are_named_than_have_place_and_the_last_one_says_so() {
    let (mut records, _) = over();
    for n in 0..2 * MAX_COMMITS {
        let came = format!("main@sha1:{n}");
        let second = i64::try_from(n).unwrap();
        let told = records.waited(at(20 + second), &wait(Some(&came)));
        assert_eq!(told.len() == 1, n < MAX_COMMITS, "{n}");
        let last = told.first().map(|heal| heal.steps.last().unwrap());
        let ends = last.is_some_and(|s| s.outcome.ends_with("; those after it are not named here"));
        assert_eq!(ends, n + 1 == MAX_COMMITS, "{n}");
    }
}

/// W21: an agent that is started again goes on with it, and tells nothing twice.
#[test]
fn another_agent_names_the_commits_that_come_after_it() {
    let (mut records, _) = over();
    let told = records.waited(at(30), &wait(Some("main@sha1:b")));
    records.stored(&[told[0].id.clone()]);
    let kept = serde_json::to_string(&records.kept()).unwrap();
    let (mut next, _) = adopted();
    let resumed = next.resume(serde_json::from_str(&kept).unwrap());
    assert_eq!(resumed, Resumed::default());
    assert_eq!(next.waited(at(40), &wait(Some("main@sha1:b"))), []);
    let told = next.waited(at(50), &wait(Some("main@sha1:c")));
    assert_eq!(named(&told), ["main@sha1:b", "main@sha1:c"]);
    // It is not held any more: nothing is kept.
    next.stored(&[told[0].id.clone()]);
    next.waited(at(60), &[]);
    assert_eq!(next.kept(), []);
}
