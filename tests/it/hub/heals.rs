//! What agents report, heals before all: kept once, within bounds, and ended when nobody else does.

use std::ops::Range;
use std::time::{Duration, Instant};

use linesman::hub::pace::Act;
use linesman::wire::api::ReportAck;
use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};

mod told;

#[tokio::test]
async fn reports_show_in_the_view_and_heals_are_stored_once() {
    let hub = TestHub::start("report").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let heal = |result: &str| {
        json!({"id": "01900000-0000-7000-8000-000000000001", "class": "ObjectMissing", "object": "Deployment x/y",
            "evidence": "gone", "steps": [], "detectedAt": "2026-11-21T05:00:00.000Z", "result": result})
    };
    let report = json!({
        "agent": {"version": "0.1.0", "image": "i", "arch": "amd64"},
        "facts": {"kubernetes.version": "v1.35.4", "long": "x".repeat(9000)},
        "steps": [{"step": "adopted", "state": "done", "at": "2026-11-21T05:00:00.000Z"}],
        "conditions": [{"type": "EngineHealthy", "status": "True", "reason": "Proven", "message": "", "since": "t"}],
        "heals": [heal("open"), heal("healed"), heal("open")],
        "revision": "main@sha1:abc", "aFieldOfTomorrow": 1,
    });
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(&hub, "POST", path, &report.to_string()).await;
    let ack: ReportAck = serde_json::from_value(ack).unwrap();
    assert_eq!((code, ack.heals.len()), (200, 3));
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["phase"], "Healthy", "{view}");
    assert_eq!(view["revision"], "main@sha1:abc");
    assert_eq!(view["facts"]["long"].as_str().unwrap().len(), 4096);
    let (_, heals) = hub.get("/v1/heals?cluster=eu1").await;
    let heals = heals["items"].as_array().unwrap().clone();
    assert_eq!(heals.len(), 1);
    assert_eq!(heals[0]["result"], "healed");
    hub.stop().await;
}

/// Whatever one agent says, its heals are small, and none is the newest of the fleet for good.
#[tokio::test]
async fn a_heal_is_stored_within_bounds_and_by_an_id_of_now() {
    let hub = TestHub::start("heal-bounds").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let heal = |id: &str, action: &str| {
        json!({"id": id, "class": "ObjectMissing", "object": "Deployment x/y", "evidence": "gone\u{1b}[2J",
            "steps": [{"action": action, "object": "x", "at": "2026-11-21T05:00:00.000Z", "outcome": "ok"}],
            "detectedAt": "2026-11-21T05:00:00.000Z", "result": "open"})
    };
    let good = "01900000-0000-7000-8000-000000000001";
    let large = "x".repeat(900 << 10);
    let told = [
        heal("ffffffff-ffff-7fff-bfff-ffffffffffff", "create"),
        heal("01900000000070008000000000000002", "create"),
        heal(good, &large),
    ];
    let report =
        json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": told});
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(&hub, "POST", path, &report.to_string()).await;
    // What is not acknowledged stays with its agent.
    assert_eq!((code, &ack["heals"]), (200, &json!([good])), "{ack}");
    let (_, listed) = hub.get("/v1/heals").await;
    let all = listed["items"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["id"]), (1, &json!(good)));
    assert_eq!(all[0]["evidence"], "gone\u{fffd}[2J");
    let size = all[0].to_string().len();
    assert!(size < 2_000, "{size}");
    hub.stop().await;
}

async fn metrics(hub: &TestHub) -> String {
    let url = format!("http://{}/metrics", hub.hub.config.health_listen);
    reqwest::get(url).await.unwrap().text().await.unwrap()
}

