//! What is known of one that is at work, or has just been.

use super::*;

/// F44: what else it says of itself is of before while it is at work; what it brings, and how far it is with that, is not.
#[test]
fn what_a_kustomization_brings_of_the_engine_is_known_while_it_is_at_work() {
    let kind = Kind::Kustomization;
    let status = |tried: &str, applied: &str, ready: &str| {
        json!({"/status": {
            "inventory": {"entries": [{"id": "flux-system_source-controller_apps_Deployment"}]},
            "lastAttemptedRevision": tried, "lastAppliedRevision": applied,
            "conditions": [{"type": "Ready", "status": ready}],
        }})
    };
    let mut seen = Observed::default();
    let mut told = |tried, applied, ready| {
        let (id, live) = saying(kind, &status(tried, applied, ready));
        let news = heard(&mut seen, id.clone(), Heard::of(HOME, kind, &live));
        let brings = seen.children[&id].brings.clone().unwrap();
        (news, brings.is_any(), brings.is_at_work())
    };
    assert_eq!(told("1", "1", "True"), (true, true, false));
    assert_eq!(told("2", "1", "Unknown"), (true, true, true));
    assert_eq!(told("2", "1", "Unknown"), (false, true, true));
    assert_eq!(told("2", "2", "True"), (true, true, false));
}

/// By both is told whether it is done with what the root has just applied; also while it says nothing else.
#[test]
fn how_far_an_application_and_a_release_are_is_known() {
    let mut seen = Observed::default();
    let mut told = |kind: Kind, change: &Value| {
        let (id, live) = saying(kind, change);
        heard(&mut seen, id.clone(), Heard::of(HOME, id.kind, &live));
        let child = &seen.children[&id];
        (child.tried.clone(), child.pending)
    };
    let app = |status: &str, phase: &str| {
        json!({"/status": {
            "sync": {"status": status, "revision": "2"}, "operationState": {"phase": phase},
        }})
    };
    for (kind, change, expected) in [
        (Kind::Application, json!({}), ("", false)),
        (Kind::Application, app("OutOfSync", "Running"), ("2", true)),
        (Kind::Application, app("Synced", "Succeeded"), ("2", false)),
        (Kind::HelmRelease, json!({}), ("", true)),
        (Kind::HelmRelease, ready("True"), ("", false)),
        (Kind::HelmRelease, ready("Unknown"), ("", true)),
    ] {
        let (tried, pending) = expected;
        assert_eq!(told(kind, &change), (tried.to_owned(), pending), "{change}");
    }
}

/// The end of that is told, too: whoever waits for it is not kept until he would have waited in vain.
#[test]
fn whether_an_application_is_progressing_is_known() {
    let mut seen = Observed::default();
    let ended = "2027-01-15T08:00:10Z";
    let mut told = |health: &str| {
        let change = json!({"/status": {
            "sync": {"status": "Synced", "revision": "2"}, "health": {"status": health},
            "operationState": {"phase": "Succeeded", "finishedAt": ended},
        }});
        let (id, live) = saying(Kind::Application, &change);
        let news = heard(&mut seen, id.clone(), Heard::of(HOME, id.kind, &live));
        (news, seen.children[&id].rolls)
    };
    let rolls = clock::parse_rfc3339(ended);
    assert!(rolls.is_some());
    assert_eq!(told("Progressing"), (true, rolls));
    assert_eq!(told("Progressing"), (false, rolls));
    assert_eq!(told("Healthy"), (true, None));
}

/// One that is resumed may say nothing but that it is at work.
#[test]
fn what_is_at_work_is_suspended_no_more() {
    let kind = Kind::Kustomization;
    let mut seen = Observed::default();
    let mut told = |change: &Value| {
        let (id, live) = saying(kind, change);
        heard(&mut seen, id.clone(), Heard::of(HOME, kind, &live));
        seen.children[&id].suspended
    };
    let suspended = json!({"/spec": {"interval": "1m0s", "suspend": true}});
    assert!(told(&suspended));
    assert!(!told(&ready("Unknown")));
}

/// F40: a try may take hours, and an agent may begin in the midst of it. How the one before it ended stands, as for one that has heard it.
#[test]
fn what_a_kustomization_at_work_failed_with_before_is_known_from_the_first() {
    let kind = Kind::Kustomization;
    let one = |minute: u8, ended: &str| {
        let at = format!("2027-01-15T08:{minute:02}:00Z");
        json!({"lastReconciled": at, "lastReconciledStatus": ended})
    };
    let well = |minute| one(minute, "ReconciliationSucceeded");
    let text = "so its last try ended, at 2027-01-15T08:10:00.000Z; another one is under way";
    let failed = |reason: &str| Some((reason.to_owned(), text.to_owned()));
    for (history, ready, trouble) in [
        (
            json!([well(0), one(10, "HealthCheckFailed")]),
            "Unknown",
            failed("HealthCheckFailed"),
        ),
        (
            json!([one(10, "ReconciliationFailed"), well(0)]),
            "Unknown",
            failed("ReconciliationFailed"),
        ),
        (
            json!([well(10), one(0, "HealthCheckFailed")]),
            "Unknown",
            None,
        ),
        (json!([one(10, "HealthCheckFailed")]), "True", None),
        (json!([]), "Unknown", None),
    ] {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let status = json!({"/status": {"conditions": conditions, "history": history}});
        let (id, live) = saying(kind, &status);
        let mut seen = Observed::default();
        heard(&mut seen, id.clone(), Heard::of(HOME, kind, &live));
        assert_eq!(seen.children[&id].trouble, trouble, "{history} {ready}");
    }
}
