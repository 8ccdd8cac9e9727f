//! SSH keys of people: who gives them, who sees them, and how they end.

use std::time::Duration;

use linesman::keys::KeyPair;
use linesman::wire::api::{CatalogRef, DeployKeyState, DeployKeyStatus, Via};
use serde_json::{Value, json};

use super::rotate::world::read_catalog;
use super::slug;
use super::support::TestHub;

const PATH: &str = "/v1/catalog/ssh-keys";

fn pair(seed: u8) -> KeyPair {
    KeyPair::from_seed(&[seed; 32])
}

async fn give(hub: &TestHub, by: &str, seed: u8) -> (u16, Value) {
    let public = pair(seed).public().openssh("").unwrap();
    let body = json!({"publicKey": public, "title": "lap\u{1b}top"});
    hub.call_as(by, ("POST", PATH), &[], &body).await
}

/// Who asks, and where; the fingerprints and users of what they see.
async fn seen(hub: &TestHub, by: &str, query: &str) -> Vec<(String, String)> {
    let path = format!("{PATH}{query}");
    let (code, page) = hub.call_as(by, ("GET", &path), &[], &Value::Null).await;
    assert_eq!(code, 200, "{page}");
    let text = |item: &Value, member: &str| item[member].as_str().unwrap().to_owned();
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| (text(item, "fingerprint"), text(item, "user")))
        .collect()
}

async fn id_of(hub: &TestHub, seed: u8) -> String {
    let (_, page) = hub.get(&format!("{PATH}?user=*")).await;
    let print = pair(seed).public().fingerprint();
    let mut items = page["items"].as_array().unwrap().iter();
    let found = items.find(|item| item["fingerprint"] == print.as_str());
    found.unwrap()["id"].as_str().unwrap().to_owned()
}

async fn remove(hub: &TestHub, by: &str, id: &str) -> (u16, Value) {
    let path = format!("{PATH}/{id}");
    let any = [("if-match", "*")];
    hub.call_as(by, ("DELETE", &path), &any, &Value::Null).await
}

/// A token with scopes would leave a key that may push whatever they say, and long after it.
#[tokio::test]
async fn a_token_with_scopes_gives_no_key() {
    let hub = TestHub::start("push-keys-scoped").await;
    let ada = hub.user("ada", &["operator"], &[]).await;
    let token = async |by: &str, scope: &str| {
        let body = json!({"title": "t", "lasts": 60, "scopes": [scope]});
        let call = ("POST", "/v1/api-tokens");
        let (code, made) = hub.call_as(by, call, &[], &body).await;
        assert_eq!(code, 201, "{made}");
        made["token"].as_str().unwrap().to_owned()
    };
    let narrow = token(&ada, "operator").await;
    let (code, problem) = give(&hub, &narrow, 1).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    let text = "the token of ada has scopes, and makes neither tokens nor keys";
    assert_eq!(problem["detail"], text);
    let rows = hub.hub.store.audit_tail(None, 1).await.unwrap();
    let told = (rows[0].action.as_str(), rows[0].verdict.as_str());
    assert_eq!(told, ("catalog.push-key", "deny"));
    assert_eq!(give(&hub, &ada, 1).await.0, 201);
    // Nor does it end one.
    let id = id_of(&hub, 1).await;
    assert_eq!(remove(&hub, &narrow, &id).await.0, 404);
    // An admin's is an admin's.
    let admin = token(&hub.admin, "admin").await;
    assert_eq!(give(&hub, &admin, 2).await.0, 201);
    hub.stop().await;
}

