//! How long a worker may be with an object, by what that says of itself.

use super::*;

#[test]
fn a_turn_ends_with_its_timeouts() {
    let second = Duration::SECOND;
    for (ready, spec, long) in [
        (
            "Unknown",
            json!({"interval": "10m", "timeout": "3m"}),
            Some(second * 390),
        ),
        // The interval without half a minute.
        ("Unknown", json!({"interval": "10m"}), Some(second * 1170)),
        (
            "Unknown",
            json!({"interval": "1m", "timeout": "5s"}),
            Some(second * 90),
        ),
        (
            "Unknown",
            json!({"interval": "1m", "timeout": "24h"}),
            Some(LONGEST),
        ),
        ("Unknown", json!({"interval": "soon"}), None),
        ("Unknown", json!({}), None),
        ("True", json!({"interval": "10m"}), None),
        ("False", json!({"interval": "10m"}), None),
    ] {
        let turn = Turn::of(Kind::Kustomization, &kustomization(ready, &spec));
        let expected = long.map(|long| Turn {
            began: start(),
            ends: start() + long,
        });
        assert_eq!(turn, expected, "{ready} {spec}");
        let source = Turn::of(Kind::GitRepository, &kustomization(ready, &spec));
        assert_eq!(source, None, "it has none");
    }
}

#[test]
fn a_release_has_its_turn_until_upgrade_test_and_rollback_have_had_their_time() {
    let minute = Duration::MINUTE;
    let second = Duration::SECOND;
    for (ready, spec, long) in [
        ("Unknown", json!({}), Some(minute * 15)),
        ("Unknown", json!({"timeout": "1m"}), Some(minute * 3)),
        (
            "Unknown",
            json!({
                "timeout": "1m", "install": {"timeout": "2m"}, "upgrade": {"timeout": "10m"},
                "test": {"timeout": "5s"}, "uninstall": {"timeout": "3m"},
            }),
            Some(minute * 13 + second * 30),
        ),
        ("Unknown", json!({"timeout": "24h"}), Some(LONGEST - LEAST)),
        ("True", json!({}), None),
        ("False", json!({}), None),
    ] {
        let turn = Turn::of(Kind::HelmRelease, &kustomization(ready, &spec));
        let expected = long.map(|long| Turn {
            began: start(),
            ends: start() + long + LEAST,
        });
        assert_eq!(turn, expected, "{ready} {spec}");
    }
}

/// A release that is ready or not, and what helm-controller says that it does with it since a minute later.
fn release(ready: &str, does: &str, spec: &Value) -> DynamicObject {
    let mut live = kustomization(ready, spec);
    let at = rfc3339(start() + MINUTE);
    live.data["status"]["conditions"][0] = json!({
        "type": "Reconciling", "status": "True", "reason": "Progressing", "message": does,
        "lastTransitionTime": at,
    });
    live
}

/// The same object, which goes since two minutes after the start.
fn going(mut live: DynamicObject, finalizers: &[&str]) -> DynamicObject {
    let mut meta = serde_json::to_value(&live.metadata).unwrap();
    meta["deletionTimestamp"] = json!(rfc3339(start() + MINUTE * 2));
    meta["finalizers"] = json!(finalizers);
    live.metadata = serde_json::from_value(meta).unwrap();
    live
}

/// W12: helm-controller marks a release as not ready before it undoes it, and says nothing at all while it uninstalls one that goes.
#[test]
fn a_release_that_is_undone_or_goes_has_its_turn() {
    let running = |action: &str| format!("Running '{action}' action with timeout of 5m0s");
    let [upgrade, test, rollback] = ["upgrade", "test", "rollback"].map(running);
    let none = json!({});
    let stopped = json!({"suspend": true});
    let ours = ["finalizers.fluxcd.io"];
    let waits = "Fulfilling prerequisites";
    let lasting = |after: Duration, long: Duration| {
        let began = start() + after;
        let ends = began + long;
        Some(Turn { began, ends })
    };
    let action = lasting(MINUTE, MINUTE * 15 + LEAST);
    let end = lasting(MINUTE * 2, LONGEST);
    for (what, live, expected) in [
        ("upgraded", release("Unknown", &upgrade, &none), action),
        ("tested", release("True", &test, &none), action),
        ("undone", release("False", &rollback, &none), action),
        ("waits", release("False", waits, &none), None),
        ("goes", going(release("True", "", &none), &ours), end),
        (
            "fails to",
            going(release("False", &rollback, &none), &ours),
            end,
        ),
        (
            "goes by itself",
            going(release("True", "", &none), &["example.org/mine"]),
            None,
        ),
        (
            "is let go",
            going(release("True", "", &stopped), &ours),
            None,
        ),
    ] {
        assert_eq!(Turn::of(Kind::HelmRelease, &live), expected, "{what}");
    }
}

/// W12: kustomize-controller says nothing while it waits for the end of what it brought (its `finalize`).
#[test]
fn a_kustomization_that_waits_for_the_end_of_what_it_brought_has_its_turn() {
    let spec = |policy: &str, suspend: bool| {
        json!({
            "interval": "10m", "timeout": "3m", "deletionPolicy": policy, "suspend": suspend,
        })
    };
    let began = start() + MINUTE * 2;
    let ends = began + Duration::seconds(390);
    let turn = Some(Turn { began, ends });
    let ours = ["finalizers.fluxcd.io"];
    for (policy, suspend, finalizers, expected) in [
        ("WaitForTermination", false, &ours[..], turn),
        ("WaitForTermination", true, &ours, None),
        ("WaitForTermination", false, &[], None),
        ("MirrorPrune", false, &ours, None),
        ("Delete", false, &ours, None),
    ] {
        let live = going(kustomization("True", &spec(policy, suspend)), finalizers);
        let seen = Turn::of(Kind::Kustomization, &live);
        assert_eq!(seen, expected, "{policy} {suspend} {finalizers:?}");
    }
}