/// An agent that opens ever more of them fills no database, and no other cluster's notices: what it tells beyond the bound stays with it
/// and is seen. Of what the hub alone sees it tells nothing.
#[tokio::test]
async fn open_heals_beyond_those_of_one_cluster_stay_with_its_agent_and_are_told() {
    let hub = TestHub::start("heals-full").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let heal = |n: u32, class: &str| {
        json!({"id": format!("01900000-0000-7000-8000-{n:012}"), "class": class, "object": "Deployment x/y",
            "evidence": "gone", "steps": [], "detectedAt": "2026-11-21T05:00:00.000Z", "result": "open"})
    };
    let acked = async |numbers: Range<u32>, class: &str| {
        let told: Vec<Value> = numbers.map(|n| heal(n, class)).collect();
        let report =
            json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": told});
        let path = "/v1/clusters/eu1/reports";
        let (code, ack) = agent.call(&hub, "POST", path, &report.to_string()).await;
        assert_eq!(code, 200, "{ack}");
        ack["heals"].as_array().unwrap().len()
    };
    for first in (0..1_000).step_by(200) {
        assert_eq!(acked(first..first + 200, "ObjectMissing").await, 200);
    }
    assert_eq!(acked(1_000..1_100, "ObjectMissing").await, 24);
    assert_eq!(acked(2_000..2_001, "AgentLost").await, 0);
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    let all = view["conditions"].as_array().unwrap();
    let full = all.iter().find(|c| c["type"] == "HealsTaken").unwrap();
    let told = (&full["status"], &full["reason"]);
    assert_eq!(told, (&json!("False"), &json!("TooMany")), "{full}");
    let message = full["message"].as_str().unwrap();
    assert!(message.contains("76 more"), "{message}");
    let text = metrics(&hub).await;
    for line in [
        "linesman_hub_heals_refused_total{reason=\"room\"} 76\n",
        "linesman_hub_heals_refused_total{reason=\"class\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    hub.stop().await;
}

/// The agents of two clusters, with the paths of their reports.
async fn two(hub: &TestHub) -> [(Agent, String); 2] {
    let joined = async |n, name: &str| {
        let token = hub.add(name).await;
        let agent = Agent::new(n);
        agent.join(hub, name, &token).await;
        (agent, format!("/v1/clusters/{name}/reports"))
    };
    [joined(1, "eu1").await, joined(2, "us1").await]
}

/// Each report and each new key is a write of one cluster's agent that others wait for.
#[tokio::test]
async fn an_agent_that_does_more_than_it_may_is_told_to_wait() {
    let hub = TestHub::start("agent-pace").await;
    let agents = two(&hub).await;
    let eu1 = hub.hub.store.cluster(&"eu1".parse().unwrap()).await;
    let eu1 = eu1.unwrap().unwrap();
    // What is taken then is earned later yet.
    let then = Instant::now() + Duration::from_mins(10);
    while hub.hub.paces.take(&eu1.id, Act::Report, then).is_ok() {}
    let says = async |agent: usize| {
        let (agent, path) = &agents[agent];
        agent.call(&hub, "POST", path, "{}").await
    };
    let (code, problem) = says(0).await;
    assert_eq!((code, slug(&problem)), (429, "busy"), "{problem}");
    assert_eq!(says(1).await.0, 200);
    hub.stop().await;
}

/// An agent that was killed, or came without its records, leaves heals open: what it does not name ends, once.
#[tokio::test]
async fn a_heal_that_no_agent_knows_any_more_ends() {
    let hub = TestHub::start("forgotten").await;
    let agents = two(&hub).await;
    let heal = |id: u8, result: &str| {
        json!({"id": format!("01900000-0000-7000-8000-00000000000{id}"), "class": "ObjectMissing", "object": "Deployment x/y",
            "evidence": "gone", "steps": [], "detectedAt": "2026-11-21T05:00:00.000Z", "result": result})
    };
    let say = async |agent: usize, heals: Vec<Value>, open: Option<Vec<Value>>| {
        let (agent, path) = &agents[agent];
        let mut report =
            json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": heals});
        if let Some(open) = open {
            report["openHeals"] = open.iter().map(|h| h["id"].clone()).collect();
        }
        let (code, ack) = agent.call(&hub, "POST", path, &report.to_string()).await;
        assert_eq!(code, 200, "{ack}");
    };
    let results = async || -> Vec<Value> {
        let (_, heals) = hub.get("/v1/heals").await;
        let all = heals["items"].as_array().unwrap().iter().rev();
        all.map(|h| h["result"].clone()).collect()
    };
    let four = [
        heal(1, "open"),
        heal(2, "reported"),
        heal(3, "open"),
        heal(4, "open"),
    ];
    say(0, four[..3].to_vec(), None).await;
    say(1, four[3..].to_vec(), None).await;
    assert_eq!(results().await, ["open", "reported", "open", "open"]);
    // One is named, one comes with the same report; the other cluster's is its own.
    say(0, vec![heal(5, "open")], Some(vec![heal(3, "open")])).await;
    let after = ["failed", "failed", "open", "open", "open"];
    assert_eq!(results().await, after);
    let (_, told) = hub
        .get("/v1/heals/01900000-0000-7000-8000-000000000001")
        .await;
    let next = told["next"].as_str().unwrap();
    assert!(next.contains("its end was not seen"), "{told}");
    // It is known after all.
    let mut over = heal(1, "healed");
    over["restoredAt"] = json!("2026-11-21T05:00:30.000Z");
    say(0, vec![over], None).await;
    assert_eq!(results().await[0], "healed");
    say(0, vec![], Some(vec![])).await;
    let after = ["healed", "failed", "failed", "open", "failed"];
    assert_eq!(results().await, after);
    hub.stop().await;
}

/// L18, H51: a report of an agent of a later build counts but for what it says in words of its own; conditions are shown in
/// these.
#[tokio::test]
async fn a_later_agents_report_counts_but_for_words_that_are_not_known() {
    let hub = TestHub::start("later").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Proven", "message": "", "since": "t", "later": 1});
    let odd = json!({"type": "Synced", "status": "Perhaps", "message": "soon"});
    let step =
        |name: &str| json!({"step": name, "state": "done", "at": "2026-11-21T05:00:00.000Z"});
    let heal = |id: &str, result: &str| {
        json!({"id": format!("01900000-0000-7000-8000-00000000000{id}"), "class": "ObjectMissing", "object": "Deployment x/y",
            "evidence": "gone", "steps": [], "detectedAt": "2026-11-21T05:00:00.000Z", "result": result, "later": []})
    };
    let report = json!({
        "agent": {"version": "9.0.0", "image": "i", "arch": "amd64", "later": {}},
        "facts": {"kubernetes.version": "v1.99.0"},
        "steps": [step("tomorrow"), step("adopted")],
        "conditions": [condition("Tomorrow"), condition("EngineHealthy"), odd],
        "heals": [heal("1", "postponed"), heal("2", "healed")],
    });
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(&hub, "POST", path, &report.to_string()).await;
    // What is not known is not acknowledged: a later hub will get it.
    let acked = json!(["01900000-0000-7000-8000-000000000002"]);
    assert_eq!((code, &ack["heals"]), (200, &acked), "{ack}");
    let (code, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(code, 200, "{view}");
    let named = |list: &str, name: &str| -> Vec<Value> {
        let all = view[list].as_array().unwrap().iter();
        all.map(|element| element[name].clone()).collect()
    };
    assert!(
        named("conditions", "type").contains(&json!("EngineHealthy")),
        "{view}"
    );
    let mut later = condition("Tomorrow");
    later.as_object_mut().unwrap().remove("later");
    assert_eq!(view["laterConditions"], json!([later]));
    let all = view["conditions"].as_array().unwrap();
    let synced = all.iter().find(|c| c["type"] == "Synced").unwrap();
    assert_eq!(
        (&synced["status"], &synced["message"]),
        (&json!("Unknown"), &json!("Perhaps: soon"))
    );
    assert_eq!(view["facts"]["kubernetes.version"], "v1.99.0");
    assert!(named("steps", "step").contains(&json!("adopted")), "{view}");
    hub.stop().await;
}

/// A heal whose agent forgot it is no trouble for ever; one that is over stays as it is.
#[tokio::test]
async fn a_heal_that_nobody_will_end_is_closed_by_hand_and_on_record() {
    let hub = TestHub::start("heal-close").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let id = |n: u8| format!("01900000-0000-7000-8000-00000000000{n}");
    let heal = |n: u8, result: &str| {
        json!({"id": id(n), "class": "GitUnreachable", "object": "GitRepository x/y", "evidence": "gone", "steps": [],
            "detectedAt": "2026-11-21T05:00:00.000Z", "result": result})
    };
    let tell = async |heals: &Value| {
        let report =
            json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": heals});
        let path = "/v1/clusters/eu1/reports";
        let (code, _) = agent.call(&hub, "POST", path, &report.to_string()).await;
        assert_eq!(code, 200);
    };
    let mut ended = heal(3, "healed");
    ended["restoredAt"] = json!("2026-11-21T05:00:10.000Z");
    tell(&json!([heal(1, "open"), heal(2, "reported"), ended])).await;
    let open = async || hub.hub.store.open_heals().await.unwrap().len();
    assert_eq!(open().await, 2);
    let close = async |n: u8, reason: &str| {
        let path = format!("/v1/heals/{}/close", id(n));
        hub.post(&path, &json!({"reason": reason})).await
    };
    for wrong in ["", " ", "a\nb", &"x".repeat(201)] {
        let (code, problem) = close(1, wrong).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"), "{wrong}");
    }
    let (code, problem) = close(9, "x").await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    for n in [1, 2] {
        let (code, closed) = close(n, " the agent was made anew ").await;
        assert_eq!((code, &closed["result"]), (200, &json!("failed")));
        let next = "nothing; closed by admin: the agent was made anew";
        assert_eq!(closed["next"], json!(next));
    }
    assert_eq!(open().await, 0);
    let (code, left) = close(3, "too late").await;
    assert_eq!((code, &left["result"]), (200, &json!("healed")));
    let (_, again) = close(1, "another word").await;
    assert!(
        again["next"].as_str().unwrap().ends_with("made anew"),
        "{again}"
    );
    let (_, audit) = hub.get("/v1/audit").await;
    let told = audit["items"].as_array().unwrap().iter();
    let told = told.filter(|e| e.to_string().contains("heal.close"));
    let targets: Vec<String> = told.map(Value::to_string).collect();
    assert_eq!(targets.len(), 2, "{targets:?}");
    assert!(
        targets
            .iter()
            .all(|t| t.contains("the agent was made anew")),
        "{targets:?}"
    );
    // Told once more by an agent that knows of it after all, it is what that says.
    let mut ended = heal(2, "reported");
    ended["restoredAt"] = json!("2026-11-21T05:00:20.000Z");
    tell(&json!([ended])).await;
    let (_, told) = hub.get(&format!("/v1/heals/{}", id(2))).await;
    assert_eq!(told["result"], json!("reported"));
    hub.stop().await;
}
