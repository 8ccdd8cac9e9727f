use serde_json::json;

use super::*;
use crate::agent::plan;
use crate::wire::api::EngineKind;

/// W21: the list of the root says nothing of the Applications below it.
#[test]
fn sync_objects_are_awaited_until_their_own_list_is_whole() {
    let all = [Kind::Application, Kind::ApplicationSet, Kind::AppProject];
    let view = View::new(&plan::tests::install_of(EngineKind::Argocd));
    let awaited = || view.subscribe().borrow().awaited.clone();
    assert_eq!(awaited(), all.into());
    assert!(view.subscribe().borrow().since.is_some());
    Found::nothing(What::Objects(Kind::Application)).put(&view, Answer::Whole);
    assert_eq!(awaited(), all.into());
    let mut seen = view.subscribe();
    seen.mark_unchanged();
    Found::nothing(What::Children(Kind::Application)).put(&view, Answer::Whole);
    assert_eq!(awaited(), all[1..].iter().copied().collect());
    assert!(seen.has_changed().unwrap(), "it is planned anew at once");
}

fn pod(failed: bool) -> Arc<Pod> {
    Arc::new(Pod {
        failed: failed.then(|| "Evicted: ".to_owned()),
        ..Pod::default()
    })
}

/// W5: a node under pressure leaves hundreds of failed Pods behind, before those of the controllers in the order of names.
#[test]
fn failed_pods_make_room_for_those_that_run() {
    let mut pods = BTreeMap::new();
    for n in 0..MAX_PODS {
        assert!(admit_pod(&mut pods, format!("gone-{n:03}"), pod(true)));
    }
    let view = View::new(&plan::tests::install_of(EngineKind::Flux));
    Found::Pods(pods.clone(), false).put(&view, Answer::Whole);
    for (name, failed, known) in [("late", true, false), ("runs", false, true)] {
        let whole = admit_pod(&mut pods, name.to_owned(), pod(failed));
        assert_eq!((whole, pods.contains_key(name)), (false, known), "{name}");
        super::pod(&view, name, Some(pod(failed)));
        let seen = view.subscribe().borrow().clone();
        assert_eq!(seen.pods, pods, "{name}: by a watch");
        assert!(seen.pods_cut && pods.len() == MAX_PODS);
    }
    let runs = |n: usize| (format!("runs-{n:03}"), pod(false));
    let full: BTreeMap<_, _> = (0..MAX_PODS).map(runs).collect();
    let mut all = full.clone();
    assert!(!admit_pod(&mut all, "one-more".to_owned(), pod(false)));
    assert_eq!(all, full);
}

/// W13: Argo CD may tell of it for less time than a plan takes.
#[test]
fn a_refusal_that_the_next_event_takes_back_is_remembered() {
    let install = plan::tests::install_of(EngineKind::Argocd);
    let view = View::new(&install);
    let refused = json!([{"type": "ComparisonError", "message": "ssh: unable to authenticate"}]);
    let mut known = Vec::new();
    for (version, conditions) in [("1", json!([])), ("2", refused), ("3", json!([]))] {
        let live = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "linesman", "namespace": "argocd", "uid": "u", "resourceVersion": version},
            "status": {"conditions": conditions, "reconciledAt": "2026-01-02T03:04:05Z"},
        });
        let live = project::object(Kind::Application, serde_json::from_value(live).unwrap());
        view.put(&install.sync, Some(live));
        known.push(view.subscribe().borrow().taken_back.is_some());
    }
    assert_eq!(known, [false, false, true]);
}

