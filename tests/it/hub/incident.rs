//! Many clusters that fail alike.

use std::ops::RangeInclusive;

use linesman::clock::{self, rfc3339};
use linesman::hub::{incident, safe_heals};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::support::{Agent, TestHub};

const CLASSES: [&str; 3] = ["BadImage", "GitUnreachable", "ObjectMissing"];

/// Ten clusters of one hub.
struct Fleet {
    hub: TestHub,
    agents: Vec<(String, Agent)>,
}

impl Fleet {
    async fn start(name: &str) -> Self {
        let hub = TestHub::start(name).await;
        let mut agents = Vec::new();
        for n in 1..=10_u8 {
            let name = format!("eu{n}");
            let token = hub.add(&name).await;
            let agent = Agent::new(n);
            agent.join(&hub, &name, &token).await;
            agents.push((name, agent));
        }
        Self { hub, agents }
    }

    /// What the tenth cluster is told: the revision of its assignment, and the policy in it.
    async fn policy(&self) -> (Option<u64>, Value) {
        let (name, agent) = &self.agents[9];
        let path = format!("/v1/clusters/{name}/assignment");
        let (code, told) = agent.call(&self.hub, "GET", &path, "").await;
        assert_eq!(code, 200, "{told}");
        (told["revision"].as_u64(), told["policy"].clone())
    }

    /// The agents of these clusters tell of their one open heal of a class, in which this was done at these times.
    async fn say(
        &self,
        clusters: RangeInclusive<u8>,
        class: &str,
        action: &str,
        times: &[OffsetDateTime],
    ) {
        for n in clusters {
            let (name, agent) = &self.agents[usize::from(n) - 1];
            let path = format!("/v1/clusters/{name}/reports");
            let report = report(n, class, action, times);
            let (code, told) = agent.call(&self.hub, "POST", &path, &report).await;
            assert_eq!(code, 200, "{told}");
        }
    }

    async fn look(&self, now: OffsetDateTime) {
        safe_heals::look(&self.hub.hub, now).await;
    }

    /// What is on record of incidents, oldest first: who did what, to what, and why.
    async fn record(&self) -> Vec<Value> {
        let (_, record) = self.hub.get("/v1/audit?limit=500").await;
        let mut records = record["items"].as_array().cloned().unwrap_or_default();
        records.retain(|r| {
            let action = r["action"].as_str();
            action.is_some_and(|a| a.starts_with("incident."))
        });
        records.sort_by_key(|r| r["seq"].as_u64());
        let told = records.iter().map(|r| {
            let fields = ["actor", "action", "target", "reason"];
            Value::from(fields.map(|field| r[field].clone()).to_vec())
        });
        told.collect()
    }
}

fn report(n: u8, class: &str, action: &str, times: &[OffsetDateTime]) -> String {
    let number = CLASSES.iter().position(|known| *known == class).unwrap();
    let step = |at: &OffsetDateTime| json!({"action": action, "object": "Deployment a/b", "outcome": "done", "at": rfc3339(*at)});
    let steps: Vec<Value> = times.iter().map(step).collect();
    let heal = json!({
        "id": format!("01930000-0000-7000-8000-{number:010}{n:02}"), "class": class, "object": "Deployment a/b",
        "evidence": "", "detectedAt": rfc3339(times[0]), "result": "open", "steps": steps,
    });
    let agent = json!({"version": "0.1.0", "image": "i", "arch": "amd64"});
    json!({"agent": agent, "heals": [heal]}).to_string()
}

/// W26: one cause in 40 % of the fleet: one incident, which each assignment tells with its end, on record. What is only
/// reported is none: nobody does anything about it.
#[tokio::test]
async fn one_cause_in_many_clusters_lets_all_be_careful_for_a_while() {
    let fleet = Fleet::start("incident").await;
    let (revision, calm) = fleet.policy().await;
    let now = clock::now();
    fleet.say(5..=10, "GitUnreachable", "nudge", &[now]).await;
    fleet.say(1..=2, "BadImage", "apply", &[now]).await;
    fleet.look(clock::now()).await;
    assert_eq!(fleet.policy().await, (revision, calm.clone()));
    fleet.say(3..=4, "BadImage", "apply", &[now]).await;
    fleet.look(clock::now()).await;
    let (next, careful) = fleet.policy().await;
    assert!(next > revision);
    let standing = fleet.hub.hub.incident.borrow().clone().unwrap();
    assert_eq!(standing.until - standing.since, incident::HOLDS);
    let reason = "4 of 10 clusters had BadImage within ten minutes";
    assert_eq!(careful["safeHealsUntil"], json!(rfc3339(standing.until)));
    assert_eq!(careful["safeHealsReason"], json!(reason));
    // The same again changes nothing.
    fleet.look(clock::now()).await;
    assert_eq!(fleet.policy().await, (next, careful));
    let told = json!(["hub", "incident.begin", "BadImage", reason]);
    assert_eq!(fleet.record().await, [told]);
    fleet.hub.stop().await;
}

