//! The identity key is replaced.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use linesman::agent::fault::{Boundary, Faults};
use linesman::agent::identity;
use linesman::agent::link::LinkState;
use linesman::clock;
use linesman::hub::api::agents::identity::{end_before, in_use};
use linesman::keys::KeyPair;
use linesman::wire::frame::{Class, Code, Kind};
use serde_json::json;
use tokio::time::timeout;

use super::super::slug;
use super::super::support::Agent;
use super::world::{PATIENCE, World, cluster};

/// H16: whichever boundary the agent is killed at, the next process ends the rotation with one identity; the line moves
/// to it, and no call of a living agent fails.
#[tokio::test]
async fn an_identity_is_replaced_over_a_kill_at_any_boundary_without_a_failed_call() {
    let world = World::new("rotate-identity").await;
    let mut old = KeyPair::from_seed(&[1; 32]);
    for boundary in Boundary::IDENTITY {
        let asked = json!({"identity": true});
        let (code, wish) = world.hub.post("/v1/clusters/eu1/rotate", &asked).await;
        assert_eq!(code, 200, "{wish}");
        let (faults, reached) = Faults::halting(boundary);
        let killed = world.agent(faults).await;
        let reached = timeout(PATIENCE, reached.notified()).await;
        assert!(reached.is_ok(), "{boundary:?} was not reached");
        assert_eq!(*killed.failed.lock().unwrap(), Vec::<String>::new());
        drop(killed);
        let agent = world.agent(Faults::default()).await;
        let new = world.identified(&agent, &old).await;
        assert_eq!(*agent.failed.lock().unwrap(), Vec::<String>::new());
        let path = "/v1/clusters/eu1/assignment";
        let call = world.hub.call("GET", path, "");
        let (code, problem) = call.signed_by(&old, 0).await;
        assert_eq!((code, slug(&problem)), (403, "revoked"), "{boundary:?}");
        old = new;
    }
    let rows = world
        .hub
        .hub
        .store
        .audit_tail(Some("eu1"), 500)
        .await
        .unwrap();
    for action in ["cluster.identity.add", "cluster.identity.drop"] {
        let found = rows.iter().filter(|r| r.action == action).count();
        assert_eq!(found, 3, "{action}");
    }
    world.hub.stop().await;
}

/// The line of a living agent moves before the old one ends.
#[tokio::test]
async fn a_line_moves_to_the_new_identity_without_a_gap() {
    let world = World::new("rotate-line").await;
    let agent = world.agent(Faults::default()).await;
    let mut line = agent.line.clone();
    let up = line.wait_for(|l| matches!(l, LinkState::Up { .. }));
    timeout(PATIENCE, up).await.unwrap().unwrap();
    let gaps = Arc::new(Mutex::new(0_u32));
    let (seen, mut watched) = (gaps.clone(), agent.line.clone());
    let watching = async move {
        loop {
            if matches!(*watched.borrow_and_update(), LinkState::Down { .. }) {
                *seen.lock().unwrap() += 1;
            }
            watched.changed().await.unwrap();
        }
    };
    let rotated = async {
        let asked = json!({"identity": true, "deployKey": true});
        let (code, wish) = world.hub.post("/v1/clusters/eu1/rotate", &asked).await;
        assert_eq!(code, 200, "{wish}");
        world
            .identified(&agent, &KeyPair::from_seed(&[1; 32]))
            .await;
        let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
        world.settled(&agent, &deploy).await;
    };
    tokio::select! {
        () = watching => unreachable!(),
        () = rotated => {}
    }
    assert_eq!(*gaps.lock().unwrap(), 0);
    assert_eq!(*agent.failed.lock().unwrap(), Vec::<String>::new());
    world.hub.stop().await;
}

