//! Keys that were lost.

use bytes::Bytes;
use linesman::agent::fault::Faults;
use linesman::agent::identity::{self, Identity};
use linesman::agent::link::LinkState;
use linesman::clock;
use linesman::keys::KeyPair;
use linesman::wire::frame::{Class, Code, Kind};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::slug;
use super::super::support::{Agent, token_of};
use super::world::{PATIENCE, World, cluster};
use crate::wait::until_some;

/// H14: the key Secret deleted while the agent was away: the deploy key in the engine's Secret names a new identity.
#[tokio::test]
async fn a_lost_identity_is_recovered_by_the_deploy_key_of_the_engine() {
    let world = World::new("recover").await;
    let old = KeyPair::from_seed(&[1; 32]);
    let deploy = KeyPair::from_seed(&[101; 32]);
    let first = world.agent(Faults::default()).await;
    let mut line = first.line.clone();
    let up = line.wait_for(|l| matches!(l, LinkState::Up { .. }));
    timeout(PATIENCE, up).await.unwrap().unwrap();
    // As long as the former agent is there, nobody else is taken for it.
    let thief = Identity::from_seeds(&[70; 32], &[101; 32]);
    let (code, problem) = recover(&world, &thief, "uid-of-eu1").await;
    assert_eq!((code, slug(&problem)), (409, "line-live"));
    drop(first);
    world.secrets.delete();
    let keys = world.secrets.rescued(Some(deploy.clone())).await;
    assert!(keys.lost && keys.identity.public() != old.public());
    let second = world.agent(Faults::default()).await;
    let new = world.identified(&second, &old).await;
    assert_eq!(new.public(), keys.identity.public());
    assert!(!second.identity.borrow().lost);
    assert_eq!(
        world.in_force("deploy").await,
        [deploy.public().fingerprint()]
    );
    let path = "/v1/clusters/eu1/assignment";
    let (code, problem) = world.hub.call("GET", path, "").signed_by(&old, 0).await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    let rows = world
        .hub
        .hub
        .store
        .audit_tail(Some("eu1"), 100)
        .await
        .unwrap();
    for action in ["cluster.recover", "cluster.identity.drop"] {
        let found = rows
            .iter()
            .filter(|r| r.action == action && r.verdict == "allow");
        assert_eq!(found.count(), 1, "{action}");
    }
    world.hub.stop().await;
}

/// H14, H37: a recovery that cannot be put on record is none; the agent asks again, and then it is on record as a whole.
#[tokio::test]
async fn an_identity_is_not_recovered_that_cannot_be_put_on_record() {
    let world = World::new("recover-record").await;
    let old = KeyPair::from_seed(&[1; 32]).public().fingerprint();
    let own = Identity::from_seeds(&[70; 32], &[101; 32]);
    let new = own.identity.public().fingerprint();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    world.hub.execute(refuse, no_more).await;
    // At first the cluster was heard a moment ago.
    let recovered = async |expected: u16| {
        until_some("the hub decides", PATIENCE, async || {
            let (code, answer) = recover(&world, &own, "uid-of-eu1").await;
            (code == expected).then_some(()).ok_or((code, answer))
        })
        .await;
    };
    recovered(503).await;
    assert_eq!(world.in_force("identity").await, std::slice::from_ref(&old));

    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    world.hub.execute("DROP TRIGGER refuse", again).await;
    recovered(200).await;
    assert_eq!(world.in_force("identity").await, std::slice::from_ref(&new));
    let store = &world.hub.hub.store;
    let rows = store.audit_tail(Some("eu1"), 100).await.unwrap();
    let actions = [
        "cluster.recover",
        "cluster.identity.drop",
        "cluster.deploy-key.drop",
    ];
    let mut told: Vec<_> = rows
        .into_iter()
        .filter(|row| actions.contains(&row.action.as_str()))
        .map(|row| (row.action, row.target, row.verdict))
        .collect();
    told.sort();
    let allow = |action: &str, key| (action.to_owned(), key, "allow".to_owned());
    let expected = [
        allow("cluster.identity.drop", old),
        allow("cluster.recover", new),
    ];
    assert_eq!(told, expected);
    world.hub.stop().await;
}

