use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::plan::project;
use crate::agent::plan::state::{Child, Object};
use crate::agent::plan::tests::start;

fn fate(done: u64, done_at: i64) -> Fate {
    Fate {
        done,
        done_at: Some(start() + Duration::seconds(done_at)),
        ..Fate::default()
    }
}

/// A watch was cut while a commit took away what it brought, or while somebody deleted it.
#[test]
fn what_a_commit_took_away_in_a_gap_is_a_wish_and_a_burst_is_none() {
    let id = ObjectId::new(Kind::Kustomization, "apps", "shop");
    let with = |change: fn(&mut Fate, &ObjectId)| {
        let mut fate = fate(1, 0);
        change(&mut fate, &id);
        fate
    };
    let same = fate(1, 0);
    let moving = with(|f, _| f.moving = true);
    let dying = with(|f, _| f.dying = true);
    let says = with(|f, id| f.takes = [id.clone()].into());
    let next = fate(2, 20);
    let at = |seconds: i64| Some(start() + Duration::seconds(seconds));
    let is_there = |before, after| Owner {
        before: Some(before),
        after: Some(after),
        ..Owner::default()
    };
    let moved = Owner {
        moved: true,
        ..is_there(&same, &same)
    };
    let holds = Owner {
        holds: true,
        ..is_there(&moving, &next)
    };
    let lost = |cut| Owner {
        before: Some(&same),
        cut,
        ..Owner::default()
    };
    for (what, began, owner, wish) in [
        ("nothing new", None, is_there(&same, &same), false),
        ("nothing new, it goes", at(5), is_there(&same, &same), false),
        ("another commit", None, is_there(&same, &next), true),
        ("its work", at(15), is_there(&same, &next), true),
        ("heard late", at(30), is_there(&same, &next), true),
        ("after its work", at(31), is_there(&same, &next), false),
        ("at work before", None, is_there(&moving, &same), true),
        ("at work still", at(90), is_there(&same, &moving), true),
        ("it goes itself", at(90), is_there(&same, &dying), true),
        ("it says so", at(90), is_there(&same, &says), true),
        ("it said so", None, is_there(&says, &same), true),
        ("known before the list", None, moved, true),
        ("known, and later", at(31), moved, false),
        ("it lists it after its work", at(15), holds, false),
        ("it is gone", at(90), lost(false), true),
        ("it may be there", at(90), lost(true), false),
    ] {
        assert_eq!(is_wish(&id, began, owner), wish, "{what}");
    }
}

fn owner() -> ObjectId {
    ObjectId::new(Kind::Kustomization, "flux-system", "flux-system")
}

/// A list after a gap: what was known before, and what it has.
struct Gap {
    seen: Observed,
    id: ObjectId,
    listed: BTreeMap<ObjectId, Fate>,
    cut: bool,
}

impl Gap {
    /// An object of this kind goes, and of the one that brought it there is nothing new.
    fn of(kind: Kind) -> Self {
        let id = ObjectId::new(kind, "apps", "shop");
        let brought = Fate {
            pinned: true,
            prunes: true,
            owner: Some(owner()),
            ..Fate::default()
        };
        let goes = Fate {
            dying: true,
            ..brought.clone()
        };
        let child = |fate| Child {
            fate,
            ..Child::default()
        };
        let children = [(id.clone(), child(brought)), (owner(), child(fate(1, 0)))];
        let mut listed = BTreeMap::from([(id.clone(), goes)]);
        if kind == owner().kind {
            listed.insert(owner(), fate(1, 0));
        }
        Self {
            seen: Observed {
                children: Arc::new(children.into()),
                ..Observed::default()
            },
            id,
            listed,
            cut: false,
        }
    }

    fn gone(&mut self) {
        self.listed.remove(&self.id);
    }

    /// Its owner was at another revision meanwhile, and lists it still.
    fn kept(&mut self) {
        let fate = Fate {
            holds: Some(Arc::new([self.id.clone()].into())),
            ..fate(2, 20)
        };
        self.listed.insert(owner(), fate.clone());
        // Of a release that goes, this is known by another list, which may be older.
        let children = Arc::make_mut(&mut self.seen.children);
        children.entry(owner()).or_default().fate = fate;
        self.seen.moved.insert(owner(), start());
    }

    fn orphaned(&mut self) {
        self.listed.remove(&owner());
    }

