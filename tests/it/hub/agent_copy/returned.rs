//! W27: an agent that the catalog's copy brought back.

use linesman::agent::enroll::stored::{Join, Past};
use linesman::keys::{KeyPair, Public};
use serde_json::json;

use super::super::older::with_keys;
use super::super::rotate::world::{PATIENCE, Secrets};
use super::super::support::{Agent, TestHub};
use crate::wait::until_some;

/// The hub that the catalog's copy names, without a token.
fn known(hub: &TestHub) -> Join {
    Join {
        token: None,
        echoed: false,
        hub: hub.hub.config.url.clone(),
        hub_keys: vec![hub.hub.says().keys.pin()],
        ca: hub.hub.says().trust.ca.clone(),
        cluster: "eu1".parse().unwrap(),
        proxy: None,
    }
}

/// The next process of an agent whose namespace was deleted: its engine has the deploy key, and nothing else is left.
async fn returned(secrets: &Secrets) -> linesman::agent::identity::Identity {
    let deploy = KeyPair::from_seed(&[101; 32]);
    secrets.left(Some(deploy), Past::Forgotten).await
}

/// W27, H14: it names a new identity by the deploy key, waits until the former one is silent, and hears what it is to be.
#[tokio::test]
async fn an_agent_that_the_engine_brought_back_needs_no_token() {
    let hub = TestHub::start("agent-copy-back").await;
    let token = hub.add("eu1").await;
    let (_, before) = Agent::new(1).join(&hub, "eu1", &token).await;
    let secrets = Secrets::default();
    let keys = returned(&secrets).await;
    assert!(keys.lost && !keys.unsettled);
    let agent = with_keys(known(&hub), &secrets, keys.clone()).await;
    let assignment = until_some("the agent is told what it is", PATIENCE, async || {
        let joined = agent.joined.borrow().clone();
        joined.map(|joined| joined.assignment).ok_or(())
    })
    .await;
    let told = (
        assignment.cluster.id.as_str(),
        assignment.catalog.path.as_str(),
    );
    assert_eq!(
        told,
        (before["cluster"]["id"].as_str().unwrap(), "clusters/eu1")
    );
    // The same keys again, as after a kill before the answer was stored.
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    let keys_of = view["keys"].as_array().unwrap();
    let valid = keys_of.iter().filter(|k| k["state"] != json!("revoked"));
    let mut prints: Vec<_> = valid.map(|k| k["fingerprint"].as_str().unwrap()).collect();
    prints.sort_unstable();
    let mut own = [keys.identity.public(), keys.deploy.public()].map(Public::fingerprint);
    own.sort_unstable();
    assert_eq!(prints, own);
    hub.stop().await;
}

/// W27: a cluster that never joined has no deploy key in its engine, and asks nobody.
#[tokio::test]
async fn an_agent_without_a_past_waits_for_a_token() {
    let keys = Secrets::default().left(None, Past::Forgotten).await;
    assert!(!keys.lost);
}

/// W27: a hub that wants a person to do it says so, to the agent's owner and to its own people.
#[tokio::test]
async fn a_hub_that_recovers_none_by_itself_says_so() {
    let hub = TestHub::manual("agent-copy-manual").await;
    let token = hub.add("eu1").await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &token).await.0, 200);
    let secrets = Secrets::default();
    let keys = returned(&secrets).await;
    let agent = with_keys(known(&hub), &secrets, keys).await;
    let said = until_some("the agent's owner is told", PATIENCE, async || {
        secrets.event("JoinRefused").ok_or(())
    })
    .await;
    assert!(said.contains("linesman cluster readopt"), "{said}");
    assert!(agent.joined.borrow().is_none());
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    let conditions = view["conditions"].as_array().unwrap();
    let shown = conditions.iter().find(|c| c["type"] == "JoinConflict");
    let shown = shown.unwrap_or_else(|| panic!("{view}"));
    assert_eq!(shown["reason"], json!("RecoveryManual"));
    let next = shown["message"].as_str().unwrap();
    assert!(next.contains("linesman cluster readopt eu1"), "{next}");
    hub.stop().await;
}
