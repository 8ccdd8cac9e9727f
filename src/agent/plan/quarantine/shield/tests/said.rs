//! What is read of an Application, and written to an object.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::{HOLDS, MAX_EXTRA, Owner, TRACKING, options, owner};
use super::{Cluster, application, holds, owned, rfc3339, server};
use crate::agent::engine::argocd::ROOT;
use crate::bundle::{Kind, ObjectId};

/// A commit's operation has no result yet when the first of its objects are applied.
#[test]
fn the_commit_that_is_being_applied_is_known() {
    let of = |status: Value| {
        let said = Owner::of("argocd", None, &Value::Null, &status);
        (said.tried, said.seen)
    };
    let texts = |tried: &str, seen: &str| (tried.to_owned(), seen.to_owned());
    let sync = |status: &str, revision: &str| json!({"status": status, "revision": revision});
    let begun = json!({"phase": "Running", "operation": {"sync": {"revision": "3"}}});
    let done = json!({
        "phase": "Succeeded", "operation": {"sync": {"revision": "3"}}, "syncResult": {"revision": "2"},
    });
    let after_another = json!({
        "phase": "Running", "operation": {"sync": {"revision": "3"}}, "syncResult": {"revision": "2"},
    });
    assert_eq!(
        [
            of(json!({"sync": sync("OutOfSync", "3"), "operationState": after_another})),
            of(json!({"sync": sync("OutOfSync", "4"), "operationState": begun})),
            of(json!({"sync": sync("Unknown", "main"), "operationState": begun})),
            of(json!({"sync": sync("Synced", "4"), "operationState": done})),
            of(json!({"sync": sync("Synced", "4")})),
            of(json!({"sync": sync("Unknown", "main")})),
            of(json!({"sync": {"revision": "main"}})),
        ],
        [
            texts("3", "3"),
            texts("3", "4"),
            texts("3", ""),
            texts("2", "4"),
            texts("4", "4"),
            texts("", ""),
            texts("", ""),
        ]
    );
}

/// W17: an operation applies all of the sources. Of the root, which has one, nothing is read in another place.
#[test]
fn of_an_application_with_several_sources_all_revisions_are_one() {
    let looked = |a: &str, b: &str| json!({"status": "OutOfSync", "revisions": [a, b]});
    let (now, next) = (looked("1", "2"), looked("1", "3"));
    let unknown = json!({"status": "Unknown", "revisions": ["1", "2"]});
    let revisions = json!({"revisions": ["1", "2"]});
    let runs = json!({"phase": "Running", "operation": {"sync": revisions}});
    let ended = json!({"phase": "Succeeded", "syncResult": revisions});
    let both = "1,2";
    for (sync, operation, tried, seen, behind, rests) in [
        (&now, &runs, both, both, false, false),
        (&next, &runs, both, "1,3", true, false),
        (&now, &ended, both, both, false, true),
        (&next, &ended, both, "1,3", false, false),
        (&unknown, &ended, both, "", false, false),
        (&looked("", ""), &Value::Null, "", "", false, false),
    ] {
        let status = json!({"sync": sync, "operationState": operation});
        let said = Owner::of("argocd", None, &Value::Null, &status);
        let texts = (said.tried.as_str(), said.seen.as_str());
        assert_eq!(texts, (tried, seen), "{status}");
        assert_eq!((said.behind, said.rests), (behind, rests), "{status}");
    }
    let mut cluster = owned("linesman");
    let root = cluster.objects.get_mut(&application("linesman")).unwrap();
    root.fields["status"]["sync"] = now;
    let said = Owner::of_root("argocd", root);
    assert_eq!((said.tried.as_str(), said.seen.as_str()), ("1", ""));
}

#[test]
fn options_of_an_object_are_kept_beside_ours() {
    for (live, kept, expected) in [
        (None, true, Some("Prune=false")),
        (Some("Replace=true"), true, Some("Replace=true,Prune=false")),
        (
            Some("Prune=false, Replace=true"),
            true,
            Some("Replace=true,Prune=false"),
        ),
        (
            Some("Replace=true,Prune=false"),
            false,
            Some("Replace=true"),
        ),
        (Some("Prune=false"), false, None),
        (None, false, None),
    ] {
        assert_eq!(options(live, kept).as_deref(), expected, "{live:?}");
    }
}

/// W46: what others wrote in the annotation is no hold, and stops nothing.
#[test]
fn junk_in_an_applications_annotation_is_no_hold() {
    for junk in [
        "",
        "[]",
        "{\"held\":[{}]}",
        "{\"held\":[],\"former\":7}",
        "nonsense",
    ] {
        let said = Owner::of("argocd", Some(junk), &Value::Null, &json!({"resources": 7}));
        let nothing = Owner {
            in_force: true,
            ..Owner::default()
        };
        assert_eq!(said, nothing, "{junk}");
    }
}

/// What an Application says that holds a Deployment back.
fn record(cluster: &Cluster, id: &ObjectId) -> String {
    let record = json!({
        "held": [{
            "group": "apps", "kind": "Deployment", "namespace": "argocd", "name": id.name,
            "revision": "1", "since": rfc3339(cluster.now), "reason": "r", "attempt": 1,
        }],
        "former": {"ignoreDifferences": null, "syncOptions": null},
    });
    record.to_string()
}

