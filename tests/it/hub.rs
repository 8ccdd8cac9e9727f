//! The hub as its callers see it: the form of its answers, orders, what it stores and what it does not.

use std::time::Duration;

use linesman::hub::audit;
use linesman::keys;
use linesman::wire::api::Problem;
use serde_json::{Value, json};

mod agent_copy;
mod agent_image;
mod anew;
mod blocked;
mod bundles;
mod cluster_keys;
mod crowd;
mod drained;
mod engine;
mod git_route;
mod grants;
mod heals;
mod hostkeys;
mod identity;
mod incident;
mod joins;
mod kept;
mod labels;
mod login;
mod lost;
mod mistaken;
mod moved;
mod notify;
mod older;
mod once;
mod pause;
mod postgres;
mod push_keys;
mod races;
mod readopt;
mod record;
mod renewed;
mod replicas;
mod revoke;
mod rotate;
mod routes;
mod signers;
mod strangers;
pub(crate) mod support;
mod trusted;
mod unknown;
mod users;
mod way;
use support::{Agent, TestHub};

fn slug(problem: &Value) -> &str {
    let kind = problem["type"].as_str().unwrap();
    kind.strip_prefix("urn:linesman:problem:").unwrap()
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
    let files = ["hub.db", "hub.db-wal"].map(|file| data.join(file));
    let bytes = files.map(|file| std::fs::read(file).unwrap_or_default());
    let bytes = bytes.concat();
    for token in [&token, &admin] {
        let (rest, secret) = token.rsplit_once('.').unwrap();
        let (_, id) = rest.split_once('.').unwrap();
        let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
        // Its id says that this is where the records are; there is no such file beside a database server.
        assert!(bytes.is_empty() || has(id), "there is no token {id}");
        assert!(!has(secret), "the secret of token {id} is stored");
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
