//! Clusters whose keys an operator revoked: the agent's real parts and its engine's fetches, against the real hub.

use std::time::Duration;

use linesman::agent::fault::{Boundary, Faults};
use linesman::agent::link::LinkState;
use linesman::hub::api::openapi::{Caller, operations};
use linesman::keys::KeyPair;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::lost::silence;
use super::rotate::world::{PATIENCE, Running, World};
use super::slug;
use super::support::{Agent, TestHub, token_of};
use crate::wait::{measured, until};

const PATH: &str = "/v1/clusters/eu1/revoke";
/// Before the next beat of a stream of orders (15 s): nothing has to wait for one.
const OVER: Duration = Duration::from_secs(10);

async fn line_is_up(agent: &Running) {
    let mut line = agent.line.clone();
    let up = line.wait_for(|l| matches!(l, LinkState::Up { .. }));
    timeout(PATIENCE, up).await.unwrap().unwrap();
}

/// What the hub itself says of it.
async fn revoked(hub: &TestHub) -> Option<Value> {
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    let all = view["conditions"].as_array().unwrap();
    let mut found = all.iter().filter(|c| c["type"] == "IdentityRevoked");
    found.next().map(|c| json!([c["status"], c["message"]]))
}

async fn refused_on_every_route(hub: &TestHub, key: &KeyPair) {
    for operation in operations().filter(|o| o.caller == Caller::Agent) {
        let path = operation.path.replace("{name}", "eu1");
        if ["/v1/join", "/v1/recover"].contains(&path.as_str()) {
            continue;
        }
        let path = path.replace("{digest}", &format!("sha256:{}", "0".repeat(64)));
        let method = operation.method.to_uppercase();
        let call = hub.call(&method, &path, "");
        let (code, problem) = call.signed_by(key, 0).await;
        assert_eq!((code, slug(&problem)), (403, "revoked"), "{path}");
    }
}

/// H17: within 2 s no route takes anything from the cluster, and its agent is told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_cluster_is_refused_on_every_route() {
    let world = World::new("revoke").await;
    let (hub, old) = (&world.hub, KeyPair::from_seed(&[1; 32]));
    let first = world.agent(Faults::default()).await;
    line_is_up(&first).await;
    until("the engine fetches", PATIENCE, async || {
        world.log.lock().unwrap().good > 0
    })
    .await;
    let path = "/v1/clusters/eu1/orders";
    let mut orders = hub.call("GET", path, "").stream(&old).await;
    assert!(orders.chunk().await.unwrap().is_some());

    let (code, told) = hub
        .post(PATH, &json!({"reason": "a node was broken into"}))
        .await;
    let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    let next = "linesman cluster readopt eu1";
    let first_time = json!({
        "cluster": "eu1", "keys": [old.public().fingerprint(), deploy], "already": false, "next": next,
    });
    assert_eq!((code, told), (200, first_time));
    let ended = async {
        while orders.chunk().await.is_ok_and(|chunk| chunk.is_some()) {}
        let up = async || hub.hub.tunnels.view(&"eu1".parse().unwrap()).up.is_some();
        until("the line is down", PATIENCE, async || !up().await).await;
        let failed = async || !world.log.lock().unwrap().failed.is_empty();
        until("the engine is refused", PATIENCE, failed).await;
    };
    let row = ("H17", "cluster revoked → nothing goes on", "≤ 2 s");
    measured(row, OVER, ended).await;
    refused_on_every_route(hub, &old).await;
    // The agent is told why, and goes on asking.
    let mut line = first.line.clone();
    let why = |l: &LinkState| matches!(l, LinkState::Down { cause, .. } if cause.contains(next));
    timeout(PATIENCE, line.wait_for(why))
        .await
        .unwrap()
        .unwrap();
    let message = format!(
        "by admin: a node was broken into; the hub takes nothing from the cluster; the way back: {next}"
    );
    assert_eq!(revoked(hub).await, Some(json!(["True", message])));
    let (code, told) = hub.post(PATH, &json!({})).await;
    let again = json!({"cluster": "eu1", "keys": [], "already": true, "next": next});
    assert_eq!((code, told), (200, again));
    let rows = hub.hub.store.audit_tail(Some("eu1"), 500).await.unwrap();
    let why = Some("a node was broken into");
    let done = rows.iter().filter(|r| r.reason.as_deref() == why);
    let mut done: Vec<&str> = done.map(|r| r.action.as_str()).collect();
    done.sort_unstable();
    assert_eq!(
        done,
        [
            "cluster.deploy-key.drop",
            "cluster.identity.drop",
            "cluster.revoke"
        ]
    );

    world.hub.stop().await;
}

