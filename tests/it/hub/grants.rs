//! Grants over the REST API, and what agents hear of them.

use std::time::Duration;

use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};

mod check;
mod list;

fn grant(subject: &str) -> Value {
    json!({"subject": subject, "clusters": {"names": ["eu1"]}, "groups": ["edit"], "reason": "TICKET-1"})
}

#[tokio::test]
async fn a_grant_is_given_once_seen_and_taken_back() {
    let hub = TestHub::start("grants").await;
    hub.add("eu1").await;
    let body = json!({
        "subject": "user:ada", "clusters": {"labels": "env in (prod),!frozen"}, "groups": ["edit"],
        "namespaces": ["shop"], "readOnly": true, "lasts": 7200, "reason": "TICKET-1",
    });
    let add = ("POST", "/v1/grants");
    let key = [("idempotency-key", "k1")];
    let (code, made) = hub.call_as(&hub.admin, add, &key, &body).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        (&made["clusters"], &made["createdBy"], &made["over"]),
        (&body["clusters"], &json!("admin"), &json!(false))
    );
    // The same call again is the same grant; another body under the key is refused.
    assert_eq!(
        hub.call_as(&hub.admin, add, &key, &body).await,
        (201, made.clone())
    );
    let (code, problem) = hub.call_as(&hub.admin, add, &key, &grant("user:bob")).await;
    assert_eq!((code, slug(&problem)), (422, "idempotency-mismatch"));
    let (_, page) = hub.get("/v1/grants").await;
    let subjects: Vec<&str> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["subject"].as_str().unwrap())
        .collect();
    assert_eq!(subjects, ["user:admin", "user:ada"]);
    let path = format!("/v1/grants/{}", made["id"].as_str().unwrap());
    assert_eq!(hub.get(&path).await, (200, made.clone()));
    assert_eq!(hub.delete(&path, None).await, 428);
    assert_eq!(hub.delete(&path, Some("\"9\"")).await, 412);
    assert_eq!(hub.delete(&path, Some("\"1\"")).await, 204);
    assert_eq!(hub.get(&path).await.0, 404);
    assert_eq!(hub.delete(&path, Some("\"1\"")).await, 404);
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let of_grants = rows.iter().filter(|r| r.action.starts_with("grant."));
    let changes: Vec<&str> = of_grants.clone().map(|r| r.target.as_str()).collect();
    assert_eq!(changes.len(), 4, "{changes:?}");
    // The record names no grant that never was.
    let denied: Vec<_> = of_grants.filter_map(|r| r.reason.clone()).collect();
    let id = made["id"].as_str().unwrap();
    let again = format!("not made: it is grant {id}, which the same call made before");
    assert_eq!(denied, [again]);
    for change in changes {
        assert!(
            change.contains(
                "user:ada on clusters with env in (prod),!frozen as edit in shop read-only until 20"
            ) && change.ends_with(": TICKET-1"),
            "{change}"
        );
    }
    hub.stop().await;
}

#[tokio::test]
async fn what_cannot_be_granted_is_refused_with_a_reason() {
    let hub = TestHub::start("grants-bad").await;
    let with = |key: &str, value: Value| {
        let mut body = grant("user:ada");
        body[key] = value;
        body
    };
    for (body, says) in [
        (grant("ada"), "user:NAME"),
        (grant("user:a b"), "user:NAME"),
        (with("clusters", json!({"names": []})), "names 1 to 100"),
        (with("clusters", json!({"labels": " "})), "match everything"),
        (
            with("clusters", json!({"labels": "a of (b)"})),
            "not a term",
        ),
        (with("groups", json!([])), "1 to 32 groups"),
        (with("groups", json!(["system masters"])), "1 to 32 groups"),
        (with("namespaces", json!(["A"])), "namespaces"),
        (
            with("actAs", json!(["user:system:admin"])),
            "none of them system:",
        ),
        (
            with("actAs", json!(["group:linesman:edit"])),
            "user:NAME and group:NAME",
        ),
        (with("actAs", json!(["bob"])), "user:NAME and group:NAME"),
        (with("lasts", json!(0)), "lasts 1 s"),
        (with("reason", json!("a\nb")), "control characters"),
        (with("colour", json!("blue")), "`colour`"),
    ] {
        let (code, problem) = hub.post("/v1/grants", &body).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            code == 400 && detail.contains(says),
            "{body}: {code} {problem}"
        );
    }
    hub.stop().await;
}

