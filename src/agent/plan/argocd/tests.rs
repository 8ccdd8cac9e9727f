use serde_json::json;

use super::*;
use crate::agent::plan::{History, project};
use crate::bundle::Kind;
use crate::clock::rfc3339;

mod children;
mod clocks;
mod tries;

fn application(spec: &Value, annotations: &Value, status: &Value) -> Object {
    let live = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "linesman", "namespace": "argocd", "annotations": annotations},
        "spec": spec, "status": status,
    });
    project::object(Kind::Application, serde_json::from_value(live).unwrap())
}

fn says(status: &Value) -> Object {
    application(&json!({}), &json!({}), status)
}

fn at(text: &str) -> OffsetDateTime {
    parse_rfc3339(text).unwrap()
}

#[test]
fn a_probe_is_answered_when_the_annotation_is_gone_and_the_status_is_as_young() {
    for (asked, refresh, reconciled, answered) in [
        (
            "2030-01-01T00:00:10.500Z",
            None,
            "2030-01-01T00:00:10Z",
            true,
        ),
        (
            "2030-01-01T00:00:10.500Z",
            None,
            "2030-01-01T00:00:12Z",
            true,
        ),
        (
            "2030-01-01T00:00:10.500Z",
            None,
            "2030-01-01T00:00:09Z",
            false,
        ),
        (
            "2030-01-01T00:00:10.500Z",
            Some("normal"),
            "2030-01-01T00:00:12Z",
            false,
        ),
    ] {
        let mut annotations = json!({PROBED_AT: asked});
        if let Some(refresh) = refresh {
            annotations[REFRESH] = json!(refresh);
        }
        let live = application(
            &json!({}),
            &annotations,
            &json!({"reconciledAt": reconciled}),
        );
        let probe = live.probe().unwrap();
        assert_eq!(
            (probe.sent, probe.answered),
            (at(asked), answered),
            "{reconciled} {refresh:?}"
        );
    }
}

#[test]
fn a_controller_that_should_have_looked_by_itself_is_stale() {
    let live = says(&json!({"reconciledAt": "2030-01-01T00:00:00Z"}));
    assert!(!is_stale(&live, at("2030-01-01T00:02:20Z")));
    assert!(is_stale(&live, at("2030-01-01T00:02:21Z")));
    assert!(!is_stale(&says(&json!({})), at("2030-01-01T00:02:21Z")));
}

#[test]
fn the_revision_is_that_of_the_last_success() {
    let done =
        |phase: &str, revision: &str| json!({"phase": phase, "syncResult": {"revision": revision}});
    for (sync, head, operation, expected, was_tried) in [
        ("Synced", "b", done("Succeeded", "a"), Some("b"), true),
        ("Synced", "b", json!({}), Some("b"), true),
        ("OutOfSync", "b", done("Succeeded", "b"), Some("b"), true),
        ("OutOfSync", "b", done("Succeeded", "a"), Some("a"), false),
        ("OutOfSync", "b", done("Running", "b"), None, true),
        ("OutOfSync", "b", done("Failed", "b"), None, false),
        ("Unknown", "", done("Succeeded", "a"), Some("a"), false),
        ("", "", json!({}), None, false),
    ] {
        let status =
            json!({"sync": {"status": sync, "revision": head}, "operationState": operation});
        let live = says(&status);
        assert_eq!(
            (revision(&live), tried(&live)),
            (expected, was_tried),
            "{status}"
        );
    }
}

/// How an Application with these conditions is called.
fn called(conditions: &Value) -> Option<Class> {
    let live = says(&json!({"conditions": conditions}));
    let found: Vec<Class> = faults(&live).map(|(class, _)| class).collect();
    found.first().copied()
}

