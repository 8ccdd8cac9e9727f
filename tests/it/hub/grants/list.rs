//! Which grants are listed: of whom, of what, and whether they are in force.

use linesman::clock;
use linesman::hub::access::{Clusters, Grant, Mode};
use linesman::wire::id::ClusterName;
use serde_json::{Value, json};

use super::grant;
use crate::hub::slug;
use crate::hub::support::TestHub;

/// One whose end has passed.
async fn ended(hub: &TestHub, subject: &str, clusters: Clusters) {
    let now = clock::now();
    let grant = Grant {
        id: clock::id(),
        subject: subject.parse().unwrap(),
        clusters,
        groups: ["edit".to_owned()].into(),
        act_as: [].into(),
        namespaces: None,
        mode: Mode::Full,
        expires_at: Some(now - time::Duration::HOUR),
        revoked_at: None,
        revoked_by: None,
        reason: String::new(),
        created_by: "admin".to_owned(),
        created_at: now - time::Duration::DAY,
        rev: 1,
    };
    hub.hub.store.add_grant(grant, None, now).await.unwrap();
}

fn subjects(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|g| g["subject"].as_str().unwrap()).collect()
}

/// A hub of grants: by name, by a group, by a label, of another cluster, and ended ones.
async fn granted(name: &str) -> TestHub {
    let hub = TestHub::start(name).await;
    hub.add("eu1").await;
    hub.add("us1").await;
    let labels = json!({"set": {"env": "prod"}});
    let path = ("PATCH", "/v1/clusters/eu1/labels");
    let any = [("if-match", "*")];
    assert_eq!(hub.call_as(&hub.admin, path, &any, &labels).await.0, 200);
    hub.user("ada", &[], &["sre"]).await;
    let with = |subject: &str, clusters: Value| {
        let mut body = grant(subject);
        body["clusters"] = clusters;
        body
    };
    for body in [
        grant("user:ada"),
        with("group:sre", json!({"labels": "env=prod"})),
        with("user:bob", json!({"names": ["us1"]})),
    ] {
        assert_eq!(hub.post("/v1/grants", &body).await.0, 201);
    }
    ended(&hub, "user:ada", Clusters::All).await;
    ended(&hub, "user:cid", Clusters::All).await;
    hub
}