/// H44: what was granted on a cluster by its name ends with it, on record, and is not for the next one of that name.
#[tokio::test]
async fn what_a_removed_cluster_was_granted_is_not_for_the_next_of_its_name() {
    let hub = TestHub::start("grants-removed").await;
    hub.add("eu1").await;
    hub.user("ada", &["viewer"], &[]).await;
    let (_, made) = hub.post("/v1/grants", &grant("user:ada")).await;
    let mut both = grant("user:ada");
    both["clusters"] = json!({"names": ["eu1", "us1"]});
    let (_, kept) = hub.post("/v1/grants", &both).await;
    let allowed = async || {
        let path = "/v1/grants/check?user=ada&cluster=eu1";
        hub.get(path).await.1["allowed"].clone()
    };
    assert_eq!(allowed().await, true);
    assert_eq!(hub.delete("/v1/clusters/eu1", Some("*")).await, 204);
    hub.add("eu1").await;
    assert_eq!(allowed().await, false);
    let id = |grant: &Value| grant["id"].as_str().unwrap().to_owned();
    let (_, now) = hub.get(&format!("/v1/grants/{}", id(&kept))).await;
    assert_eq!(now["clusters"], json!({"names": ["us1"]}));
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let mut ended: Vec<_> = rows
        .into_iter()
        .filter(|row| ["grant.revoke", "grant.narrow"].contains(&row.action.as_str()))
        .map(|row| (row.action, row.cluster, row.target))
        .collect();
    ended.sort();
    let on = |action: &str, how: &str, grant: &Value| {
        let target = format!("{how}: {}", id(grant));
        (action.to_owned(), Some("eu1".to_owned()), target)
    };
    let wanted = [
        on("grant.narrow", "without it", &kept),
        on("grant.revoke", "for it alone", &made),
    ];
    assert_eq!(ended, wanted);
    hub.stop().await;
}

/// H58 for grants: who manages access gives it to others, never to themselves.
#[tokio::test]
async fn access_is_managed_by_its_role_and_not_for_oneself() {
    let hub = TestHub::start("grants-roles").await;
    hub.add("eu1").await;
    let manager = hub.user("mia", &["access"], &["sre"]).await;
    let ada = hub.user("ada", &["viewer"], &[]).await;
    let add = ("POST", "/v1/grants");
    for (token, subject, code) in [
        (&ada, "user:bob", 403),
        (&manager, "user:mia", 403),
        (&manager, "group:sre", 403),
        (&manager, "user:ada", 201),
        (&hub.admin, "user:admin", 201),
    ] {
        let (got, answer) = hub.call_as(token, add, &[], &grant(subject)).await;
        assert_eq!(got, code, "{subject}: {answer}");
    }
    let count = async |token: &str| {
        let (_, page) = hub
            .call_as(token, ("GET", "/v1/grants"), &[], &Value::Null)
            .await;
        page["items"].as_array().unwrap().len()
    };
    assert_eq!((count(&ada).await, count(&manager).await), (1, 3));
    let check = |user: &str| format!("/v1/grants/check?user={user}&cluster=eu1");
    let as_ada = async |path: String| hub.call_as(&ada, ("GET", &path), &[], &Value::Null).await.0;
    assert_eq!(
        (as_ada(check("ada")).await, as_ada(check("admin")).await),
        (200, 403)
    );
    hub.stop().await;
}

