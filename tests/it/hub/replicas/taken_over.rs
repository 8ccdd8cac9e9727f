//! What the leader of several replicas did is not done once more by the one that leads after it was killed.

use std::slice::from_ref;

use linesman::clock::{self, rfc3339};
use linesman::hub::adoption::copies::Failed;
use linesman::hub::safe_heals;
use serde_json::{Value, json};
use time::Duration;

use super::super::agent_copy::{COPY, add, commit, copy, looked};
use super::super::notify::{Receiver, reports, to};
use super::super::support::{Agent, TestHub, token_of};
use super::{PATIENCE, leads};
use crate::wait::until;

/// The one that leads, and the other one.
async fn led([a, b]: [TestHub; 2]) -> [TestHub; 2] {
    until("one leads", PATIENCE, async || leads(&a) || leads(&b)).await;
    if leads(&a) { [a, b] } else { [b, a] }
}

/// The one that leads is killed; gives the other one once it does.
async fn taken_over([leading, other]: [TestHub; 2]) -> TestHub {
    leading.die().await;
    until("the other leads", PATIENCE, async || leads(&other)).await;
    other
}

/// H54: notices. What was told is on record before it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trouble_that_a_killed_leader_told_of_is_not_told_again() {
    let (mut webhook, mut slack) = (Receiver::start().await, Receiver::start().await);
    let notify = to(&webhook, &slack);
    let both = TestHub::replicas_notifying("replicas-notices", &notify).await;
    let [leading, other] = led(both).await;
    let agent = Agent::new(1);
    let token = leading.add("eu1").await;
    assert_eq!(agent.join(&leading, "eu1", &token).await.0, 200);
    let first = ("HostKeyMismatch", "True");
    reports(&agent, &leading, &[first]).await;
    assert_eq!(webhook.next().await.json()["class"], json!(first.0));
    slack.next().await;

    let other = taken_over([leading, other]).await;
    // The first would come before the second, which is told at the same look.
    reports(&agent, &other, &[first, ("RightsLost", "True")]).await;
    assert_eq!(webhook.next().await.json()["class"], json!("RightsLost"));
    let text = slack.next().await.json()["text"].clone();
    assert!(text.as_str().unwrap().contains("*RightsLost*"), "{text}");
    other.stop().await;
}

/// What an agent says that has just done something about a fault, which is open.
fn mending(n: u8) -> String {
    let at = rfc3339(clock::now());
    let step = json!({"action": "apply", "object": "Deployment a/b", "outcome": "done", "at": at});
    let heal = json!({
        "id": format!("01930000-0000-7000-8000-0000000000{n:02}"), "class": "BadImage", "object": "Deployment a/b",
        "evidence": "", "detectedAt": at, "result": "open", "steps": [step],
    });
    let agent = json!({"version": "0.1.0", "image": "i", "arch": "amd64"});
    json!({"agent": agent, "heals": [heal]}).to_string()
}

/// What is on record of incidents, oldest first: who did what, to what.
async fn incidents(hub: &TestHub) -> Vec<Value> {
    let (_, record) = hub.get("/v1/audit?limit=500").await;
    let mut records = record["items"].as_array().cloned().unwrap_or_default();
    records.retain(|r| {
        let action = r["action"].as_str();
        action.is_some_and(|a| a.starts_with("incident."))
    });
    records.sort_by_key(|r| r["seq"].as_u64());
    let told = records
        .iter()
        .map(|r| json!([r["actor"], r["action"], r["target"]]));
    told.collect()
}

/// H54: commits, and the records of an incident.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_leader_committed_and_put_on_record_is_there_once() {
    let (both, _) = TestHub::replicas("replicas-done").await;
    let [leading, other] = led(both).await;
    let (code, answer) = add(&leading, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    for n in 1..=3_u8 {
        let name = format!("eu{n}");
        let token = match n {
            1 => token_of(&answer),
            _ => leading.add(&name).await,
        };
        let agent = Agent::new(n);
        assert_eq!(agent.join(&leading, &name, &token).await.0, 200);
        let path = format!("/v1/clusters/{name}/reports");
        let (code, ack) = agent.call(&leading, "POST", &path, &mending(n)).await;
        assert_eq!(code, 200, "{ack}");
    }
    let edited = "kind: Nothing";
    commit(&leading, &[(COPY, edited)], &[]).await;
    let renewed = looked(&leading, &mut Failed::default()).await;
    assert_ne!(copy(&leading).await, edited);
    safe_heals::look(&leading.hub, clock::now()).await;
    let [begun, ended] =
        ["incident.begin", "incident.end"].map(|action| json!(["hub", action, "BadImage"]));
    assert_eq!(incidents(&leading).await, from_ref(&begun));

    let other = taken_over([leading, other]).await;
    assert_eq!(looked(&other, &mut Failed::default()).await, renewed);
    safe_heals::look(&other.hub, clock::now()).await;
    assert!(other.hub.incident.borrow().is_some());
    assert_eq!(incidents(&other).await, from_ref(&begun));
    // It is one, which ends once. By its own clock the hub may find the next one from then on.
    for _ in 0..2 {
        safe_heals::look(&other.hub, clock::now() + Duration::minutes(21)).await;
    }
    assert_eq!(incidents(&other).await[..2], [begun, ended]);
    other.stop().await;
}
