//! What comes of a trouble, and what was told before its cause.

use super::*;

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
