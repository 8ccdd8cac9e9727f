//! The hub as its callers see it: joins, the REST API, the audit, what it stores and what it does not.

use std::time::Duration;

use linesman::hub::audit;
use linesman::keys::{self, KeyPair};
use linesman::wire::api::{Assignment, DeployKeyState, Problem, ReportAck};
use serde_json::{Value, json};

mod agent_image;
mod engine;
mod git_route;
mod grants;
mod hostkeys;
mod incident;
mod login;
mod lost;
mod notify;
mod older;
mod pause;
mod postgres;
mod readopt;
mod record;
mod replicas;
mod rotate;
mod signers;
pub(crate) mod support;
mod users;
use support::{Agent, TestHub};

fn slug(problem: &Value) -> &str {
    let kind = problem["type"].as_str().unwrap();
    kind.strip_prefix("urn:linesman:problem:").unwrap()
}

#[tokio::test]
async fn a_join_binds_the_keys_and_its_repetition_is_the_same_answer() {
    let hub = TestHub::start("join").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let (code, first) = agent.join(&hub, "eu1", &token).await;
    assert_eq!(code, 200, "{first}");
    let assignment: Assignment = serde_json::from_value(first.clone()).unwrap();
    assert_eq!(assignment.catalog.path, "clusters/eu1");
    assert_eq!(
        assignment.catalog.deploy_key.state,
        DeployKeyState::Registered
    );
    assert_eq!(agent.join(&hub, "eu1", &token).await, (200, first.clone()));
    let (code, again) = agent
        .call(&hub, "GET", "/v1/clusters/eu1/assignment", "")
        .await;
    assert_eq!((code, again), (200, first));
    hub.stop().await;
}

/// H3
#[tokio::test]
async fn of_twenty_joins_with_one_token_one_wins_and_all_are_on_record() {
    let hub = TestHub::start("race").await;
    let token = hub.add("eu1").await;
    let joins = (1..=20).map(|seed| {
        let (hub, token) = (&hub, &token);
        async move { Agent::new(seed).join(hub, "eu1", token).await }
    });
    let answers = futures_util::future::join_all(joins).await;
    let won = answers.iter().filter(|(code, _)| *code == 200).count();
    let lost = answers
        .iter()
        .filter(|(code, body)| *code == 409 && slug(body) == "token-redeemed")
        .count();
    assert_eq!((won, lost), (1, 19), "{answers:?}");
    let rows = hub.hub.store.audit_tail(Some("eu1"), 100).await.unwrap();
    let joins = |verdict: &str| {
        rows.iter()
            .filter(|r| r.action == "cluster.join" && r.verdict == verdict)
            .count()
    };
    assert_eq!((joins("allow"), joins("deny")), (1, 19));
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["phase"], "Conflict");
    hub.stop().await;
}

/// H4
#[tokio::test]
async fn a_bad_token_has_one_answer_for_yaml_and_one_for_joins() {
    let hub = TestHub::start("bad-token").await;
    let used = hub.add("eu1").await;
    let revoked = hub.add("eu2").await;
    hub.post("/v1/clusters/eu2/join-tokens", &json!({})).await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &used).await.0, 200);
    let wrong = format!("{}{}", &revoked[..28], keys::encode(&[0; 32]));
    let unknown = format!("lmj1.{}.{}", keys::encode(&[0; 16]), keys::encode(&[0; 32]));
    let mut answers = Vec::new();
    for token in [&used, &revoked, &wrong, &unknown, "x"] {
        let (code, mut body) = hub.get(&format!("/adopt/{token}.yaml")).await;
        body["requestId"] = Value::Null;
        answers.push((code, body));
    }
    assert!(answers.iter().all(|a| *a == answers[0] && a.0 == 401));
    for token in [&revoked, &wrong, &unknown] {
        let (code, body) = Agent::new(2).join(&hub, "eu2", token).await;
        assert_eq!((code, slug(&body)), (401, "token-invalid"));
    }
    hub.stop().await;
}

#[tokio::test]
async fn reading_the_yaml_leaves_the_token_usable() {
    let hub = TestHub::start("adopt").await;
    let token = hub.add("eu1").await;
    for _ in 0..2 {
        let response = hub.raw("GET", &format!("/adopt/{token}.yaml")).await;
        assert_eq!(response.headers()["cache-control"], "no-store");
        let yaml = response.text().await.unwrap();
        assert!(yaml.contains(&token) && yaml.contains("kind: Deployment"));
    }
    assert_eq!(Agent::new(1).join(&hub, "eu1", &token).await.0, 200);
    hub.stop().await;
}

