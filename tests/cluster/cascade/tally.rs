//! What the runs of `cascade` came to, as figures.

use std::time::Duration;

use super::{OBJECTS, runs};
use crate::support::world::World;
use crate::support::{figure, shown};

/// What the runs past the policy came to.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) runs_with_loss: usize,
    pub(super) lost: usize,
    pub(super) cuts: Vec<Duration>,
    pub(super) back: Vec<Duration>,
}

/// Of all runs, those without a loss: what the acceptance has a bar for.
pub(super) fn kept(what: &str, with_loss: usize) {
    let (runs, whole) = (runs(), runs() - with_loss);
    // Rounded down, so that what is beyond the bar does not look as if it met it.
    let share = whole * 100 / runs;
    let told = format!("{share} % ({whole} of {runs} runs)");
    figure("W11", what, "≥ 95 %", told);
}

pub(super) fn tell(world: &World, crd: &str, count: usize, tally: &mut Tally) {
    let runs = runs();
    tally.cuts.sort_unstable();
    tally.back.sort_unstable();
    let kind = crd.split('.').next().unwrap();
    figure(
        "W11",
        &world.case(&format!(
            "{runs} times CRD {kind} deleted under {OBJECTS} objects of {count} sync objects, deletion allowed: objects lost"
        )),
        "",
        tally.lost,
    );
    kept(
        &world.case("… CRD deleted → runs in which each UID stayed"),
        tally.runs_with_loss,
    );
    let millis = |d: &Duration| format!("{} ms", d.as_millis());
    figure(
        "W11",
        &world.case("… CRD deleted → the engine has no rights to prune: median, slowest"),
        "",
        format!(
            "{}, {}",
            millis(&tally.cuts[runs / 2]),
            millis(tally.cuts.last().unwrap())
        ),
    );
    figure(
        "W11",
        &world.case("… CRD deleted → all sync objects back: median, slowest"),
        "≤ 120 s",
        format!(
            "{}, {}",
            shown(tally.back[runs / 2]),
            shown(*tally.back.last().unwrap())
        ),
    );
}
