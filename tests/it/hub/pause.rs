//! Maintenance windows, and what is given back to Git, as the hub keeps them.

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
    assert_eq!(hub.delete("/v1/clusters/eu1/pause", Some("*")).await, 204);
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

/// The agent is told when it was asked, so that what is held later is not meant; a pause that is open stays.
#[tokio::test]
async fn what_is_to_be_given_back_reaches_the_assignment_and_the_audit() {
    let hub = TestHub::start("lift").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let (_, joined) = agent.join(&hub, "eu1", &token).await;
    let path = "/v1/clusters/eu1/lift";
    for wrong in [
        json!({}),
        json!({"reason": " "}),
        json!({"reason": "a\nb"}),
        json!({"reason": "x".repeat(201)}),
    ] {
        let (code, problem) = hub.post(path, &wrong).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"), "{wrong}");
    }
    let wider = json!({"reason": "x", "object": "all"});
    let (code, problem) = hub.post(path, &wider).await;
    assert_eq!((code, slug(&problem)), (400, "unknown-field"));
    let asked = json!({"reason": "the image is there now"});
    let (code, problem) = hub.post("/v1/clusters/nobody/lift", &asked).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    let pause = json!({"seconds": 600, "reason": "work"});
    let (_, paused) = hub.post("/v1/clusters/eu1/pause", &pause).await;
    let (code, told) = hub.post(path, &asked).await;
    assert_eq!(code, 200, "{told}");
    let mut expected = paused.clone();
    expected["liftBefore"] = told["liftBefore"].clone();
    assert_eq!(told, expected);
    let before = told["liftBefore"].as_str().unwrap();
    let before = linesman::clock::parse_rfc3339(before).unwrap();
    let ago = linesman::clock::now() - before;
    assert!(ago.abs() < time::Duration::minutes(1), "{ago}");
    let (_, assignment) = agent
        .call(&hub, "GET", "/v1/clusters/eu1/assignment", "")
        .await;
    assert_eq!(assignment["policy"], told);
    assert!(assignment["revision"].as_u64() > joined["revision"].as_u64());
    let (_, audit) = hub.get("/v1/audit?cluster=eu1").await;
    let mut said = audit["items"].as_array().unwrap().iter();
    let said = said.find(|a| a["action"] == "cluster.lift");
    let said = said.unwrap_or_else(|| panic!("{audit:#}"));
    let named = [&said["actor"], &said["target"]];
    assert_eq!(named, [&json!("user:admin"), &asked["reason"]], "{said:#}");
    hub.stop().await;
}
