//! Labels by which grants choose clusters.

use linesman::clock;
use linesman::hub::running::By;
use linesman::wire::api::Order;
use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};

const LABELS: &str = "/v1/clusters/eu1/labels";

async fn label(hub: &TestHub, token: &str, body: Value) -> (u16, Value) {
    hub.call_as(token, ("PATCH", LABELS), &[("if-match", "*")], &body)
        .await
}

async fn grant(hub: &TestHub, subject: &str, selector: &str) -> String {
    let grant = json!({"subject": subject, "clusters": {"labels": selector}, "groups": ["view"]});
    let (code, grant) = hub.post("/v1/grants", &grant).await;
    assert_eq!(code, 201, "{grant}");
    grant["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_cluster_gets_and_loses_labels_on_record() {
    let hub = TestHub::start("labels").await;
    hub.add("eu1").await;
    let set = json!({"set": {"env": "dev", "team": "shop"}});
    let now = json!({"labels": {"env": "dev", "team": "shop"}});
    assert_eq!(
        label(&hub, &hub.admin, set.clone()).await,
        (200, now.clone())
    );
    // Again, it is no change.
    assert_eq!(label(&hub, &hub.admin, set).await, (200, now));
    let (code, problem) = label(&hub, &hub.admin, json!({"set": {"env": "prod"}})).await;
    assert_eq!((code, slug(&problem)), (409, "exists"));
    assert_eq!(
        problem["detail"],
        json!("the cluster has the label env=dev")
    );
    let change = json!({"set": {"env": "prod"}, "remove": ["team", "never"], "overwrite": true});
    let now = json!({"labels": {"env": "prod"}});
    assert_eq!(label(&hub, &hub.admin, change).await, (200, now.clone()));
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["labels"], now["labels"]);
    for wrong in [
        json!({}),
        json!({"set": {"env": "a b"}}),
        json!({"set": {"linesman.dev/a": "b"}}),
        json!({"set": {"env": "a"}, "remove": ["env"]}),
    ] {
        let (code, problem) = label(&hub, &hub.admin, wrong.clone()).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"), "{wrong}");
    }
    let (code, problem) = label(&hub, &hub.admin, json!({"add": {}})).await;
    assert_eq!((code, slug(&problem)), (400, "unknown-field"));
    let call = ("PATCH", "/v1/clusters/nowhere/labels");
    let body = json!({"remove": ["a"]});
    let (code, problem) = hub.call_as(&hub.admin, call, &[], &body).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    let rows = hub.hub.store.audit_tail(Some("eu1"), 100).await.unwrap();
    let told: Vec<&str> = rows
        .iter()
        .filter(|row| row.action == "cluster.label")
        .map(|row| row.target.as_str())
        .collect();
    assert_eq!(
        told,
        ["env=dev, team=shop", "env=prod (was env=dev), team-"]
    );
    hub.stop().await;
}

/// A label is access: who manages access may change it, but not to let themselves in.
#[tokio::test]
async fn labels_are_for_those_who_manage_access_and_nobody_lets_themselves_in() {
    let hub = TestHub::start("labels-roles").await;
    hub.add("eu1").await;
    let operator = hub.user("ole", &["operator"], &[]).await;
    let (code, problem) = label(&hub, &operator, json!({"set": {"env": "prod"}})).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    let manager = hub.user("mia", &["access"], &["sre"]).await;
    grant(&hub, "group:sre", "env=prod").await;
    let (code, problem) = label(&hub, &manager, json!({"set": {"env": "prod"}})).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    assert_eq!(
        label(&hub, &manager, json!({"set": {"env": "dev"}}))
            .await
            .0,
        200
    );
    // To be without a label may let in as well.
    grant(&hub, "user:mia", "!env").await;
    let (code, problem) = label(&hub, &manager, json!({"remove": ["env"]})).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["labels"], json!({"env": "dev"}));
    hub.stop().await;
}

/// H17: what runs by a grant ends when the cluster is not among its clusters any more; what runs by others, or elsewhere, goes on.
#[tokio::test]
async fn what_runs_by_a_grant_ends_with_the_label_that_it_chose_the_cluster_by() {
    let hub = TestHub::start("labels-running").await;
    hub.add("eu1").await;
    label(&hub, &hub.admin, json!({"set": {"env": "prod"}})).await;
    let by_label = grant(&hub, "user:ada", "env=prod").await;
    let by_absence = grant(&hub, "user:ada", "!frozen").await;
    let name = "eu1".parse().unwrap();
    let cluster = hub.hub.store.cluster(&name).await.unwrap().unwrap();
    let running = |cluster: &str, grant: &str| {
        let by = By {
            user_id: "id-ada".to_owned(),
            token_id: "t".to_owned(),
            cluster_id: Some(cluster.to_owned()),
            grants: vec![grant.to_owned()],
            until: Some(clock::now() + time::Duration::hours(1)),
        };
        hub.hub.requests.enter(by, hub.hub.requests.now())
    };
    let seats = [
        running(&cluster.id, &by_label),
        running(&cluster.id, &by_absence),
        running("another", &by_label),
    ];
    let over = || {
        let mut over = Vec::new();
        for seat in &seats {
            over.push(futures_util::FutureExt::now_or_never(seat.over()).is_some());
        }
        over
    };
    label(&hub, &hub.admin, json!({"set": {"team": "shop"}})).await;
    assert_eq!(over(), [false, false, false]);
    let change = json!({"set": {"env": "dev"}, "overwrite": true});
    assert_eq!(label(&hub, &hub.admin, change).await.0, 200);
    assert_eq!(over(), [true, false, false]);
    label(&hub, &hub.admin, json!({"set": {"frozen": ""}})).await;
    assert_eq!(over(), [true, true, false]);
    hub.stop().await;
}

/// H34: an agent that fell behind is told the present state, of the labels that its cluster has by now.
#[tokio::test]
async fn an_agent_that_fell_behind_hears_its_names_by_the_labels_of_now() {
    let hub = TestHub::start("labels-behind").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    hub.user("ada", &[], &["sre"]).await;
    grant(&hub, "group:sre", "env=prod").await;
    let call = hub.call("GET", "/v1/clusters/eu1/orders", "");
    let mut stream = call.stream(&agent.identity).await;
    let mut text = String::new();
    let mut next = async || loop {
        if let Some((line, rest)) = text.split_once('\n') {
            let order: Value = serde_json::from_str(line).unwrap();
            text = rest.to_owned();
            return order;
        }
        let chunk = tokio::time::timeout(std::time::Duration::from_secs(10), stream.chunk()).await;
        text.push_str(std::str::from_utf8(&chunk.unwrap().unwrap().unwrap()).unwrap());
    };
    let (code, view) = label(&hub, &hub.admin, json!({"set": {"env": "prod"}})).await;
    assert_eq!(code, 200, "{view}");
    while !next().await["users"].to_string().contains("ada") {}
    // More than wait for it, with no chance to read one in between.
    let (name, id) = ("eu1".parse().unwrap(), "q".to_owned());
    for _ in 0..100 {
        let order = Order::Diagnose { id: id.clone() };
        hub.hub.orders.send(&name, order);
    }
    let mut again = Vec::new();
    loop {
        let order = next().await;
        if order["kind"] == "diagnose" {
            break;
        }
        again.push(order["kind"].clone());
    }
    // The state once more; its names are what they were when it heard them last.
    let told = |kind: &str| again.contains(&json!(kind));
    assert_eq!((told("assignment"), told("subjects")), (true, false));
    drop(stream);
    hub.stop().await;
}
