//! Classes that nobody knows.

use super::*;

/// An agent that tells of a new class at each look, and of many at once, is one voice among others.
#[test]
fn classes_that_nobody_knows_take_a_few_places_of_each_cluster() {
    let mut board = Board::default();
    let mut told = Vec::new();
    for round in 0..20 {
        let mut loud = seen("eu1", Phase::Healthy);
        let made_up = (0..100).map(|n| heal(&format!("Made{round}Up{n}"), HealResult::Open));
        loud.heals = made_up.collect();
        loud.heals.push(heal("ObjectMissing", HealResult::Open));
        let mut other = seen("us1", Phase::Healthy);
        other.heals = vec![heal("OfALaterAgent", HealResult::Open)];
        told.extend(at(&mut board, round * 60, &[loud, other]));
        assert_eq!(board.surplus, 0, "{round}");
    }
    let of = |name: &str| {
        let its = told.iter().filter(|(_, _, clusters)| *clusters == [name]);
        its.map(|(_, class, _)| class.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("us1"), ["OfALaterAgent"]);
    assert_eq!(of("eu1"), ["ObjectMissing", OTHER]);
    let key: Key = ("eu1".parse().unwrap(), OTHER.to_owned());
    let said = "100 faults more, of classes that this hub does not know";
    assert_eq!(board.troubles()[&key].text, said);
}

#[test]
fn heals_of_classes_that_nobody_knows_are_told_a_few_times_of_each_cluster() {
    let mut board = Board::default();
    let name = |name: &str| name.parse::<ClusterName>().unwrap();
    let healed = |of: &str, class: &str| (name(of), heal(class, HealResult::Healed));
    let made_up = (0..1_000).map(|n| healed("eu1", &format!("MadeUp{n}")));
    let mut all: Vec<_> = made_up.collect();
    all.push(healed("us1", "OfALaterAgent"));
    let told = told(&board.healed(START, &all));
    let of = |name: &str| {
        let its = told.iter().filter(|(_, _, clusters)| *clusters == [name]);
        its.count()
    };
    assert_eq!((of("eu1"), of("us1")), (STRANGE + 1, 1));
}