/// F25, F26, F27, F52: as what it fetches with says it.
#[test]
fn each_word_of_a_fetch_has_its_class() {
    for (text, expected) in [
        (
            "ssh: handshake failed: knownhosts: key is unknown",
            Class::HostKeyMismatch,
        ),
        (
            "ssh: handshake failed: knownhosts: key mismatch",
            Class::HostKeyMismatch,
        ),
        (
            "ssh: unable to authenticate, attempted methods [none publickey]",
            Class::KeyRevoked,
        ),
        (
            "failed to list refs: ssh: handshake failed: ssh: disconnect, reason 2: Too many authentication failures",
            Class::KeyRevoked,
        ),
        // As `git` and OpenSSH say it, by which it fetches.
        (
            "Failed to fetch default: `git fetch origin --tags --force` failed exit status 128: git@git.test: Permission denied (publickey).",
            Class::KeyRevoked,
        ),
        (
            "Failed to fetch default: fatal: index.lock: Permission denied",
            Class::GitUnreachable,
        ),
        (
            "Failed to fetch default: Host key verification failed.",
            Class::HostKeyMismatch,
        ),
        (
            "Failed to fetch default: fatal: write error: No space left on device",
            Class::ArtifactLost,
        ),
        // A host with too much to do hangs up, and has refused nothing.
        (
            "failed to list refs: ssh: handshake failed: EOF",
            Class::GitUnreachable,
        ),
    ] {
        let conditions = json!([{"type": "ComparisonError", "message": text}]);
        assert_eq!(called(&conditions), Some(expected), "{text}");
    }
}

/// F26, F27, F30, F32, F38, F39, F42, F55
#[test]
fn each_condition_has_its_class() {
    let comparison = |text: &str| json!([{"type": "ComparisonError", "message": text}]);
    for (conditions, expected) in [
        (
            comparison("rpc error: code = Unknown desc = clusters/x: app path does not exist"),
            Some(Class::PathMissing),
        ),
        (
            comparison("failed to list refs: dial tcp 10.0.0.1:22: connect: connection refused"),
            Some(Class::GitUnreachable),
        ),
        (
            comparison(
                "rpc error: code = Unavailable desc = connection error: dial tcp 10.0.0.1:8081",
            ),
            Some(Class::ArtifactUnreachable),
        ),
        (
            comparison("dial tcp 10.96.3.4:6379: i/o timeout"),
            Some(Class::RedisDown),
        ),
        (
            comparison("Target revision abc in Git is not signed, but a signature is required"),
            Some(Class::SignatureFailed),
        ),
        (
            comparison("error unmarshaling YAML in x.yaml"),
            Some(Class::BuildFailed),
        ),
        (
            json!([{"type": "InvalidSpecError", "message": "server.secretkey is missing"}]),
            Some(Class::EngineSecretMissing),
        ),
        (
            json!([{"type": "SyncError", "message": "one or more objects failed to apply"}]),
            Some(Class::ApplyFailed),
        ),
        (
            json!([{"type": "SharedResourceWarning", "message": "x"}]),
            None,
        ),
        (json!([]), None),
    ] {
        assert_eq!(called(&conditions), expected, "{conditions}");
    }
}

/// F30, W43: as it says it of the head, as an operation repeats it, and as what comes of that does.
#[test]
fn a_refused_signature_is_called_that_however_it_is_said() {
    for text in [
        "Target revision abc in Git is not signed, but a signature is required",
        "Found good signature made with RSA key 0123456789ABCDEF, but this key is not allowed in AppProject",
        "Found signature made with EDDSA key 0123456789ABCDEF, but verification result was invalid: 'gpg: Can't check signature: No public key'",
        "Could not verify commit signature on revision 'abc', check logs for more information.",
        "GIT/GPG: Failed verifying revision abc by 'Ada <ada@example.org>': unsigned (key_id=)",
    ] {
        let sync = json!({"status": "OutOfSync", "revision": "abc"});
        let tried = format!("ComparisonError: {text}");
        let conditions = json!([{"type": "ComparisonError", "message": text}]);
        let live = says(&json!({"sync": sync, "conditions": conditions}));
        let commit = if text.contains("abc") {
            ""
        } else {
            "; commit abc"
        };
        let found: Vec<(Class, String)> = faults(&live).collect();
        let said = format!("{tried}{commit}");
        assert_eq!(found, [(Class::SignatureFailed, said)]);

        let ended = json!({"phase": "Error", "message": tried});
        let live = says(&json!({"sync": sync, "operationState": ended}));
        let found: Vec<Class> = faults(&live).map(|(class, _)| class).collect();
        assert_eq!(found, [Class::SignatureFailed], "{text}");
        let waits = json!({
            "phase": "Running", "finishedAt": "2030-01-01T00:00:00Z",
            "message": format!("{tried}. Retrying attempt #1 at 3:04PM."),
        });
        let live = says(&json!({"sync": sync, "operationState": waits}));
        let class = retried(&live).map(|(class, _)| class);
        assert_eq!(class, Some(Class::SignatureFailed), "{text}");
        let given_up = format!("Failed last sync attempt to abc: {tried}");
        let conditions = json!([{"type": "SyncError", "message": given_up}]);
        assert_eq!(called(&conditions), Some(Class::SignatureFailed), "{text}");
    }
}