/// A list of several pages is as of its first one.
#[test]
fn a_list_takes_back_nothing_that_its_watch_told_since() {
    let view = View::new(&plan::tests::install_of(EngineKind::Flux));
    let live = |name: &str, version: u64| -> DynamicObject {
        let meta = json!({
            "namespace": "flux-system", "name": name, "resourceVersion": version.to_string(),
        });
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    };
    let newer = || {
        let mut newer = Newer::default();
        newer.note(&live("stays", 19), false);
        newer.note(&live("came", 21), true);
        newer.note(&live("went", 21), false);
        newer.note(&live("astray", 21), false);
        newer.after(20)
    };
    super::pod(&view, "came", Some(pod(false)));
    let listed = ["stays", "went"].map(|name| (name.to_owned(), pod(false)));
    Found::Pods(listed.into(), false).put_beside(&view, Answer::Whole, &newer());
    let pods: Vec<String> = view.subscribe().borrow().pods.keys().cloned().collect();
    assert_eq!(pods, ["came", "stays"]);

    let kind = Kind::Service;
    let id = |name: &str| ObjectId::new(kind, "flux-system", name);
    let service = |name: &str, version| project::object(kind, live(name, version));
    view.put(&id("came"), Some(service("came", 21)));
    // The last one was looked up by its name, when the watch had told that it is no longer selected.
    let listed = [("stays", 9), ("went", 9), ("astray", 21)];
    let listed = listed.map(|(name, at)| (id(name), service(name, at)));
    let found = Found::Objects(kind, listed.into(), BTreeSet::new());
    found.put_beside(&view, Answer::Whole, &newer());
    let seen = view.subscribe().borrow().clone();
    let services: Vec<&str> = seen.objects.keys().map(|id| id.name.as_str()).collect();
    assert_eq!(services, ["astray", "came", "stays"]);
}

/// F12: of more than are known the controller may be busy with any, and the only one that may be asked may be any.
#[test]
fn of_witnesses_over_the_bound_it_is_known_what_their_controller_did_for_them() {
    let kind = Kind::ImageRepository;
    let id = |n: usize| ObjectId::new(kind, "apps", &format!("{n:04}"));
    let with = |fit: bool, served: Option<i64>| Witness {
        fit,
        served: served.map(|s| clock::from_nanoseconds(i128::from(s)).unwrap()),
        ..Witness::default()
    };
    let view = View::new(&plan::tests::install_of(EngineKind::Flux));
    let listed = (0..MAX_WITNESSES).map(|n| (id(n), with(false, Some(1))));
    Found::Witnesses(kind, listed.collect(), None).put(&view, Answer::Whole);
    let other = ObjectId::new(Kind::Receiver, "apps", "one");
    witness(&view, other.clone(), Some(with(true, None)));
    let known = |id: &ObjectId| view.subscribe().borrow().witnesses.contains_key(id);
    let crowd = || view.subscribe().borrow().crowds.get(&kind).copied();
    assert!(known(&other) && crowd().is_none(), "another kind");
    let [busy, fit] = [id(MAX_WITNESSES), id(MAX_WITNESSES + 1)];
    witness(&view, busy.clone(), Some(with(false, Some(5))));
    let one = Crowd::default().with(&with(false, Some(5)));
    assert_eq!((known(&busy), crowd()), (false, Some(one)));
    witness(&view, fit.clone(), Some(with(true, Some(2))));
    let known = [known(&fit), known(&id(0)), known(&id(1))];
    assert_eq!((known, crowd()), ([true, false, true], Some(one)));
    // A list tells of all of them anew.
    Found::nothing(What::Witnesses(kind)).put(&view, Answer::Whole);
    assert_eq!(crowd(), None);
}

#[test]
fn a_list_belies_only_what_was_known_by_its_moment() {
    let service = |uid: &str, version: u64| {
        let live = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "flux-system", "uid": uid, "resourceVersion": version.to_string()},
        });
        let live = project::object(Kind::Service, serde_json::from_value(live).unwrap());
        (ObjectId::new(Kind::Service, "flux-system", "a"), live)
    };
    let (id, live) = service("u", 4_800);
    let seen = Observed {
        objects: [(id, Arc::new(live))].into(),
        ..Observed::default()
    };
    for (uid, version, at, belied) in [
        ("u", 900, 5_000, true),
        ("u", 900, 4_800, true),
        // A watch, or the answer to a write, told of it after the moment of the list.
        ("u", 900, 4_799, false),
        ("u", 4_800, 5_000, false),
        ("u", 4_900, 5_000, false),
        // Made anew.
        ("v", 900, 5_000, false),
    ] {
        let listed = vec![service(uid, version)];
        let found = Found::Objects(Kind::Service, listed, BTreeSet::new());
        assert_eq!(found.belies(&seen, at), belied, "{uid} {version} {at}");
    }
}
