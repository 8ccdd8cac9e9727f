//! What is kept of what is heard of sync objects.

use std::collections::BTreeSet;

use kube::core::DynamicObject;

use super::*;
use crate::agent::plan::burst::fate::course;
use crate::clock::{parse_rfc3339, rfc3339};

/// A commit's deletions are heard of while it works on them or just after that, so its end has to be known.
#[test]
fn a_kustomization_is_done_with_what_was_new_to_it_when_it_says_so() {
    let mut place = Place::new();
    let mut busy = live("a", ROOT);
    busy["metadata"]["generation"] = json!(2);
    busy["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let now = place.cluster.now;
    let at_once = BTreeMap::from([(app("a"), now)]);
    for (name, then, moved) in [
        ("goes on", Some(busy.clone()), BTreeMap::new()),
        ("is done", Some(live("a", ROOT)), at_once.clone()),
        ("is gone", None, at_once),
    ] {
        place.seen.moved.clear();
        place.hear("a", Some(busy.clone()));
        assert_eq!(place.seen.moved, BTreeMap::new(), "begins");
        place.hear("a", then);
        assert_eq!(place.seen.moved, moved, "{name}");
    }
    place.hear("a", Some(live("a", ROOT)));
    place.seen.moved.clear();
    place.hear("a", Some(live("a", ROOT)));
    assert_eq!(place.seen.moved, BTreeMap::new(), "was not at work");
}

#[test]
fn an_end_of_work_is_remembered_as_long_as_its_deletions_may_be_heard_of_and_so_many_of_them() {
    let mut place = Place::new();
    let now = place.cluster.now;
    let mut at = |name: &str, later: Duration| {
        moved(&mut place.seen, &app(name), now + later);
        place.seen.moved.clone()
    };
    let just = KEPT - Duration::SECOND;
    let first = (app("a"), now);
    assert_eq!(at("a", Duration::ZERO), BTreeMap::from([first.clone()]));
    let second = (app("b"), now + just);
    assert_eq!(at("b", just), BTreeMap::from([first, second.clone()]));
    let third = (app("c"), now + KEPT);
    assert_eq!(at("c", KEPT), BTreeMap::from([second, third]));
    for (there, then) in [(MAX_KEPT - 1, MAX_KEPT), (MAX_KEPT, MAX_KEPT)] {
        let all = (0..there).map(|n| (app(&format!("d{n}")), now));
        place.seen.moved = all.collect();
        moved(&mut place.seen, &app("e"), now);
        assert_eq!(place.seen.moved.len(), then);
    }
}

#[test]
fn a_deletion_counts_until_the_object_is_there_again() {
    let mut place = Place::new();
    let names = ["a", "b"];
    let counted = |place: &Place, names: &[&str]| {
        let counted: Vec<ObjectId> = place.seen.deletions.keys().cloned().collect();
        let expected: Vec<ObjectId> = names.iter().map(|name| app(name)).collect();
        assert_eq!(counted, expected);
    };
    for name in names {
        place.hear(name, Some(live(name, ROOT)));
    }
    for name in names {
        place.delete(name, ROOT);
    }
    counted(&place, &names);
    // It is heard of more than once while it dies.
    place.delete("b", ROOT);
    counted(&place, &names);
    place.hear("a", Some(live("a", ROOT)));
    counted(&place, &["b"]);
}

/// W11: more than that is a burst long before, and what is over counts no more.
#[test]
fn a_deletion_is_remembered_for_a_while_and_so_many_of_them() {
    let mut place = Place::new();
    for (there, ago, left) in [
        (1, KEPT - Duration::SECOND, 2),
        (1, KEPT, 1),
        (MAX_KEPT - 1, Duration::ZERO, MAX_KEPT),
        (MAX_KEPT, Duration::ZERO, MAX_KEPT),
    ] {
        place.hear("a", Some(live("a", ROOT)));
        let at = place.cluster.now - ago;
        let all = (0..there).map(|n| (app(&format!("d{n}")), at));
        place.seen.deletions = Arc::new(all.collect());
        place.delete("a", ROOT);
        assert_eq!(place.seen.deletions.len(), left, "{there} {ago}");
    }
}

/// W11: a deletion more than ten seconds after a commit is not the commit's wish, though it may look so by the whole seconds of the API
/// server. Those tell of one that is heard late, after a gap, and of no other. A commit of two minutes ago is over.
#[test]
fn a_deletion_goes_by_when_it_is_heard_unless_that_is_late() {
    let now = Place::new().cluster.now;
    let ago = |seconds: i64| now - Duration::seconds(seconds);
    for (moved, done_at, began, wish) in [
        (9, 9, 0, true),
        (10, 9, 0, false),
        (12, 9, 0, false),
        (12, 9, 10, false),
        (12, 9, 11, true),
        (12, 30, 15, false),
        (119, 9, 11, true),
        (120, 9, 11, false),
    ] {
        let mut seen = Observed::default();
        let fate = Fate {
            done_at: Some(ago(done_at)),
            ..Fate::default()
        };
        let owner = Child {
            fate,
            ..Child::default()
        };
        Arc::make_mut(&mut seen.children).insert(app("owner"), owner);
        let mut root = live(ROOT, ROOT);
        root["status"]["conditions"][0]["lastTransitionTime"] = json!(rfc3339(ago(done_at)));
        seen.objects.insert(app(ROOT), Arc::new(observed(root)));
        for owner in [app("owner"), app(ROOT)] {
            seen.moved.insert(owner.clone(), ago(moved));
            let is = takes_away(&seen, &owner, &app("shop"), (Some(ago(began)), now));
            assert_eq!(is, wish, "{owner}: {moved}, done {done_at}, began {began}");
        }
    }
}

/// A Kustomization as the watch of the install tells of it.
fn observed(live: Value) -> Object {
    project::object(Kind::Kustomization, serde_json::from_value(live).unwrap())
}

/// Its end took with it what it brought.
#[test]
fn a_kustomization_that_is_not_known_is_gone_unless_not_all_are_known() {
    let now = OffsetDateTime::UNIX_EPOCH;
    for (cut, wish) in [
        (None, true),
        (Some(Kind::HelmRelease), true),
        (Some(Kind::Kustomization), false),
    ] {
        let seen = Observed {
            cut: cut.into_iter().collect(),
            ..Observed::default()
        };
        assert_eq!(
            takes_away(&seen, &app("a"), &app("shop"), (None, now)),
            wish,
            "{cut:?}"
        );
    }
}

#[test]
fn a_root_is_done_with_something_new_when_it_rests_again() {
    let mut live = live(ROOT, ROOT);
    let rests = observed(live.clone());
    live["status"] = applying();
    let works = observed(live);
    for (before, after, done) in [
        (&works, &rests, true),
        (&rests, &rests, false),
        (&works, &works, false),
        (&rests, &works, false),
    ] {
        assert_eq!(root_moved(Kind::Kustomization, before, after), done);
    }
}

/// W44: by another one a list after a gap tells that its owner was at work meanwhile, and what began later goes by itself.
#[test]
fn a_course_is_another_one_after_each_work_on_something_new_and_says_when_that_was_done() {
    let time = |second: u8| format!("2026-01-02T03:04:{second:02}Z");
    let whole = json!({"status": {
        "observedGeneration": 1, "lastAttemptedRevision": "1", "lastAppliedRevision": "1",
        "conditions": [
            {"type": "Healthy", "status": "True", "lastTransitionTime": time(4)},
            {"type": "Ready", "status": "True", "lastTransitionTime": time(5)},
        ],
        "sync": {"revision": "1", "revisions": ["1"]}, "operationState": {"finishedAt": time(6)},
    }});
    for (kind, second) in [(Kind::Kustomization, 5), (Kind::Application, 6)] {
        let (before, done_at) = course(kind, &whole);
        assert_eq!(done_at, parse_rfc3339(&time(second)), "{kind}");
        let is_another = |pointer: &str| {
            let mut later = whole.clone();
            *later.pointer_mut(pointer).unwrap() = json!("2");
            course(kind, &later).0 != before
        };
        for (pointer, of) in [
            ("/status/observedGeneration", Some(Kind::Kustomization)),
            ("/status/lastAttemptedRevision", Some(Kind::Kustomization)),
            ("/status/lastAppliedRevision", Some(Kind::Kustomization)),
            ("/status/sync/revision", Some(Kind::Application)),
            ("/status/sync/revisions", Some(Kind::Application)),
            ("/status/conditions", None),
        ] {
            assert_eq!(is_another(pointer), of == Some(kind), "{kind} {pointer}");
        }
    }
}

/// W44: else the one that was read first would make it look as if it had been at work in between.
#[test]
fn a_root_says_the_same_by_its_own_watch_as_by_that_of_what_it_brought() {
    let time = "2026-01-02T03:04:05Z";
    let mut sync = live(ROOT, ROOT);
    sync["status"] = applying();
    sync["status"]["conditions"][1]["lastTransitionTime"] = json!(time);
    let root = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "linesman", "namespace": "argocd"},
        "status": {
            "sync": {"status": "OutOfSync", "revision": "2"},
            "operationState": {"phase": "Succeeded", "finishedAt": time},
            "resources": [{
                "group": "argoproj.io", "kind": "Application", "namespace": "argocd", "name": "shop",
                "status": "OutOfSync", "requiresPruning": true,
            }],
        },
    });
    let shop = ObjectId::new(Kind::Application, "argocd", "shop");
    for (kind, live, moving, takes) in [
        (Kind::Kustomization, sync, true, BTreeSet::new()),
        (Kind::Application, root, false, BTreeSet::from([shop])),
    ] {
        let live: DynamicObject = serde_json::from_value(live).unwrap();
        let beside = Fate::of("argocd", kind, &live);
        let expected = Fate {
            moving,
            takes,
            done: beside.done,
            done_at: parse_rfc3339(time),
            ..Fate::default()
        };
        let own = Fate::of_root(kind, &project::object(kind, live));
        assert_eq!(own, expected, "{kind}");
        let same = [beside.moving == own.moving, beside.takes == own.takes];
        assert_eq!((same, beside.done_at), ([true; 2], own.done_at), "{kind}");
    }
}

