use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use time::{Duration, OffsetDateTime};

use super::*;
use crate::agent::engine::Site;
use crate::agent::plan::change::{self, Form, Place};
use crate::agent::plan::tests::{desired_of, install_of, start};
use crate::clock::{parse_rfc3339, rfc3339};
use crate::manifests::EngineNamespaces;
use crate::wire::api::{EngineKind, EngineRef, SignerRef};
use crate::wire::id::Digest;

fn site(kind: EngineKind) -> Site {
    Site::of(kind, &EngineNamespaces::default())
}

const BOTH: [EngineKind; 2] = [EngineKind::Flux, EngineKind::Argocd];

#[test]
fn rights_go_before_pods_are_waited_for_and_finalizers_last() {
    let binding = ObjectId::new(Kind::ClusterRoleBinding, "", "cluster-reconciler");
    let controller = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let cut = Act::CutRights {
        binding: binding.clone(),
        uid: "u1".to_owned(),
    };
    let all = Remains {
        rights: vec![(binding, "u1".to_owned())],
        running: vec![controller.clone()],
        pods: vec!["kustomize-controller-1".to_owned()],
        pinned: 7,
    };
    let without = |change: fn(&mut Remains)| {
        let mut remains = all.clone();
        remains.rights.clear();
        change(&mut remains);
        remains
    };
    let cases = [
        (
            all.clone(),
            Next::Do(vec![cut, Act::ScaleToZero(controller.clone())]),
        ),
        (
            without(|_| ()),
            Next::Do(vec![Act::ScaleToZero(controller)]),
        ),
        (
            without(|r| r.running.clear()),
            Next::Ends("1 of its Pods still end, kustomize-controller-1 first".to_owned()),
        ),
        (
            without(|r| {
                r.running.clear();
                r.pods.clear();
            }),
            Next::Unpin,
        ),
        (Remains::default(), Next::Still),
    ];
    for (remains, expected) in cases {
        assert_eq!(next(&remains, false), expected, "{remains:?}");
        // Pods that had their time hold up nothing, rights and controllers do.
        let late = match expected {
            Next::Ends(_) => Next::Unpin,
            other => other,
        };
        assert_eq!(next(&remains, true), late, "{remains:?}");
    }
}

/// A Pod that never ends was waited for 75 s, and as long once more after the sync objects were freed.
#[test]
fn what_comes_behind_the_wait_for_pods_does_not_begin_it_anew() {
    let ends = Next::Ends(String::new());
    for (step, since, late, expected) in [
        (&ends, None, false, Some(9)),
        (&ends, Some(1), false, Some(1)),
        (&Next::Unpin, Some(1), true, Some(1)),
        (&Next::Still, Some(1), true, Some(1)),
        // They ended in time, or there were none.
        (&Next::Unpin, Some(1), false, None),
        (&Next::Unpin, None, false, None),
        (&Next::Do(Vec::new()), Some(1), true, None),
    ] {
        let waits = waits(step, (since, late), 9);
        assert_eq!(waits, expected, "{step:?} {since:?} {late}");
    }
}

/// A Pod that never ends was waited for before what was in force came back, and as long once more before the rest of it went.
#[test]
fn pods_that_outlived_their_time_before_the_way_back_are_not_given_it_once_more() {
    let now = start();
    let mut change = began(EngineKind::Argocd, EngineKind::Flux, 1, now);
    let late = |change: &Change, found| had_their_time(ending(change, found), now);
    change.failed = Some("it did not work".to_owned());
    assert!(!late(&change, None));
    change.ending = Some(rfc3339(now - ENDS));
    assert!(late(&change, None));
    // Somebody brought them to life meanwhile.
    assert!(!late(&change, Some(now - Duration::seconds(1))));
    // On the way there nothing was waited for yet.
    change.failed = None;
    assert!(!late(&change, None));
}

#[test]
fn what_the_agent_makes_for_an_engine_goes_with_it_and_nothing_that_holds_other_things() {
    for kind in BOTH {
        let install = install_of(kind);
        let other = install_of(kind.other());
        let mut inventory: BTreeSet<ObjectId> = crate::agent::engine::extras(&site(kind))
            .into_iter()
            .collect();
        inventory.extend(change::places(&install.bundle).filter_map(|p| p.id()));
        let guards = |id: &&ObjectId| !id.kind.optional() && id.kind != Kind::Namespace;
        for id in install.wanted.keys().filter(guards) {
            assert!(inventory.contains(id), "{id} would stay");
        }
        let change = began(kind.other(), kind, 1, start());
        let gone = change::surplus(&change, &other);
        let stays = |id: &ObjectId| {
            matches!(
                id.kind,
                Kind::CustomResourceDefinition | Kind::Namespace | Kind::Secret
            )
        };
        assert!(!gone.iter().any(|id| stays(id) && id.kind != Kind::Secret));
        assert_eq!(gone.last().unwrap().name, "linesman-engine", "{gone:?}");
        assert!(
            gone.iter().all(|id| !other.wanted.contains_key(id)),
            "{gone:?}"
        );
    }
}

