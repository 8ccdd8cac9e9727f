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