/// As if `mia` came from an identity provider that was not heard on her for a day: her groups do not count until she logs in.
async fn lapse(hub: &TestHub) {
    let sqlite = "UPDATE user SET issuer = 'https://id.example', subject = '1',
        vouched_at = (CAST(strftime('%s', 'now') AS INTEGER) - 86400) * 1000 WHERE name = 'mia'";
    let postgres = "UPDATE \"user\" SET issuer = 'https://id.example', subject = '1',
        vouched_at = (CAST(extract(epoch FROM now()) AS BIGINT) - 86400) * 1000 WHERE name = 'mia'";
    hub.execute(sqlite, postgres).await;
    // What was read before says nothing any more.
    hub.hub.store.access().add();
}

/// What lapsed comes back with the next login: until then it is still one's own, for a grant as for a label that a grant chooses by.
#[tokio::test]
async fn nobody_lets_themselves_in_by_groups_that_lapsed() {
    let hub = TestHub::start("grants-lapsed").await;
    hub.add("eu1").await;
    let manager = hub.user("mia", &["access"], &["sre"]).await;
    let mut by_label = grant("group:sre");
    by_label["clusters"] = json!({"labels": "env=prod"});
    assert_eq!(hub.post("/v1/grants", &by_label).await.0, 201);
    lapse(&hub).await;
    let as_mia = async |call: (&str, &str), body: Value| {
        hub.call_as(&manager, call, &[("if-match", "*")], &body)
            .await
    };
    let (_, me) = as_mia(("GET", "/v1/whoami"), Value::Null).await;
    assert_eq!(me["groups"], json!([]), "{me}");
    let (code, problem) = as_mia(("POST", "/v1/grants"), grant("group:sre")).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("mia lacks the role admin"), "{detail}");
    let labels = ("PATCH", "/v1/clusters/eu1/labels");
    let (code, problem) = as_mia(labels, json!({"set": {"env": "prod"}})).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"), "{problem}");
    // To others she gives as before.
    let (code, made) = as_mia(("POST", "/v1/grants"), grant("group:dev")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(as_mia(labels, json!({"set": {"env": "dev"}})).await.0, 200);
    hub.stop().await;
}

/// L10: `--as` in grant, list and check; the record says what was given.
#[tokio::test]
async fn a_grant_names_whom_its_holder_may_act_as() {
    let hub = TestHub::start("grants-as").await;
    hub.add("eu1").await;
    hub.user("ada", &[], &[]).await;
    let mut body = grant("user:ada");
    hub.post("/v1/grants", &body).await;
    body["actAs"] = json!(["group:view", "user:bob"]);
    let (code, made) = hub.post("/v1/grants", &body).await;
    assert_eq!((code, &made["actAs"]), (201, &body["actAs"]), "{made}");
    let path = format!("/v1/grants/{}", made["id"].as_str().unwrap());
    assert_eq!(hub.get(&path).await.1["actAs"], body["actAs"]);
    let check = async |names: &str| {
        hub.get(&format!(
            "/v1/grants/check?user=ada&cluster=eu1&actAs={names}"
        ))
        .await
    };
    let (_, yes) = check("user:bob,group:view").await;
    assert_eq!(
        (&yes["allowed"], &yes["actsAs"], &yes["actsIn"]),
        (
            &json!(true),
            &json!("linesman:bob"),
            &json!(["linesman:view"])
        )
    );
    let (_, no) = check("user:bob,group:edit").await;
    assert_eq!(
        no["reason"],
        "no grant lets ada act as bob in edit (kubectl --as)"
    );
    let why: Vec<&Value> = no["opinions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| &o["why"])
        .collect();
    assert_eq!(why, vec!["it does not let act as bob in edit"; 2]);
    for nobody in [
        "group:view",
        "user:bob,user:eve",
        "bob",
        "user:system:admin",
        "",
    ] {
        assert_eq!(check(nobody).await.0, 400, "{nobody}");
    }
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let given = rows.iter().rfind(|row| row.action == "grant.add").unwrap();
    let says = "as edit who may act as user:bob,group:view: TICKET-1";
    assert!(given.target.ends_with(says), "{}", given.target);
    hub.stop().await;
}

/// H34: a new grant's names reach the agent, a revoked or ended one's leave it.
#[tokio::test]
async fn agents_hear_of_grants_as_they_come_and_end() {
    let hub = TestHub::start("grants-orders").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    hub.user("ada", &[], &["sre"]).await;
    let call = hub.call("GET", "/v1/clusters/eu1/orders", "");
    let mut stream = call.stream(&agent.identity).await;
    let mut text = String::new();
    let mut subjects = async || loop {
        while let Some((line, rest)) = text.split_once('\n') {
            let order: Value = serde_json::from_str(line).unwrap();
            text = rest.to_owned();
            if order["kind"] == "subjects" {
                return (order["users"].clone(), order["groups"].clone());
            }
        }
        let chunk = tokio::time::timeout(Duration::from_secs(5), stream.chunk()).await;
        text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap().unwrap()).unwrap());
    };
    let only_admin = (json!(["admin"]), json!(["admin"]));
    assert_eq!(subjects().await, only_admin);
    let (_, made) = hub.post("/v1/grants", &grant("group:sre")).await;
    assert_eq!(
        subjects().await,
        (json!(["admin", "ada"]), json!(["admin", "edit"]))
    );
    let path = format!("/v1/grants/{}", made["id"].as_str().unwrap());
    hub.delete(&path, Some("*")).await;
    assert_eq!(subjects().await, only_admin);
    let mut short = grant("user:ada");
    short["lasts"] = json!(1);
    hub.post("/v1/grants", &short).await;
    assert_eq!(subjects().await.0, json!(["ada", "admin"]));
    assert_eq!(subjects().await, only_admin);
    drop(stream);
    hub.stop().await;
}

