//! The simulated cluster that a replacement goes through, call by call; it asserts that none does harm.

use std::collections::BTreeMap;

use super::*;
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineRef;

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
pub(super) struct World {
    pub(super) now: OffsetDateTime,
    engines: BTreeMap<EngineKind, Engine>,
    pub(super) works: BTreeMap<EngineKind, bool>,
    pub(super) wish: EngineRef,
    in_force: Form,
    pub(super) change: Option<Change>,
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
    pub(super) fn new(new_works: bool) -> Self {
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
            pull_secret: None,
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

    pub(super) fn wishes(&mut self, kind: EngineKind) {
        self.wish.kind = kind;
        self.wish.bundle = form(kind).bundle;
        self.wish.change += 1;
    }

    pub(super) fn kind(&self) -> EngineKind {
        self.in_force.kind.unwrap()
    }

    pub(super) fn kill(&mut self) {
        self.rest = None;
        self.told = None;
    }

    fn next(&self) -> change::Next {
        change::next(&self.wish, &self.in_force, self.change.as_ref())
    }

    /// One call of the part that keeps what is in force.
    pub(super) fn keep(&mut self) {
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
            Next::Wait(_) | Next::Ends(_) | Next::Pinned(_) => {}
            Next::Unpin => engine.pinned = Some(false),
            Next::Still => return true,
        }
        false
    }

    /// One call of the watchdog's.
    pub(super) fn watch(&mut self) {
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
    pub(super) fn controllers(&mut self) {
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

    pub(super) fn settle(&mut self) {
        for _ in 0..400 {
            self.round();
        }
    }

    /// The engine that is there at the end, as it should be, and nothing of the other one.
    pub(super) fn only(&self, kind: EngineKind) {
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
