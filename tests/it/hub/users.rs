//! Users and tokens over the REST API.

use std::time::Duration;

use linesman::hub::running::By;
use linesman::keys::KeyPair;
use serde_json::{Value, json};

use super::races::made_by_the_record;
use super::slug;
use super::support::{TestHub, api_token};

async fn token(hub: &TestHub, by: &str, body: Value) -> (u16, Value) {
    hub.call_as(by, ("POST", "/v1/api-tokens"), &[], &body)
        .await
}

async fn whoami(hub: &TestHub, token: &str) -> (u16, Value) {
    hub.call_as(token, ("GET", "/v1/whoami"), &[], &Value::Null)
        .await
}

#[tokio::test]
async fn a_token_is_shown_once_and_dies_at_once() {
    let hub = TestHub::start("tokens").await;
    let user = json!({"name": "ada", "roles": ["viewer"], "groups": ["sre"]});
    assert_eq!(hub.post("/v1/users", &user).await.0, 201);
    let (code, problem) = hub.post("/v1/users", &user).await;
    assert_eq!((code, slug(&problem)), (409, "exists"));
    let body = json!({"user": "ada", "title": "laptop", "lasts": 3600});
    let (code, made) = token(&hub, &hub.admin, body).await;
    assert_eq!(code, 201, "{made}");
    let ada = made["token"].as_str().unwrap().to_owned();
    let (code, me) = whoami(&hub, &ada).await;
    assert_eq!(
        (
            code,
            &me["user"],
            &me["roles"],
            &me["groups"],
            &me["scopes"]
        ),
        (
            200,
            &json!("ada"),
            &json!(["viewer"]),
            &json!(["sre"]),
            &json!([])
        )
    );
    assert_eq!(me["expiresAt"], made["expiresAt"]);
    // The list has no secret; its holder may end it, a stranger does not even learn that it is there.
    let (_, page) = hub.get("/v1/api-tokens?user=ada").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert!(!page.to_string().contains("lmt1"), "{page}");
    let bob = hub.user("bob", &[], &[]).await;
    let path = format!("/v1/api-tokens/{}", made["id"].as_str().unwrap());
    let end = ("DELETE", path.as_str());
    assert_eq!(hub.call_as(&bob, end, &[], &Value::Null).await.0, 404);
    let any = [("if-match", "*")];
    assert_eq!(hub.call_as(&ada, end, &any, &Value::Null).await.0, 204);
    assert_eq!(whoami(&hub, &ada).await.0, 401);
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let done: Vec<&str> = rows.iter().map(|r| r.action.as_str()).collect();
    assert_eq!(
        done,
        [
            "user.add",
            // The second one, and that it was not made.
            "user.add",
            "user.add",
            "token.create",
            "token.revoke"
        ]
    );
    assert!(rows.iter().all(|r| !r.target.contains("lmt1")));
    hub.stop().await;
}

/// Whoever has no role at all may make tokens, so many at once; who is at the bound is told how to get below it.
#[tokio::test]
async fn a_user_at_the_bound_is_told_what_ends_a_token() {
    let hub = TestHub::start("tokens-full").await;
    let eve = hub.user("eve", &[], &[]).await;
    for _ in 1..200 {
        api_token(&hub.hub, "id-eve".to_owned()).await;
    }
    let body = json!({"title": "one more", "lasts": 3600});
    let (code, problem) = token(&hub, &eve, body.clone()).await;
    assert_eq!((code, slug(&problem)), (409, "full"), "{problem}");
    assert_eq!(problem["detail"], "the user has 200 tokens in force");
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains("linesman token revoke ID"), "{next}");
    let rows = hub.hub.store.audit_tail(None, 1).await.unwrap();
    assert_eq!(rows[0].reason.as_deref(), Some("not made: full"));
    let (_, page) = hub
        .call_as(&eve, ("GET", "/v1/api-tokens"), &[], &Value::Null)
        .await;
    let items = page["items"].as_array().unwrap();
    assert_eq!(items.len(), 200);
    let path = format!("/v1/api-tokens/{}", items[7]["id"].as_str().unwrap());
    let any = [("if-match", "*")];
    let gone = hub.call_as(&eve, ("DELETE", &path), &any, &Value::Null);
    assert_eq!(gone.await.0, 204);
    assert_eq!(token(&hub, &eve, body).await.0, 201);
    hub.stop().await;
}