fn one(id: &ObjectId, fate: Fate) -> Observed {
    let child = Child {
        fate,
        ..Child::default()
    };
    Observed {
        children: Arc::new([(id.clone(), child)].into()),
        ..Observed::default()
    }
}

/// W44: a watch tells of the work itself, and what that left behind is nothing new.
#[test]
fn work_that_nobody_saw_counts_where_a_list_tells_of_it() {
    let now = OffsetDateTime::UNIX_EPOCH;
    let fate = |done| Fate {
        done,
        ..Fate::default()
    };
    let release = ObjectId::new(Kind::HelmRelease, "apps", "a");
    for (what, id, done, listed, counts) in [
        ("another course", app("a"), 2, true, true),
        ("the same", app("a"), 1, true, false),
        ("by a watch", app("a"), 2, false, false),
        ("a release", release, 2, true, false),
    ] {
        let mut seen = one(&id, fate(1));
        let after = fate(done);
        if listed {
            note_listed(&mut seen, &id, (Some(&after), false), now);
        } else {
            note(&mut seen, &id, Some(&after), now);
        }
        let counted = counts.then_some((id, now)).into_iter();
        let counted: BTreeMap<ObjectId, OffsetDateTime> = counted.collect();
        assert_eq!(seen.moved, counted, "{what}");
    }
}

