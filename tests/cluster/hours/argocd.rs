//! W30: what of that is for Argo CD as well, in `tests/run hours 60 argocd`.

use super::{away_and_on_record, idles};
use crate::support::world;

/// W25, W14, H49: the same with the list of Argo CD. It says for three minutes nothing of what it cannot fetch, so half of it has to be
/// longer than that.
#[test]
#[ignore = "takes more than an hour: tests/run hours 60 argocd"]
fn an_hour_without_the_hub_and_half_of_it_without_git() {
    away_and_on_record(&mut world::adopted_argocd());
}

/// W23: the same, and the `StatefulSet` is written to by nobody either.
#[test]
#[ignore = "takes twenty minutes: tests/run hours 60 argocd"]
fn twenty_healthy_minutes_cost_next_to_nothing() {
    idles(&world::adopted_argocd());
}