/// H14, H37: a recovery is one change on record, which says what it did: with each key's end as a change of its own, before it was made,
/// one that failed at the second stood there as made.
#[tokio::test]
async fn a_recovery_is_on_record_once_with_the_keys_that_it_ends() {
    let world = World::new("recover-once").await;
    let old = KeyPair::from_seed(&[1; 32]).public().fingerprint();
    let deploy = KeyPair::from_seed(&[101; 32]).public().fingerprint();
    let own = Identity::from_seeds(&[70; 32], &[101; 32]);
    let new = own.identity.public().fingerprint();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit WHEN NEW.action = 'cluster.identity.drop' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (action <> 'cluster.identity.drop') NOT VALID";
    world.hub.execute(refuse, no_more).await;
    // At first the cluster was heard a moment ago.
    until_some("the hub decides", PATIENCE, async || {
        let (code, answer) = recover(&world, &own, "uid-of-eu1").await;
        (code == 503).then_some(()).ok_or((code, answer))
    })
    .await;
    assert_eq!(world.in_force("identity").await, std::slice::from_ref(&new));
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    world.hub.execute("DROP TRIGGER refuse", again).await;
    let (code, answer) = recover(&world, &own, "uid-of-eu1").await;
    assert_eq!(code, 200, "{answer}");
    let store = &world.hub.hub.store;
    let rows = store.audit_tail(Some("eu1"), 100).await.unwrap();
    let told: Vec<_> = rows
        .into_iter()
        .filter(|row| row.action == "cluster.recover")
        .map(|row| (row.target, row.verdict, row.reason))
        .collect();
    let reason = format!("on the word of deploy key {deploy}; ends identity key {old}");
    assert_eq!(told, [(new, "allow".to_owned(), Some(reason))]);
    world.hub.stop().await;
}

/// H37: a join that could not be put on record had ended the former key all the same, and said again it ends that one's line, too.
#[tokio::test]
async fn a_join_that_is_said_again_ends_the_line_of_the_former_key() {
    let world = World::new("rejoin-again").await;
    let _former = world.agent(Faults::default()).await;
    let line = world.up().await;
    let (code, answer) = world
        .hub
        .post("/v1/clusters/eu1/join-tokens", &json!({}))
        .await;
    assert_eq!(code, 201, "{answer}");
    let (token, next) = (token_of(&answer), Agent::new(2));
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    world.hub.execute(refuse, no_more).await;
    assert_eq!(next.join(&world.hub, "eu1", &token).await.0, 503);
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    world.hub.execute("DROP TRIGGER refuse", again).await;
    let (code, answer) = next.join(&world.hub, "eu1", &token).await;
    assert_eq!(code, 200, "{answer}");
    let ended = timeout(PATIENCE, line.closed()).await.expect("it ends");
    assert_eq!(ended.code, Code::Revoked, "{}", ended.text);
    world.hub.stop().await;
}

