//! YAML of one cluster that is applied in another: the agent's real part that joins, and its real line.

use linesman::agent::enroll::stored::{self, Join, State};
use linesman::agent::identity::token_id;
use linesman::secret::Secret;
use serde_json::{Value, json};

use super::older::{agent, dialling};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use super::{moved, older};
use crate::wait::until_some;

/// What the YAML of cluster `stage` brings.
fn of_stage(hub: &TestHub, token: &str) -> Join {
    Join {
        cluster: "stage".parse().unwrap(),
        ..moved::applied(hub, token)
    }
}

/// A cluster `eu1` that the hub has accepted and that has a line, and what its agent stored.
async fn adopted(hub: &TestHub) -> (older::Running, Secrets) {
    let (token, secrets) = (hub.add("eu1").await, Secrets::default());
    let agent = dialling(Some(moved::applied(hub, &token)), &secrets).await;
    moved::back(&agent, hub).await;
    (agent, secrets)
}

async fn stored_state(secrets: &Secrets) -> State {
    let secrets = stored::secrets(&secrets.client(), "linesman");
    stored::read_state(&secrets).await.unwrap().unwrap()
}

/// What this condition of a cluster says, as soon as it says something.
async fn message(hub: &TestHub, cluster: &str, kind: &str) -> String {
    let path = format!("/v1/clusters/{cluster}");
    until_some(kind, PATIENCE, async || {
        let (_, view) = hub.get(&path).await;
        let all = view["conditions"].as_array().unwrap();
        let told = all.iter().find(|told| told["type"] == json!(kind));
        let text = told.and_then(|told| told["message"].as_str());
        let text = text.filter(|text| !text.is_empty()).map(str::to_owned);
        text.ok_or_else(|| view.to_string())
    })
    .await
}

/// The former agent gave up line and watchdog for a cluster that the hub did not let it be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_of_another_cluster_leaves_a_cluster_what_it_is() {
    let hub = TestHub::start("mistaken").await;
    let (former, secrets) = adopted(&hub).await;
    drop(former);
    let token = hub.add("stage").await;
    let agent = dialling(Some(of_stage(&hub, &token)), &secrets).await;
    moved::back(&agent, &hub).await;

    let said = message(&hub, "eu1", "Joined").await;
    let expected = "the YAML of cluster stage was applied in this cluster, which is eu1 and goes on as that; was it a mistake: \
        linesman cluster readopt eu1, and apply what it prints; is it to become stage: linesman cluster remove eu1; \
        is it a copy of eu1: kubectl delete namespace linesman here; then apply that YAML again; \
        hub: this identity key belongs to another cluster or was revoked; run, for the cluster that this is: \
        linesman cluster readopt NAME, and apply its YAML (409 Conflict)";
    assert_eq!(said, expected);
    assert_eq!(secrets.event("OtherCluster").as_deref(), Some(expected));
    let refused = message(&hub, "stage", "JoinConflict").await;
    for part in [
        "the YAML of stage was applied in the cluster that is eu1 (key SHA256:",
        "was it a mistake: linesman cluster readopt eu1,",
        "is it to become stage: linesman cluster remove eu1;",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["line"]["up"], Value::Bool(true), "{view}");
    let name = stored_state(&secrets).await.assignment.cluster.name;
    assert_eq!(name.as_str(), "eu1");
    hub.stop().await;
}

/// A cluster that goes to another hub, under another name: what that hub answered is stored, and the next process leads as it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_becomes_another_one_when_that_ones_hub_accepts_it() {
    let hub = TestHub::start("mistaken-first").await;
    let (former, secrets) = adopted(&hub).await;
    drop(former);
    let next = TestHub::start("mistaken-next").await;
    let token = next.add("stage").await;
    let _agent = agent(Some(of_stage(&next, &token)), &secrets).await;
    let state = until_some("the other hub accepted it", PATIENCE, async || {
        let state = stored_state(&secrets).await;
        let name = state.assignment.cluster.name.clone();
        (name.as_str() == "stage").then_some(state).ok_or(name)
    })
    .await;
    let token = Secret::new(token);
    assert_eq!(state.assignment.hub.id, next.hub.id);
    assert_eq!(Some(state.redeemed.as_str()), token_id(&token));
    next.stop().await;
    hub.stop().await;
}
