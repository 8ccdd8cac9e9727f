use time::macros::datetime;

use super::*;

fn create() -> Step {
    Step {
        action: Action::Create,
        target: ObjectId::new(Kind::Deployment, "flux-system", "source-controller"),
        cause: None,
    }
}

#[test]
fn two_refusals_in_a_row_give_up_a_source_and_no_other_failure_does() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let refused = || Outcome::Refused("spec.replicas: Invalid value".to_owned());
    let failed = || Outcome::Failed("timed out".to_owned());
    let mut history = History::default();
    let mut given_up = Vec::new();
    let outcomes = [
        (refused(), 0),
        (Outcome::Done, 0),
        (refused(), 0),
        (failed(), 0),
        (refused(), 1),
        (refused(), 1),
        (refused(), 2),
        (refused(), 2),
        (refused(), 3),
        (refused(), 3),
        (refused(), 3),
    ];
    for (outcome, _) in &outcomes {
        history.acted(now, &create(), outcome, &Observed::default());
        given_up.push(history.refused[&create().target].given_up);
    }
    let expected: Vec<usize> = outcomes.iter().map(|(_, n)| *n).collect();
    assert_eq!(given_up, expected);
}

/// Only the same once more is a sign that somebody took it away; and against a fault its budget counts.
#[test]
fn what_keeps_a_hold_is_counted_while_it_is_the_same() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let hold = |note: &str, cause| Step {
        action: Action::Hold {
            note: note.to_owned(),
        },
        cause,
        ..create()
    };
    let target = create().target;
    let fault = Some((Class::BadEngineCommit, target.clone()));
    let mut history = History::default();
    for (step, outcome, kept) in [
        (hold("a", None), Outcome::Done, 1),
        (hold("a", None), Outcome::Done, 2),
        (hold("a", None), Outcome::Unchanged, 2),
        (hold("a", fault), Outcome::Done, 2),
        (create(), Outcome::Done, 2),
        (hold("b", None), Outcome::Done, 1),
        (hold("b", None), Outcome::Done, 2),
    ] {
        history.acted(now, &step, &outcome, &Observed::default());
        let (_, times) = &history.kept[&("hold", target.clone())];
        assert_eq!(times.len(), kept, "{step:?} {outcome:?}");
    }
}