/// Whose key joins again has that line, whichever others end with it.
#[tokio::test]
async fn a_join_by_the_key_that_the_cluster_has_leaves_its_line() {
    let world = World::new("rejoin-same").await;
    let _agent = world.agent(Faults::default()).await;
    let (line, store) = (world.up().await, &world.hub.hub.store);
    let id = store.cluster(&cluster()).await.unwrap().unwrap().id;
    let other = KeyPair::from_seed(&[60; 32]).public();
    let added = store.add_identity(&id, other, clock::now()).await;
    assert!(added.unwrap().is_some());
    let again = "/v1/clusters/eu1/join-tokens";
    let (code, answer) = world.hub.post(again, &json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let (token, own) = (token_of(&answer), Agent::new(1));
    let (code, answer) = own.join(&world.hub, "eu1", &token).await;
    assert_eq!(code, 200, "{answer}");
    let identity = own.identity.public().fingerprint();
    assert_eq!(world.in_force("identity").await, [identity]);
    // One that is told to end takes no stream any more.
    let stream = line.open(Kind::Api, Class::Normal, Bytes::new()).await;
    assert!(stream.is_ok(), "{stream:?}");
    world.hub.stop().await;
}

/// H15: with both keys lost the hub shows it, with the next step, to those that ask it; no stranger can make it do so.
#[tokio::test]
async fn a_cluster_that_lost_both_keys_is_shown_and_not_recovered() {
    let world = World::new("recover-none").await;
    world.secrets.delete();
    let keys = world.secrets.rescued(None).await;
    let conflict = async || {
        let (_, view) = world.hub.get("/v1/clusters/eu1").await;
        let all = view["conditions"].as_array().unwrap().clone();
        all.into_iter().find(|c| c["type"] == json!("JoinConflict"))
    };
    let (code, problem) = recover(&world, &keys, "guessed").await;
    assert_eq!((code, slug(&problem)), (403, "unknown-identity"));
    assert_eq!(conflict().await, None);
    let (code, problem) = recover(&world, &keys, "uid-of-eu1").await;
    assert_eq!((code, slug(&problem)), (403, "unknown-identity"));
    let shown = conflict().await.unwrap();
    assert_eq!(shown["reason"], json!("KeysLost"));
    let text = shown["message"].as_str().unwrap();
    assert!(text.contains("linesman cluster readopt eu1"), "{text}");
    let own = world.in_force("identity").await;
    assert_eq!(own, [KeyPair::from_seed(&[1; 32]).public().fingerprint()]);
    world.hub.stop().await;
}

/// H14, H17: the identity lost, and the deploy key that is left revoked: new YAML is the way back, and with the new identity the
/// agent gets another deploy key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_identity_is_lost_and_whose_deploy_key_was_revoked_is_adopted_again() {
    let world = World::new("recover-readopt").await;
    let old = KeyPair::from_seed(&[1; 32]);
    let deploy = KeyPair::from_seed(&[101; 32]);
    let path = "/v1/clusters/eu1/revoke";
    assert_eq!(world.hub.post(path, &json!({})).await.0, 200);
    world.secrets.delete();
    let keys = world.secrets.rescued(Some(deploy.clone())).await;
    assert!(keys.lost && keys.deploy.public() == deploy.public());
    let path = "/v1/clusters/eu1/join-tokens";
    let (code, answer) = world.hub.post(path, &json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let join = Some(world.yaml(token_of(&answer)));
    let agent = world.agent_of(Faults::default(), join).await;
    let new = world.identified(&agent, &old).await;
    assert_eq!(new.public(), keys.identity.public());
    let former = deploy.public().fingerprint();
    world.settled(&agent, &former).await;
    world.hub.stop().await;
}

/// H17: the deploy key of a revoked cluster is no way back. Who holds it is told why, others learn nothing.
#[tokio::test]
async fn a_revoked_cluster_is_not_recovered_by_its_deploy_key() {
    let world = World::new("recover-revoked").await;
    let path = "/v1/clusters/eu1/revoke";
    assert_eq!(world.hub.post(path, &json!({})).await.0, 200);
    let own = Identity::from_seeds(&[70; 32], &[101; 32]);
    let (code, problem) = recover(&world, &own, "uid-of-eu1").await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    let stranger = Identity::from_seeds(&[70; 32], &[102; 32]);
    let (code, problem) = recover(&world, &stranger, "guessed").await;
    assert_eq!((code, slug(&problem)), (403, "unknown-identity"));
    assert_eq!(world.in_force("identity").await, [] as [String; 0]);
    world.hub.stop().await;
}

/// `POST /v1/recover` as a cluster of this incarnation with these keys.
async fn recover(world: &World, keys: &Identity, incarnation: &str) -> (u16, Value) {
    let body = json!({
        "cluster": "eu1",
        "incarnation": incarnation,
        "newIdentityKey": keys.identity.public().to_base64(),
        "deployKey": keys.deploy.public().openssh("").unwrap(),
        "sig": identity::recovery_proof(keys, &world.hub.hub.id, &cluster(), incarnation),
    });
    let body = body.to_string();
    let call = world.hub.call("POST", "/v1/recover", &body);
    call.signed_by(&keys.identity, 0).await
}
