//! Codes that an admin gives local users to log in with, at a hub without an identity provider: once, for a while, on record.

use serde_json::{Value, json};

use super::World;
use crate::hub::slug;
use crate::hub::support::TestHub;

/// A hub with the local user ada, who has no token.
async fn with_ada(name: &str) -> TestHub {
    let hub = TestHub::start(name).await;
    let ada = json!({"name": "ada", "roles": ["viewer"], "groups": ["sre"]});
    assert_eq!(hub.post("/v1/users", &ada).await.0, 201);
    hub
}

async fn code(hub: &TestHub) -> String {
    let (status, made) = hub.post("/v1/users/ada/login-codes", &json!({})).await;
    assert_eq!((status, &made["user"]), (201, &json!("ada")), "{made}");
    made["code"].as_str().unwrap().to_owned()
}

async fn token(hub: &TestHub, body: Value) -> (u16, Value) {
    let call = ("POST", "/v1/login/token");
    hub.call_as("", call, &[], &body).await
}

async fn log_in(hub: &TestHub, code: &str) -> (u16, Value) {
    token(hub, json!({"grant": "loginCode", "loginCode": code})).await
}

async fn whoami(hub: &TestHub, session: &Value) -> (u16, Value) {
    let access = session["accessToken"].as_str().unwrap();
    let call = ("GET", "/v1/whoami");
    hub.call_as(access, call, &[], &Value::Null).await
}

/// hub.md §6
#[tokio::test]
async fn a_local_user_logs_in_with_a_code_once() {
    let hub = with_ada("codes").await;
    let code = code(&hub).await;
    let (status, session) = log_in(&hub, &code).await;
    assert_eq!(
        (status, &session["user"]),
        (200, &json!("ada")),
        "{session}"
    );
    let (status, me) = whoami(&hub, &session).await;
    assert_eq!(
        (status, &me["roles"], &me["groups"]),
        (200, &json!(["viewer"]), &json!(["sre"]))
    );
    // It is a session like any other: renewed without a provider, and ended by its refresh token.
    let again = json!({"grant": "refresh", "refreshToken": session["refreshToken"]});
    let (status, next) = token(&hub, again).await;
    assert_eq!((status, whoami(&hub, &next).await.0), (200, 200), "{next}");
    let end = json!({"refreshToken": next["refreshToken"]});
    let ended = hub.call_as("", ("POST", "/v1/login/end"), &[], &end).await;
    assert_eq!((ended.0, whoami(&hub, &next).await.0), (204, 401));
    // Used once.
    let (status, problem) = log_in(&hub, &code).await;
    assert_eq!((status, slug(&problem)), (400, "expired-token"));
    let secret = code.rsplit('.').next().unwrap().as_bytes();
    let database = hub.stored().await;
    assert!(!database.windows(secret.len()).any(|w| w == secret));
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let told: Vec<_> = rows
        .iter()
        .filter(|r| r.action.contains("login"))
        .map(|r| {
            (
                r.actor.as_str(),
                r.action.as_str(),
                r.verdict.as_str(),
                r.target.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("user:admin", "user.login-code", "allow", "ada"),
            ("user:ada", "login", "allow", "by code"),
            ("anyone", "login", "deny", "by code"),
        ]
    );
    hub.stop().await;
}

/// Whatever is wrong with a code, the answer is one.
#[tokio::test]
async fn a_code_that_is_not_good_is_refused_in_one_shape() {
    let hub = with_ada("codes-refused").await;
    let replaced = code(&hub).await;
    let expired = code(&hub).await;
    hub.execute(
        "UPDATE login_waiting SET ends_at = ends_at - 600001",
        "UPDATE login_waiting SET ends_at = ends_at - 600001",
    )
    .await;
    let forged = format!("{}x", &replaced[..replaced.len() - 1]);
    let mut answers = Vec::new();
    for bad in [&replaced, &expired, &forged, "lml1", "", &hub.admin] {
        let (status, mut problem) = log_in(&hub, bad).await;
        problem["requestId"] = Value::Null;
        answers.push((status, problem));
    }
    let removed = code(&hub).await;
    assert_eq!(hub.delete("/v1/users/ada", Some("*")).await, 204);
    let ada = json!({"name": "ada", "roles": ["admin"]});
    assert_eq!(hub.post("/v1/users", &ada).await.0, 201);
    let (status, mut problem) = log_in(&hub, &removed).await;
    problem["requestId"] = Value::Null;
    answers.push((status, problem));
    assert_eq!((answers[0].0, slug(&answers[0].1)), (400, "expired-token"));
    assert!(answers.iter().all(|a| *a == answers[0]), "{answers:?}");
    // Who comes back with the name has a way in of their own.
    assert_eq!(log_in(&hub, &code(&hub).await).await.0, 200);
    hub.stop().await;
}

#[tokio::test]
async fn codes_are_for_local_users_and_made_by_admins() {
    let world = World::start("codes-oidc", json!({}), |_| {}).await;
    world.log_in().await;
    let hub = &world.hub;
    let none = json!({});
    let (status, problem) = hub.post("/v1/users/ada/login-codes", &none).await;
    assert_eq!((status, slug(&problem)), (400, "bad-request"));
    let (status, problem) = hub.post("/v1/users/nobody/login-codes", &none).await;
    assert_eq!((status, slug(&problem)), (404, "not-found"));
    let manager = hub
        .user("mia", &["access", "operator", "auditor"], &[])
        .await;
    let call = ("POST", "/v1/users/mia/login-codes");
    let (status, problem) = hub.call_as(&manager, call, &[], &none).await;
    assert_eq!((status, slug(&problem)), (403, "not-allowed"));
    // Beside a provider local users log in, too.
    let (_, made) = hub.post("/v1/users/mia/login-codes", &none).await;
    let (status, session) = log_in(hub, made["code"].as_str().unwrap()).await;
    assert_eq!(
        (status, &session["user"]),
        (200, &json!("mia")),
        "{session}"
    );
    let again = json!({"grant": "refresh", "refreshToken": session["refreshToken"]});
    assert_eq!(token(hub, again).await.0, 200);
    world.hub.stop().await;
}