#[test]
fn no_engine_that_does_not_verify_takes_the_place_of_one_that_does() {
    for (kind, signed, refused) in [
        (EngineKind::Argocd, true, true),
        (EngineKind::Argocd, false, false),
        (EngineKind::Flux, true, false),
    ] {
        let mut wished = desired_of(kind).assignment;
        wished.catalog.signers.clear();
        wished.catalog.signers.extend(signed.then(|| SignerRef {
            fingerprint: "A8".repeat(20),
            public_key: String::new(),
        }));
        assert_eq!(is_unverified(&wished), refused, "{kind} {signed}");
    }
}

fn form(kind: EngineKind) -> Form {
    Form {
        kind: Some(kind),
        version: "1".to_owned(),
        bundle: Digest::from_bytes([kind as u8 + 1; 32]),
        registry: None,
        path: "p".to_owned(),
    }
}

fn began(from: EngineKind, to: EngineKind, number: u64, now: OffsetDateTime) -> Change {
    let mut objects: Vec<Place> = Vec::new();
    for kind in BOTH {
        objects.extend(change::places(&install_of(kind).bundle));
        objects.extend(
            crate::agent::engine::extras(&site(kind))
                .iter()
                .map(Place::of),
        );
    }
    Change {
        from: form(from),
        to: form(to),
        number,
        since: rfc3339(now),
        within: 300,
        both: from != to,
        objects,
        failed: None,
        ending: None,
    }
}

/// One engine in the simulated cluster.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an object of its own, there or not"
)]
struct Engine {
    rights: bool,
    replicas: bool,
    pods: bool,
    /// Sync objects with finalizers; none = there are no sync objects.
    pinned: Option<bool>,
    prunes: bool,
    adopted: bool,
    /// Objects of its install beside those above.
    install: bool,
}

impl Engine {
    fn runs(&self) -> bool {
        self.rights && self.pods && self.pinned.is_some()
    }
}

/// What lives in the cluster, and what only the agent knows.
struct World {
    now: OffsetDateTime,
    engines: BTreeMap<EngineKind, Engine>,
    works: BTreeMap<EngineKind, bool>,
    wish: EngineRef,
    in_force: Form,
    change: Option<Change>,
    // Lost with the process.
    rest: Option<(u64, EngineKind)>,
    told: Option<Told>,
}

#[derive(Debug, Clone, PartialEq)]
enum Told {
    Works(u64),
    Failed(u64),
    Trimmed(u64),
}

impl World {
    fn new(new_works: bool) -> Self {
        let old = Engine {
            rights: true,
            replicas: true,
            pods: true,
            pinned: Some(true),
            prunes: true,
            adopted: true,
            install: true,
        };
        let wish = EngineRef {
            kind: EngineKind::Flux,
            version: "1".to_owned(),
            bundle: form(EngineKind::Flux).bundle,
            size: 1,
            registry: None,
            within: 300,
            change: 1,
        };
        Self {
            now: start(),
            engines: [
                (EngineKind::Flux, old),
                (EngineKind::Argocd, Engine::default()),
            ]
            .into(),
            works: [(EngineKind::Flux, true), (EngineKind::Argocd, new_works)].into(),
            wish,
            in_force: form(EngineKind::Flux),
            change: None,
            rest: None,
            told: None,
        }
    }

    fn wishes(&mut self, kind: EngineKind) {
        self.wish.kind = kind;
        self.wish.bundle = form(kind).bundle;
        self.wish.change += 1;
    }

    fn kind(&self) -> EngineKind {
        self.in_force.kind.unwrap()
    }

    fn kill(&mut self) {
        self.rest = None;
        self.told = None;
    }

    fn next(&self) -> change::Next {
        change::next(&self.wish, &self.in_force, self.change.as_ref())
    }

