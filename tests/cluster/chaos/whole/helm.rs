//! helm-controller, of which no root is asked: a suspended `HelmRelease` of the agent's own is.

use std::time::Duration;

use crate::healing::{LIMIT, settle, unchanged, workloads};
use crate::support::place::Place;
use crate::support::world::{FLUX, World};
use crate::support::{figure, seconds, shown, until};

use super::wedged::is_restarted;

const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/helmreleases.helm.toolkit.fluxcd.io";

pub(crate) fn canary() -> String {
    format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/{FLUX}/helmreleases/linesman-probe")
}

/// The controller has answered what it was asked last.
pub(crate) fn answered(world: &World, path: &str) -> Duration {
    until(&format!("{path} is answered"), seconds(LIMIT), || {
        let live = world.api.try_get(path).ok().flatten();
        live.is_some_and(|live| {
            let asked = &live["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
            asked.is_string() && *asked == live["status"]["lastHandledReconcileAt"]
        })
    })
}

/// F12, W12, W11
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_helm_controller_that_hangs_is_restarted_and_its_canary_outlives_its_crd() {
    let mut world = World::open_from("helm", "flux", &Place::bundle("flux-helm"));
    world.adopt();
    answered(&world, &canary());
    let live = world.api.get(&canary()).unwrap();
    assert_eq!(live["spec"]["suspend"], true);
    is_restarted(&world, "helm-controller", &canary());

    settle(&world);
    let workloads = workloads(&world);
    let uid = world.uid(&canary()).unwrap();
    world.delete_guarded(CRD);
    let took = until("the canary is another one", seconds(2 * LIMIT), || {
        world.uid(&canary()).is_some_and(|new| new != uid)
    });
    let took = took + answered(&world, &canary());
    figure(
        "W11",
        "CRD helmreleases deleted → the canary back and answered",
        "",
        shown(took),
    );
    settle(&world);
    unchanged(&world, &workloads);
}
