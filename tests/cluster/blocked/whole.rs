//! What keeps Pods of Argo CD away, with the hub there: for `make chaos` only, beside the same without the hub.

use super::named_and_left;
use crate::support::world;

/// W16, W30
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_keeps_pods_of_argo_cd_away_is_named_and_left() {
    named_and_left(&world::adopted_argocd());
}