    /// One call of the part that keeps what is in force.
    fn keep(&mut self) {
        let next = self.next();
        if let (Some(told), Some(change)) = (self.told.take(), self.change.as_mut()) {
            match told {
                Told::Works(n) if n == change.number => self.change = None,
                Told::Failed(n) if n == change.number => change.failed = Some("x".to_owned()),
                Told::Trimmed(n) if n == change.number => change.objects.clear(),
                Told::Works(_) | Told::Failed(_) | Told::Trimmed(_) => {}
            }
            return;
        }
        match next {
            change::Next::Keep => {}
            change::Next::Forget => self.change = None,
            change::Next::Begin { from } => {
                let to = self.wish.kind;
                let mut change = began(from.kind.unwrap(), to, self.wish.change, self.now);
                let known = self.change.as_ref();
                change.both = change::is_of_both(&from, &self.in_force, &change.to, known);
                if !self.in_force.is_another(&change.to) {
                    self.in_force = change.to.clone();
                }
                self.change = Some(change);
            }
            change::Next::Switch => {
                let change = self.change.clone().unwrap();
                let began = parse_rfc3339(&change.since).unwrap();
                if self.still(change.number) {
                    self.in_force = change.to;
                } else if self.now - began >= change.limit() {
                    self.change.as_mut().unwrap().failed = Some("late".to_owned());
                }
            }
            change::Next::Back => {
                let change = self.change.clone().unwrap();
                let crosses = self.in_force.is_another(&change.from);
                if !crosses || self.still(change.number) {
                    self.in_force = change.from;
                }
            }
        }
    }

    /// One pass at the engine in force.
    fn still(&mut self, number: u64) -> bool {
        let kind = self.kind();
        self.rest == Some((number, kind)) && self.pass(kind)
    }

    fn pass(&mut self, kind: EngineKind) -> bool {
        let engine = self.engines.get_mut(&kind).unwrap();
        let id = ObjectId::new(Kind::Deployment, "", "x");
        let list = |there: bool, id: &ObjectId| if there { vec![id.clone()] } else { vec![] };
        let remains = Remains {
            rights: list(engine.rights, &id)
                .into_iter()
                .map(|id| (id, String::new()))
                .collect(),
            running: list(engine.replicas, &id),
            pods: list(engine.pods, &id)
                .iter()
                .map(|_| String::new())
                .collect(),
            pinned: usize::from(engine.pinned == Some(true)),
        };
        match next(&remains, false) {
            // A kill may come after any of them.
            Next::Do(acts) => match &acts[0] {
                Act::CutRights { .. } => engine.rights = false,
                Act::ScaleToZero(_) => engine.replicas = false,
            },
            Next::Wait(_) | Next::Ends(_) => {}
            Next::Unpin => engine.pinned = Some(false),
            Next::Still => return true,
        }
        false
    }

    /// One call of the watchdog's.
    fn watch(&mut self) {
        let kind = self.kind();
        let change = self.change.clone();
        if change::rests(&self.next(), &self.in_force, change.as_ref()) {
            self.rest = Some((change.unwrap().number, kind));
            return;
        }
        self.rest = None;
        let prunes = change::prunes(change.as_ref());
        let open = change.filter(Change::is_open);
        let engine = self.engines.get_mut(&kind).unwrap();
        if !engine.install {
            engine.install = true;
        } else if !engine.rights {
            engine.rights = true;
        } else if !engine.replicas {
            engine.replicas = true;
        } else if engine.pinned.is_none() {
            (engine.pinned, engine.prunes) = (Some(false), prunes);
        } else if engine.prunes != prunes {
            engine.prunes = prunes;
        } else if engine.pods && engine.pinned == Some(true) && self.works[&kind] {
            if let Some(change) = open {
                self.clear_up(&change);
            }
        } else if let Some(change) = open.filter(|c| c.failed.is_none()) {
            let began = parse_rfc3339(&change.since).unwrap();
            if self.now - began >= change.limit() {
                self.told = Some(Told::Failed(change.number));
            }
        }
    }

    /// The engine in force works: the other one goes.
    fn clear_up(&mut self, change: &Change) {
        let other = self.kind().other();
        if !self.pass(other) {
            return;
        }
        let install = install_of(self.kind());
        let gone = change::surplus(change, &install);
        let harmless = |id: &ObjectId| {
            !matches!(id.kind, Kind::Namespace | Kind::CustomResourceDefinition)
                && !install.wanted.contains_key(id)
        };
        assert!(gone.iter().all(harmless), "{gone:?}");
        let left = self.engines.get_mut(&other).unwrap();
        if left.pinned.is_some() {
            assert_eq!(left.pinned, Some(false), "it would prune");
            assert!(!left.pods && !left.rights, "{left:?}");
            left.pinned = None;
        } else if left.install {
            (left.install, left.adopted) = (false, false);
        } else {
            self.told = Some(match change.failed {
                Some(_) => Told::Trimmed(change.number),
                None => Told::Works(change.number),
            });
        }
    }