/// H17: the way back is new YAML, and it is gone with other keys: the old ones may be in somebody else's hands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_cluster_is_adopted_again_with_keys_of_its_own_making() {
    let world = World::new("revoke-readopt").await;
    let (hub, old) = (&world.hub, KeyPair::from_seed(&[1; 32]));
    let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    assert_eq!(hub.post(PATH, &json!({})).await.0, 200);
    let (code, answer) = hub.post("/v1/clusters/eu1/join-tokens", &json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let token = token_of(&answer);
    let (code, problem) = Agent::new(1).join(hub, "eu1", &token).await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    let join = Some(world.yaml(token));
    let second = world.agent_of(Faults::default(), join).await;
    let new = world.identified(&second, &old).await;
    let own = second.identity.borrow().deploy.public().fingerprint();
    assert_ne!(own, deploy);
    assert_eq!(world.in_force("deploy").await, [own]);
    assert_eq!(revoked(hub).await, None);
    let path = "/v1/clusters/eu1/assignment";
    let (code, _) = hub.call("GET", path, "").signed_by(&new, 0).await;
    assert_eq!(code, 200);
    let (code, problem) = hub.call("GET", path, "").signed_by(&old, 0).await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    world.hub.stop().await;
}

/// H17: a successor that was made and not yet told to the hub was in the same Secret, and is no way round the revocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_the_hub_never_heard_of_does_not_outlive_a_revocation() {
    let world = World::new("revoke-next").await;
    let (hub, old) = (&world.hub, KeyPair::from_seed(&[1; 32]));
    let asked = json!({"identity": true});
    let (code, wish) = hub.post("/v1/clusters/eu1/rotate", &asked).await;
    assert_eq!(code, 200, "{wish}");
    let (faults, made) = Faults::halting(Boundary::IdentityMade);
    let killed = world.agent(faults).await;
    timeout(PATIENCE, made.notified()).await.unwrap();
    let next = killed.identity.borrow().next_identity.clone().unwrap();
    drop(killed);
    assert_eq!(hub.post(PATH, &json!({})).await.0, 200);
    let (code, answer) = hub.post("/v1/clusters/eu1/join-tokens", &json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let join = Some(world.yaml(token_of(&answer)));
    let second = world.agent_of(Faults::default(), join).await;
    let new = world.identified(&second, &old).await;
    assert_ne!(new.public(), next.public());
    world.hub.stop().await;
}

/// H17
#[tokio::test]
async fn a_revocation_needs_a_role_a_cluster_that_joined_and_a_reason_of_one_line() {
    let hub = TestHub::start("revoke-refused").await;
    let token = hub.add("eu1").await;
    let refused = async |path: &str, body: Value| {
        let (code, problem) = hub.post(path, &body).await;
        (code, slug(&problem).to_owned(), problem)
    };
    let (code, kind, _) = refused("/v1/clusters/none/revoke", json!({})).await;
    assert_eq!((code, kind.as_str()), (404, "not-found"));
    let (code, kind, problem) = refused(PATH, json!({})).await;
    assert_eq!((code, kind.as_str()), (404, "not-found"));
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains("linesman cluster readopt eu1"), "{next}");
    for reason in ["two\nlines".to_owned(), "x".repeat(201)] {
        let (code, kind, _) = refused(PATH, json!({"reason": reason})).await;
        assert_eq!((code, kind.as_str()), (400, "bad-request"));
    }
    let (code, kind, _) = refused(PATH, json!({"why": "x"})).await;
    assert_eq!((code, kind.as_str()), (400, "unknown-field"));
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let viewer = hub.user("vera", &["viewer"], &[]).await;
    let (code, _) = hub.call_as(&viewer, ("POST", PATH), &[], &json!({})).await;
    assert_eq!(code, 403);
    // Nothing of it changed anything.
    let path = "/v1/clusters/eu1/assignment";
    assert_eq!(agent.call(&hub, "GET", path, "").await.0, 200);
    hub.stop().await;
}

/// F50: an operator ended it: that nothing is heard of it any more is no fault.
#[tokio::test]
async fn nobody_is_called_for_the_silence_of_a_revoked_cluster() {
    let hub = TestHub::start("revoke-silence").await;
    let token = hub.add("eu1").await;
    Agent::new(1).join(&hub, "eu1", &token).await;
    let awaited = async || {
        let all = hub.hub.store.joined().await.unwrap();
        all.iter().map(|c| c.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(awaited().await, ["eu1"]);
    let cluster = hub.hub.store.cluster(&"eu1".parse().unwrap()).await;
    let id = "01930000-0000-7000-8000-000000000003";
    let note = silence(id);
    let cluster = cluster.unwrap().unwrap();
    hub.hub
        .store
        .note_heal(&cluster.id, note, linesman::clock::now())
        .await
        .unwrap();
    let (code, told) = hub.post(PATH, &json!({})).await;
    assert_eq!(code, 200, "{told}");
    assert_eq!(awaited().await, [] as [String; 0]);
    // What was told of it before is over, too.
    let (_, closed) = hub.get(&format!("/v1/heals/{id}")).await;
    let next =
        "nothing until the agent is heard and lost again; closed by admin: the cluster was revoked";
    assert_eq!(
        (&closed["result"], &closed["next"]),
        (&json!("failed"), &json!(next))
    );
    hub.stop().await;
}
