//! Keys that are replaced while everything else goes on: agent's and hub's real parts, the built-in Git server, and a
//! Kubernetes API that knows Secrets.

use linesman::agent::fault::{Boundary, Faults};
use linesman::agent::identity::Identity;
use linesman::clock;
use linesman::keys::KeyPair;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::slug;
use super::support::{Agent, TestHub};

mod lost;
mod replaced;
pub(super) mod world;

use world::{PATIENCE, World, cluster};

/// W42, and W3 for a rotation: whichever boundary the agent is killed at, the next process ends it with one key, and
/// no fetch failed meanwhile.
#[tokio::test]
async fn a_deploy_key_is_replaced_over_a_kill_at_any_boundary_without_a_failed_fetch() {
    let world = World::new("rotate-kills").await;
    let mut old = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    for boundary in Boundary::DEPLOY {
        assert_eq!(world.ask().await["deployKey"], json!(old));
        let (faults, reached) = Faults::halting(boundary);
        let killed = world.agent(faults).await;
        let reached = timeout(PATIENCE, reached.notified()).await;
        assert!(reached.is_ok(), "{boundary:?} was not reached");
        drop(killed);
        let agent = world.agent(Faults::default()).await;
        old = world.settled(&agent, &old).await;
    }
    {
        let log = world.log.lock().unwrap();
        assert!(log.good > 20, "{log:?}");
        assert_eq!(log.failed, Vec::<String>::new());
    }
    let rows = world
        .hub
        .hub
        .store
        .audit_tail(Some("eu1"), 500)
        .await
        .unwrap();
    for (action, least) in [
        ("cluster.rotate", 7),
        ("cluster.deploy-key.add", 7),
        ("cluster.deploy-key.drop", 7),
    ] {
        let found = rows.iter().filter(|r| r.action == action).count();
        assert!(found >= least, "{found} × {action}");
    }
    world.hub.stop().await;
}

/// H27: a key that the Git host does not take any more is replaced by itself.
#[tokio::test]
async fn a_key_that_was_revoked_at_the_host_is_replaced_without_being_asked() {
    let world = World::new("rotate-revoked").await;
    let store = &world.hub.hub.store;
    let old = KeyPair::from_seed(&[101; 32]).public();
    let cluster = store.cluster(&cluster()).await.unwrap().unwrap();
    let other = KeyPair::from_seed(&[9; 32]).public();
    let other = store
        .add_deploy_key(&cluster.id, other, None, clock::now())
        .await
        .unwrap()
        .unwrap();
    let ended = store.settle_key(&other, clock::now()).await.unwrap();
    assert_eq!(ended.len(), 1);
    let agent = world.agent(Faults::default()).await;
    agent.denied.send_replace(2);
    world.settled(&agent, &old.fingerprint()).await;
    world.hub.stop().await;
}

/// H16: nobody asks for it: both keys are replaced when they are of the age that the hub allows, and the new ones stay.
#[tokio::test]
async fn keys_that_have_become_too_old_are_replaced_without_being_asked() {
    let world = World::new("rotate-age").await;
    let identity = KeyPair::from_seed(&[1; 32]);
    let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    let agent = world.agent(Faults::default()).await;
    let path = "/v1/clusters/eu1/assignment";
    let assigned = async |by: &KeyPair| world.hub.call("GET", path, "").signed_by(by, 0).await;
    let (code, told) = assigned(&identity).await;
    assert_eq!((code, &told["rotate"]), (200, &Value::Null), "too young");

    // 91 days; the hub replaces them at 90.
    let older = "UPDATE cluster_key SET created_at = created_at - 7862400000";
    world.hub.execute(older, older).await;
    let new = world.settled(&agent, &deploy).await;
    let next = world.identified(&agent, &identity).await;
    let (code, problem) = assigned(&identity).await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    let (code, told) = assigned(&next).await;
    assert_eq!((code, &told["rotate"]), (200, &Value::Null), "young again");
    assert_eq!(world.in_force("deploy").await, [new]);
    assert_eq!(world.log.lock().unwrap().failed, Vec::<String>::new());
    assert_eq!(*agent.failed.lock().unwrap(), Vec::<String>::new());

    let store = &world.hub.hub.store;
    let rows = store.audit_tail(Some("eu1"), 100).await.unwrap();
    for (action, times) in [
        ("cluster.rotate", 0),
        ("cluster.deploy-key.add", 1),
        ("cluster.deploy-key.drop", 1),
        ("cluster.identity.add", 1),
        ("cluster.identity.drop", 1),
    ] {
        let found = rows.iter().filter(|row| row.action == action).count();
        assert_eq!(found, times, "{action}");
    }
    world.hub.stop().await;
}

