//! Which image a cluster's agent is told to run.

use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};

const PATH: &str = "/v1/clusters/eu1/agent-image";

async fn told(agent: &Agent, hub: &TestHub) -> (Value, u64) {
    let path = "/v1/clusters/eu1/assignment";
    let (code, assignment) = agent.call(hub, "GET", path, "").await;
    assert_eq!(code, 200, "{assignment}");
    let revision = assignment["revision"].as_u64().unwrap();
    (assignment["agentImage"].clone(), revision)
}

#[tokio::test]
async fn an_agent_is_told_the_image_that_an_operator_wishes_until_that_is_withdrawn() {
    let hub = TestHub::start("agent-image").await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    let (image, first) = told(&agent, &hub).await;
    assert_eq!(image, Value::Null);
    let by_digest = format!("registry.example.org/linesman@sha256:{}", "0f".repeat(32));
    let wish = json!({ "image": by_digest });
    let (code, answer) = hub
        .call_as(&hub.admin, ("PUT", PATH), &[("if-match", "*")], &wish)
        .await;
    assert_eq!(
        (code, answer),
        (200, json!({ "image": by_digest, "wish": 1 }))
    );
    let (image, second) = told(&agent, &hub).await;
    assert_eq!(image, json!(by_digest));
    assert!(second > first);
    let tagged = json!({ "image": "registry.example.org/linesman:1" });
    let (code, problem) = hub
        .call_as(&hub.admin, ("PUT", PATH), &[("if-match", "*")], &tagged)
        .await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    let (code, answer) = hub
        .call_as(&hub.admin, ("PUT", PATH), &[("if-match", "*")], &json!({}))
        .await;
    assert_eq!((code, answer), (200, json!({ "wish": 2 })));
    assert_eq!(told(&agent, &hub).await.0, Value::Null);
    // Given anew it is another wish, also for an agent that did not see it withdrawn; said again it is the same.
    for _ in 0..2 {
        let (code, answer) = hub
            .call_as(&hub.admin, ("PUT", PATH), &[("if-match", "*")], &wish)
            .await;
        assert_eq!(
            (code, answer),
            (200, json!({ "image": by_digest, "wish": 3 }))
        );
    }
    let path = "/v1/clusters/eu1/assignment";
    let (_, assignment) = agent.call(&hub, "GET", path, "").await;
    assert_eq!(assignment["agentImageWish"], json!(3));
    hub.stop().await;
}