/// A line of the old key that comes up while the change is under way ends nothing.
#[tokio::test]
async fn a_key_that_was_replaced_ends_no_other() {
    let world = World::new("rotate-race").await;
    let store = &world.hub.hub.store;
    let cluster = store.cluster(&cluster()).await.unwrap().unwrap();
    let old = KeyPair::from_seed(&[1; 32]).public().fingerprint();
    let read_before = store.cluster_key_by_fingerprint(&old).await.unwrap();
    let new = KeyPair::from_seed(&[50; 32]).public();
    let added = store.add_identity(&cluster.id, new, clock::now()).await;
    assert!(added.unwrap().is_some());
    let ended = store.settle_key(&read_before.unwrap(), clock::now()).await;
    assert_eq!(ended.unwrap(), []);
    assert_eq!(world.in_force("identity").await.len(), 2);
    world.hub.stop().await;
}

/// The answer to the change was lost, and the agent away until the hub had ended the old key: the new one goes on.
#[tokio::test]
async fn an_agent_that_comes_back_after_its_old_identity_ended_goes_on_with_the_next() {
    let world = World::new("rotate-late").await;
    let asked = json!({"identity": true});
    world.hub.post("/v1/clusters/eu1/rotate", &asked).await;
    let (faults, reached) = Faults::halting(Boundary::IdentityRegistered);
    let killed = world.agent(faults).await;
    timeout(PATIENCE, reached.notified()).await.unwrap();
    drop(killed);
    let later = clock::now() + time::Duration::minutes(11);
    let store = &world.hub.hub.store;
    let limit = later - time::Duration::minutes(10);
    assert_eq!(store.retired(limit).await.unwrap().len(), 1);
    end_before(&world.hub.hub, later).await.unwrap();
    assert_eq!(world.in_force("identity").await.len(), 1);
    let agent = world.agent(Faults::default()).await;
    world
        .identified(&agent, &KeyPair::from_seed(&[1; 32]))
        .await;
    world.hub.stop().await;
}

/// A line of the old key that is up when its time is over went on, for as long as nothing else ended it.
#[tokio::test]
async fn a_line_ends_with_the_time_of_its_key() {
    let world = World::new("rotate-line-over").await;
    let _agent = world.agent(Faults::default()).await;
    let (hub, store) = (&world.hub.hub, &world.hub.hub.store);
    let line = world.up().await;
    let id = store.cluster(&cluster()).await.unwrap().unwrap().id;
    let next = KeyPair::from_seed(&[50; 32]).public();
    let added = store.add_identity(&id, next, clock::now()).await;
    assert!(added.unwrap().is_some());
    end_before(hub, clock::now()).await.unwrap();
    // One that is told to end takes no stream any more.
    let stream = line.open(Kind::Api, Class::Normal, Bytes::new()).await;
    assert!(stream.is_ok(), "{stream:?}");
    let later = clock::now() + time::Duration::minutes(11);
    end_before(hub, later).await.unwrap();
    let ended = timeout(PATIENCE, line.closed()).await.expect("it ends");
    assert_eq!(ended.code, Code::Revoked, "{}", ended.text);
    world.hub.stop().await;
}

#[tokio::test]
async fn an_identity_changes_only_by_the_word_of_both_keys() {
    let world = World::new("rotate-forged").await;
    let agent = Agent::new(1);
    let [old, new, other] = [1, 50, 51].map(|seed| KeyPair::from_seed(&[seed; 32]));
    let change = async |old: &KeyPair, new: &KeyPair, hub: &str, name: &str| {
        let body = identity::identity_change(old, new, hub, &name.parse().unwrap());
        let body = serde_json::to_string(&body).unwrap();
        let path = "/v1/clusters/eu1/identity";
        agent.call(&world.hub, "POST", path, &body).await
    };
    let id = world.hub.hub.id.clone();
    for (by, hub, name) in [
        (&other, id.as_str(), "eu1"),
        (&old, "another-hub", "eu1"),
        (&old, id.as_str(), "eu2"),
        (&new, id.as_str(), "eu1"),
    ] {
        let (code, problem) = change(by, &new, hub, name).await;
        assert_eq!(
            (code, slug(&problem)),
            (403, "bad-signature"),
            "{hub} {name}"
        );
    }
    // H21: a key that another cluster has is not taken.
    let token = world.hub.add("eu2").await;
    let foreign = Agent::new(2);
    foreign.join(&world.hub, "eu2", &token).await;
    let (code, problem) = change(&old, &foreign.identity, &id, "eu1").await;
    assert_eq!((code, slug(&problem)), (409, "key-known"));
    for _ in 0..2 {
        assert_eq!(change(&old, &new, &id, "eu1").await.0, 204);
    }
    assert_eq!(world.in_force("identity").await.len(), 2);
    world.hub.stop().await;
}

