//! Who ends TLS before the hub is not the hub: the agent's real part that joins, against the real hub behind something
//! that has a certificate which the cluster trusts, and says what it likes.

use std::sync::atomic::Ordering;

use linesman::agent::Joined;
use linesman::agent::enroll::stored::{self, State};
use linesman::keys::{KeyPair, Public};
use linesman::trust;
use linesman::wire::api::{HubRef, TrustBundle};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::older::{Front, Running, agent, applied, shown};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use crate::wait::until_some;

fn liar() -> KeyPair {
    KeyPair::from_seed(&[66; 32])
}

/// A key set of its own, which it signed itself.
fn own_keys(path: &str, told: &mut Value) {
    if path == "/v1/join" || path.ends_with("/assignment") {
        let key = json!({ "kid": "liar", "key": liar().public().to_base64() });
        told["hub"]["keyset"] = json!([key]);
        told["hub"]["urls"] = json!(["https://liar.example"]);
        let id = told["hub"]["id"].as_str().unwrap().to_owned();
        told["trust"] = own_set(&id);
    }
}

fn own_set(hub_id: &str) -> Value {
    let key = json!({ "kid": "liar", "key": liar().public().to_base64() });
    let bundle = TrustBundle {
        version: 1 << 60,
        urls: vec!["https://liar.example".to_owned()],
        ca: String::new(),
        keyset: serde_json::from_value(json!([key])).unwrap(),
        sig: String::new(),
    };
    let bundle = trust::sign(hub_id, bundle, |message| liar().sign(message));
    serde_json::to_value(bundle).unwrap()
}

/// The hub's keys stay as they are, URL and CA do not.
fn own_ways(path: &str, told: &mut Value) {
    if path == "/v1/join" || path.ends_with("/assignment") {
        told.as_object_mut().unwrap().remove("trust");
        told["hub"]["urls"] = json!(["https://liar.example"]);
        told["hub"]["ca"] = json!("liar");
    }
}

async fn kept(secrets: &Secrets) -> Option<State> {
    let secrets = stored::secrets(&secrets.client(), "linesman");
    stored::read_state(&secrets).await.unwrap()
}

fn hub_of(joined: &watch::Receiver<Option<Joined>>) -> Option<HubRef> {
    let joined = joined.borrow();
    joined.as_ref().map(|joined| joined.assignment.hub.clone())
}

fn assert_names_both(text: &str, hub: &TestHub) {
    let [said, trusted] = [liar().public(), hub.hub.says().keys.public()].map(Public::fingerprint);
    for part in [said.as_str(), &trusted, "linesman cluster readopt eu1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// The hub that is in force, as soon as it is this one.
async fn in_force(agent: &Running, wanted: &HubRef) {
    until_some("the hub is in force", PATIENCE, async || {
        match hub_of(&agent.joined) {
            Some(hub) if hub == *wanted => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

/// L43, at a join.
#[tokio::test]
async fn a_cluster_does_not_join_a_hub_whose_keys_go_back_to_no_pinned_one() {
    let hub = TestHub::start("trust-join").await;
    let token = hub.add("eu1").await;
    let front = Front::start(&hub, own_keys).await;
    let (secrets, keyset) = (Secrets::default(), vec![hub.hub.says().keys.pin()]);
    let join = applied(&front, keyset.clone(), &token);
    {
        let agent = agent(Some(join.clone()), &secrets).await;
        let told = until_some("it is refused", PATIENCE, async || {
            secrets.event("HubNotTrusted").ok_or(())
        })
        .await;
        assert_names_both(&told, &hub);
        assert_eq!(hub_of(&agent.joined), None);
    }
    assert_eq!(kept(&secrets).await, None);

    // What is before the hub tells the truth again: the same token, the hub's own URL and CA, and its set is kept.
    front.changing.store(false, Ordering::Relaxed);
    let agent = agent(Some(join), &secrets).await;
    in_force(&agent, &hub.hub.reference()).await;
    let kept = kept(&secrets).await.unwrap().trust.unwrap();
    assert_eq!(
        (kept.hub_id.as_str(), &kept.bundle, kept.pins),
        (
            hub.hub.id.as_str(),
            &hub.hub.says().trust,
            vec![keyset[0].key.clone()]
        )
    );
    hub.stop().await;
}

/// L43, of a cluster that has joined: refused, shown, and nothing that is kept is lost.
#[tokio::test]
async fn an_assignment_with_foreign_keys_is_refused_and_shown() {
    let hub = TestHub::start("trust-later").await;
    let token = hub.add("eu1").await;
    let front = Front::start(&hub, |path, told| match path {
        "/v1/join" => own_ways(path, told),
        _ => own_keys(path, told),
    })
    .await;
    let (secrets, keyset) = (Secrets::default(), vec![hub.hub.says().keys.pin()]);
    let agent = agent(Some(applied(&front, keyset.clone(), &token)), &secrets).await;
    let (told, view) = shown(&hub, "HubTrusted", "False").await;
    assert_names_both(told["message"].as_str().unwrap(), &hub);
    assert_eq!(told["reason"], json!("KeyNotTrusted"), "{view}");
    let before = HubRef {
        id: hub.hub.id.clone(),
        urls: vec![front.url.clone()],
        ca: front.ca.clone(),
        keyset,
    };
    assert_eq!(hub_of(&agent.joined), Some(before.clone()));
    let state = kept(&secrets).await.unwrap();
    assert_eq!((state.assignment.hub, state.trust), (before, None));

    front.changing.store(false, Ordering::Relaxed);
    let asked = json!({ "seconds": 600, "reason": "the assignment changes" });
    let (code, paused) = hub.post("/v1/clusters/eu1/pause", &asked).await;
    assert_eq!(code, 200, "{paused}");
    shown(&hub, "HubTrusted", "True").await;
    in_force(&agent, &hub.hub.reference()).await;
    hub.stop().await;
}

/// A hub that signs nothing of itself is followed, and what it says of its URL and CA is not.
#[tokio::test]
async fn url_and_ca_without_a_signature_stay_as_the_yaml_has_them() {
    let hub = TestHub::start("trust-ways").await;
    let token = hub.add("eu1").await;
    let front = Front::start(&hub, own_ways).await;
    let (secrets, keyset) = (Secrets::default(), vec![hub.hub.says().keys.pin()]);
    let join = applied(&front, keyset.clone(), &token);
    let agent = agent(Some(join), &secrets).await;
    let wanted = HubRef {
        id: hub.hub.id.clone(),
        urls: vec![front.url.clone()],
        ca: front.ca.clone(),
        keyset,
    };
    in_force(&agent, &wanted).await;
    hub.stop().await;
}
