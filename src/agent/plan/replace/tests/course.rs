//! Replacements that are followed to their end in the simulated cluster.

use proptest::prelude::*;

use super::world::World;
use super::*;

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
