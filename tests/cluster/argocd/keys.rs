//! Keys and host keys replaced with Argo CD as the engine, as with Flux (`crate::keys`).

use crate::keys::{host, replaced_under_load};
use crate::support::world::{self, ARGOCD, STOCK_KUBELET, World};

/// W30, W42: both keys and the host's replaced while Argo CD is asked to look at the catalog again and again: nothing
/// fails, and one key of each kind is left.
#[test]
#[ignore = "needs a real cluster: make test"]
fn both_keys_are_replaced_under_load_and_nothing_fails() {
    replaced_under_load(&world::adopted_argocd());
}

/// W30, W2, H18, while Argo CD keeps to itself that it cannot read the catalog. When it has said so: `gitline`, and `make chaos`.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_changed_host_key_stops_the_catalog_until_it_is_accepted() {
    beside_a_stock_kubelet(false);
}

/// With a kubelet that is as slow as a stock one to bring a changed ConfigMap to its Pods.
pub(super) fn beside_a_stock_kubelet(waits: bool) {
    let mut world = World::open_with(STOCK_KUBELET, ARGOCD);
    world.adopt();
    host::changed_and_accepted(&mut world, waits, ["W2", ""]);
    world.close();
}