    /// The root brought it, which its own list has at another revision than the watch of what it brought told of.
    fn by_the_root(&mut self) -> Fate {
        let live = root();
        let told = Fate::of_root(Kind::Kustomization, &live);
        Arc::make_mut(&mut self.seen.children).remove(&owner());
        self.seen.objects.insert(owner(), Arc::new(live));
        told
    }

    fn is_wish(&self) -> bool {
        let fate = |id: &ObjectId| self.listed.get(id);
        let list = List {
            kind: self.id.kind,
            fate: &fate,
            cut: self.cut,
        };
        let told = wishes(&self.seen, &list, std::iter::once(&self.id), start());
        assert!(told.iter().all(|id| *id == self.id), "{told:?}");
        !told.is_empty()
    }
}

fn root() -> Object {
    let live = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "flux-system", "namespace": "flux-system", "generation": 1},
        "status": {
            "observedGeneration": 1, "lastAttemptedRevision": "2", "lastAppliedRevision": "2",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        },
    });
    project::object(Kind::Kustomization, serde_json::from_value(live).unwrap())
}

type Change = fn(&mut Gap);

fn wished(kind: Kind, change: Change) -> bool {
    let mut gap = Gap::of(kind);
    change(&mut gap);
    gap.is_wish()
}

/// W44: taken for a wish, a burst is not stopped; taken for none, a commit costs the engine its rights.
#[test]
fn what_goes_by_a_list_is_a_wish_by_what_that_and_the_watch_before_tell_of_its_owner() {
    let cases: [(&str, Change, bool); 9] = [
        ("nothing new", |_| {}, false),
        ("gone, and nothing new", Gap::gone, false),
        (
            "another revision",
            |g| {
                g.listed.insert(owner(), fate(2, 20));
            },
            true,
        ),
        ("another revision that has it", Gap::kept, false),
        (
            "done a moment before",
            |g| {
                let at = start() - KEPT + Duration::SECOND;
                g.seen.moved.insert(owner(), at);
            },
            true,
        ),
        (
            "done long before",
            |g| {
                g.seen.moved.insert(owner(), start() - KEPT);
            },
            false,
        ),
        ("its owner is gone", Gap::orphaned, true),
        (
            "its owner may be beyond the list",
            |g| {
                g.orphaned();
                g.cut = true;
            },
            false,
        ),
        (
            "its owner was beyond the list before",
            |g| {
                g.orphaned();
                g.seen.cut.insert(owner().kind);
            },
            false,
        ),
    ];
    for (what, change, wish) in cases {
        assert_eq!(wished(Kind::Kustomization, change), wish, "{what}");
    }
}

/// A root has a list of its own, and what brought an object of another kind is in another list, each of them older or newer.
#[test]
fn what_another_list_tells_of_the_owner_counts_as_far_as_it_is_in_order() {
    let cases: [(&str, Kind, Change, bool); 7] = [
        (
            "the root, and nothing new",
            Kind::Kustomization,
            |g| {
                let told = g.by_the_root();
                g.listed.insert(owner(), told);
            },
            false,
        ),
        (
            "the root's own list came first",
            Kind::Kustomization,
            |g| {
                let told = g.by_the_root();
                g.seen.roots.insert(owner(), fate(1, 0));
                g.listed.insert(owner(), told);
            },
            true,
        ),
        (
            "the root is not in the list",
            Kind::Kustomization,
            |g| {
                g.by_the_root();
                g.orphaned();
            },
            false,
        ),
        ("a release goes", Kind::HelmRelease, |_| {}, false),
        ("a release is gone", Kind::HelmRelease, Gap::gone, true),
        (
            "a release goes that was listed",
            Kind::HelmRelease,
            Gap::kept,
            true,
        ),
        (
            "a release goes, its owner was done a moment before",
            Kind::HelmRelease,
            |g| {
                g.seen.moved.insert(owner(), start());
            },
            true,
        ),
    ];
    for (what, kind, change, wish) in cases {
        assert_eq!(wished(kind, change), wish, "{what}");
    }
}

/// W44: the list that has its owner may be the one that does not come, and then nobody knows that it is gone.
#[test]
fn the_end_of_what_an_unheard_owner_brought_is_no_wish_while_that_ones_list_is_awaited() {
    for (awaited, wish) in [(true, false), (false, true)] {
        let mut gap = Gap::of(Kind::HelmRelease);
        Arc::make_mut(&mut gap.seen.children).remove(&owner());
        gap.seen.awaited.extend(awaited.then_some(owner().kind));
        assert_eq!(gap.is_wish(), wish, "{awaited}");
    }
}
