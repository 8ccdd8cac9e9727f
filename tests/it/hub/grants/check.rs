//! Who gets where, explained: which grant says yes, why none does, and what helps.

use serde_json::{Value, json};

use super::grant;
use crate::hub::support::TestHub;

#[tokio::test]
async fn a_check_says_which_grant_says_yes_or_why_none_does() {
    let hub = TestHub::start("grants-check").await;
    hub.add("eu1").await;
    hub.user("ada", &[], &["sre"]).await;
    let check = async |more: &str| {
        hub.get(&format!("/v1/grants/check?user=ada&cluster=eu1{more}"))
            .await
            .1
    };
    let nothing = check("").await;
    assert_eq!(
        (
            &nothing["allowed"],
            &nothing["reason"],
            &nothing["opinions"]
        ),
        (
            &json!(false),
            &json!("ada has no grant on cluster eu1"),
            &json!([])
        )
    );
    let mut body = grant("group:sre");
    body["readOnly"] = json!(true);
    let (_, made) = hub.post("/v1/grants", &body).await;
    body["clusters"] = json!({"names": ["us1"]});
    hub.post("/v1/grants", &body).await;
    let yes = check("").await;
    assert_eq!(
        (&yes["allowed"], &yes["actsAs"], &yes["actsIn"]),
        (
            &json!(true),
            &json!("linesman:ada"),
            &json!(["linesman:edit"])
        )
    );
    let why: Vec<&Value> = yes["opinions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| &o["why"])
        .collect();
    assert_eq!(why, ["", "it is for us1"]);
    let no = check("&method=DELETE&path=/api/v1/namespaces/a/pods/x").await;
    let id = made["id"].as_str().unwrap();
    assert_eq!(
        no["reason"],
        format!(
            "no grant of ada covers 'delete pods': grant {id}: it is read-only, and 'delete pods' is more than reading"
        )
    );
    assert_eq!(
        hub.get("/v1/grants/check?user=ada&cluster=eu9").await.0,
        404
    );
    hub.stop().await;
}

/// The most frequent refusal of all is that of a grant which has just ended: kubectl and the check say so in the same words.
#[tokio::test]
async fn who_lost_a_grant_is_told_which_and_when() {
    let hub = TestHub::start("grants-ended").await;
    hub.add("eu1").await;
    let ada = hub.user("ada", &[], &[]).await;
    let (_, made) = hub.post("/v1/grants", &grant("user:ada")).await;
    let id = made["id"].as_str().unwrap();
    let revoked = hub.delete(&format!("/v1/grants/{id}"), Some("*")).await;
    assert_eq!(revoked, 204);
    let ask = async |path: &str| hub.call_as(&ada, ("GET", path), &[], &Value::Null).await;
    let (_, check) = ask("/v1/grants/check?user=ada&cluster=eu1").await;
    let at = check["opinions"][0]["grant"]["revokedAt"].as_str().unwrap();
    let reason = format!(
        "ada has no grant on cluster eu1 any more: grant {id} (edit; TICKET-1; by admin) was revoked by admin at {at}"
    );
    let next = "ask a hub admin for another one: linesman grant add user:ada --cluster eu1 --group edit --for 2h";
    assert_eq!(
        (&check["reason"], &check["next"]),
        (&json!(reason), &json!(next))
    );
    let (code, status) = ask("/clusters/eu1/version").await;
    let message = status["message"].as_str().unwrap();
    let told = format!("hub: {reason}; {next} (request ");
    assert!(code == 403 && message.starts_with(&told), "{message}");
    hub.stop().await;
}

/// Nobody comes by a name that the hub does not have, whatever grants name it: it is misspelt, was removed, or has yet to log in.
#[tokio::test]
async fn a_check_of_nobody_is_a_no_that_says_so() {
    let hub = TestHub::start("grants-nobody").await;
    hub.add("eu1").await;
    let check = async |user: &str| {
        let path = format!("/v1/grants/check?user={user}&cluster=eu1");
        hub.get(&path).await.1
    };
    let (_, made) = hub.post("/v1/grants", &grant("user:adda")).await;
    let waits = check("adda").await;
    let reason = format!(
        "the hub has no user adda; grant {} waits for one",
        made["id"].as_str().unwrap()
    );
    assert_eq!(
        (&waits["allowed"], &waits["known"], &waits["reason"]),
        (&json!(false), &json!(false), &json!(reason))
    );
    assert_eq!(waits["opinions"][0]["says"], json!(true));
    let none = check("eve").await;
    assert_eq!(none["reason"], "the hub has no user eve");
    assert_eq!(
        none["next"],
        "check the name: linesman user list; or add it: linesman user add eve"
    );
    // One who was removed is as one who never was.
    hub.user("ada", &[], &[]).await;
    assert_eq!(hub.post("/v1/grants", &grant("user:ada")).await.0, 201);
    let yes = check("ada").await;
    assert_eq!(
        (&yes["allowed"], &yes["known"], &yes["next"]),
        (&json!(true), &json!(true), &json!(""))
    );
    assert_eq!(hub.delete("/v1/users/ada", Some("*")).await, 204);
    let removed = check("ada").await;
    assert_eq!(
        (&removed["allowed"], &removed["reason"]),
        (&json!(false), &json!("the hub has no user ada"))
    );
    hub.stop().await;
}

/// What helps depends on what is asked for, and on who asks.
#[tokio::test]
async fn a_check_names_what_would_let_the_request_through() {
    let hub = TestHub::start("grants-next").await;
    hub.add("eu1").await;
    let ada = hub.user("ada", &[], &[]).await;
    let mia = hub.user("mia", &["access"], &[]).await;
    let mut body = grant("user:ada");
    body["readOnly"] = json!(true);
    hub.post("/v1/grants", &body).await;
    let next = async |by: &str, user: &str, more: &str| {
        let path = format!("/v1/grants/check?user={user}&cluster=eu1{more}");
        let (_, check) = hub.call_as(by, ("GET", &path), &[], &Value::Null).await;
        check["next"].as_str().unwrap().to_owned()
    };
    let delete = "&method=DELETE&path=/api/v1/namespaces/a/pods/x";
    assert_eq!(
        next(&mia, "ada", delete).await,
        "run: linesman grant add user:ada --cluster eu1 --group edit (or with another group, which RBAC lets 'delete pods')"
    );
    assert_eq!(
        next(&mia, "ada", "&actAs=user:bob,group:edit").await,
        "run: linesman grant add user:ada --cluster eu1 --group view --as bob --as-group edit"
    );
    assert_eq!(
        next(&hub.admin, "mia", "").await,
        "run: linesman grant add user:mia --cluster eu1 --group view"
    );
    // Nobody is told to do what they may not.
    assert_eq!(
        next(&ada, "ada", delete).await,
        "ask a hub admin for a wider grant"
    );
    let own = next(&mia, "mia", "").await;
    assert!(own.ends_with("ask a hub admin for a grant"), "{own}");
    hub.stop().await;
}

/// Who may not know which clusters there are does not learn it by a question, whatever they are granted elsewhere.
#[tokio::test]
async fn a_check_tells_nobody_which_clusters_there_are() {
    let hub = TestHub::start("grants-hidden").await;
    hub.add("eu1").await;
    let ada = hub.user("ada", &[], &[]).await;
    let vera = hub.user("vera", &["viewer"], &[]).await;
    let ask = async |by: &str, user: &str, cluster: &str| {
        let path = format!("/v1/grants/check?user={user}&cluster={cluster}");
        hub.call_as(by, ("GET", &path), &[], &Value::Null).await
    };
    let mut body = grant("user:ada");
    for clusters in [
        None,
        Some(json!({"names": ["us1"]})),
        Some(json!({"labels": "env=prod"})),
    ] {
        if let Some(clusters) = clusters {
            body["clusters"] = clusters;
            assert_eq!(hub.post("/v1/grants", &body).await.0, 201);
        }
        let (code, there) = ask(&ada, "ada", "eu1").await;
        let (other, gone) = ask(&ada, "ada", "eu9").await;
        let gone = gone.to_string().replace("eu9", "eu1");
        assert_eq!((other, gone), (code, there.to_string()));
        assert_eq!(
            (code, &there["allowed"], &there["reason"]),
            (
                200,
                &json!(false),
                &json!("ada has no grant on cluster eu1")
            )
        );
    }
    let (_, there) = ask(&ada, "ada", "eu1").await;
    let why: Vec<&Value> = there["opinions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| &o["why"])
        .collect();
    assert_eq!(why, ["it is for us1", "it is for clusters with env=prod"]);
    // A name that is misspelt is told to whoever sees the list.
    assert_eq!(ask(&vera, "vera", "eu1").await.0, 200);
    assert_eq!(ask(&vera, "vera", "eu9").await.0, 404);
    hub.stop().await;
}

/// Be others there or not.
#[tokio::test]
async fn a_token_for_a_cluster_is_told_of_that_one_alone() {
    let hub = TestHub::start("grants-narrow").await;
    hub.add("eu1").await;
    hub.add("us1").await;
    let any = [("if-match", "*")];
    let labels = json!({"set": {"env": "prod"}});
    let path = ("PATCH", "/v1/clusters/us1/labels");
    assert_eq!(hub.call_as(&hub.admin, path, &any, &labels).await.0, 200);
    let ada = hub.user("ada", &[], &[]).await;
    let mut ids = Vec::new();
    for clusters in [
        json!({"names": ["eu1", "us1"]}),
        json!({"names": ["us1"]}),
        json!({"labels": "env=prod"}),
        json!({"labels": "!env"}),
    ] {
        let mut body = grant("user:ada");
        body["clusters"] = clusters;
        let (code, made) = hub.post("/v1/grants", &body).await;
        assert_eq!(code, 201, "{made}");
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let token = json!({"title": "ci", "lasts": 3600, "scopes": ["kube"], "clusters": ["eu1"]});
    let path = ("POST", "/v1/api-tokens");
    let (code, made) = hub.call_as(&ada, path, &[], &token).await;
    assert_eq!(code, 201, "{made}");
    let narrow = made["token"].as_str().unwrap();
    let get = async |path: String| hub.call_as(narrow, ("GET", &path), &[], &Value::Null).await;
    let clusters = |grants: &Value| -> Vec<Value> {
        let grants = grants.as_array().unwrap().iter();
        grants.map(|g| g["clusters"].clone()).collect()
    };
    let own = [json!({"names": ["eu1"]}), json!({"labels": "!env"})];
    let (_, page) = get("/v1/grants".to_owned()).await;
    assert_eq!(clusters(&page["items"]), own);
    let (_, page) = get("/v1/grants?cluster=us1".to_owned()).await;
    assert_eq!(page["items"], json!([]));
    for (id, code) in ids.iter().zip([200, 404, 404, 200]) {
        let (found, seen) = get(format!("/v1/grants/{id}")).await;
        assert_eq!(found, code, "{seen}");
    }
    let check = async |cluster: &str| {
        get(format!("/v1/grants/check?user=ada&cluster={cluster}"))
            .await
            .1
    };
    let yes = check("eu1").await;
    assert_eq!(yes["allowed"], json!(true), "{yes}");
    let said = yes["opinions"].as_array().unwrap().iter();
    let said: Value = said.map(|opinion| opinion["grant"].clone()).collect();
    assert_eq!(clusters(&said), own);
    for cluster in ["us1", "eu9"] {
        let no = check(cluster).await;
        let reason = format!("the token is not for cluster {cluster}");
        assert_eq!(
            (&no["allowed"], &no["reason"], &no["opinions"]),
            (&json!(false), &json!(reason), &json!([]))
        );
    }
    hub.stop().await;
}

/// The grant lets a request through that the cluster's RBAC refuses: the groups above the access of its YAML are bound to nothing.
#[tokio::test]
async fn a_check_says_up_to_which_group_the_clusters_yaml_binds() {
    let hub = TestHub::start("grants-access").await;
    let ada = hub.user("ada", &[], &[]).await;
    for (name, adoption) in [
        ("ap1", json!({"access": "admin"})),
        ("eu1", json!({"access": "edit"})),
        (
            "us1",
            json!({"access": "admin", "scope": {"namespaces": ["shop"], "strict": true}}),
        ),
    ] {
        let new = json!({"name": name, "adoption": adoption});
        let (code, made) = hub.post("/v1/clusters", &new).await;
        assert_eq!(code, 201, "{made}");
    }
    let body = json!({"subject": "user:ada", "clusters": "all", "groups": ["admin"], "reason": ""});
    let check = async |cluster: &str| {
        let path = format!("/v1/grants/check?user=ada&cluster={cluster}");
        let (_, answer) = hub.call_as(&ada, ("GET", &path), &[], &Value::Null).await;
        (answer["allowed"].clone(), answer["access"].clone())
    };
    // Whom no grant lets in, the cluster is not told of.
    assert_eq!(check("eu1").await, (json!(false), Value::Null));
    assert_eq!(hub.post("/v1/grants", &body).await.0, 201);
    for (name, access) in [("ap1", "admin"), ("eu1", "edit"), ("us1", "view")] {
        assert_eq!(check(name).await, (json!(true), json!(access)), "{name}");
        let (_, view) = hub.get(&format!("/v1/clusters/{name}")).await;
        assert_eq!(view["access"], json!(access), "{name}");
    }
    hub.stop().await;
}
