//! Applications below the root.

use super::*;

/// F40
#[test]
fn an_application_below_the_root_says_why_it_is_not_well() {
    for (status, expected) in [
        (
            json!({"sync": {"status": "Synced"}, "health": {"status": "Healthy"}}),
            None,
        ),
        (
            json!({"sync": {"status": "OutOfSync"}, "health": {"status": "Progressing"}}),
            None,
        ),
        (
            json!({"health": {"status": "Degraded", "message": "no endpoints"}}),
            Some(("HealthCheckFailed", "no endpoints")),
        ),
        (
            json!({"sync": {"status": "OutOfSync"}, "operationState": {"phase": "Failed", "message": "denied"}}),
            Some(("SyncError", "denied")),
        ),
        // F39: between two tries, of which there may be no last one.
        (
            json!({
                "sync": {"status": "OutOfSync"}, "health": {"status": "Degraded"},
                "operationState": {
                    "phase": "Running", "finishedAt": "2030-01-01T00:00:10Z",
                    "message": "denied. Retrying attempt #3 at 12:00AM.",
                },
            }),
            Some(("SyncError", "denied")),
        ),
        (
            json!({
                "sync": {"status": "OutOfSync"},
                "operationState": {"phase": "Running", "message": "Retrying operation. Attempt #3"},
            }),
            None,
        ),
        (
            json!({"conditions": [{"type": "ComparisonError", "message": "app path does not exist"}]}),
            Some(("ComparisonError", "app path does not exist")),
        ),
        // An ApplicationSet says with each condition whether that is so.
        (
            json!({"conditions": [
                {"type": "ResourcesUpToDate", "status": "True", "message": "all is well"},
                {"type": "ErrorOccurred", "status": "True", "message": "no such repository"},
            ]}),
            Some(("ErrorOccurred", "no such repository")),
        ),
        (
            json!({"conditions": [{"type": "ErrorOccurred", "status": "False", "message": "none"}]}),
            None,
        ),
    ] {
        let found = trouble(&json!({"status": status}));
        let found = found.as_ref().map(|(r, m)| (r.as_str(), m.as_str()));
        assert_eq!(found, expected, "{status}");
    }
}

#[test]
fn an_application_rolls_since_its_last_sync_while_it_is_progressing() {
    let (began, ended) = ("2030-01-01T00:00:00Z", "2030-01-01T00:00:10Z");
    let over = json!({"startedAt": began, "finishedAt": ended});
    for (health, operation, expected) in [
        ("Progressing", over.clone(), Some(ended)),
        ("Progressing", json!({"startedAt": began}), Some(began)),
        ("Progressing", json!({}), None),
        ("Healthy", over.clone(), None),
        ("Degraded", over, None),
    ] {
        let status = json!({"health": {"status": health}, "operationState": operation});
        let found = rolls(&json!({"status": status}));
        assert_eq!(found, expected.map(at), "{status}");
    }
}
