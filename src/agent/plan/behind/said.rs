//! Whether a sync object is done with what it is told to be, by its own words; what failed says so elsewhere.

use kube::core::DynamicObject;
use serde_json::Value;

use crate::agent::engine::argocd::SKIP;
use crate::agent::plan::{argocd, burst};
use crate::bundle::Kind;

/// Of a commit's name no more is kept.
const MAX_NAME: usize = 500;

/// Whether it has not come to an end with what it is told to be now.
pub fn is_pending(kind: Kind, live: &DynamicObject) -> bool {
    match kind {
        // While it is at work, its revision is the one before.
        Kind::Kustomization => is_older(live),
        // Its chart may be another one although its spec is the same.
        Kind::HelmRelease => is_older(live) || !is_decided(live),
        Kind::Application => argocd::is_pending(&live.data),
        _ => false,
    }
}

/// The commit that an Application was compared with last, or one of each source, with commas; empty = none. And whether it looks at no
/// other: it is told to stand still, or is where it is pinned to.
pub fn compared(live: &DynamicObject) -> (String, bool) {
    let status = live.data.get("status").unwrap_or(&Value::Null);
    let commit = if argocd::is_compared(status) {
        argocd::revisions_at(status, "/sync")
    } else {
        String::new()
    };
    let annotations = live.metadata.annotations.as_ref();
    let skips = annotations
        .and_then(|all| all.get(SKIP))
        .map(String::as_str)
        == Some("true");
    let target = live.data.pointer("/spec/source/targetRevision");
    let pinned = target
        .and_then(Value::as_str)
        .is_some_and(argocd::is_commit);
    let stands = skips || pinned && !commit.is_empty();
    (commit.chars().take(MAX_NAME).collect(), stands)
}

/// Whether what it says is of a spec of before. Flux gives a new object a generation before the first.
fn is_older(live: &DynamicObject) -> bool {
    let generation = live.metadata.generation.unwrap_or_default();
    let whole = live.data.pointer("/status/observedGeneration");
    let of_ready = burst::ready(&live.data).and_then(|ready| ready.get("observedGeneration"));
    let mut known = whole.into_iter().chain(of_ready).filter_map(Value::as_i64);
    known.any(|seen| seen < generation)
}

/// Whether it says that it is ready, or that it is not.
fn is_decided(live: &DynamicObject) -> bool {
    let ready = burst::ready(&live.data).and_then(|ready| ready.get("status")?.as_str());
    matches!(ready, Some("True" | "False"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One of the second generation.
    fn live(kind: Kind, spec: &Value, status: &Value) -> DynamicObject {
        let live = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": "shop", "namespace": "apps", "generation": 2},
            "spec": spec, "status": status,
        });
        serde_json::from_value(live).unwrap()
    }

    #[test]
    fn an_object_of_flux_is_pending_until_it_says_what_came_of_its_generation() {
        let said = |seen: i64, ready: &str, of: i64| {
            let ready = json!({"type": "Ready", "status": ready, "observedGeneration": of});
            json!({"observedGeneration": seen, "conditions": [ready]})
        };
        let old = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        for (what, status, release, kustomization) in [
            ("it is new", json!({"observedGeneration": -1}), true, true),
            ("nothing yet", json!({}), true, false),
            ("not seen", said(1, "True", 1), true, true),
            ("its test runs", said(1, "True", 2), true, true),
            ("it is at work", said(1, "Unknown", 2), true, true),
            ("it is at work again", said(2, "Unknown", 2), true, false),
            ("it is done", said(2, "True", 2), false, false),
            ("it failed", said(2, "False", 2), false, false),
            ("it names no generation", old, false, false),
        ] {
            let all = [Kind::HelmRelease, Kind::Kustomization, Kind::GitRepository];
            let found = all.map(|kind| is_pending(kind, &live(kind, &json!({}), &status)));
            assert_eq!(found, [release, kustomization, false], "{what}");
        }
    }

    #[test]
    fn an_application_is_pending_while_it_is_at_work_or_has_another_source() {
        let source = |path: &str| json!({"repoURL": "ssh://git/a", "path": path});
        let full = json!({
            "repoURL": "ssh://git/a", "path": "web", "chart": "", "directory": {"recurse": false},
        });
        let spec = |path: &str| json!({"source": source(path)});
        let two = json!({"sources": [source("web"), source("x")], "source": source("y")});
        let seen = |sync: &str, to: Value| json!({"sync": {"status": sync, "comparedTo": to}});
        let at_web = |sync: &str| seen(sync, spec("web"));
        let runs = |sync: &str| {
            let mut status = at_web(sync);
            status["operationState"] = json!({"phase": "Running"});
            status
        };
        let both = json!({"source": {"repoURL": ""}, "sources": [source("web"), source("x")]});
        let one = json!({"source": {"repoURL": ""}, "sources": [source("web")]});
        for (what, spec, status, expected) in [
            ("it was not looked at", spec("web"), json!({}), false),
            ("it is done", spec("web"), at_web("Synced"), false),
            (
                "nothing is to be done",
                spec("web"),
                at_web("OutOfSync"),
                false,
            ),
            ("it is at work", spec("web"), runs("OutOfSync"), true),
            ("its hooks run", spec("web"), runs("Synced"), false),
            ("another source", spec("b"), at_web("Synced"), true),
            (
                "what is empty",
                json!({"source": full}),
                at_web("Synced"),
                false,
            ),
            ("sources", two.clone(), seen("Synced", both), false),
            ("one more source", two, seen("Synced", one), true),
            ("it is hydrated", json!({}), at_web("Synced"), false),
        ] {
            let app = live(Kind::Application, &spec, &status);
            assert_eq!(is_pending(Kind::Application, &app), expected, "{what}");
        }
        let mut asked = live(Kind::Application, &spec("web"), &at_web("OutOfSync"));
        asked.data["operation"] = json!({"sync": {"revision": "2"}});
        assert!(is_pending(Kind::Application, &asked), "it will begin");
    }

    #[test]
    fn an_application_tells_what_it_was_compared_with_and_whether_it_looks_at_more() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let at = |target: &str| json!({"source": {"targetRevision": target}});
        let seen = |status: &str| json!({"sync": {"status": status, "revision": commit}});
        let several = json!({"sync": {"status": "Synced", "revisions": ["1.2.3", commit]}});
        let both = format!("1.2.3,{commit}");
        for (spec, status, expected) in [
            (at("main"), seen("Synced"), (commit, false)),
            (at("main"), seen("OutOfSync"), (commit, false)),
            (at("main"), seen("Unknown"), ("", false)),
            (at("main"), json!({}), ("", false)),
            (at(commit), seen("Synced"), (commit, true)),
            (at(commit), json!({}), ("", false)),
            (json!({"sources": []}), several, (both.as_str(), false)),
        ] {
            let mut app = live(Kind::Application, &spec, &status);
            let (tried, stands) = expected;
            assert_eq!(
                compared(&app),
                (tried.to_owned(), stands),
                "{spec} {status}"
            );
            app.metadata.annotations = Some([(SKIP.to_owned(), "true".to_owned())].into());
            assert_eq!(compared(&app), (tried.to_owned(), true), "{spec} {status}");
        }
    }
}
