//! Tries of an operation.

use super::*;

const END: &str = "2030-01-01T00:00:10Z";

/// F39: between two tries, and when all of them are over, its end says what came of it.
#[test]
fn an_operation_at_work_says_how_far_it_is() {
    let again = "denied. Retrying attempt #3 at 12:00AM.";
    for (phase, end, sync, message, expected) in [
        ("Running", "", "OutOfSync", "", Some("")),
        (
            "Running",
            "",
            "OutOfSync",
            "Retrying operation. Attempt #3",
            Some(""),
        ),
        ("Running", "", "OutOfSync", again, Some("denied")),
        (
            "Running",
            "",
            "Unknown",
            "waiting for a",
            Some("waiting for a"),
        ),
        (
            "Terminating",
            "",
            "OutOfSync",
            "waiting for a",
            Some("waiting for a"),
        ),
        ("Running", END, "OutOfSync", again, None),
        ("Running", "", "Synced", "waiting for a", None),
        ("Failed", END, "OutOfSync", "denied", None),
        ("Succeeded", END, "OutOfSync", "", None),
    ] {
        let state = json!({"phase": phase, "finishedAt": end, "message": message});
        let live = says(&json!({"sync": {"status": sync}, "operationState": state}));
        assert_eq!(
            at_work(&live.fields),
            expected,
            "{phase} {end} {sync} {message}"
        );
        assert_eq!(
            is_trying(&live),
            expected.is_some(),
            "{phase} {end} {sync} {message}"
        );
    }
}

#[test]
fn an_operation_on_what_cannot_be_compared_says_nothing_of_its_end() {
    let state = json!({"phase": "Running", "message": "waiting for a"});
    let wrong = json!([{"type": "ComparisonError", "message": "no such path"}]);
    let live = says(&json!({
        "sync": {"status": "Unknown"}, "operationState": state, "conditions": wrong,
    }));
    assert_eq!((at_work(&live.fields), is_trying(&live)), (None, false));
}

#[test]
fn a_try_is_told_from_others_by_its_operation_and_its_number() {
    let live = says(&json!({"operationState": {"startedAt": END, "retryCount": 3}}));
    assert_eq!(attempt(&live), format!("{END} 3"));
}
