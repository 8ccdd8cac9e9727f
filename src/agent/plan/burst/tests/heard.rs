//! What is kept of what is heard of sync objects.

use super::*;

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

/// W11: a deletion more than ten seconds after a commit is not the commit's wish, though it may look so by the whole seconds of the API
/// server. Those tell of one that is heard late, after a gap, and of no other.
#[test]
fn a_deletion_goes_by_when_it_is_heard_unless_that_is_late() {
    let now = Place::new().cluster.now;
    let ago = |seconds: i64| now - Duration::seconds(seconds);
    for (done_at, began, wish) in [
        (9, 0, false),
        (9, 10, false),
        (9, 11, true),
        (30, 15, false),
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
        seen.moved.insert(app("owner"), ago(12));
        let is = takes_away(&seen, &app("owner"), (Some(ago(began)), now));
        assert_eq!(is, wish, "done {done_at}, began {began}");
    }
}