    /// What controllers do by themselves.
    fn controllers(&mut self) {
        let running: Vec<EngineKind> = BOTH
            .into_iter()
            .filter(|kind| self.engines[kind].runs())
            .collect();
        assert!(running.len() < 2, "two engines work on the same objects");
        for kind in BOTH {
            let works = self.works[&kind];
            let engine = self.engines.get_mut(&kind).unwrap();
            engine.pods = engine.replicas;
            if engine.runs() && works {
                assert!(
                    engine.adopted || !engine.prunes,
                    "{kind} prunes before it has adopted what is there"
                );
                engine.pinned = Some(true);
                engine.adopted = true;
            }
        }
    }

    fn round(&mut self) {
        self.keep();
        self.controllers();
        self.watch();
        self.controllers();
        self.now += Duration::seconds(5);
    }

    fn settle(&mut self) {
        for _ in 0..400 {
            self.round();
        }
    }

    /// The engine that is there at the end, as it should be, and nothing of the other one.
    fn only(&self, kind: EngineKind) {
        let engine = &self.engines[&kind];
        assert!(engine.runs() && engine.prunes && engine.adopted, "{self:?}");
        let other = &self.engines[&kind.other()];
        assert!(
            !other.install && !other.rights && !other.pods && other.pinned.is_none(),
            "{self:?}"
        );
        assert_eq!(self.in_force, form(kind));
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let change = self.change.as_ref().map(|c| (c.number, &c.failed));
        write!(f, "{:?} {:?} {change:?}", self.engines, self.in_force)
    }
}

#[test]
fn an_engine_takes_the_place_of_the_other_and_gives_it_back() {
    let mut world = World::new(true);
    for kind in [EngineKind::Argocd, EngineKind::Flux, EngineKind::Argocd] {
        world.wishes(kind);
        world.settle();
        world.only(kind);
        assert_eq!(world.change, None);
    }
}

#[test]
fn one_that_does_not_work_is_undone_and_tried_again_when_it_is_wished_again() {
    let mut world = World::new(false);
    world.wishes(EngineKind::Argocd);
    world.settle();
    world.only(EngineKind::Flux);
    let undone = world.change.clone().unwrap();
    assert!(undone.failed.is_some() && !undone.is_open());
    world.works.insert(EngineKind::Argocd, true);
    world.settle();
    world.only(EngineKind::Flux);
    world.wishes(EngineKind::Argocd);
    world.settle();
    world.only(EngineKind::Argocd);
}

/// One thing that may happen between two calls.
#[derive(Debug, Clone, Copy)]
enum Event {
    Keep,
    Watch,
    Controllers,
    Kill,
    Wish(bool),
    Minutes(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Keep),
        8 => Just(Event::Watch),
        6 => Just(Event::Controllers),
        3 => Just(Event::Kill),
        1 => any::<bool>().prop_map(Event::Wish),
        1 => (0_i64..4).prop_map(Event::Minutes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Killed at any point, delayed, wished otherwise meanwhile: at no time do two engines work, does one prune what
    /// it has not adopted, or is anything removed that would take workloads with it; and in the end one engine is
    /// there, the one that was wished last if it works.
    #[test]
    fn any_order_of_kills_and_wishes_converges_without_harm(
        works: bool,
        events in prop::collection::vec(event(), 0..120),
    ) {
        let mut world = World::new(works);
        world.wishes(EngineKind::Argocd);
        for event in events {
            match event {
                Event::Keep => world.keep(),
                Event::Watch => world.watch(),
                Event::Controllers => world.controllers(),
                Event::Kill => world.kill(),
                Event::Wish(other) => {
                    world.wishes(if other { EngineKind::Flux } else { EngineKind::Argocd });
                }
                Event::Minutes(minutes) => world.now += Duration::minutes(minutes),
            }
        }
        let wished = world.wish.kind;
        world.settle();
        let failed = world.change.as_ref().is_some_and(|c| c.failed.is_some());
        let expected = match (works, failed) {
            // A kill and a wait may have cost it its time.
            (true, false) => wished,
            (true, true) => world.kind(),
            (false, _) => EngineKind::Flux,
        };
        world.only(expected);
    }
}
