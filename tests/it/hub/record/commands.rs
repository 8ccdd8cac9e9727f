//! What people run in containers, as the record says it, and how it is found there.

use linesman::hub::AuditConfig;
use linesman::hub::audit::{Commands, Entry};
use serde_json::{Value, json};

use super::{actions, verified};
use crate::hub::slug;
use crate::hub::support::TestHub;

const POD: &str = "/clusters/eu1/api/v1/namespaces/shop/pods/x";
/// `kubectl exec -c web x -- sh -c "psql \"\e$URL\""`, as it asks.
const EXEC: &str =
    "exec?container=web&command=sh&command=-c&command=psql+%22%1b%24URL%22&stdin=true&tty=true";

/// A session that goes nowhere, for the cluster has no line: it is on record all the same.
async fn asked(hub: &TestHub, what: &str) {
    let answer = hub.raw_as("GET", &format!("{POD}/{what}")).await;
    assert_eq!(answer.status(), 503, "{what}");
}

/// Stage, action, container, command and ports of each record that is found, the newest first.
async fn told(hub: &TestHub, query: &str) -> Vec<Value> {
    let (code, page) = hub.get(&format!("/v1/audit?{query}")).await;
    assert_eq!(code, 200, "{page}");
    let items = page["items"].as_array().unwrap().iter();
    let told = items.map(|item| {
        json!([
            item["stage"],
            item["action"],
            item["container"],
            item["command"],
            item["ports"],
        ])
    });
    told.collect()
}

/// Beginning and end say it, and nothing but sessions and forwards has any of it.
#[tokio::test]
async fn the_record_says_what_was_run_where() {
    let hub = TestHub::start("audit-commands").await;
    hub.add("eu1").await;
    asked(&hub, EXEC).await;
    asked(&hub, "attach?container=web&command=no").await;
    asked(&hub, "portforward?ports=8080%2C5432").await;
    asked(&hub, "log?container=web&command=no&ports=1").await;
    let command = "sh -c $'psql \"\\u001b$URL\"'";
    let both = |row: [Value; 4]| {
        let [action, container, command, ports] = row;
        ["close", "open"].map(|stage| json!([stage, action, container, command, ports]))
    };
    let none = Value::Null;
    let rows = [
        both([json!("kube.get"), none.clone(), none.clone(), none.clone()]),
        both([
            json!("kube.portforward"),
            none.clone(),
            none.clone(),
            json!("8080,5432"),
        ]),
        both([
            json!("kube.attach"),
            json!("web"),
            none.clone(),
            none.clone(),
        ]),
        both([json!("kube.exec"), json!("web"), json!(command), none]),
    ];
    assert_eq!(told(&hub, "action=kube.*").await, rows.concat());
    // Its hash holds it to that.
    verified(&hub).await;
    hub.stop().await;
}

#[tokio::test]
async fn arguments_may_be_left_out_of_the_record() {
    let config = AuditConfig {
        commands: Commands::Off,
        ..AuditConfig::default()
    };
    let hub = TestHub::with_audit("audit-no-commands", config).await;
    hub.add("eu1").await;
    asked(&hub, EXEC).await;
    let told = told(&hub, "action=kube.exec").await;
    let ran = |stage: &str| json!([stage, "kube.exec", "web", null, null]);
    assert_eq!(told, [ran("close"), ran("open")]);
    hub.stop().await;
}

/// However a path is written, it is that of its namespace.
#[tokio::test]
async fn records_are_found_by_action_and_namespace() {
    let hub = TestHub::start("audit-narrow").await;
    hub.add("eu1").await;
    asked(&hub, "exec?command=ls").await;
    for path in [
        "/clusters/eu1/api/v1/names%70aces/sho%70/pods/y",
        "/clusters/eu1/apis/apps/v1/namespaces/shop/deployments",
        "/clusters/eu1/api/v1/namespaces/shop-2/pods/x",
        "/clusters/eu1/api/v1/pods",
    ] {
        hub.raw_as("GET", path).await;
    }
    let entry = Entry {
        action: "kubeconfig".to_owned(),
        ..Entry::default()
    };
    hub.hub.audit.event(entry).await.unwrap();
    let found = async |query: &str| {
        let page = hub.get(&format!("/v1/audit?after=0&{query}")).await.1;
        let items = page["items"].as_array().unwrap().iter();
        let opens = items.filter(|item| item["stage"] != "close");
        let opens = opens.map(|item| item["action"].as_str().unwrap().to_owned());
        opens.collect::<Vec<_>>()
    };
    assert_eq!(
        found("namespace=shop").await,
        ["kube.exec", "kube.get", "kube.list"]
    );
    assert_eq!(
        found("namespace=shop&action=kube.list,kube.exec").await,
        ["kube.exec", "kube.list"]
    );
    assert_eq!(
        found("action=kube.*").await,
        [
            "kube.exec",
            "kube.get",
            "kube.list",
            "kube.get",
            "kube.list"
        ]
    );
    assert_eq!(found("action=cluster.add,user.*").await, ["cluster.add"]);
    // What was asked for is on record, as it was asked.
    let (_, asked) = hub.get("/v1/audit?action=audit.read&limit=1").await;
    assert_eq!(actions(&asked), ["audit.read"]);
    let target = &asked["items"][0]["target"];
    assert_eq!(target, &json!("action audit.read"));
    for wrong in [
        "action=",
        "action=Kube",
        "action=*",
        "action=kube*",
        "namespace=",
        "namespace=a_b",
        "namespace=%25",
    ] {
        let (code, problem) = hub.get(&format!("/v1/audit?{wrong}")).await;
        assert_eq!((code, slug(&problem)), (400, "bad-request"), "{wrong}");
    }
    hub.stop().await;
}