/// By its id a token is found whatever the list is like: by its holder and by admins, while it is in force.
#[tokio::test]
async fn a_token_is_looked_up_by_its_holder_and_by_admins() {
    let hub = TestHub::start("tokens-one").await;
    let (ada, bob) = (
        hub.user("ada", &[], &[]).await,
        hub.user("bob", &["auditor", "access"], &[]).await,
    );
    let body = json!({"title": "ci", "lasts": 3600, "scopes": ["kube"]});
    let (_, made) = token(&hub, &ada, body).await;
    let path = format!("/v1/api-tokens/{}", made["id"].as_str().unwrap());
    let look = async |by: &str| {
        let call = ("GET", path.as_str());
        hub.call_as(by, call, &[], &Value::Null).await
    };
    let (code, seen) = look(&ada).await;
    assert_eq!(
        (code, &seen["title"], &seen["user"]),
        (200, &json!("ci"), &json!("ada"))
    );
    assert_eq!(seen["token"], Value::Null);
    assert_eq!(look(&hub.admin).await, (200, seen));
    let (code, problem) = look(&bob).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    assert_eq!(hub.delete(&path, Some("*")).await, 204);
    assert_eq!(look(&ada).await.0, 404);
    assert_eq!(hub.get("/v1/api-tokens/no-id").await.0, 404);
    hub.stop().await;
}

#[tokio::test]
async fn the_same_call_again_is_the_same_token_with_a_fresh_secret() {
    let hub = TestHub::start("tokens-again").await;
    let body = json!({"title": "ci", "lasts": 3600, "scopes": ["kube-read", "viewer"]});
    let add = ("POST", "/v1/api-tokens");
    let key = [("idempotency-key", "k1")];
    let (_, first) = hub.call_as(&hub.admin, add, &key, &body).await;
    let (code, second) = hub.call_as(&hub.admin, add, &key, &body).await;
    assert_eq!((code, &second["id"]), (201, &first["id"]));
    assert_ne!(second["token"], first["token"]);
    assert_eq!(whoami(&hub, first["token"].as_str().unwrap()).await.0, 401);
    // The record names no token that never was.
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let made = rows.into_iter().filter(|r| r.action == "token.create");
    let denied: Vec<_> = made.filter_map(|r| r.reason).collect();
    let id = first["id"].as_str().unwrap();
    let again =
        format!("not made: it is token {id}, which the same call made before, with another secret");
    assert_eq!(denied, [again]);
    let machine = second["token"].as_str().unwrap();
    let (_, me) = whoami(&hub, machine).await;
    assert_eq!(
        (&me["roles"], &me["scopes"]),
        (&json!(["viewer"]), &json!(["kube-read", "viewer"]))
    );
    // A token with scopes makes none, and ends none.
    let wide = json!({"title": "wide", "lasts": 3600});
    assert_eq!(token(&hub, machine, wide).await.0, 403);
    let path = format!("/v1/api-tokens/{}", second["id"].as_str().unwrap());
    assert_eq!(
        hub.call_as(
            machine,
            ("DELETE", &path),
            &[("if-match", "*")],
            &Value::Null
        )
        .await
        .0,
        404
    );
    assert_eq!(
        hub.call_as(machine, ("GET", "/v1/audit"), &[], &Value::Null)
            .await
            .0,
        403
    );
    hub.stop().await;
}

#[tokio::test]
async fn a_removed_user_loses_tokens_keys_and_grants_for_good() {
    let hub = TestHub::start("users-remove").await;
    hub.add("eu1").await;
    let user = json!({"name": "ada", "roles": ["admin"]});
    hub.post("/v1/users", &user).await;
    let (_, made) = token(
        &hub,
        &hub.admin,
        json!({"user": "ada", "title": "a", "lasts": 60}),
    )
    .await;
    let ada = made["token"].as_str().unwrap();
    let grant = json!({"subject": "user:ada", "clusters": "all", "groups": ["view"]});
    assert_eq!(hub.post("/v1/grants", &grant).await.0, 201);
    assert_eq!(hub.delete("/v1/users/ada", Some("*")).await, 204);
    assert_eq!(hub.delete("/v1/users/ada", Some("*")).await, 404);
    assert_eq!(whoami(&hub, ada).await.0, 401);
    // The name may come back, with nothing of what it had.
    assert_eq!(hub.post("/v1/users", &json!({"name": "ada"})).await.0, 201);
    assert_eq!(whoami(&hub, ada).await.0, 401);
    let (_, check) = hub.get("/v1/grants/check?user=ada&cluster=eu1").await;
    assert_eq!(check["opinions"], json!([]));
    hub.stop().await;
}

