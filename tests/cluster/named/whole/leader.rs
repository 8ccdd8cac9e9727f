//! F13: a Lease whose holder is gone, and that its successor does not take.

use std::time::Instant;

use serde_json::{Value, json};

use super::{named, over, pods, steps};
use crate::healing::{LIMIT, on_record, settle, unchanged, workloads, works};
use crate::support::api::path;
use crate::support::audit::Mark;
use crate::support::world::{self, FLUX};
use crate::support::{closely, figure, seconds, shown};

const CONTROLLER: &str = "source-controller";
const HOLDER: &str = "source-controller-gone_0";

/// F13: as a restored backup of the namespace does, the Lease names a Pod that there is no more, and for an hour: so long a
/// successor waits, by the holder's own word (client-go, `leaderelection.go`). It is freed, the Pod that waits leads, and
/// nothing else is done.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_lease_that_a_pod_which_is_gone_holds_for_an_hour_is_freed() {
    let world = world::adopted();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    let mark = Mark::now(&world.audit);
    let lease = format!("{CONTROLLER}-leader-election");
    let lease = path("coordination.k8s.io/v1", "Lease", FLUX, &lease);
    let uids = || -> Vec<Value> {
        let all = pods(&world, CONTROLLER).into_iter();
        all.map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    let (before, of_lease) = (uids(), world.uid(&lease).unwrap());
    let gone = json!({ "spec": { "holderIdentity": HOLDER, "leaseDurationSeconds": 3600 } });
    world.api.patch(&lease, &gone);
    let began = Instant::now();
    closely("the Lease is another one", seconds(LIMIT), || {
        let live = world.api.get(&lease).unwrap_or_default();
        let is_old = live["metadata"]["uid"] == of_lease;
        // Who leads renews it no more, and nobody takes it.
        let holder = &live["spec"]["holderIdentity"];
        assert!(!is_old || holder == HOLDER, "{live:#}");
        live.is_object() && !is_old
    });
    figure(
        "F13",
        "Lease of source-controller held by a Pod that is gone → freed (after 70 s)",
        "",
        shown(began.elapsed()),
    );
    works(
        &world,
        "F13",
        "… and the Pod that waited leads: function",
        "",
    );
    assert_eq!(uids(), before, "no other Pod");
    let waited = pods(&world, CONTROLLER)[0]["metadata"]["name"].clone();
    let leads = world.api.get(&lease).unwrap()["spec"]["holderIdentity"].clone();
    let (waited, leads) = (waited.as_str().unwrap(), leads.as_str().unwrap());
    assert!(leads.starts_with(waited), "{leads}, not {waited}");

    let object = format!("Deployment {FLUX}/{CONTROLLER}");
    let (heal, _) = named(&world, &known, ["LeaderStuck", &object]);
    let evidence = heal["evidence"].to_string();
    let said = "Pod source-controller-gone holds the Lease and is gone; renewed last at ";
    assert!(evidence.contains(said), "{heal:#}");
    let heal = over(&world, &heal);
    let came = (&heal["result"], steps(&heal));
    let freed = json!([["free-lease", "ok"]]);
    assert_eq!(came, (&json!("healed"), freed), "{heal:#}");
    assert_eq!(mark.written_in(FLUX), [""; 0], "the agent wrote");
    unchanged(&world, &workloads);
    settle(&world);
}
