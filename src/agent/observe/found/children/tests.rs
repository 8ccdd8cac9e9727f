use serde_json::{Value, json};

use super::*;
use crate::agent::plan::children;

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
    listed.put(seen, kind);
}

/// W44: no watch told of it, and the list after that has them no more.
#[test]
fn what_a_list_misses_is_a_commits_wish_where_the_root_has_another_one_since() {
    let all = ["a", "b", "c", "d"].map(|name| (name, false));
    let half = [("c", true), ("d", true)];
    for (what, root, there, known_before, deleted) in [
        ("a commit took them", 2, &[][..], false, 0),
        ("a commit takes them", 2, &half, false, 0),
        ("nobody says why", 1, &half, false, 4),
        ("the root was heard of before", 1, &half, true, 0),
        ("nothing went", 1, &all, false, 0),
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
        if known_before {
            burst::moved(&mut seen, &app(HOME), clock::now());
        }
        list(&mut seen, root, there);
        assert_eq!(seen.children.len(), there.len(), "{what}");
        assert_eq!(seen.deletions.len(), deleted, "{what}");
    }
}

/// What is over the bound is told as such, and is not taken for gone.
#[test]
fn a_list_that_was_cut_says_nothing_of_what_it_lacks() {
    let kind = Kind::Kustomization;
    let mut seen = Observed::default();
    list(&mut seen, 1, &[("zz", false)]);
    let names: Vec<String> = (0..MAX_CHILDREN).map(|n| format!("app-{n}")).collect();
    let mut listed = Listed::default();
    for name in &names {
        listed.add(
            app(name),
            Heard::of(HOME, kind, &kustomization(name, 1, false)),
        );
    }
    listed.add(
        app("zz"),
        Heard::of(HOME, kind, &kustomization("zz", 1, false)),
    );
    assert!(listed.put(&mut seen, kind));
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
    listed.put(&mut seen, kind);
    assert_eq!(seen.sources, BTreeSet::from([id("team")]));
    gone(&mut seen, &id("team"));
    assert_eq!(seen.sources, BTreeSet::new());
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
