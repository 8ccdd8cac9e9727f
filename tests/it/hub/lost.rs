//! Agents that fell silent.

use std::time::{Duration, Instant};

use linesman::hub::lost::{self, Roll};
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
    let silence = silence("01930000-0000-7000-8000-000000000001");
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

    let mut roll = Roll::default();
    lost::look(&hub.hub, &mut roll).await.unwrap();
    let over = kept().await;
    assert!(over.restored_at.is_some(), "{over:?}");
    let expected = HealRecord {
        restored_at: over.restored_at.clone(),
        next: String::new(),
        ..silence
    };
    assert_eq!(over, expected);
    // Whoever is heard is not lost: there is no second record.
    lost::look(&hub.hub, &mut roll).await.unwrap();
    let all = hub.hub.store.heals(None, None, 9).await.unwrap();
    assert_eq!(all.len(), 1);
}

/// F50: whoever closes one is told for how long that stands.
#[tokio::test]
async fn a_silence_that_is_closed_says_until_when() {
    let hub = TestHub::start("lost-closed").await;
    hub.add("eu1").await;
    let name = "eu1".parse().unwrap();
    let cluster = hub.hub.store.cluster(&name).await.unwrap().unwrap();
    let id = "01930000-0000-7000-8000-000000000002";
    let now = linesman::clock::now();
    let note = hub.hub.store.note_heal(&cluster.id, silence(id), now);
    note.await.unwrap();
    let path = format!("/v1/heals/{id}/close");
    let (code, closed) = hub.post(&path, &json!({"reason": "it moves"})).await;
    let next = "nothing until the agent is heard and lost again; closed by admin: it moves";
    let told = (code, &closed["result"], &closed["next"]);
    assert_eq!(told, (200, &json!("failed"), &json!(next)));
    hub.stop().await;
}

pub(super) fn silence(id: &str) -> HealRecord {
    HealRecord {
        id: id.to_owned(),
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
    }
}

/// What it takes to look at ten thousand agents that are all well, with SQLite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure of ten thousand agents: make large"]
async fn ten_thousand_agents_are_looked_at() {
    const LOOKS: u32 = 50;
    let hub = TestHub::start("lost-many").await;
    hub.add("eu1").await;
    hub.execute(FLEET, "").await;
    let fleet = hub.hub.store.clusters(None, 10).await.unwrap();
    assert_eq!(fleet.len(), 10);
    let look = async |roll: &mut Roll, what: &str, times: u32| {
        let begun = (cpu(), Instant::now());
        for _ in 0..times {
            lost::look(&hub.hub, roll).await.unwrap();
        }
        let (cpu, took) = (cpu().saturating_sub(begun.0), begun.1.elapsed());
        let (cpu, took) = (cpu / times, took / times);
        println!("figure | {what} | {took:.2?} | {cpu:.2?} of a core's time");
    };
    let mut roll = Roll::default();
    look(&mut roll, "the first look at 10,000 agents, SQLite", 1).await;
    look(&mut roll, "another look at them", LOOKS).await;
    assert_eq!(hub.hub.store.heals(None, None, 9).await.unwrap(), []);
    hub.stop().await;
}

/// Clusters like the first one, which have joined and are heard.
const FLEET: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
    INSERT INTO cluster (id, name, labels, engine, engine_version, bundle, catalog_path, adoption, policy, joined_at, last_seen,
      created_at, updated_at)
    SELECT id || '-' || i, 'c' || i, '{\"env\":\"prod\",\"region\":\"eu\"}', engine, engine_version, bundle, catalog_path, adoption,
      policy, created_at, created_at + 3600000, created_at, updated_at FROM cluster, n WHERE name = 'eu1'";

/// What this process has had of the processors' time so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = |n: usize| -> u64 { fields.split_whitespace().nth(n).unwrap().parse().unwrap() };
    // A hundred a second, everywhere that this is run.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