#[tokio::test]
async fn grants_are_listed_by_who_where_and_whether_they_hold() {
    let hub = granted("grants-list").await;
    let listed = async |query: &str| hub.get(&format!("/v1/grants?{query}")).await.1;
    let all = [
        "user:admin",
        "user:ada",
        "group:sre",
        "user:bob",
        "user:ada",
        "user:cid",
    ];
    for (query, wanted) in [
        ("", &all[..]),
        ("over=false", &all[..4]),
        ("over=true", &all[4..]),
        ("user=ada", &["user:ada", "group:sre", "user:ada"][..]),
        ("user=ada&over=false", &["user:ada", "group:sre"][..]),
        ("user=nobody", &[][..]),
        (
            "cluster=eu1&over=false",
            &["user:admin", "user:ada", "group:sre"][..],
        ),
        ("cluster=us1&over=false", &["user:admin", "user:bob"][..]),
        ("cluster=us1&user=ada&over=false", &[][..]),
    ] {
        assert_eq!(subjects(&listed(query).await), wanted, "{query}");
    }
    // A page says how far the hub looked, and whoever goes on finds all that fit.
    let (mut found, mut place) = (Vec::new(), String::new());
    loop {
        let page = listed(&format!("user=ada&over=true&limit=1{place}")).await;
        found.extend(subjects(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        place = format!("&cursor={cursor}");
    }
    assert_eq!(found, ["user:ada"]);
    let (code, problem) = hub.get("/v1/grants?cluster=eu9").await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    assert_eq!(hub.get("/v1/grants?colour=blue").await.0, 400);
    hub.stop().await;
}

/// Who manages no access learns nothing of others, nor which clusters there are.
#[tokio::test]
async fn of_their_own_grants_people_may_ask_the_same() {
    let hub = granted("grants-list-own").await;
    let ada = crate::hub::support::api_token(&hub.hub, "id-ada".to_owned()).await;
    let listed = async |query: &str| {
        let path = format!("/v1/grants?{query}");
        hub.call_as(&ada, ("GET", &path), &[], &Value::Null).await
    };
    for (query, wanted) in [
        ("over=false", &["user:ada", "group:sre"][..]),
        ("cluster=us1&over=false", &[][..]),
        ("cluster=eu9&over=false", &[][..]),
        (
            "user=ada&cluster=eu1",
            &["user:ada", "group:sre", "user:ada"][..],
        ),
    ] {
        let (code, page) = listed(query).await;
        assert_eq!((code, subjects(&page)), (200, wanted.to_vec()), "{query}");
    }
    let (code, problem) = listed("user=bob").await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    hub.stop().await;
}

/// Nor by the labels of what they were granted once: those tell of a grant that is in force alone.
#[tokio::test]
async fn a_grant_by_labels_that_has_ended_tells_of_no_cluster() {
    let hub = granted("grants-list-over").await;
    let dan = hub.user("dan", &[], &[]).await;
    let names = ["eu1", "eu9"].map(|name| name.parse::<ClusterName>().unwrap());
    ended(&hub, "user:dan", Clusters::Named(names.into())).await;
    let labels = Clusters::Labelled("env=prod".parse().unwrap());
    ended(&hub, "user:dan", labels).await;
    let clusters = |page: &Value| -> Vec<Value> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|grant| grant["clusters"].clone()).collect()
    };
    let both = json!({"names": ["eu1", "eu9"]});
    let labelled = json!({"labels": "env=prod"});
    for cluster in ["eu1", "eu9"] {
        let path = format!("/v1/grants?cluster={cluster}");
        let (_, page) = hub.call_as(&dan, ("GET", &path), &[], &Value::Null).await;
        assert_eq!(clusters(&page), std::slice::from_ref(&both), "{cluster}");
        let path = format!("/v1/grants/check?user=dan&cluster={cluster}");
        let (_, check) = hub.call_as(&dan, ("GET", &path), &[], &Value::Null).await;
        let said = check["opinions"].as_array().unwrap().iter();
        let told = said.map(|opinion| {
            let end = opinion["grant"]["expiresAt"].as_str().unwrap();
            opinion["why"] == format!("it ended at {end}")
        });
        assert_eq!(told.collect::<Vec<_>>(), [true, true], "{cluster}");
    }
    // Nor where the token is for that cluster alone.
    let token = json!({"title": "ci", "lasts": 3600, "scopes": ["kube"], "clusters": ["eu1"]});
    let tokens = ("POST", "/v1/api-tokens");
    let (code, made) = hub.call_as(&dan, tokens, &[], &token).await;
    assert_eq!(code, 201, "{made}");
    let narrow = made["token"].as_str().unwrap();
    let list = ("GET", "/v1/grants");
    let (_, page) = hub.call_as(narrow, list, &[], &Value::Null).await;
    assert_eq!(clusters(&page), [json!({"names": ["eu1"]})]);
    // Who sees the list of clusters sees both.
    let (_, page) = hub.get("/v1/grants?user=dan&cluster=eu1").await;
    assert_eq!(clusters(&page), [both, labelled]);
    hub.stop().await;
}

/// Whoever was let in until lately hears by what no more, and so does who manages access.
#[tokio::test]
async fn a_revoked_grant_is_listed_among_those_that_ended_and_says_so() {
    let hub = TestHub::start("grants-list-revoked").await;
    hub.add("eu1").await;
    let ada = hub.user("ada", &[], &[]).await;
    let (_, made) = hub.post("/v1/grants", &grant("user:ada")).await;
    let path = format!("/v1/grants/{}", made["id"].as_str().unwrap());
    assert_eq!(hub.delete(&path, Some("*")).await, 204);
    for by in [&hub.admin, &ada] {
        let got = async |path: &str| hub.call_as(by, ("GET", path), &[], &Value::Null).await.1;
        let none = got("/v1/grants?user=ada").await;
        assert_eq!(subjects(&none), [""; 0]);
        let ended = got("/v1/grants?user=ada&over=true").await;
        assert_eq!(subjects(&ended), ["user:ada"]);
        let one = &ended["items"][0];
        assert_eq!((&one["id"], &one["over"]), (&made["id"], &json!(true)));
        let at = one["revokedAt"].as_str().unwrap();
        let why = format!("it was revoked by admin at {at}");
        let check = got("/v1/grants/check?user=ada&cluster=eu1").await;
        assert_eq!(
            (&check["allowed"], &check["opinions"][0]["why"]),
            (&json!(false), &json!(why))
        );
    }
    hub.stop().await;
}