#[tokio::test]
async fn the_last_admin_cannot_be_lost_by_accident() {
    let hub = TestHub::start("tokens-last").await;
    let (_, page) = hub.get("/v1/api-tokens").await;
    let first = format!(
        "/v1/api-tokens/{}",
        page["items"][0]["id"].as_str().unwrap()
    );
    for path in [first.as_str(), "/v1/users/admin"] {
        let (code, problem) = hub
            .call_as(
                &hub.admin,
                ("DELETE", path),
                &[("if-match", "*")],
                &Value::Null,
            )
            .await;
        assert_eq!((code, slug(&problem)), (409, "last-admin"), "{path}");
    }
    // A scope without the role does not count, a token with it does.
    let narrow = json!({"title": "ci", "lasts": 3600, "scopes": ["viewer"]});
    token(&hub, &hub.admin, narrow).await;
    assert_eq!(hub.delete(&first, Some("*")).await, 409);
    let body = json!({"title": "laptop", "lasts": 3600});
    let (_, made) = token(&hub, &hub.admin, body).await;
    assert_eq!(hub.delete(&first, Some("*")).await, 204);
    assert_eq!(whoami(&hub, made["token"].as_str().unwrap()).await.0, 200);
    hub.stop().await;
}

/// H57: what stands in the record and is refused after all is followed by the record that it was not made.
#[tokio::test]
async fn what_is_refused_after_all_is_not_made_by_the_record() {
    let hub = TestHub::start("users-unmade").await;
    hub.add("eu1").await;
    let ada = hub.user("ada", &["operator"], &[]).await;
    let key = KeyPair::from_seed(&[7; 32]).public();
    let key = json!({"publicKey": key.openssh("").unwrap()});
    assert_eq!(hub.post("/v1/catalog/ssh-keys", &key).await.0, 201);
    let (_, page) = hub.get("/v1/api-tokens").await;
    let first = format!(
        "/v1/api-tokens/{}",
        page["items"][0]["id"].as_str().unwrap()
    );
    let (admin, rotate) = (&hub.admin, "/v1/clusters/eu1/rotate");
    let (nothing, none) = (Value::Null, json!({"roles": []}));
    let mut seen = 0;
    made_by_the_record(&hub, &mut seen).await;
    for (by, call, body, why) in [
        (
            admin,
            ("POST", "/v1/users"),
            json!({"name": "ada"}),
            "exists",
        ),
        (admin, ("PATCH", "/v1/users/admin"), none, "last-admin"),
        (
            admin,
            ("DELETE", "/v1/users/admin"),
            nothing.clone(),
            "last-admin",
        ),
        (admin, ("DELETE", first.as_str()), nothing, "last-admin"),
        (
            admin,
            ("POST", rotate),
            json!({"identity": true}),
            "not-found",
        ),
        (&ada, ("POST", "/v1/catalog/ssh-keys"), key, "exists"),
    ] {
        let any = [("if-match", "*")];
        let (_, problem) = hub.call_as(by, call, &any, &body).await;
        assert_eq!(slug(&problem), why, "{call:?}");
        assert_eq!(made_by_the_record(&hub, &mut seen).await, 0, "{call:?}");
        let rows = hub.hub.store.audit_tail(None, 1).await.unwrap();
        assert_eq!(rows[0].reason, Some(format!("not made: {why}")), "{call:?}");
    }
    hub.stop().await;
}

#[tokio::test]
async fn what_cannot_be_made_is_refused() {
    let hub = TestHub::start("users-bad").await;
    for body in [
        json!({"name": "a b"}),
        json!({"name": "ada", "roles": ["king"]}),
        json!({"name": "ada", "groups": ["x\ny"]}),
    ] {
        assert_eq!(hub.post("/v1/users", &body).await.0, 400, "{body}");
    }
    for body in [
        json!({"title": "", "lasts": 60}),
        json!({"title": "x", "lasts": 0}),
        json!({"title": "x", "lasts": 367 * 86400}),
        json!({"title": "x"}),
        json!({"title": "x", "lasts": 60, "scopes": ["all"]}),
    ] {
        assert_eq!(token(&hub, &hub.admin, body.clone()).await.0, 400, "{body}");
    }
    let ada = hub
        .user("ada", &["operator", "access", "auditor"], &[])
        .await;
    let add = ("POST", "/v1/users");
    assert_eq!(
        hub.call_as(&ada, add, &[], &json!({"name": "eve"})).await.0,
        403
    );
    let for_admin = json!({"user": "admin", "title": "x", "lasts": 60});
    assert_eq!(token(&hub, &ada, for_admin).await.0, 403);
    hub.stop().await;
}

