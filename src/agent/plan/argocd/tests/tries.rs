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

/// As it asks for an operation, Argo CD takes away what is known of the one before.
#[test]
fn an_operation_that_is_yet_to_begin_is_a_try_of_a_root_that_differs() {
    for (sync, expected) in [("OutOfSync", true), ("Synced", false), ("", false)] {
        let live = says(&json!({"sync": {"status": sync}}));
        assert_eq!(is_trying(&live), expected, "{sync}");
    }
}

#[test]
fn a_try_is_told_from_others_by_its_operation_and_its_number() {
    let live = says(&json!({"operationState": {"startedAt": END, "retryCount": 3}}));
    assert_eq!(attempt(&live), format!("{END} 3"));
}

/// F39: of what is not even tried an operation says no more than that.
#[test]
fn an_operation_that_failed_names_what_it_could_not_apply_first() {
    let invalid = "one or more synchronization tasks are not valid";
    let unknown = json!({
        "kind": "Kustomization", "namespace": "flux-system", "name": "base", "status": "SyncFailed",
        "message": "could not find kustomize.toolkit.fluxcd.io/Kustomization\nwas it installed?",
    });
    let denied = json!({
        "kind": "ClusterRole", "name": "a", "status": "SyncFailed", "message": "denied",
    });
    let well = json!({"kind": "Namespace", "name": "a", "status": "Synced", "message": "created"});
    let base = "; first failed: Kustomization flux-system/base: could not find \
                kustomize.toolkit.fluxcd.io/Kustomization";
    let role = "; first failed: ClusterRole a: denied";
    for (message, results, first) in [
        (invalid, [&well, &unknown, &denied], base),
        (invalid, [&well, &denied, &unknown], role),
        // Why is said already.
        (
            "denied",
            [&denied, &well, &well],
            "; first failed: ClusterRole a",
        ),
        (invalid, [&well, &well, &well], ""),
    ] {
        let operates = |phase: &str, message: &str, results: &[&Value]| {
            let condition = format!("Failed last sync attempt to [1]: {message}");
            let conditions = json!([{"type": "SyncError", "message": condition}]);
            let status = |conditions: &Value| {
                says(&json!({
                    "sync": {"status": "OutOfSync"}, "conditions": conditions,
                    "operationState": {
                        "phase": phase, "finishedAt": if results.is_empty() { "" } else { END },
                        "message": message, "syncResult": {"resources": results},
                    },
                }))
            };
            (status(&Value::Null), status(&conditions))
        };
        let said = format!("operation Failed: {message}{first}");
        let (alone, with_condition) = operates("Failed", message, &results);
        let failed = (Class::ApplyFailed, said.clone());
        let found: Vec<_> = faults(&alone).collect();
        assert_eq!(found.as_slice(), std::slice::from_ref(&failed));
        let error = format!("SyncError: Failed last sync attempt to [1]: {message}{first}");
        let both = [(Class::ApplyFailed, error), failed.clone()];
        assert_eq!(faults(&with_condition).collect::<Vec<_>>(), both);

        // It is the same complaint while the next try has no results yet.
        let again = format!("{message}. Retrying attempt #1 at 8:01AM.");
        let (waiting, _) = operates("Running", &again, &results);
        assert_eq!(retried(&waiting), Some(failed));
        let (trying, _) = operates("Running", message, &[]);
        assert!(has_just_begun(&trying, &said), "{said}");
    }
}
