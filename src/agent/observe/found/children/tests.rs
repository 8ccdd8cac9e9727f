use serde_json::{Value, json};

use super::*;
use crate::agent::plan::children;

mod at_work;
mod retried;

const HOME: &str = "flux-system";

fn app(name: &str) -> ObjectId {
    let space = if name == HOME { HOME } else { "apps" };
    ObjectId::new(Kind::Kustomization, space, name)
}

/// A Kustomization that the root brought, or the root itself, at this revision.
fn kustomization(name: &str, revision: u32, dying: bool) -> DynamicObject {
    let dying = dying.then_some("2027-01-15T08:00:30Z");
    let live = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {
            "name": name, "namespace": app(name).namespace, "generation": 1,
            "finalizers": ["finalizers.fluxcd.io"], "deletionTimestamp": dying,
            "labels": {
                "kustomize.toolkit.fluxcd.io/name": HOME,
                "kustomize.toolkit.fluxcd.io/namespace": HOME,
            },
        },
        "spec": {"prune": true},
        "status": {
            "observedGeneration": 1, "lastAttemptedRevision": revision.to_string(),
            "lastAppliedRevision": revision.to_string(),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:25Z"}],
        },
    });
    serde_json::from_value(live).unwrap()
}

/// A whole list, with the root at this revision.
fn list(seen: &mut Observed, root: u32, there: &[(&str, bool)]) {
    let kind = Kind::Kustomization;
    let mut listed = Listed::default();
    listed.add_root(HOME, kind, &kustomization(HOME, root, false));
    for (name, dying) in there {
        let live = kustomization(name, 1, *dying);
        listed.add(app(name), Heard::of(HOME, kind, &live));
    }
    listed.put(seen, kind, &Newer::default());
}

/// What was heard of the root before the list of what it brought.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    /// Its watch told that it was done with a commit.
    Work,
    /// A list of it alone.
    List,
    /// By the watch of what it brought, before anything of that went.
    Event,
}

/// W44: no watch told of it, and the list after that has them no more.
#[test]
fn what_a_list_misses_is_a_commits_wish_where_the_root_has_another_one_since() {
    let all = ["a", "b", "c", "d"].map(|name| (name, false));
    let half = [("c", true), ("d", true)];
    for (what, root, there, known_before, deleted) in [
        ("a commit took them", 2, &[][..], Before::Nothing, 0),
        ("a commit takes them", 2, &half, Before::Nothing, 0),
        ("nobody says why", 1, &half, Before::Nothing, 4),
        ("the root was heard of before", 1, &half, Before::Work, 0),
        ("the root's own list came first", 2, &half, Before::List, 0),
        ("it says nothing new", 1, &half, Before::List, 4),
        ("their watch told of the root", 2, &half, Before::Event, 4),
        ("nothing went", 1, &all, Before::Nothing, 0),
    ] {
        let mut seen = Observed::default();
        let live = project::object(Kind::Kustomization, kustomization(HOME, 1, false));
        seen.objects.insert(app(HOME), Arc::new(live));
        list(&mut seen, 1, &all);
        assert_eq!(
            (seen.children.len(), seen.deletions.len()),
            (4, 0),
            "{what}"
        );
        let live = kustomization(HOME, root, false);
        match known_before {
            Before::Nothing => {}
            Before::Work => burst::moved(&mut seen, &app(HOME), clock::now()),
            Before::List => {
                let live = project::object(Kind::Kustomization, live);
                seen.objects.insert(app(HOME), Arc::new(live));
            }
            Before::Event => heard_root(&mut seen, HOME, Kind::Kustomization, &live),
        }
        list(&mut seen, root, there);
        assert_eq!(seen.children.len(), there.len(), "{what}");
        assert_eq!(seen.deletions.len(), deleted, "{what}");
    }
}

/// A list of as many that say nothing as are known, and this one.
fn many(id: ObjectId, said: Heard) -> Listed {
    let kind = Kind::Kustomization;
    let mut listed = Listed::default();
    for n in 0..MAX_CHILDREN {
        let name = format!("app-{n}");
        let live = kustomization(&name, 1, false);
        listed.add(app(&name), Heard::of(HOME, kind, &live));
    }
    listed.add(id, said);
    listed
}

/// W11: the guard waits for the end of what is being deleted, and would wait for ever for one that went while no watch told of it.
#[test]
fn what_a_list_that_was_cut_does_not_have_at_all_is_gone() {
    let kind = Kind::Kustomization;
    let mut seen = Observed::default();
    list(&mut seen, 1, &[("zz", false), ("dies", true)]);
    let last = Heard::of(HOME, kind, &kustomization("zz", 1, false));
    assert!(many(app("zz"), last).put(&mut seen, kind, &Newer::default()));
    assert!(seen.cut.contains(&kind));
    let there = ["zz", "dies"].map(|name| seen.children.contains_key(&app(name)));
    assert_eq!(there, [true, false]);
}