#[tokio::test]
async fn a_rotation_names_a_key_and_a_cluster_that_has_one() {
    let hub = TestHub::start("rotate-asked").await;
    let token = hub.add("eu1").await;
    let path = "/v1/clusters/eu1/rotate";
    let (code, problem) = hub.post(path, &json!({})).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    let both = json!({"deployKey": true, "identity": true});
    let (code, problem) = hub.post(path, &both).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (code, wish) = hub.post(path, &both).await;
    assert_eq!(code, 200, "{wish}");
    assert_eq!(
        wish["identity"],
        json!(agent.identity.public().fingerprint())
    );
    let (_, assignment) = agent
        .call(&hub, "GET", "/v1/clusters/eu1/assignment", "")
        .await;
    assert_eq!(assignment["rotate"], wish);
    let viewer = hub.user("vera", &["viewer"], &[]).await;
    let (code, _) = hub.call_as(&viewer, ("POST", path), &[], &both).await;
    assert_eq!(code, 403);
    hub.stop().await;
}

/// A cluster that registers one key after the other is stopped before it fills the hub.
#[tokio::test]
async fn a_cluster_has_a_bounded_number_of_keys() {
    let world = World::new("rotate-bound").await;
    let agent = Identity::from_seeds(&[1; 32], &[101; 32]);
    let signer = Agent::new(1);
    let register = async |seed: u8, in_use: bool| {
        let key = KeyPair::from_seed(&[seed; 32]);
        let body = json!({
            "publicKey": key.public().openssh("").unwrap(),
            "proof": agent.deploy_proof(&key, &world.hub.hub.id, &cluster()),
            "inUse": in_use,
        });
        let path = "/v1/clusters/eu1/deploy-keys";
        signer
            .call(&world.hub, "POST", path, &body.to_string())
            .await
    };
    for seed in 10..17 {
        assert_eq!(register(seed, false).await.0, 200, "{seed}");
    }
    let (code, problem) = register(17, false).await;
    assert_eq!((code, slug(&problem)), (409, "full"));
    // What was put on record as a change is denied by the next record.
    let store = &world.hub.hub.store;
    let rows = store.audit_tail(Some("eu1"), 100).await.unwrap();
    let told = rows.iter().rev().take(2).map(|row| row.verdict.as_str());
    assert_eq!(told.collect::<Vec<_>>(), ["deny", "allow"]);
    // The one that is in use ends all others; a proof by another key counts for nothing.
    assert_eq!(register(16, true).await.0, 200);
    assert_eq!(world.in_force("deploy").await.len(), 1);
    let foreign = json!({
        "publicKey": KeyPair::from_seed(&[30; 32]).public().openssh("").unwrap(),
        "proof": agent.deploy_proof(&KeyPair::from_seed(&[31; 32]), &world.hub.hub.id, &cluster()),
    });
    let path = "/v1/clusters/eu1/deploy-keys";
    let (code, problem) = signer
        .call(&world.hub, "POST", path, &foreign.to_string())
        .await;
    assert_eq!((code, slug(&problem)), (403, "bad-signature"));
    world.hub.stop().await;
}

/// H37: a deploy key that cannot be put on record is not registered, and none ends; asked again, all of it is on record, once.
/// Before, the keys were changed and their records lost.
#[tokio::test]
async fn a_deploy_key_changes_on_record_or_not_at_all() {
    let world = World::new("rotate-deploy-record").await;
    let agent = Identity::from_seeds(&[1; 32], &[101; 32]);
    let [old, new] = [101, 60].map(|seed| KeyPair::from_seed(&[seed; 32]));
    let prints = [&old, &new].map(|key| key.public().fingerprint());
    let signer = Agent::new(1);
    let register = async |in_use: bool| {
        let body = json!({
            "publicKey": new.public().openssh("").unwrap(),
            "proof": agent.deploy_proof(&new, &world.hub.hub.id, &cluster()),
            "replaces": old.public().openssh("").unwrap(),
            "inUse": in_use,
        });
        let path = "/v1/clusters/eu1/deploy-keys";
        let body = body.to_string();
        signer.call(&world.hub, "POST", path, &body).await.0
    };
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    let mut expected = Vec::new();
    for (in_use, action, print, before) in [
        (false, "cluster.deploy-key.add", &prints[1], 1),
        (true, "cluster.deploy-key.drop", &prints[0], 2),
    ] {
        world.hub.execute(refuse, no_more).await;
        assert_eq!(register(in_use).await, 503);
        assert_eq!(world.in_force("deploy").await.len(), before, "{action}");
        world.hub.execute("DROP TRIGGER refuse", again).await;
        for _ in 0..2 {
            assert_eq!(register(in_use).await, 200);
        }
        expected.push((action.to_owned(), print.clone(), "allow".to_owned()));
        let store = &world.hub.hub.store;
        let rows = store.audit_tail(Some("eu1"), 100).await.unwrap();
        let told = rows
            .into_iter()
            .filter(|row| row.action.starts_with("cluster.deploy-key."))
            .map(|row| (row.action, row.target, row.verdict));
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
    assert_eq!(world.in_force("deploy").await, [prints[1].clone()]);
    world.hub.stop().await;
}