#[test]
fn a_list_says_whose_wish_an_end_is() {
    let now = OffsetDateTime::UNIX_EPOCH;
    let id = app("a");
    let there = Fate {
        pinned: true,
        prunes: true,
        owner: Some(app(ROOT)),
        ..Fate::default()
    };
    let goes = Fate {
        dying: true,
        ..there.clone()
    };
    for (fate, wish) in [
        (Some(&goes), false),
        (Some(&goes), true),
        (None, false),
        (None, true),
    ] {
        let mut seen = one(&id, there.clone());
        note_listed(&mut seen, &id, (fate, wish), now);
        let counted = (!wish).then_some((id.clone(), now)).into_iter();
        let counted: BTreeMap<ObjectId, OffsetDateTime> = counted.collect();
        assert_eq!(*seen.deletions, counted, "{fate:?}");
    }
}

/// W11: a release may be of a Kustomization's, too; nothing else of its inventory counts, and so many at most are kept.
#[test]
fn a_kustomization_holds_the_sync_objects_that_it_lists_once_it_is_done() {
    let listed = [
        "apps_a_kustomize.toolkit.fluxcd.io_Kustomization",
        "apps_b_helm.toolkit.fluxcd.io_HelmRelease",
        "apps_c_apps_Deployment",
        "apps_d_helm.example.org_HelmRelease",
        "junk",
    ];
    let both = [app("a"), ObjectId::new(Kind::HelmRelease, "apps", "b")];
    let held = |kind: Kind, live: &Value| {
        let live: DynamicObject = serde_json::from_value(live.clone()).unwrap();
        let by_watch = Fate::of(ROOT, kind, &live).holds;
        let root = project::object(kind, live);
        let by_root = [app("a"), app("b"), both[1].clone()].map(|id| lists(&root, &id));
        (by_watch.map(|all| (*all).clone()), by_root)
    };
    let mut rests = live("a", ROOT);
    let entries = listed.map(|id| json!({"id": id, "v": "v1"}));
    rests["status"]["inventory"] = json!({"entries": entries});
    let all = Some(BTreeSet::from(both.clone()));
    assert_eq!(
        held(Kind::Kustomization, &rests),
        (all, [true, false, true])
    );
    let mut works = rests.clone();
    works["metadata"]["generation"] = json!(2);
    works["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    assert_eq!(held(Kind::Kustomization, &works), (None, [false; 3]));
    assert_eq!(
        held(Kind::Kustomization, &live("a", ROOT)),
        (None, [false; 3])
    );
    assert_eq!(held(Kind::HelmRelease, &rests).0, None);
    let many = (0..=MAX_LISTED).map(|n| format!("apps_x{n}_{}", &listed[0]["apps_a_".len()..]));
    let many: Vec<Value> = many.map(|id| json!({"id": id})).collect();
    rests["status"]["inventory"] = json!({"entries": many});
    let kept = held(Kind::Kustomization, &rests).0;
    assert_eq!(kept.map(|all| all.len()), Some(MAX_LISTED));
}