#[tokio::test]
async fn keys_are_seen_and_ended_by_their_holder_and_by_admins() {
    let hub = TestHub::start("push-keys-ended").await;
    let ada = hub.user("ada", &["operator"], &[]).await;
    let bob = hub.user("bob", &["operator"], &[]).await;
    for (by, seed) in [(&ada, 1), (&ada, 2), (&bob, 3)] {
        assert_eq!(give(&hub, by, seed).await.0, 201);
    }
    let key = |seed, user: &str| (pair(seed).public().fingerprint(), user.to_owned());
    let hers = [key(1, "ada"), key(2, "ada")];
    assert_eq!(seen(&hub, &ada, "").await, hers);
    assert_eq!(seen(&hub, &hub.admin, "?user=ada").await, hers);
    let all = [&hers[..], &[key(3, "bob")]].concat();
    assert_eq!(seen(&hub, &hub.admin, "?user=*").await, all);
    let others = format!("{PATH}?user=bob");
    let (code, problem) = hub.call_as(&ada, ("GET", &others), &[], &Value::Null).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    // Nobody learns by an id whose keys there are.
    let (id, path) = (id_of(&hub, 1).await, |id: &str| format!("{PATH}/{id}"));
    assert_eq!(remove(&hub, &bob, &id).await.0, 404);
    assert_eq!(hub.delete(&path(&id), None).await, 428);
    assert_eq!(remove(&hub, &ada, &id).await.0, 204);
    assert_eq!(remove(&hub, &ada, &id).await.0, 404);
    let id = id_of(&hub, 3).await;
    assert_eq!(hub.delete(&path(&id), Some("*")).await, 204);
    assert_eq!(seen(&hub, &hub.admin, "?user=*").await, [key(2, "ada")]);
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let ended = rows
        .iter()
        .filter(|row| row.action == "catalog.push-key-remove");
    let ended: Vec<_> = ended.map(|row| (&*row.actor, &*row.target)).collect();
    let print = |seed| pair(seed).public().fingerprint();
    let [first, last] = [
        format!("{} of ada: laptop", print(1)),
        format!("{} of bob: laptop", print(3)),
    ];
    assert_eq!(ended, [("user:ada", &*first), ("user:admin", &*last)]);
    hub.stop().await;
}

/// Who has as many as one may have is told how to have another.
#[tokio::test]
async fn whoever_has_all_the_keys_that_one_may_have_takes_one_away() {
    let hub = TestHub::start("push-keys-full").await;
    for seed in 1..=20 {
        assert_eq!(give(&hub, &hub.admin, seed).await.0, 201);
    }
    let (code, problem) = give(&hub, &hub.admin, 21).await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains("linesman catalog key remove"), "{next}");
    let id = id_of(&hub, 7).await;
    assert_eq!(remove(&hub, &hub.admin, &id).await.0, 204);
    assert_eq!(give(&hub, &hub.admin, 21).await.0, 201);
    hub.stop().await;
}

/// A key lets its holder do what their roles do, and without any it reads nothing either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_reads_the_catalog_for_as_long_as_its_user_has_a_role_that_does() {
    let hub = TestHub::start("push-keys-roles").await;
    let ada = hub.user("ada", &["operator"], &[]).await;
    assert_eq!(give(&hub, &ada, 1).await.0, 201);
    let (_, told) = hub.get("/v1/catalog").await;
    let text = |member: &str| told[member].as_str().unwrap().to_owned();
    let catalog = CatalogRef {
        url: text("url"),
        line_url: None,
        via: Via::Direct,
        branch: text("branch"),
        path: String::new(),
        known_hosts: text("knownHosts"),
        deploy_key: DeployKeyStatus {
            state: DeployKeyState::Registered,
            reason: String::new(),
        },
        signers: Vec::new(),
    };
    let key = pair(1);
    let reads = async || {
        let read = read_catalog(&catalog, &key);
        let read = tokio::time::timeout(Duration::from_secs(30), read).await;
        read.unwrap().is_ok()
    };
    for (roles, fits) in [
        (None, true),
        (Some(json!(["viewer"])), true),
        (Some(json!(["auditor"])), false),
        (Some(json!([])), false),
        (Some(json!(["operator"])), true),
    ] {
        if let Some(roles) = &roles {
            let (any, body) = ([("if-match", "*")], json!({"roles": roles}));
            let call = ("PATCH", "/v1/users/ada");
            let set = hub.call_as(&hub.admin, call, &any, &body);
            assert_eq!(set.await.0, 200);
        }
        assert_eq!(reads().await, fits, "{roles:?}");
    }
    let id = id_of(&hub, 1).await;
    assert_eq!(remove(&hub, &ada, &id).await.0, 204);
    assert!(!reads().await);
    hub.stop().await;
}
