//! Agents that fell silent.

use linesman::hub::lost;
use linesman::wire::report::{HealRecord, HealResult, Scene};
use serde_json::json;

use super::support::{Agent, TestHub};

/// F50: the record of a silence is the hub's own: the agent's list of its open heals does not end it, its being heard does.
#[tokio::test]
async fn the_silence_of_an_agent_is_on_record_until_it_is_heard() {
    let hub = TestHub::start("lost").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let name = "eu1".parse().unwrap();
    let cluster = hub.hub.store.cluster(&name).await.unwrap().unwrap();
    let silence = HealRecord {
        id: "01930000-0000-7000-8000-000000000001".to_owned(),
        class: "AgentLost".to_owned(),
        number: 50,
        meaning: String::new(),
        object: "Cluster eu1".to_owned(),
        evidence: "not heard since 2026-01-01T00:00:00.000Z".to_owned(),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: None,
        detected_at: "2026-01-01T00:00:45.000Z".to_owned(),
        acted_at: None,
        restored_at: None,
        result: HealResult::Reported,
        next: "look at its agent".to_owned(),
        scene: Scene::default(),
    };
    let now = linesman::clock::now();
    let note = hub.hub.store.note_heal(&cluster.id, silence.clone(), now);
    note.await.unwrap();

    let build = json!({"version": "0.1.0", "image": "i", "arch": "amd64"});
    let report = json!({"agent": build, "openHeals": []}).to_string();
    let path = "/v1/clusters/eu1/reports";
    let (code, told) = agent.call(&hub, "POST", path, &report).await;
    assert_eq!(code, 200, "{told}");
    let kept = async || {
        let id = &silence.id;
        hub.hub.store.heal(id).await.unwrap().unwrap().1
    };
    // Not failed: nobody ended it for its agent.
    assert_eq!(kept().await.result, HealResult::Reported);

    lost::look(&hub.hub).await.unwrap();
    let over = kept().await;
    assert!(over.restored_at.is_some(), "{over:?}");
    let expected = HealRecord {
        restored_at: over.restored_at.clone(),
        next: String::new(),
        ..silence
    };
    assert_eq!(over, expected);
    // Whoever is heard is not lost: there is no second record.
    lost::look(&hub.hub).await.unwrap();
    let all = hub.hub.store.heals(None, None, 9).await.unwrap();
    assert_eq!(all.len(), 1);
}
