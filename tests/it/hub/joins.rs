//! How a cluster comes to the hub and goes: the token and its YAML, the join, what its agent may, readoption, removal.

use std::time::Duration;

use linesman::clock;
use linesman::hub::conflict;
use linesman::keys::{self, KeyPair};
use linesman::wire::api::{Assignment, DeployKeyState};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::slug;
use super::support::{self, Agent, TestHub};

/// A stream that goes on shows a beat each 15 s, and no end.
const OVER: Duration = Duration::from_secs(30);

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

/// Each answer is on record: the key that redeemed a token has a day to ask, and does not fill the record meanwhile.
#[tokio::test]
async fn a_join_is_repeated_at_the_pace_of_new_keys() {
    let hub = TestHub::start("join-pace").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let mut answers = Vec::new();
    // Sixty at once, behind the first; one more takes half a minute.
    for _ in 0..80 {
        answers.push(agent.join(&hub, "eu1", &token).await);
    }
    let (code, problem) = answers.last().unwrap();
    assert_eq!((*code, slug(problem)), (429, "busy"));
    let good = answers.iter().filter(|(code, _)| *code == 200).count();
    let rows = hub.hub.store.audit_tail(Some("eu1"), 200).await.unwrap();
    let joins = rows.iter().filter(|row| row.action == "cluster.join");
    assert_eq!(joins.count(), good);
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
    const EXPIRES: &str = "UPDATE join_token SET expires_at = 1
        WHERE cluster_id = (SELECT id FROM cluster WHERE name = 'eu3')";
    let hub = TestHub::start("bad-token").await;
    let used = hub.add("eu1").await;
    let revoked = hub.add("eu2").await;
    hub.post("/v1/clusters/eu2/join-tokens", &json!({})).await;
    let expired = hub.add("eu3").await;
    hub.execute(EXPIRES, EXPIRES).await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &used).await.0, 200);
    let wrong = format!("{}{}", &revoked[..28], keys::encode(&[0; 32]));
    let unknown = format!("lmj1.{}.{}", keys::encode(&[0; 16]), keys::encode(&[0; 32]));
    let alike = |mut answers: Vec<(u16, Value)>| {
        for (code, body) in &mut answers {
            assert_eq!((*code, slug(body)), (401, "token-invalid"));
            body["requestId"] = Value::Null;
        }
        let first = &answers[0];
        assert!(answers.iter().all(|other| other == first), "{answers:#?}");
    };
    let mut shown = Vec::new();
    for token in [&used, &revoked, &expired, &wrong, &unknown, "x"] {
        shown.push(hub.get(&format!("/adopt/{token}.yaml")).await);
    }
    alike(shown);
    let mut joined = Vec::new();
    for (name, token) in [
        ("eu2", &revoked),
        ("eu3", &expired),
        ("eu2", &wrong),
        ("eu2", &unknown),
    ] {
        joined.push(Agent::new(2).join(&hub, name, token).await);
    }
    alike(joined);
    hub.stop().await;
}

/// H4: how long the same no takes, by what is wrong. That all take the same way is `a_token_shows_its_yaml_while_it_is_good`; this prints.
#[tokio::test]
async fn a_bad_token_is_refused_as_quickly_whatever_is_wrong() {
    const TRIES: usize = 100;
    let hub = TestHub::start("bad-token-time").await;
    let used = hub.add("eu1").await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &used).await.0, 200);
    let expired = hub.add("eu2").await;
    hub.execute(
        "UPDATE join_token SET expires_at = 1 WHERE redeemed_at IS NULL",
        "UPDATE join_token SET expires_at = 1 WHERE redeemed_at IS NULL",
    )
    .await;
    let unknown = format!("lmj1.{}.{}", keys::encode(&[0; 16]), keys::encode(&[0; 32]));
    let all = [("unknown", unknown), ("expired", expired), ("used", used)];
    let mut took = [const { Vec::new() }; 3];
    // In turns, so that whatever else the machine does falls on each.
    for _ in 0..TRIES {
        for ((_, token), took) in all.iter().zip(&mut took) {
            let began = std::time::Instant::now();
            let answer = hub.raw("GET", &format!("/adopt/{token}.yaml")).await;
            took.push(began.elapsed());
            assert_eq!(answer.status(), 401);
        }
    }
    for ((what, _), took) in all.iter().zip(&mut took) {
        took.sort();
        let median = took[TRIES / 2];
        println!(
            "figure | H4 | YAML of a token that is {what}: refused, median of {TRIES} | ± 10 ms | {median:.2?}"
        );
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

/// A cluster that was well stayed in Conflict, and critical, until it was adopted anew.
#[tokio::test]
async fn a_conflict_is_over_when_nobody_who_was_refused_comes_again() {
    let hub = TestHub::start("conflict-over").await;
    let token = hub.add("eu1").await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &token).await.0, 200);
    let (code, problem) = Agent::new(2).join(&hub, "eu1", &token).await;
    assert_eq!((code, slug(&problem)), (409, "token-redeemed"));
    // Of this one there is no agent yet that could be well.
    let token = hub.add("us1").await;
    let (code, problem) = Agent::new(1).join(&hub, "us1", &token).await;
    assert_eq!((code, slug(&problem)), (409, "key-known"));
    let conflicts = async || {
        let mut found = Vec::new();
        for name in ["eu1", "us1"] {
            let (_, view) = hub.get(&format!("/v1/clusters/{name}")).await;
            let mut told = view["conditions"].as_array().unwrap().iter();
            if told.any(|told| told["type"] == json!("JoinConflict")) {
                found.push(name);
            }
        }
        found
    };
    let now = clock::now();
    for (minutes, left) in [(59, &["eu1", "us1"][..]), (61, &["us1"][..])] {
        let at = now + time::Duration::minutes(minutes);
        conflict::look(&hub.hub, at).await.unwrap();
        assert_eq!(conflicts().await, left, "{minutes}");
    }
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

/// A stream that was let in by the former key is not read on by whoever has it.
#[tokio::test]
async fn the_orders_of_a_former_key_end_with_the_join_of_another() {
    let hub = TestHub::start("readopt-orders").await;
    let token = hub.add("eu1").await;
    let (old, new) = (Agent::new(1), Agent::new(2));
    assert_eq!(old.join(&hub, "eu1", &token).await.0, 200);
    let path = "/v1/clusters/eu1/orders";
    let mut orders = hub.call("GET", path, "").stream(&old.identity).await;
    assert!(orders.chunk().await.unwrap().is_some());
    let (code, answer) = hub.post("/v1/clusters/eu1/join-tokens", &json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let token = support::token_of(&answer);
    assert_eq!(new.join(&hub, "eu1", &token).await.0, 200);
    let ended = async { while orders.chunk().await.is_ok_and(|chunk| chunk.is_some()) {} };
    timeout(OVER, ended).await.expect("the stream has ended");
    hub.stop().await;
}
