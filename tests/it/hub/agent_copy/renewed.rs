//! W27: when the hub renews a copy, and what is told where it cannot.

use linesman::hub::adoption::copies::{self, Failed};
use serde_json::json;

use super::super::support::{Agent, TestHub, token_of};
use super::{COPY, SYNC, add, commit, copy, head, looked, shown};

async fn wish(hub: &TestHub, image: &str) {
    let call = ("PUT", "/v1/clusters/eu1/agent-image");
    let any = [("if-match", "*")];
    let wish = json!({ "image": image });
    let (code, told) = hub.call_as(&hub.admin, call, &any, &wish).await;
    assert_eq!(code, 200, "{told}");
}

/// The agent says how it stands with this image.
async fn says(agent: &Agent, hub: &TestHub, status: &str, reason: &str, message: String) {
    let condition = json!({
        "type": "AgentCurrent", "status": status, "reason": reason, "message": message,
        "since": "2026-01-01T00:00:00Z",
    });
    let report = json!({ "conditions": [condition] }).to_string();
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(hub, "POST", path, &report).await;
    assert_eq!(code, 200, "{ack}");
}

/// W27: an image counts when the agent stays with it; edits are lost; and who takes a part of the copy out wants none.
#[tokio::test]
async fn the_hub_renews_a_copy_when_what_it_is_made_of_has_changed() {
    let hub = TestHub::start("agent-copy-renewed").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token_of(&answer)).await.0, 200);
    let mut failed = Failed::default();
    let first = head(&hub).await;
    let current = json!({ "kept": true, "current": true });
    let old = json!({ "kept": true, "current": false });
    assert_eq!(looked(&hub, &mut failed).await, first);
    assert_eq!(shown(&hub).await, current);

    let image = format!("registry.example.org/linesman@sha256:{}", "a".repeat(64));
    wish(&hub, &image).await;
    assert_eq!(looked(&hub, &mut failed).await, first, "nobody knows yet");
    let trial = format!("{image}: on trial");
    says(&agent, &hub, "False", "Changing", trial).await;
    assert_eq!(
        looked(&hub, &mut failed).await,
        first,
        "it may be taken back"
    );
    says(
        &agent,
        &hub,
        "True",
        "InForce",
        format!("{image}: the agent runs it"),
    )
    .await;
    assert_eq!(shown(&hub).await, old);
    let second = looked(&hub, &mut failed).await;
    assert_ne!(second, first);
    assert!(copy(&hub).await.contains(&image));
    assert_eq!(shown(&hub).await, current);
    assert_eq!(
        looked(&hub, &mut failed).await,
        second,
        "nothing is left to do"
    );

    let written = copy(&hub).await;
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    assert_eq!(shown(&hub).await, old);
    looked(&hub, &mut failed).await;
    assert_eq!(copy(&hub).await, written);

    commit(&hub, &[], &[SYNC]).await;
    let without = head(&hub).await;
    assert_eq!(
        looked(&hub, &mut failed).await,
        without,
        "it is not followed"
    );
    assert_eq!(
        shown(&hub).await,
        json!({ "kept": false, "current": false })
    );
    hub.stop().await;
}

/// W27: that it cannot be written is told, and tried again later and later; the next that can be written ends that.
#[tokio::test]
async fn a_copy_that_cannot_be_renewed_says_why_until_it_is() {
    let hub = TestHub::start("agent-copy-stuck").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    let repo = &hub.hub.catalog.repo;
    let lock = repo.join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let before = head(&hub).await;
    let mut failed = Failed::default();
    assert_eq!(looked(&hub, &mut failed).await, before);
    let told = shown(&hub).await;
    assert_eq!(
        (&told["kept"], &told["current"]),
        (&json!(true), &json!(false))
    );
    let trouble = told["trouble"].as_str().unwrap();
    assert!(trouble.contains("commit to the catalog"), "{trouble}");
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(looked(&hub, &mut failed).await, before, "not at each look");
    assert_ne!(looked(&hub, &mut Failed::default()).await, before);
    assert_eq!(shown(&hub).await, json!({ "kept": true, "current": true }));
    hub.stop().await;
}

/// W27: when it is tried again is not forgotten where the database cannot be read meanwhile, and each replica says why.
#[tokio::test]
async fn what_is_known_of_a_stuck_copy_outlives_a_look_that_breaks_off() {
    let ([hub, other], _) = TestHub::replicas("agent-copy-broken").await;
    for name in ["eu1", "zz1"] {
        let new = json!({ "name": name, "agentCopy": true });
        let (code, answer) = hub.post("/v1/clusters", &new).await;
        assert_eq!(code, 201, "{answer}");
    }
    commit(&hub, &[(COPY, "kind: Nothing")], &[]).await;
    let lock = hub.hub.catalog.repo.join("refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let (before, mut failed) = (head(&hub).await, Failed::default());
    assert_eq!(looked(&hub, &mut failed).await, before);
    let told = shown(&hub).await;
    let trouble = told["trouble"].as_str().unwrap();
    assert!(trouble.contains("commit to the catalog"), "{trouble}");
    assert_eq!(shown(&other).await, told);
    std::fs::remove_file(&lock).unwrap();

    let break_off = "UPDATE cluster SET labels = 'x' WHERE name = 'zz1'";
    hub.execute(break_off, break_off).await;
    copies::look(&hub.hub, &mut failed).await.unwrap_err();
    assert_eq!(head(&hub).await, before, "not at each look");
    let mend = "UPDATE cluster SET labels = '{}' WHERE name = 'zz1'";
    hub.execute(mend, mend).await;
    assert_eq!(looked(&hub, &mut failed).await, before, "not at each look");
    assert_ne!(looked(&hub, &mut Failed::default()).await, before);
    for hub in [&hub, &other] {
        assert_eq!(shown(hub).await, json!({ "kept": true, "current": true }));
    }
    hub.leave().await;
    other.stop().await;
}