/// Whoever may write an Application would hold the controllers at what they were.
#[test]
fn what_an_application_says_of_an_object_that_another_one_brings_is_no_hold() {
    let mut cluster = owned("engine");
    let id = server();
    let record = record(&cluster, &id);
    for (by, held) in [("tenant", false), ("engine", true)] {
        let mut forged = cluster.applications[&application("engine")].clone();
        forged["metadata"]["name"] = json!(by);
        forged["metadata"]["annotations"] = json!({HOLDS: record});
        let before = cluster.applications.insert(application(by), forged);
        let holds = holds(&cluster.install, &cluster.observed());
        assert_eq!(holds.contains_key(&id), held, "{by}");
        match before {
            Some(before) => drop(cluster.applications.insert(application(by), before)),
            None => drop(cluster.applications.remove(&application(by))),
        }
    }
}

/// Teams have Applications in their own namespaces; and what is there says itself who brings it.
#[test]
fn of_an_object_that_nobody_is_known_to_bring_only_what_is_gone_is_held_and_beside_the_engine() {
    let id = server();
    for (space, gone, held) in [
        ("argocd", true, true),
        ("argocd", false, false),
        ("team", true, false),
        ("team", false, false),
    ] {
        let mut cluster = owned("engine");
        let mut forged = cluster.applications[&application("engine")].clone();
        forged["metadata"]["name"] = json!("tenant");
        forged["metadata"]["namespace"] = json!(space);
        forged["metadata"]["annotations"] = json!({HOLDS: record(&cluster, &id)});
        let by = ObjectId::new(Kind::Application, space, "tenant");
        cluster.applications.insert(by, forged);
        if gone {
            cluster.objects.remove(&id);
        } else {
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["metadata"]["annotations"] = json!({});
        }
        let holds = holds(&cluster.install, &cluster.observed());
        assert_eq!(holds.contains_key(&id), held, "{space} {gone}");
    }
}

/// W18: what was compared before the operation ended is of the commit before.
#[test]
fn an_application_rests_once_it_was_looked_at_after_its_operation() {
    let (before, ended, after) = (
        "2026-01-02T03:04:04Z",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:06Z",
    );
    for (phase, looked, done, rests) in [
        ("Succeeded", before, "2", false),
        ("Succeeded", ended, "2", true),
        ("Succeeded", after, "2", true),
        ("Succeeded", before, "1", true),
        ("Running", after, "1", false),
    ] {
        let status = json!({
            "sync": {"status": "Synced", "revision": "1"}, "reconciledAt": looked,
            "operationState": {"phase": phase, "finishedAt": ended, "syncResult": {"revision": done}},
        });
        let said = Owner::of("argocd", None, &Value::Null, &status);
        assert_eq!(said.rests, rests, "{phase} {looked} {done}");
    }
}

#[test]
fn the_application_that_brings_an_object_is_named_by_its_annotation() {
    let cluster = owned("engine");
    let mut live = cluster.objects[&server()].clone();
    for (tracked, expected) in [
        (
            "engine:apps/Deployment:argocd/x",
            Some(application("engine")),
        ),
        (
            "team_engine:apps/Deployment:argocd/x",
            Some(ObjectId::new(Kind::Application, "team", "engine")),
        ),
        ("", None),
        (":x", None),
    ] {
        live.fields["metadata"]["annotations"][TRACKING] = json!(tracked);
        assert_eq!(owner("argocd", &live.fields), expected, "{tracked}");
    }
}

/// W19: all else that it would prune is nothing to the engine.
#[test]
fn of_what_an_application_would_prune_the_engines_own_kinds_and_the_root_are_read() {
    for (kind, namespace, name, read) in [
        (Kind::Deployment, "argocd", "x", true),
        (Kind::Deployment, "shop", "x", false),
        (Kind::ClusterRole, "", "x", true),
        (Kind::Application, "argocd", ROOT, true),
        (Kind::Application, "shop", ROOT, false),
        (Kind::Application, "argocd", "x", false),
        (Kind::AppProject, "argocd", ROOT, false),
    ] {
        let id = ObjectId::new(kind, namespace, name);
        let status = json!({"resources": [{
            "group": kind.resource().0, "kind": kind.as_str(), "namespace": namespace, "name": name,
            "status": "OutOfSync", "requiresPruning": true,
        }]});
        let said = Owner::of("argocd", None, &Value::Null, &status);
        let expected: BTreeSet<ObjectId> = read.then(|| id.clone()).into_iter().collect();
        assert_eq!(said.extra, expected, "{id}");
    }
}

/// W19: of a list that is empty, or as long as what is kept of one, nobody knows what it lacks.
#[test]
fn what_an_application_lists_is_known_where_that_is_something_and_not_cut_short() {
    let entry = json!({"group": "apps", "kind": "Deployment", "namespace": "argocd", "name": "x"});
    let id = ObjectId::new(Kind::Deployment, "argocd", "x");
    for (count, known) in [
        (0, false),
        (1, true),
        (MAX_EXTRA - 1, true),
        (MAX_EXTRA, false),
        (MAX_EXTRA + 1, false),
    ] {
        let status = json!({"resources": vec![&entry; count]});
        let said = Owner::of("argocd", None, &Value::Null, &status);
        let expected = known.then(|| BTreeSet::from([id.clone()]));
        assert_eq!(said.lists, expected, "{count}");
    }
}