/// Roles count at the next call; what runs by a group that is gone ends, and nothing else.
#[tokio::test]
async fn a_changed_user_is_changed_at_once() {
    let hub = TestHub::start("users-set").await;
    let ada = hub.user("ada", &["viewer"], &["sre", "dev"]).await;
    let grant = json!({"subject": "group:sre", "clusters": "all", "groups": ["view"]});
    let (_, grant) = hub.post("/v1/grants", &grant).await;
    let running = |grants: &[&str]| {
        let by = By {
            user_id: "id-ada".to_owned(),
            token_id: String::new(),
            cluster_id: None,
            grants: grants.iter().map(|g| (*g).to_owned()).collect(),
            until: None,
        };
        hub.hub.requests.enter(by, hub.hub.requests.now())
    };
    let (by_sre, other) = (
        running(&[grant["id"].as_str().unwrap()]),
        running(&["other"]),
    );
    let patch = ("PATCH", "/v1/users/ada");
    let change = json!({"roles": ["auditor"], "groups": ["dev", "oncall"]});
    let (code, problem) = hub.call_as(&hub.admin, patch, &[], &change).await;
    assert_eq!((code, slug(&problem)), (428, "precondition-required"));
    let (_, seen) = hub.get("/v1/users/ada").await;
    let tag = format!("\"{}\"", seen["rev"]);
    let tag = [("if-match", tag.as_str())];
    let (code, user) = hub.call_as(&hub.admin, patch, &tag, &change).await;
    assert_eq!(
        (code, &user["roles"], &user["groups"]),
        (200, &json!(["auditor"]), &json!(["dev", "oncall"]))
    );
    let (code, problem) = hub.call_as(&hub.admin, patch, &tag, &change).await;
    assert_eq!((code, slug(&problem)), (412, "precondition-failed"));
    let (_, me) = whoami(&hub, &ada).await;
    assert_eq!(
        (&me["roles"], &me["groups"]),
        (&user["roles"], &user["groups"])
    );
    tokio::time::timeout(Duration::from_secs(5), by_sre.over())
        .await
        .unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(1), other.over())
            .await
            .is_err()
    );
    // What cannot be is refused, and nobody locks everyone out.
    let any = [("if-match", "*")];
    for (change, wanted) in [
        (json!({"roles": ["root"]}), "bad-request"),
        (json!({"groups": ["two words"]}), "bad-request"),
        (json!({"name": "eve"}), "unknown-field"),
    ] {
        let (_, problem) = hub.call_as(&hub.admin, patch, &any, &change).await;
        assert_eq!(slug(&problem), wanted, "{change}");
    }
    let admin = ("PATCH", "/v1/users/admin");
    let none = json!({"roles": []});
    let (code, problem) = hub.call_as(&hub.admin, admin, &any, &none).await;
    assert_eq!((code, slug(&problem)), (409, "last-admin"));
    assert_eq!(hub.call_as(&ada, patch, &any, &none).await.0, 403);
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let told = rows.iter().find(|r| r.action == "user.set").unwrap();
    assert!(
        told.target
            .contains("groups [\"sre\", \"dev\"] became [\"dev\", \"oncall\"]"),
        "{}",
        told.target
    );
    hub.stop().await;
}

#[tokio::test]
async fn a_token_for_some_clusters_has_no_role() {
    let hub = TestHub::start("tokens-clusters").await;
    for (scopes, clusters, code) in [
        (json!(["kube"]), json!(["eu1", "us1"]), 201),
        (json!(["kube-read"]), json!(["eu1"]), 201),
        (json!([]), json!(["eu1"]), 400),
        (json!(["kube", "viewer"]), json!(["eu1"]), 400),
        (json!(["kube"]), json!([]), 400),
        (json!(["kube"]), json!(["Not_A_Name"]), 400),
    ] {
        let body = json!({"title": "ci", "lasts": 60, "scopes": scopes, "clusters": clusters});
        let (got, answer) = token(&hub, &hub.admin, body).await;
        assert_eq!(got, code, "{scopes} {clusters} {answer}");
        if code == 201 {
            assert_eq!(answer["clusters"], clusters);
        }
    }
    // Nor does it learn of clusters by the other tokens of its user.
    let kube =
        |name: &str| json!({"title": name, "lasts": 60, "scopes": ["kube"], "clusters": [name]});
    let (_, other) = token(&hub, &hub.admin, kube("us1")).await;
    let (_, own) = token(&hub, &hub.admin, kube("eu1")).await;
    let own = own["token"].as_str().unwrap();
    let seen = async |path: &str| hub.call_as(own, ("GET", path), &[], &Value::Null).await;
    let (code, page) = seen("/v1/api-tokens").await;
    let clusters = |token: &Value| token["clusters"].as_array().cloned();
    let items = page["items"].as_array().unwrap().iter();
    let told: Vec<Vec<Value>> = items.filter_map(clusters).collect();
    assert_eq!((code, told), (200, vec![vec![json!("eu1")]; 3]), "{page}");
    let path = format!("/v1/api-tokens/{}", other["id"].as_str().unwrap());
    assert_eq!(seen(&path).await.0, 404);
    hub.stop().await;
}
