//! A cluster under the name of one that was removed: the real line of the former, and what the API shows of the next.

use linesman::agent::fault::Faults;
use linesman::hub::tunnels::LineView;
use linesman::wire::id::ClusterName;
use serde_json::{Value, json};

use super::rotate::world::{PATIENCE, World};
use super::support::TestHub;
use crate::wait::until;

/// Neither a word nor a line of a cluster that has not joined.
async fn nothing_is_shown(hub: &TestHub) {
    let (_, cluster) = hub.get("/v1/clusters/eu1").await;
    let (_, line) = hub.get("/v1/clusters/eu1/line").await;
    let seen = [
        &cluster["lastSeen"],
        &cluster["line"]["since"],
        &cluster["line"]["remote"],
        &line["since"],
        &line["lastCause"],
        &line["instance"],
    ];
    assert_eq!(seen, [&Value::Null; 6], "{cluster} {line}");
    let up = (&cluster["line"]["up"], &line["up"], &line["denied"]);
    assert_eq!(up, (&json!(false), &json!(false), &json!({})));
}

/// H44: from the removal on, also while the former line ends, and behind that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_under_a_removed_ones_name_shows_nothing_of_it() {
    let world = World::new("anew").await;
    let (hub, name): (_, ClusterName) = (&world.hub, "eu1".parse().unwrap());
    let _agent = world.agent(Faults::default()).await;
    let tunnels = &hub.hub.tunnels;
    until("the hub has its line", PATIENCE, async || {
        tunnels.view(&name).up.is_some()
    })
    .await;
    let former = hub.hub.store.cluster(&name).await.unwrap().unwrap();
    let (_, shown) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(shown["line"]["up"], true);
    assert!(shown["lastSeen"].is_string(), "{shown}");

    assert_eq!(hub.delete("/v1/clusters/eu1", Some("*")).await, 204);
    hub.add("eu1").await;
    nothing_is_shown(hub).await;
    // Nor does it stay in memory.
    until("the former is forgotten", PATIENCE, async || {
        tunnels.view(&name) == LineView::default()
            && hub.hub.presence.last(&former.id) == (None, None)
    })
    .await;
    nothing_is_shown(hub).await;
    world.hub.stop().await;
}
