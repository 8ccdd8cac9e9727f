//! Many clusters that fail alike.

use linesman::hub::{incident, safe_heals};
use serde_json::{Value, json};

use super::support::{Agent, TestHub};

fn report(n: u8, class: &str, action: &str) -> String {
    let heal = json!({
        "id": format!("01930000-0000-7000-8000-0000000000{n:02}"), "class": class, "object": "Deployment a/b",
        "evidence": "", "detectedAt": "2026-11-21T10:00:00.000Z", "result": "open",
        "steps": [{"action": action, "object": "Deployment a/b", "outcome": "done", "at": "2026-11-21T10:00:01.000Z"}],
    });
    let agent = json!({"version": "0.1.0", "image": "i", "arch": "amd64"});
    json!({"agent": agent, "heals": [heal]}).to_string()
}

/// W26: one cause in 40 % of the fleet: one incident, which each assignment tells with its end, on record. What is only
/// reported is none: nobody does anything about it.
#[tokio::test]
async fn one_cause_in_many_clusters_lets_all_be_careful_for_a_while() {
    let hub = TestHub::start("incident").await;
    let mut agents = Vec::new();
    for n in 1..=10_u8 {
        let name = format!("eu{n}");
        let token = hub.add(&name).await;
        let agent = Agent::new(n);
        agent.join(&hub, &name, &token).await;
        agents.push((name, agent));
    }
    let policy = async |at: usize| {
        let (name, agent) = &agents[at];
        let path = format!("/v1/clusters/{name}/assignment");
        let (code, told) = agent.call(&hub, "GET", &path, "").await;
        assert_eq!(code, 200, "{told}");
        (told["revision"].as_u64(), told["policy"].clone())
    };
    let say = async |from: u8, to: u8, class: &str, action: &str| {
        for n in from..=to {
            let (name, agent) = &agents[usize::from(n) - 1];
            let path = format!("/v1/clusters/{name}/reports");
            let (code, told) = agent
                .call(&hub, "POST", &path, &report(n, class, action))
                .await;
            assert_eq!(code, 200, "{told}");
        }
        safe_heals::look(&hub.hub).await;
    };
    let (revision, calm) = policy(9).await;
    say(5, 10, "GitUnreachable", "nudge").await;
    say(1, 2, "BadImage", "apply").await;
    assert_eq!(policy(9).await, (revision, calm.clone()));
    say(3, 4, "BadImage", "apply").await;
    let (next, careful) = policy(9).await;
    assert!(next > revision);
    let standing = hub.hub.incident.borrow().clone().unwrap();
    assert_eq!(standing.until - standing.since, incident::HOLDS);
    let until = linesman::clock::rfc3339(standing.until);
    let reason = "4 of 10 clusters had BadImage within ten minutes";
    assert_eq!(careful["safeHealsUntil"], json!(until));
    assert_eq!(careful["safeHealsReason"], json!(reason));
    // The same again changes nothing.
    safe_heals::look(&hub.hub).await;
    assert_eq!(policy(9).await, (next, careful));
    let (_, record) = hub.get("/v1/audit?limit=500").await;
    let records = record["items"].as_array().cloned().unwrap_or_default();
    let told = |r: &&Value| {
        r["action"]
            .as_str()
            .is_some_and(|a| a.starts_with("incident."))
    };
    let told: Vec<Value> = records.iter().filter(told).cloned().collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["actor"], &told[0]["target"], &told[0]["reason"]),
        (&json!("hub"), &json!("BadImage"), &json!(reason))
    );
    hub.stop().await;
}
