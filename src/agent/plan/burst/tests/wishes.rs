//! Whose wish a deletion is: a commit's, a person's, or nobody's.

use super::*;
use crate::agent::plan::{MAINTENANCE, Mode};
use crate::clock::rfc3339;

const GROUP: &str = "kustomize.toolkit.fluxcd.io";

/// What a commit, or the end of the one Kustomization that brought them, takes away is a wish.
#[test]
fn what_the_kustomization_that_brought_them_takes_away_is_left_to_it() {
    let quiet = live("x", ROOT)["status"].clone();
    let begin = |owner: &str| {
        let mut place = Place::new();
        place.hear("parent", Some(live("parent", ROOT)));
        for name in ["a", "b", "c"] {
            place.hear(name, Some(live(name, owner)));
        }
        place.root(&quiet);
        place
    };
    let end = |place: &mut Place, owner: &str| {
        for name in ["a", "b", "c"] {
            place.delete(name, owner);
        }
        !place.actions().is_empty()
    };
    let mut by_nobody = begin(ROOT);
    assert!(end(&mut by_nobody, ROOT));
    let mut by_commit = begin(ROOT);
    by_commit.root(&applying());
    assert!(!end(&mut by_commit, ROOT));
    // A commit that fails goes on being tried, and takes nothing away meanwhile.
    let mut by_failed = begin(ROOT);
    let mut failed = applying();
    failed["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    by_failed.root(&failed);
    assert!(end(&mut by_failed, ROOT));
    for (seconds, guarded) in [(5, false), (15, true)] {
        let mut after = begin(ROOT);
        let now = after.cluster.now;
        moved(&mut after.seen, &app(ROOT), now);
        after.cluster.now += Duration::seconds(seconds);
        after.look();
        assert_eq!(end(&mut after, ROOT), guarded, "{seconds}");
    }
    let mut by_parent = begin("parent");
    by_parent.delete("parent", ROOT);
    assert!(!end(&mut by_parent, "parent"));
    let mut by_its_commit = begin("parent");
    let mut parent = live("parent", ROOT);
    parent["status"] = applying();
    by_its_commit.hear("parent", Some(parent));
    assert!(!end(&mut by_its_commit, "parent"));
    by_its_commit.hear("parent", Some(live("parent", ROOT)));
    by_its_commit.cluster.now += Duration::seconds(15);
    for name in ["a", "b", "c"] {
        by_its_commit.hear(name, None);
        by_its_commit.hear(name, Some(live(name, "parent")));
    }
    by_its_commit.look();
    assert!(end(&mut by_its_commit, "parent"));
}

/// What a commit takes away its Kustomization lists no more when it is done with it. What it lists still, somebody else deletes, also a
/// moment after a commit, or after the root was made again with its CRD.
#[test]
fn what_is_listed_after_the_work_is_no_wish_of_it() {
    let entries = |names: &[&str]| {
        let entry =
            |name: &&str| json!({"id": format!("apps_{name}_{GROUP}_Kustomization"), "v": "v1"});
        json!({"entries": names.iter().map(entry).collect::<Vec<_>>()})
    };
    let begin = |owner: &str, status: &Value| {
        let mut place = Place::new();
        for name in ["a", "b", "c"] {
            place.hear(name, Some(live(name, owner)));
        }
        let mut parent = live("parent", ROOT);
        parent["status"] = status.clone();
        place.hear("parent", Some(parent));
        place.root(status);
        moved(&mut place.seen, &app(owner), place.cluster.now);
        place
    };
    let quiet = live("x", ROOT)["status"].clone();
    for (what, inventory, rests, guarded) in [
        ("none", json!(null), true, false),
        ("all left it", entries(&["d"]), true, false),
        ("two left it", entries(&["a"]), true, false),
        ("all in it", entries(&["a", "b", "c"]), true, true),
        ("at work again", entries(&["a", "b", "c"]), false, false),
    ] {
        let mut status = if rests { quiet.clone() } else { applying() };
        status["inventory"] = inventory;
        for owner in [ROOT, "parent"] {
            let mut place = begin(owner, &status);
            for name in ["a", "b", "c"] {
                place.delete(name, owner);
            }
            let expected: &[&str] = if guarded { &GUARDED } else { &[] };
            assert_eq!(place.actions(), expected, "{what}, {owner}");
        }
    }
}

/// What a burst deleted comes back; that a commit takes it away afterwards is another deletion.
#[test]
fn a_commit_soon_after_a_burst_is_a_wish_all_the_same() {
    let mut place = Place::new();
    let names = ["a", "b", "c"];
    for name in names {
        place.hear(name, Some(live(name, ROOT)));
        place.delete(name, ROOT);
    }
    assert_eq!(place.actions(), GUARDED);
    for name in names {
        place.hear(name, None);
    }
    place.cluster.now += Duration::seconds(30);
    for name in names {
        place.hear(name, Some(live(name, ROOT)));
    }
    place.root(&applying());
    place.delete("a", ROOT);
    assert_eq!(place.actions(), [""; 0]);
}

#[test]
fn a_window_does_not_hold_it_back_and_a_persons_word_or_another_manager_does() {
    let annotate = |place: &mut Place, name: &str| {
        let until = rfc3339(place.cluster.now + Duration::hours(1));
        let id = ObjectId::new(Kind::Namespace, "", ROOT);
        let namespace = place.cluster.objects.get_mut(&id).unwrap();
        namespace.fields["metadata"]["annotations"][name] = json!(until);
    };
    let begin = || {
        let mut place = Place::new();
        for name in ["a", "b", "c"] {
            place.hear(name, Some(live(name, ROOT)));
            place.delete(name, ROOT);
        }
        place
    };
    let mut paused = begin();
    annotate(&mut paused, MAINTENANCE);
    paused.look();
    assert!(matches!(paused.plan().mode, Mode::Paused(_)));
    assert_eq!(paused.actions(), GUARDED);
    let mut allowed = begin();
    annotate(&mut allowed, ALLOW_DELETE);
    allowed.look();
    assert_eq!(allowed.actions(), [""; 0]);
    let mut foreign = begin();
    let id = ObjectId::new(Kind::Deployment, ROOT, "source-controller");
    let managed = foreign.cluster.objects.get_mut(&id).unwrap();
    managed.fields["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("flux-operator");
    foreign.look();
    assert_eq!(foreign.plan().mode, Mode::ObserveOnly);
    assert_eq!(foreign.actions(), [""; 0]);
}

/// W5: what was made by hand and deleted by that word, beside what Git brings, does not come back either. Without it, sources that went
/// at that moment come back, too.
#[test]
fn what_goes_by_a_persons_word_is_not_made_again() {
    let crd = ObjectId::crd_of(Kind::Kustomization);
    let sources = ObjectId::crd_of(Kind::GitRepository);
    let namespace = ObjectId::new(Kind::Namespace, "", ROOT);
    for word in [None, Some(&crd), Some(&namespace)] {
        let mut place = Place::new();
        for name in ["a", "b", "c"] {
            place.hear(name, Some(live(name, ROOT)));
            place.delete(name, ROOT);
        }
        let now = place.cluster.now;
        if let Some(id) = word {
            let live = place.cluster.objects.get_mut(id).unwrap();
            let until = rfc3339(now + Duration::hours(1));
            live.fields["metadata"]["annotations"][ALLOW_DELETE] = json!(until);
            place.look();
        }
        let keepsake = Arc::new(json!({"metadata": {"name": "by-hand"}}));
        let source = ObjectId::new(Kind::GitRepository, "apps", "by-hand");
        let lost = [app("by-hand"), source].map(|id| (id, (now, Arc::clone(&keepsake))));
        place.seen.lost = Arc::new(lost.into());
        let install = &place.cluster.install;
        let more = place.cluster.history.mourn(now, install, &place.seen);
        let more: Vec<&ObjectId> = more.iter().collect();
        let both = word.is_none().then_some([&sources, &crd]);
        let expected: Vec<&ObjectId> = both.into_iter().flatten().collect();
        assert_eq!(more, expected, "{word:?}");
        assert_eq!(place.is_on(), word.is_none(), "{word:?}");
    }
}

/// W44: deleted in numbers before the list of the Kustomizations has come, they are nobody's wish.
#[test]
fn releases_whose_kustomization_is_not_listed_yet_are_guarded() {
    for (awaited, expected) in [(true, &GUARDED[..]), (false, &[][..])] {
        let mut place = Place::new();
        let kinds = awaited.then_some(Kind::Kustomization);
        place.seen.awaited.extend(kinds);
        for name in ["a", "b", "c"] {
            let id = ObjectId::new(Kind::HelmRelease, "apps", name);
            let mut release = live(name, "parent");
            release["apiVersion"] = json!(Kind::HelmRelease.api_version());
            release["kind"] = json!("HelmRelease");
            release["spec"] = json!({});
            place.hear_of(id.clone(), Some(release.clone()));
            place.hear_of(id, Some(dying(release)));
        }
        // What was heard late is judged as it was when it went.
        place.seen.awaited.clear();
        assert_eq!(place.actions(), expected, "{awaited}");
    }
}