#[tokio::test]
async fn a_join_without_proof_of_its_keys_is_refused() {
    let hub = TestHub::start("proof").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let body = agent.join_body(&hub, "eu1", &token);
    let other = KeyPair::from_seed(&[9; 32]);
    let call = hub.call("POST", "/v1/join", &body);
    let (code, problem) = call.signed_by(&other, 0).await;
    assert_eq!((code, slug(&problem)), (403, "bad-signature"));
    let mut unproven: Value = serde_json::from_str(&body).unwrap();
    unproven["deployProof"] = keys::encode(&[0; 64]).into();
    let text = unproven.to_string();
    let call = hub.call("POST", "/v1/join", &text);
    let (code, problem) = call.signed_by(&agent.identity, 0).await;
    assert_eq!((code, slug(&problem)), (403, "bad-signature"));
    unproven["protocol"] = json!({"min": 90, "max": 91});
    let text = unproven.to_string();
    let call = hub.call("POST", "/v1/join", &text);
    let (code, problem) = call.signed_by(&agent.identity, 0).await;
    assert_eq!((code, slug(&problem)), (426, "protocol-unsupported"));
    // None of it spent the token, and a join's time does not matter.
    let call = hub.call("POST", "/v1/join", &body);
    assert_eq!(call.signed_by(&agent.identity, -86_400).await.0, 200);
    hub.stop().await;
}

/// H21
#[tokio::test]
async fn an_agent_reaches_its_own_cluster_only() {
    let hub = TestHub::start("foreign").await;
    let (one, two) = (Agent::new(1), Agent::new(2));
    for (agent, name) in [(&one, "eu1"), (&two, "eu2")] {
        let token = hub.add(name).await;
        assert_eq!(agent.join(&hub, name, &token).await.0, 200);
    }
    for (method, path) in [
        ("GET", "assignment"),
        ("POST", "reports"),
        ("POST", "deploy-keys"),
        ("GET", "orders"),
    ] {
        let path = format!("/v1/clusters/eu2/{path}");
        assert_eq!(one.call(&hub, method, &path, "{}").await.0, 404, "{path}");
        let stranger = Agent::new(3);
        let (code, problem) = stranger.call(&hub, method, &path, "{}").await;
        assert_eq!((code, slug(&problem)), (403, "unknown-identity"));
        let call = hub.call(method, &path, "{}");
        let (code, problem) = call.signed_by(&two.identity, -300).await;
        assert_eq!((code, slug(&problem)), (401, "stale-signature"));
        assert!(problem["now"].as_str().unwrap().parse::<i64>().is_ok());
        assert_eq!(hub.raw(method, &path).await.status(), 401);
    }
    hub.stop().await;
}

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

