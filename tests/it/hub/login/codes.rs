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

/// Of a client gone mad, or let live for months: another login helps, and that is said.
#[tokio::test]
async fn a_session_that_has_had_too_many_tokens_ends() {
    const MANY: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
         INSERT INTO session_token (id, session_id, access_hash, refresh_hash, access_until, used_at, created_at)
         SELECT 'many-' || i, session_id, access_hash, refresh_hash, 0, 1, 0 FROM session_token, n";
    let hub = with_ada("codes-many").await;
    let (_, session) = log_in(&hub, &code(&hub).await).await;
    hub.execute(MANY, MANY).await;
    let again = json!({"grant": "refresh", "refreshToken": session["refreshToken"]});
    let (status, problem) = token(&hub, again).await;
    assert_eq!((status, slug(&problem)), (401, "session-ended"));
    assert_eq!(problem["next"], "run: linesman login");
    assert_eq!(whoami(&hub, &session).await.0, 401);
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let ended = rows.into_iter().filter(|r| r.action == "session.end");
    let why: Vec<_> = ended.filter_map(|r| r.reason).collect();
    assert_eq!(why, ["the session has had 5000 tokens"]);
    hub.stop().await;
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
    // While the other one is good: it is the one in its place that ends it.
    let mut answers = vec![log_in(&hub, &replaced).await];
    hub.execute(
        "UPDATE login_waiting SET ends_at = ends_at - 600001",
        "UPDATE login_waiting SET ends_at = ends_at - 600001",
    )
    .await;
    let forged = format!("{}x", &replaced[..replaced.len() - 1]);
    for bad in [&expired, &forged, "lml1", "", &hub.admin] {
        answers.push(log_in(&hub, bad).await);
    }
    let removed = code(&hub).await;
    assert_eq!(hub.delete("/v1/users/ada", Some("*")).await, 204);
    let ada = json!({"name": "ada", "roles": ["admin"]});
    assert_eq!(hub.post("/v1/users", &ada).await.0, 201);
    answers.push(log_in(&hub, &removed).await);
    for (_, problem) in &mut answers {
        problem["requestId"] = Value::Null;
    }
    assert_eq!((answers[0].0, slug(&answers[0].1)), (400, "expired-token"));
    assert!(answers.iter().all(|a| *a == answers[0]), "{answers:?}");
    // Who comes back with the name has a way in of their own.
    assert_eq!(log_in(&hub, &code(&hub).await).await.0, 200);
    hub.stop().await;
}

/// H57: the answer to a call that comes twice holds another code, and that of a lost answer lets nobody in.
#[tokio::test]
async fn of_the_codes_of_one_call_one_is_in_force() {
    let hub = with_ada("codes-once").await;
    let (call, key) = (
        ("POST", "/v1/users/ada/login-codes"),
        [("idempotency-key", "k")],
    );
    let ask = async || {
        let made = hub.call_as(&hub.admin, call, &key, &Value::Null).await;
        assert_eq!(made.0, 201, "{}", made.1);
        made.1["code"].as_str().unwrap().to_owned()
    };
    let [lost, code] = [ask().await, ask().await];
    let (status, problem) = log_in(&hub, &lost).await;
    assert_eq!((status, slug(&problem)), (400, "expired-token"));
    let (status, session) = log_in(&hub, &code).await;
    assert_eq!(status, 200, "{session}");
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

/// Of a machine that was lost an admin could end the session with its user alone.
#[tokio::test]
async fn all_sessions_of_a_user_end_and_nothing_else_of_theirs() {
    let hub = with_ada("codes-end").await;
    let session = async || {
        let (status, session) = log_in(&hub, &code(&hub).await).await;
        assert_eq!(status, 200, "{session}");
        session
    };
    let end = async |by: &str| {
        let call = ("POST", "/v1/users/ada/sessions/end");
        hub.call_as(by, call, &[], &json!({})).await.0
    };
    let access = |session: &Value| session["accessToken"].as_str().unwrap().to_owned();
    let [first, second] = [session().await, session().await];
    let made = async |scopes: Value| {
        let body = json!({"title": "t", "lasts": 3600, "scopes": scopes});
        let call = ("POST", "/v1/api-tokens");
        let (status, made) = hub.call_as(&access(&first), call, &[], &body).await;
        assert_eq!(status, 201, "{made}");
        made["token"].as_str().unwrap().to_owned()
    };
    let [whole, narrow] = [made(json!([])).await, made(json!(["viewer"])).await];
    let bob = hub.user("bob", &["operator"], &[]).await;
    assert_eq!([end(&bob).await, end(&narrow).await], [403, 403]);
    let held = [whoami(&hub, &first).await.0, whoami(&hub, &second).await.0];
    assert_eq!(held, [200, 200]);
    assert_eq!(end(&hub.admin).await, 204);
    let held = [whoami(&hub, &first).await.0, whoami(&hub, &second).await.0];
    assert_eq!(held, [401, 401]);
    let again = json!({"grant": "refresh", "refreshToken": second["refreshToken"]});
    let (status, problem) = token(&hub, again).await;
    assert_eq!((status, slug(&problem)), (401, "session-ended"));
    let call = ("GET", "/v1/whoami");
    assert_eq!(hub.call_as(&whole, call, &[], &Value::Null).await.0, 200);
    // One's own, too, by the last of them.
    let last = session().await;
    assert_eq!(end(&access(&last)).await, 204);
    assert_eq!(whoami(&hub, &last).await.0, 401);
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let told = rows.iter().filter(|row| row.action == "user.end-sessions");
    let told: Vec<_> = told
        .map(|row| (row.actor.as_str(), row.verdict.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("user:bob", "deny"),
            ("user:ada", "deny"),
            ("user:admin", "allow"),
            ("user:ada", "allow"),
        ]
    );
    hub.stop().await;
}