/// F54: an operation that tries an old commit again is of no use any more.
#[test]
fn an_operation_that_cannot_be_of_use_is_stuck() {
    let now = at("2030-01-01T01:00:00Z");
    let running = |started: &str, tries: u8, revision: &str| {
        json!({
            "sync": {"status": "OutOfSync", "revision": "new"},
            "operationState": {
                "phase": "Running", "startedAt": started, "retryCount": tries,
                "operation": {"sync": {"revision": revision}},
            },
        })
    };
    // The catalog cannot be read: the name of the branch is no newer commit.
    let mut unread = running("2030-01-01T00:59:50Z", 2, "old");
    unread["sync"] = json!({"status": "Unknown", "revision": "main"});
    // It goes on naming the commit that it began with.
    let refreshes = |refresh: bool| {
        let mut status = running("2030-01-01T00:59:50Z", 8, "old");
        status["operationState"]["operation"]["retry"] = json!({"limit": -1, "refresh": refresh});
        status
    };
    let applies = |revision: &str| {
        let mut status = running("2030-01-01T00:59:50Z", 8, "old");
        status["operationState"]["syncResult"] = json!({"revision": revision});
        status
    };
    for (status, is_stuck) in [
        (running("2030-01-01T00:59:50Z", 2, "old"), true),
        (running("2030-01-01T00:59:50Z", 2, "new"), false),
        (running("2030-01-01T00:59:50Z", 0, "old"), false),
        (unread, false),
        (refreshes(true), false),
        (refreshes(false), true),
        (applies("new"), false),
        (applies("old"), true),
        // How far it had come before nobody has seen.
        (running("2030-01-01T00:49:59Z", 0, "new"), false),
        (
            json!({"operationState": {"phase": "Succeeded", "startedAt": "2020-01-01T00:00:00Z"}}),
            false,
        ),
    ] {
        let said = stuck(&says(&status), now, &History::default());
        assert_eq!(said.is_some(), is_stuck, "{status}");
    }
}

/// F54: waves and long rollouts take more than ten minutes, and show that they get on.
#[test]
fn an_operation_is_stuck_ten_minutes_after_it_last_got_on() {
    let install = crate::agent::plan::tests::install_of(EngineKind::Argocd);
    let root = |message: &str, health: &str, phase: &str| {
        let live = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "linesman", "namespace": "argocd"},
            "status": {
                "operationState": {
                    "phase": phase, "startedAt": "2030-01-01T00:00:00Z", "message": message,
                    "syncResult": {"resources": [{"name": "a", "status": "Synced"}]},
                },
                "resources": [{"kind": "Deployment", "name": "a", "health": {"status": health}}],
            },
        });
        let live = serde_json::from_value(live).unwrap();
        project::object(Kind::Application, live)
    };
    let mut history = History::default();
    let mut see = |at: OffsetDateTime, live: Object| {
        let observed = Observed {
            objects: [(install.sync.clone(), std::sync::Arc::new(live.clone()))].into(),
            ..Observed::default()
        };
        history.noted(at, &install, &observed);
        stuck(&live, at, &history)
    };
    let minute = |n: i64| at("2030-01-01T00:00:00Z") + Duration::minutes(n);
    let waits = "waiting for healthy state of apps/Deployment/a";
    for (at, message, health, phase, is_stuck) in [
        (9, "", "Progressing", "Running", false),
        (18, waits, "Progressing", "Running", false),
        (27, waits, "Healthy", "Running", false),
        (37, waits, "Healthy", "Running", false),
        (38, waits, "Healthy", "Running", true),
        (39, waits, "Healthy", "Terminating", false),
        (40, waits, "Healthy", "Running", false),
    ] {
        let said = see(minute(at), root(message, health, phase));
        let text = format!(
            "an operation runs since 2030-01-01T00:00:00Z, and has not got on since {}: {waits}",
            rfc3339(minute(27))
        );
        assert_eq!(said, is_stuck.then_some(text), "{at}");
    }
}

