//! L41: a key that is used for another cluster, and one that two processes use.

use linesman::agent::link::{self, LinkConfig, LinkState};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use super::figures::scraped;
use super::world::{PATIENCE, World, get, link_config, name, not_dialled, post};

/// The one's line stays, the other gets none, and the attempt is on record under the name that was claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_one_cluster_opens_no_line_of_another() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    world.another("eu2").await;
    let other = "eu2".parse().unwrap();
    let (_held, reference) = watch::channel(world.hub.reference());
    let config = LinkConfig {
        cluster: other,
        ..link_config(reference)
    };
    let (line, mut state) = watch::channel(not_dialled());
    let (incoming, _streams) = mpsc::channel(1);
    let mut agent = JoinSet::new();
    agent.spawn(link::run(config, line, incoming, CancellationToken::new()));
    let down = state.wait_for(|state| matches!(state, LinkState::Down { attempt: 1.., .. }));
    let down = timeout(PATIENCE, down).await.expect("it is refused");
    let LinkState::Down { cause, .. } = down.unwrap().clone() else {
        unreachable!("asked for down");
    };
    let refused = "the hub refused the line: unknown cluster";
    assert!(cause.starts_with(refused), "{cause}");
    assert!(world.hub.tunnels.get(&"eu2".parse().unwrap()).is_none());
    let epoch = world.hub.tunnels.get(&name()).unwrap().facts().epoch;
    assert_eq!(epoch, 1, "the line of the one whose key it is");
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    let rows = world.audit().await;
    let row = rows.iter().find(|row| row.action == "line.open").unwrap();
    let told = (
        row.actor.as_str(),
        row.cluster.as_deref(),
        row.verdict.as_str(),
    );
    assert_eq!(told, ("agent:eu2", Some("eu2"), "deny"));
    assert!(row.remote.starts_with("127.0.0.1:"), "{row:?}");
    let reason = row.reason.as_deref().unwrap();
    let not = "is not registered for the cluster";
    assert!(
        reason.starts_with("unknown cluster: the key SHA256:") && reason.contains(not),
        "{reason}"
    );
}

/// The newest has all that comes from then on, what ran by the other ends soon, and the change is on record with both
/// addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_with_one_key_the_newer_is_served_and_the_other_fenced() {
    let [first, second] = [ApiServer::start().await, ApiServer::start().await];
    let mut world = World::with_line(&first).await;
    let old = world.hub.tunnels.get(&name()).unwrap();
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    let watch = world.send(get("/api/v1/pods?watch=1")).await;
    assert_eq!(watch.status(), 200);
    let asked = first.seen().len();
    world.agent(&second).await;
    let new = async {
        while world
            .hub
            .tunnels
            .get(&name())
            .map(|line| line.facts().epoch)
            != Some(2)
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, new).await.expect("the newer line counts");
    for n in 1..10 {
        let written = world.send(post("/api/v1/namespaces/a/echo", "x")).await;
        assert_eq!(written.status(), 201);
        assert_eq!((first.seen().len(), second.seen().len()), (asked, n));
    }
    // It takes nothing more, and what it has ends.
    assert!(!old.takes_streams());
    timeout(PATIENCE, old.closed())
        .await
        .expect("the old line ends");
    first.no_watches().await;
    let facts = old.facts();
    let rows = world.audit().await;
    let taken: Vec<_> = rows
        .iter()
        .filter(|row| row.action == "line.takeover")
        .collect();
    let [row] = taken.as_slice() else {
        panic!("{taken:?}")
    };
    let held = format!("instance {} at {} held it", facts.instance, facts.remote);
    assert_eq!(row.reason, Some(held));
    let now = world.hub.tunnels.get(&name()).unwrap().facts();
    let told = (
        row.actor.as_str(),
        row.cluster.as_deref(),
        row.remote.as_str(),
    );
    assert_eq!(told, ("agent:eu1", Some("eu1"), now.remote.as_str()));
    assert_ne!(row.remote, facts.remote);
    let counted = scraped(&world)
        .await
        .remove("linesman_hub_line_takeovers_total");
    assert_eq!(counted, Some(1.0));
    // It does not take the line back.
    assert_eq!(now.epoch, 2);
}