/// All agents are told whenever anything changes; one whose names stay hears that the stream lives, and no list.
#[tokio::test]
async fn an_agent_hears_its_names_only_where_they_change() {
    let hub = TestHub::start("grants-same").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let call = hub.call("GET", "/v1/clusters/eu1/orders", "");
    let mut stream = call.stream(&agent.identity).await;
    let mut text = String::new();
    let mut next = async || loop {
        if let Some((line, rest)) = text.split_once('\n') {
            let order: Value = serde_json::from_str(line).unwrap();
            text = rest.to_owned();
            return order;
        }
        let chunk = tokio::time::timeout(Duration::from_secs(10), stream.chunk()).await;
        text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap().unwrap()).unwrap());
    };
    let first = loop {
        let order = next().await;
        if order["kind"] == "subjects" {
            break order;
        }
    };
    assert_eq!(first["groups"], json!(["admin"]));
    // Whatever comes of the catalog; the beat is what the round about another cluster's grant comes to.
    let mut elsewhere = grant("user:ada");
    elsewhere["clusters"] = json!({"names": ["eu2"]});
    assert_eq!(hub.post("/v1/grants", &elsewhere).await.0, 201);
    let round = loop {
        let order = next().await;
        if order["kind"] != "catalogHead" {
            break order;
        }
    };
    assert_eq!(round, json!({"kind": "beat"}));
    assert_eq!(hub.post("/v1/grants", &grant("user:ada")).await.0, 201);
    let after = loop {
        let order = next().await;
        if order["kind"] != "catalogHead" && order["kind"] != "beat" {
            break order;
        }
    };
    assert_eq!(after["groups"], json!(["admin", "edit"]));
    drop(stream);
    hub.stop().await;
}

#[tokio::test]
async fn the_default_grant_comes_once() {
    let hub = TestHub::start("grants-default").await;
    let (_, page) = hub.get("/v1/grants").await;
    let default = &page["items"][0];
    assert_eq!(
        (
            &default["subject"],
            &default["clusters"],
            &default["createdBy"]
        ),
        (&json!("user:admin"), &json!("all"), &json!("hub"))
    );
    let path = format!("/v1/grants/{}", default["id"].as_str().unwrap());
    assert_eq!(hub.delete(&path, Some("*")).await, 204);
    let data = hub.crash().await;
    let hub = TestHub::open("grants-default", data).await;
    assert_eq!(hub.get("/v1/grants").await.1["items"], json!([]));
    hub.stop().await;
}