/// An agent that was killed, or came without its records, leaves heals open: what it does not name ends, once.
#[tokio::test]
async fn a_heal_that_no_agent_knows_any_more_ends() {
    let hub = TestHub::start("forgotten").await;
    let mut agents = Vec::new();
    for (n, name) in [(1, "eu1"), (2, "us1")] {
        let token = hub.add(name).await;
        let agent = Agent::new(n);
        agent.join(&hub, name, &token).await;
        agents.push((agent, format!("/v1/clusters/{name}/reports")));
    }
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

/// W28: the story of a heal names who committed what broke the engine, as far as the hub's catalog tells.
#[tokio::test]
async fn a_heal_is_told_with_its_parts_and_the_author_of_the_commit() {
    let hub = TestHub::start("story").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (_, catalog) = hub.get("/v1/catalog").await;
    let head = catalog["head"].as_str().unwrap();
    let record = |id: &str, commit: &str| {
        json!({"id": format!("01900000-0000-7000-8000-00000000000{id}"), "class": "BadEngineCommit", "number": 43,
            "meaning": "a commit broke it", "object": "Deployment x/y", "evidence": "gone", "writer": "kustomize-controller",
            "commit": commit, "steps": [], "faultAt": "2026-11-21T05:00:00.000Z", "detectedAt": "2026-11-21T05:00:01.500Z",
            "actedAt": "2026-11-21T05:00:02.000Z", "restoredAt": "2026-11-21T05:00:30.000Z", "result": "healed"})
    };
    let both = [
        record("1", &format!("main@sha1:{head}")),
        record("2", &"1".repeat(40)),
    ];
    let report =
        json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": both});
    let path = "/v1/clusters/eu1/reports";
    let (code, _) = agent.call(&hub, "POST", path, &report.to_string()).await;
    assert_eq!(code, 200);
    let (_, listed) = hub.get("/v1/heals").await;
    let [unknown, known] = [0, 1].map(|n| listed["items"][n].clone());
    assert!(unknown.get("author").is_none(), "{unknown}");
    assert_eq!(
        known["author"]["author"], "Linesman <linesman@localhost>",
        "{known}"
    );
    assert!(known.get("story").is_none(), "only where one is asked for");
    let id = known["id"].as_str().unwrap();
    let (_, told) = hub.get(&format!("/v1/heals/{id}")).await;
    assert_eq!(
        told["took"],
        json!({"detectMs": 1500, "actMs": 500, "restoreMs": 28_000})
    );
    let lines = told["story"].as_array().unwrap();
    let lines: Vec<&str> = lines.iter().map(|l| l["text"].as_str().unwrap()).collect();
    assert_eq!(
        lines[..2],
        [
            "'kustomize-controller' wrote Deployment x/y",
            "seen, and called F43 BadEngineCommit"
        ]
    );
    // Told again, it is no news; of a class that this hub does not know, its words are no label.
    let mut unknown = record("3", "");
    unknown["class"] = json!("SomethingNew");
    let report = json!({"agent": {"version": "0.1.0", "image": "i", "arch": "amd64"}, "heals": [both[0], unknown]});
    agent.call(&hub, "POST", path, &report.to_string()).await;
    let url = format!("http://{}/metrics", hub.hub.config.health_listen);
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    for line in [
        "linesman_heals_total{class=\"BadEngineCommit\",step=\"none\",result=\"healed\"} 2\n",
        "linesman_heals_total{class=\"other\",step=\"none\",result=\"healed\"} 1\n",
        "linesman_heal_seconds_sum{class=\"BadEngineCommit\",phase=\"restore\"} 56.0\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("SomethingNew"), "{text}");
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

/// Without a line nothing is asked, and what is told is marked; an answer that nobody waits for is refused.
#[tokio::test]
async fn a_diagnosis_without_a_line_says_that_it_is_not_live() {
    let hub = TestHub::start("diagnosis").await;
    let token = hub.add("eu1").await;
    let path = "/v1/clusters/eu1/diagnosis";
    let (code, found) = hub.get(path).await;
    assert_eq!((code, &found["live"]), (200, &json!(false)), "{found}");
    assert_eq!(found["note"], "the cluster has not joined yet");
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (_, found) = hub.get(path).await;
    assert_eq!(found["note"], "the agent has no line to this hub now");
    assert_eq!(found["components"], json!([]));
    let answer = json!({"id": "1", "at": "2026-01-01T00:00:00.000Z", "components": []});
    let path = "/v1/clusters/eu1/diagnoses";
    let (code, problem) = agent.call(&hub, "POST", path, &answer.to_string()).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    hub.stop().await;
}

#[tokio::test]
async fn unknown_fields_of_people_are_refused_by_name() {
    let hub = TestHub::start("fields").await;
    let body = json!({"name": "eu1", "colour": "blue"});
    let (code, problem) = hub.post("/v1/clusters", &body).await;
    assert_eq!((code, slug(&problem)), (400, "unknown-field"));
    assert!(problem["detail"].as_str().unwrap().contains("`colour`"));
    let (code, problem) = hub.post("/v1/clusters", &json!({"name": "system"})).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    let body = json!({"name": "eu1", "adoption": {"tokenTtl": 1}});
    assert_eq!(hub.post("/v1/clusters", &body).await.0, 400);
    let long = json!({"name": "x".repeat(2 << 20)});
    let (code, problem) = hub.post("/v1/clusters", &long).await;
    assert_eq!((code, slug(&problem)), (413, "body-too-large"));
    hub.stop().await;
}

#[tokio::test]
async fn every_answer_carries_its_request_id_and_problems_repeat_it() {
    let hub = TestHub::start("ids").await;
    for (method, path, code) in [
        ("GET", "/v1/hub", 200),
        ("GET", "/v1/whoami", 401),
        ("GET", "/nowhere", 404),
        ("PUT", "/v1/hub", 405),
    ] {
        let response = hub.raw(method, path).await;
        assert_eq!(response.status(), code, "{path}");
        let id = response.headers()["x-request-id"].clone();
        if code != 200 {
            let problem: Problem = response.json().await.unwrap();
            assert_eq!(problem.request_id, id.to_str().unwrap());
            assert!(!problem.next.is_empty() && problem.hop == "hub");
        }
    }
    hub.stop().await;
}

#[tokio::test]
async fn a_removed_cluster_hears_gone_and_its_name_is_free_again() {
    let hub = TestHub::start("remove").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    let path = "/v1/clusters/eu1";
    assert_eq!(hub.delete(path, None).await, 428);
    assert_eq!(hub.delete(path, Some("\"99\"")).await, 412);
    let tag = format!("\"{}\"", view["rev"]);
    assert_eq!(hub.delete(path, Some(&tag)).await, 204);
    let (code, problem) = agent
        .call(&hub, "GET", "/v1/clusters/eu1/assignment", "")
        .await;
    assert_eq!((code, slug(&problem)), (410, "removed"));
    hub.add("eu1").await;
    hub.stop().await;
}

#[tokio::test]
async fn a_readopted_cluster_keeps_its_record_and_loses_its_former_key() {
    let hub = TestHub::start("readopt").await;
    let token = hub.add("eu1").await;
    let (old, new) = (Agent::new(1), Agent::new(2));
    let (_, first) = old.join(&hub, "eu1", &token).await;
    let (code, answer) = hub.post("/v1/clusters/eu1/join-tokens", &json!({})).await;
    assert_eq!(code, 201);
    let token = support::token_of(&answer);
    let path = "/v1/clusters/eu1/assignment";
    assert_eq!(old.call(&hub, "GET", path, "").await.0, 200);
    let (code, second) = new.join(&hub, "eu1", &token).await;
    assert_eq!((code, &second["cluster"]), (200, &first["cluster"]));
    let (code, problem) = old.call(&hub, "GET", path, "").await;
    assert_eq!((code, slug(&problem)), (403, "revoked"));
    hub.stop().await;
}

#[tokio::test]
async fn orders_begin_with_the_present_state() {
    let hub = TestHub::start("orders").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let call = hub.call("GET", "/v1/clusters/eu1/orders", "");
    let mut stream = call.stream(&agent.identity).await;
    let mut text = String::new();
    while !text.contains("catalogHead") {
        let chunk = tokio::time::timeout(Duration::from_secs(5), stream.chunk());
        text.push_str(std::str::from_utf8(&chunk.await.unwrap().unwrap().unwrap()).unwrap());
    }
    let kinds: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .collect();
    assert_eq!(kinds[0], json!({"kind": "beat"}));
    assert_eq!(
        kinds[2],
        json!({"kind": "subjects", "users": ["admin"], "groups": ["admin"]})
    );
    drop(stream);
    hub.stop().await;
}

/// A kill at any moment after the answer finds the token spent and the chain whole.
#[tokio::test]
async fn nothing_secret_is_stored_and_the_chain_holds_over_a_restart() {
    let hub = TestHub::start("restart").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let (_, first) = agent.join(&hub, "eu1", &token).await;
    let admin = hub.admin.clone();
    let id = hub.hub.id.clone();
    let data = hub.crash().await;
    for file in ["hub.db", "hub.db-wal"] {
        let Ok(bytes) = std::fs::read(data.join(file)) else {
            continue;
        };
        for secret in [&token, &admin] {
            let secret = secret.rsplit('.').next().unwrap().as_bytes();
            let found = bytes.windows(secret.len()).any(|w| w == secret);
            assert!(!found, "a token's secret is in {file}");
        }
    }
    let hub = TestHub::open("restart", data).await;
    assert_eq!((&hub.hub.id, &hub.admin), (&id, &admin));
    let (code, again) = agent.join(&hub, "eu1", &token).await;
    assert_eq!((code, &again["cluster"]), (200, &first["cluster"]));
    assert_eq!(Agent::new(2).join(&hub, "eu1", &token).await.0, 409);
    let rows = hub.hub.store.audit(0, None, 500).await.unwrap();
    let genesis = keys::sha256(id.as_bytes());
    assert_eq!(audit::verify(genesis, 0, &rows), Ok(()));
    assert!(rows.len() >= 4);
    hub.stop().await;
}