/// F29: each way in which people stop an Application.
#[test]
fn a_stopped_application_is_told_from_one_at_work() {
    let spec = |automated: Value, revision: &str| json!({"syncPolicy": {"automated": automated}, "source": {"targetRevision": revision}});
    let on = json!({"prune": true, "selfHeal": true});
    let commit = "0123456789abcdef0123456789abcdef01234567";
    for (spec, annotations, stopped) in [
        (spec(on.clone(), "main"), json!({}), false),
        (spec(on.clone(), "main"), json!({SKIP: "true"}), true),
        (spec(on.clone(), commit), json!({}), true),
        // Branches by names that look like a part of one.
        (spec(on.clone(), "cafe"), json!({}), false),
        (spec(on.clone(), &"x".repeat(40)), json!({}), false),
        (spec(json!({"enabled": false}), "main"), json!({}), true),
        (
            json!({"source": {"targetRevision": "main"}}),
            json!({}),
            true,
        ),
    ] {
        let live = application(&spec, &annotations, &json!({}));
        assert_eq!(suspended(&live).is_some(), stopped, "{spec}");
    }
}

/// F53: so it is for a moment each time that Argo CD starts.
#[test]
fn a_root_of_which_nothing_is_known_tells_of_unread_settings_after_some_seconds() {
    let asked = "2030-01-01T00:00:10Z";
    let status = json!({
        "reconciledAt": asked, "sync": {"status": "Unknown"}, "health": {"status": "Unknown"},
    });
    let live = application(&json!({}), &json!({PROBED_AT: asked}), &status);
    let told = |after: Duration| unread_settings(&live, at(asked) + after).is_some();
    let later = STARTS + Duration::MILLISECOND;
    assert_eq!([STARTS, later].map(told), [false, true]);
}

/// Its times are in whole seconds: a look in the second of the question may have begun before it.
#[test]
fn a_question_that_waits_has_an_answer_in_a_look_of_a_later_second() {
    let sent = at("2030-01-01T00:00:10Z");
    for (reconciled, now, expected) in [
        ("2030-01-01T00:00:10Z", "2030-01-01T00:00:12Z", false),
        ("2030-01-01T00:00:11Z", "2030-01-01T00:00:12Z", true),
        // It should have looked again by itself.
        ("2030-01-01T00:00:11Z", "2030-01-01T00:02:32Z", false),
    ] {
        let live = says(&json!({"reconciledAt": reconciled}));
        let probe = Probe {
            sent,
            answered: false,
        };
        let looked = has_looked(&live, probe, at(now));
        assert_eq!(looked, expected, "{reconciled} {now}");
    }
}

/// F29: what else differs of an Application that somebody stopped is not his doing.
#[test]
fn what_stops_an_application_is_told_from_what_else_differs() {
    for (path, expected) in [
        ("/spec/syncPolicy/automated", true),
        ("/spec/syncPolicy/automated/enabled", true),
        ("/spec/source/targetRevision", true),
        ("/spec/source/repoURL", false),
        ("/spec/source/path", false),
        ("/spec/syncPolicy/syncOptions", false),
    ] {
        assert_eq!(is_stop(path), expected, "{path}");
    }
}