/// An object that says this of itself.
fn saying(kind: Kind, change: &Value) -> (ObjectId, DynamicObject) {
    let id = ObjectId::new(kind, "team", "one");
    let mut live = json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(),
        "metadata": {"name": "one", "namespace": "team", "generation": 1, "annotations": {}},
        "spec": {"interval": "1m0s"},
        "status": {"conditions": []},
    });
    for (pointer, value) in change.as_object().unwrap() {
        *live.pointer_mut(pointer).unwrap() = value.clone();
    }
    (id, serde_json::from_value(live).unwrap())
}

fn ready(status: &str) -> Value {
    let said = json!([{
        "type": "Ready", "status": status, "reason": "BuildFailed", "message": "x",
        "lastTransitionTime": "2027-01-15T08:00:25Z",
    }]);
    json!({"/status/conditions": said})
}

/// What an object says, and whether it is known for that beyond the bound.
fn sayings() -> [(&'static str, Kind, Value, bool); 15] {
    let held = json!({"held": [{
        "group": "apps", "kind": "Deployment", "namespace": HOME, "name": "argocd-repo-server",
        "revision": "1", "since": "2027-01-15T08:00:25Z", "reason": "x", "attempt": 1,
    }], "former": {"ignoreDifferences": null, "syncOptions": null}});
    let holds = json!({"/metadata/annotations": {"linesman.dev/holds": held.to_string()}});
    let brings = |kind: &str, namespace: &str| {
        let resource =
            json!({"group": "apps", "kind": kind, "namespace": namespace, "name": "one"});
        json!({"/status": {"resources": [resource]}})
    };
    let long = json!({"/spec/interval": "9999999h"});
    let dies = json!({"/metadata": {
        "name": "one", "namespace": "team", "deletionTimestamp": "2027-01-15T08:00:25Z",
    }});
    let applies = |entry: &str| json!({"/status": {"inventory": {"entries": [{"id": entry}]}}});
    let near = applies("flux-system_source-controller_apps_Deployment");
    let far = applies("team_web_apps_Deployment");
    let works = json!({"/status": {"operationState": {"phase": "Running"}}});
    [
        ("brings", Kind::Kustomization, near, true),
        ("others", Kind::Kustomization, far, false),
        ("is ready", Kind::Kustomization, ready("True"), false),
        ("fails", Kind::Kustomization, ready("False"), true),
        ("is at work", Kind::Kustomization, ready("Unknown"), true),
        (
            "a release at work",
            Kind::HelmRelease,
            ready("Unknown"),
            true,
        ),
        ("dies", Kind::Kustomization, dies, true),
        ("is not read", Kind::Kustomization, long.clone(), true),
        ("a source that is not read", Kind::Bucket, long, true),
        ("is fetched", Kind::GitRepository, ready("Unknown"), true),
        ("holds back", Kind::Application, holds, true),
        ("is at work", Kind::Application, works, false),
        (
            "brings",
            Kind::Application,
            brings("Deployment", HOME),
            true,
        ),
        (
            "others",
            Kind::Application,
            brings("Deployment", "team"),
            false,
        ),
        (
            "sync objects",
            Kind::Application,
            brings("Application", HOME),
            false,
        ),
    ]
}

/// F18, F44, W21: of what is over the bound the engine's function may hang on what says something, and so may its hold.
#[test]
fn what_says_something_is_known_however_many_there_are() {
    for (what, kind, change, known) in sayings() {
        let (id, live) = saying(kind, &change);
        let said = || Heard::of(HOME, kind, &live);
        let mut seen = Observed::default();
        many(id.clone(), said()).put(&mut seen, kind, &Newer::default());
        assert_eq!(seen.children.contains_key(&id), known, "{what}: by a list");
        // By a watch, and after that it says nothing any more.
        let full = (0..MAX_CHILDREN).map(|n| (app(&format!("app-{n}")), Child::default()));
        let mut seen = Observed {
            children: Arc::new(full.collect()),
            cut: [kind].into(),
            ..Observed::default()
        };
        assert_eq!(heard(&mut seen, id.clone(), said()), known, "{what}");
        assert_eq!(seen.children.contains_key(&id), known, "{what}: by a watch");
        let mut later = seen.clone();
        let (_, quiet) = saying(kind, &ready("True"));
        let quiet = || Heard::of(HOME, kind, &quiet);
        heard(&mut seen, id.clone(), quiet());
        assert!(!seen.children.contains_key(&id), "{what}: makes room");
        assert_eq!(seen.children.len(), MAX_CHILDREN, "{what}");
        // The same by the list after a gap.
        many(id.clone(), quiet()).put(&mut later, kind, &Newer::default());
        let stays = what == "brings";
        let there = later.children.contains_key(&id);
        assert_eq!(there, stays, "{what}: after a gap");
    }
}

/// What is over the bound is told as such, and is not taken for gone.
#[test]
fn a_list_that_was_cut_says_nothing_of_what_it_lacks() {
    let kind = Kind::Kustomization;
    let mut seen = Observed::default();
    list(&mut seen, 1, &[("zz", false)]);
    let last = Heard::of(HOME, kind, &kustomization("zz", 1, false));
    assert!(many(app("zz"), last).put(&mut seen, kind, &Newer::default()));
    assert!(seen.cut.contains(&kind));
    assert!(seen.children.contains_key(&app("zz")) && seen.deletions.is_empty());
    assert_eq!(seen.children.len(), MAX_CHILDREN);
    // One that goes is known all the same: the guard waits for its end.
    let dying = Heard::of(HOME, kind, &kustomization("dies", 1, true));
    assert!(heard(&mut seen, app("dies"), dying));
    assert!(seen.children.contains_key(&app("dies")));
    // A list that has all of them says so.
    list(&mut seen, 1, &[("zz", false)]);
    assert!(!seen.cut.contains(&kind));
    assert_eq!(seen.children.len(), 1);
}

/// W18: a source that is fetched as it should be is none of what is counted, and may be one that its controller does not hear of.
#[test]
fn sources_elsewhere_are_known_while_they_are_there() {
    let source = |namespace: &str| -> DynamicObject {
        let live: Value = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "shop", "namespace": namespace}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True", "message": ""}]},
        });
        serde_json::from_value(live).unwrap()
    };
    let kind = Kind::GitRepository;
    let id = |namespace: &str| ObjectId::new(kind, namespace, "shop");
    let mut seen = Observed::default();
    for namespace in ["apps", HOME] {
        let said = Heard::of(HOME, kind, &source(namespace));
        heard(&mut seen, id(namespace), said);
    }
    assert_eq!(seen.sources, BTreeSet::from([id("apps")]));
    let mut listed = Listed::default();
    listed.add(id("team"), Heard::of(HOME, kind, &source("team")));
    listed.put(&mut seen, kind, &Newer::default());
    assert_eq!(seen.sources, BTreeSet::from([id("team")]));
    gone(&mut seen, &id("team"));
    assert_eq!(seen.sources, BTreeSet::new());
}