/// What is on record of the cluster's identity keys, oldest first.
async fn told(world: &World) -> Vec<(String, String, String)> {
    let store = &world.hub.hub.store;
    let rows = store.audit_tail(Some("eu1"), 100).await.unwrap();
    rows.into_iter()
        .filter(|row| row.action.starts_with("cluster.identity."))
        .map(|row| (row.action, row.target, row.verdict))
        .collect()
}

/// H16, H37: an identity that cannot be put on record is not changed, and none ends; asked again, all of it is on record, once.
/// Before, the key was changed and its record lost.
#[tokio::test]
async fn an_identity_changes_and_ends_on_record_or_not_at_all() {
    const REFUSE: &str = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    const NO_MORE: &str = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    const AGAIN: &str = "ALTER TABLE audit DROP CONSTRAINT refuse";
    let world = World::new("rotate-record").await;
    let (hub, store) = (&world.hub.hub, &world.hub.hub.store);
    let keys = [1, 50, 51].map(|seed| KeyPair::from_seed(&[seed; 32]));
    let prints = keys.each_ref().map(|key| key.public().fingerprint());
    let [first, second, third] = &prints;
    let change = async |old: usize, new: usize| {
        let body = identity::identity_change(&keys[old], &keys[new], &hub.id, &cluster());
        let body = serde_json::to_string(&body).unwrap();
        let call = world.hub.call("POST", "/v1/clusters/eu1/identity", &body);
        call.signed_by(&keys[old], 0).await.0
    };
    let refused = async || world.hub.execute(REFUSE, NO_MORE).await;
    let taken = async || world.hub.execute("DROP TRIGGER refuse", AGAIN).await;
    let mut expected = Vec::new();
    let mut expect = |action: &str, key: &String| {
        expected.push((
            format!("cluster.identity.{action}"),
            key.clone(),
            "allow".to_owned(),
        ));
        expected.clone()
    };

    refused().await;
    assert_eq!(change(0, 1).await, 503);
    assert_eq!(
        world.in_force("identity").await,
        std::slice::from_ref(first)
    );
    taken().await;
    for _ in 0..2 {
        assert_eq!(change(0, 1).await, 204);
    }
    assert_eq!(told(&world).await, expect("add", second));

    // A line of the new one ends the old one.
    let used = store
        .cluster_key_by_fingerprint(second)
        .await
        .unwrap()
        .unwrap();
    refused().await;
    in_use(hub, &used).await;
    assert_eq!(world.in_force("identity").await.len(), 2);
    taken().await;
    for _ in 0..2 {
        in_use(hub, &used).await;
    }
    assert_eq!(
        world.in_force("identity").await,
        std::slice::from_ref(second)
    );
    assert_eq!(told(&world).await, expect("drop", first));

    // So does time.
    assert_eq!(change(1, 2).await, 204);
    expect("add", third);
    let later = clock::now() + time::Duration::minutes(11);
    refused().await;
    assert!(end_before(hub, later).await.is_err());
    assert_eq!(world.in_force("identity").await.len(), 2);
    taken().await;
    for _ in 0..2 {
        end_before(hub, later).await.unwrap();
    }
    assert_eq!(
        world.in_force("identity").await,
        std::slice::from_ref(third)
    );
    assert_eq!(told(&world).await, expect("drop", second));
    world.hub.stop().await;
}
