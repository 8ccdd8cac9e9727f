//! Maintenance windows as the hub keeps them.

use serde_json::json;

use super::slug;
use super::support::{Agent, TestHub};

#[tokio::test]
async fn a_pause_reaches_the_assignment_with_its_reason_and_a_resume_takes_it_back() {
    let hub = TestHub::start("pause").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let (_, joined) = agent.join(&hub, "eu1", &token).await;
    let policy = async || {
        let path = "/v1/clusters/eu1/assignment";
        let (code, assignment) = agent.call(&hub, "GET", path, "").await;
        assert_eq!(code, 200, "{assignment}");
        (
            assignment["revision"].as_u64(),
            assignment["policy"].clone(),
        )
    };
    let asked = json!({"seconds": 7200, "reason": "node upgrade"});
    let (code, told) = hub.post("/v1/clusters/eu1/pause", &asked).await;
    assert_eq!(code, 200, "{told}");
    assert_eq!(told["pauseReason"], json!("node upgrade (admin)"));
    let (revision, paused) = policy().await;
    assert_eq!(paused, told);
    assert!(revision > joined["revision"].as_u64());
    assert_eq!(hub.delete("/v1/clusters/eu1/pause", None).await, 204);
    let (_, resumed) = policy().await;
    assert_eq!(resumed, joined["policy"]);
    hub.stop().await;
}

#[tokio::test]
async fn a_pause_is_bounded_and_says_why() {
    let hub = TestHub::start("pause-bounds").await;
    hub.add("eu1").await;
    for wrong in [
        json!({"seconds": 59, "reason": "x"}),
        json!({"seconds": 86_401, "reason": "x"}),
        json!({"seconds": 600, "reason": " "}),
        json!({"seconds": 600, "reason": "a\nb"}),
        json!({"seconds": 600, "reason": "x".repeat(201)}),
    ] {
        let (code, problem) = hub.post("/v1/clusters/eu1/pause", &wrong).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"), "{wrong}");
    }
    let fine = json!({"seconds": 600, "reason": "x"});
    let (code, problem) = hub.post("/v1/clusters/nobody/pause", &fine).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    hub.stop().await;
}