/// W12: it may get another label while it is at work, and says nothing else then.
#[test]
fn of_which_shard_a_sync_object_is_is_known() {
    let mut seen = Observed::default();
    let kind = Kind::Kustomization;
    for shard in [None, Some("shard1"), Some("shard2"), None] {
        let mut live = kustomization("app", 1, false);
        let label = shard.map(|name| ("sharding.fluxcd.io/key".to_owned(), name.to_owned()));
        live.metadata.labels.get_or_insert_default().extend(label);
        live.data["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        heard(&mut seen, app("app"), Heard::of(HOME, kind, &live));
        assert_eq!(seen.children[&app("app")].shard, Shard::of(&live));
    }
}

/// W11: where a CRD takes all sync objects along that are known, each is remembered, for it may have to be brought back.
#[test]
fn as_many_are_remembered_as_are_known() {
    let mut seen = Observed::default();
    let named = |n: usize| ObjectId::new(Kind::Application, "argocd", &format!("app-{n}"));
    for n in 0..=MAX_CHILDREN {
        let live = serde_json::from_value(serde_json::json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": format!("app-{n}"), "namespace": "argocd"}, "spec": {"n": n},
        }));
        let said = Heard::of("argocd", Kind::Application, &live.unwrap());
        heard(&mut seen, named(n), said);
    }
    for n in 0..MAX_CHILDREN {
        assert!(gone(&mut seen, &named(n)), "{n}");
    }
    assert_eq!(seen.lost.len(), MAX_CHILDREN);
    assert!(seen.children.is_empty());
}

/// W12: a source is known for as long as others may have to wait for it, and is none of what is counted.
#[test]
fn a_source_is_kept_while_its_fetch_takes_time() {
    let id = ObjectId::new(Kind::GitRepository, "apps", "shop");
    let mut seen = Observed::default();
    for (ready, expected) in [("Unknown", Some(60)), ("True", None), ("Unknown", Some(60))] {
        let live = serde_json::from_value(serde_json::json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "shop", "namespace": "apps"}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": ready, "message": ""}]},
        }));
        let said = Heard::of("flux-system", Kind::GitRepository, &live.unwrap());
        assert!(heard(&mut seen, id.clone(), said), "{ready}");
        let kept = seen.children.get(&id).map(|child| child.fetch);
        let expected = expected.map(|long| Some(time::Duration::seconds(long)));
        assert_eq!(kept, expected, "{ready}");
        assert_eq!(children::count(&seen), (0, 0));
    }
    assert!(seen.deletions.is_empty(), "it was never deleted");
}