/// W26: agents whose hub was away for days tell of all that they did when it is back; what they do then counts.
#[tokio::test]
async fn what_was_done_while_the_hub_was_away_is_no_incident() {
    let fleet = Fleet::start("incident-late").await;
    let before = fleet.policy().await;
    let now = clock::now();
    let then = |n: u8| now - Duration::days(i64::from(n));
    for n in 1..=3 {
        fleet
            .say(n..=n, "ObjectMissing", "create", &[then(n)])
            .await;
    }
    fleet.look(clock::now()).await;
    assert_eq!(fleet.policy().await, before);
    assert_eq!(fleet.record().await, [] as [Value; 0]);
    // The same heals, which go on.
    for n in 1..=3 {
        let times = [then(n), now];
        fleet.say(n..=n, "ObjectMissing", "create", &times).await;
    }
    fleet.look(clock::now()).await;
    let reason = "3 of 10 clusters had ObjectMissing within ten minutes";
    let (_, careful) = fleet.policy().await;
    assert_eq!(careful["safeHealsReason"], json!(reason));
    fleet.hub.stop().await;
}

/// W26: in an hour that is over, so that what the hub itself sees meanwhile changes nothing.
#[tokio::test]
async fn an_incident_ends_by_its_time_and_what_outlives_it_makes_another() {
    let fleet = Fleet::start("incident-again").await;
    let (_, calm) = fleet.policy().await;
    let start = clock::now() - Duration::hours(1);
    let at = |minute| start + Duration::minutes(minute);
    fleet.say(1..=4, "BadImage", "apply", &[at(0)]).await;
    fleet.look(at(1)).await;
    fleet.look(at(12)).await;
    // The agents try again, and find the same.
    let times = [at(0), at(20)];
    fleet.say(1..=4, "BadImage", "apply", &times).await;
    fleet.look(at(21)).await;
    fleet.look(at(32)).await;
    let reason = "4 of 10 clusters had BadImage within ten minutes";
    let told = |action: &str| json!(["hub", action, "BadImage", reason]);
    let [begins, ends] = ["incident.begin", "incident.end"].map(told);
    let course = [begins.clone(), ends.clone(), begins, ends];
    assert_eq!(fleet.record().await, course);
    assert_eq!(fleet.policy().await.1, calm);
    fleet.hub.stop().await;
}

/// W26: a hub that starts in the middle of an incident, when what made it one is no longer seen.
#[tokio::test]
async fn an_incident_outlives_a_restart_of_the_hub() {
    let fleet = Fleet::start("incident-restart").await;
    let (_, calm) = fleet.policy().await;
    let now = clock::now();
    let at = |minute| now + Duration::minutes(minute);
    fleet.say(1..=4, "BadImage", "apply", &[at(-9)]).await;
    fleet.look(now).await;
    let (_, careful) = fleet.policy().await;
    assert_ne!(careful, calm);
    let Fleet { hub, agents } = fleet;
    let hub = hub.restart().await;
    let fleet = Fleet { hub, agents };
    assert_eq!(fleet.policy().await.1, careful);
    fleet.look(at(5)).await;
    assert_eq!(fleet.policy().await.1, careful);
    // It was one, which begins and ends once.
    fleet.look(at(11)).await;
    assert_eq!(fleet.policy().await.1, calm);
    let reason = "4 of 10 clusters had BadImage within ten minutes";
    let told = |action: &str| json!(["hub", action, "BadImage", reason]);
    let course = ["incident.begin", "incident.end"].map(told);
    assert_eq!(fleet.record().await, course);
    fleet.hub.stop().await;
}
