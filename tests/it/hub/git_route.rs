//! Which way a cluster takes Git: chosen by its operator, or found by its agent.

use linesman::hub::gitline::Allowed;
use linesman::wire::report::NO_ROUTE;
use serde_json::{Value, json};

use super::slug;
use super::support::{Agent, TestHub};

mod applications;

const PATH: &str = "/v1/clusters/eu1/git-route";

/// Via and known hosts of the assignment as it is now.
async fn way(agent: &Agent, hub: &TestHub) -> (Value, String) {
    let path = "/v1/clusters/eu1/assignment";
    let (code, assignment) = agent.call(hub, "GET", path, "").await;
    assert_eq!(code, 200, "{assignment}");
    let catalog = &assignment["catalog"];
    assert_eq!(
        catalog["lineUrl"],
        json!("ssh://git@linesman-git.linesman.svc/catalog.git")
    );
    let hosts = catalog["knownHosts"].as_str().unwrap();
    (catalog["via"].clone(), hosts.to_owned())
}

async fn choose(hub: &TestHub, route: &str) -> (u16, Value) {
    let call = ("PUT", PATH);
    hub.call_as(
        &hub.admin,
        call,
        &[("if-match", "*")],
        &json!({ "route": route }),
    )
    .await
}

async fn report(agent: &Agent, hub: &TestHub, reason: &str) -> Value {
    let (code, ack) = reported(agent, hub, reason).await;
    assert_eq!(code, 200, "{ack}");
    ack
}

async fn reported(agent: &Agent, hub: &TestHub, reason: &str) -> (u16, Value) {
    let report = json!({
        "agent": {"version": "1", "image": "", "arch": "", "features": []},
        "conditions": [{
            "type": "GitReachable", "status": "False", "reason": reason,
            "message": "tcp: connect to git:22: no route to host", "since": "2026-01-01T00:00:00Z",
        }],
    });
    let path = "/v1/clusters/eu1/reports";
    agent.call(hub, "POST", path, &report.to_string()).await
}

#[tokio::test]
async fn an_operator_chooses_the_way_at_once_and_later() {
    let hub = TestHub::start("git-route").await;
    let new = json!({"name": "eu1", "gitRoute": "line"});
    let (code, answer) = hub.post("/v1/clusters", &new).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(
        answer["cluster"]["git"],
        json!({"route": "line", "via": "line"})
    );
    let agent = Agent::new(1);
    let token = super::support::token_of(&answer);
    let (code, joined) = agent.join(&hub, "eu1", &token).await;
    assert_eq!(code, 200, "{joined}");
    assert_eq!(joined["catalog"]["via"], json!("line"));
    let (_, hosts) = way(&agent, &hub).await;
    let names: Vec<_> = hosts
        .lines()
        .map(|l| l.split(' ').next().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{hosts}");
    assert!(names[0].starts_with("[localhost]:"), "{hosts}");
    assert_eq!(names[1], "linesman-git.linesman.svc");
    for (route, via) in [("direct", "direct"), ("auto", "direct"), ("line", "line")] {
        let (code, told) = choose(&hub, route).await;
        assert_eq!((code, told), (200, json!({"route": route, "via": via})));
        assert_eq!(way(&agent, &hub).await.0, json!(via), "{route}");
    }
    let (code, problem) = choose(&hub, "pigeon").await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"));
    hub.stop().await;
}

#[tokio::test]
async fn an_agent_without_a_route_gets_the_line_where_that_is_left_to_it() {
    let hub = TestHub::start("git-no-route").await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    report(&agent, &hub, "NotRead").await;
    assert_eq!(way(&agent, &hub).await.0, json!("direct"));
    // Its operator said directly.
    choose(&hub, "direct").await;
    report(&agent, &hub, NO_ROUTE).await;
    assert_eq!(way(&agent, &hub).await.0, json!("direct"));
    choose(&hub, "auto").await;
    let ack = report(&agent, &hub, NO_ROUTE).await;
    assert_eq!(way(&agent, &hub).await.0, json!("line"));
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["git"], json!({"route": "auto", "via": "line"}));
    // The agent learns of it from the answer to its report.
    let path = "/v1/clusters/eu1/assignment";
    let (_, assignment) = agent.call(&hub, "GET", path, "").await;
    assert_eq!(ack["assignmentRevision"], assignment["revision"]);
    let rows = hub.hub.store.audit_tail(Some("eu1"), 100).await.unwrap();
    let mine = rows
        .iter()
        .filter(|r| r.action == "cluster.git" && r.actor == "agent:eu1");
    assert_eq!(mine.count(), 1);
    // Chosen again, the direct way is tried again.
    choose(&hub, "auto").await;
    assert_eq!(way(&agent, &hub).await.0, json!("direct"));
    hub.stop().await;
}

/// What the record has of the way that the agent chose.
async fn on_record(hub: &TestHub) -> Vec<String> {
    let rows = hub.hub.store.audit_tail(Some("eu1"), 100).await.unwrap();
    rows.iter()
        .filter(|row| row.action == "cluster.git")
        .map(|row| format!("{} {}", row.verdict, row.target))
        .collect()
}

/// H37: what cannot be put on record is not done, and of what was not done the record says so.
#[tokio::test]
async fn an_agents_choice_is_on_record_before_it_is_made() {
    let hub = TestHub::start("git-record").await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    hub.execute(refuse, no_more).await;
    reported(&agent, &hub, NO_ROUTE).await;
    assert_eq!(way(&agent, &hub).await.0, json!("direct"));
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    hub.execute("DROP TRIGGER refuse", again).await;
    assert_eq!(on_record(&hub).await, [""; 0]);

    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE OF git_no_route ON cluster BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE cluster ADD CONSTRAINT refuse CHECK (NOT git_no_route) NOT VALID";
    hub.execute(refuse, no_more).await;
    let (code, problem) = reported(&agent, &hub, NO_ROUTE).await;
    assert!(code >= 500, "{code} {problem}");
    assert_eq!(way(&agent, &hub).await.0, json!("direct"));
    let again = "ALTER TABLE cluster DROP CONSTRAINT refuse";
    hub.execute("DROP TRIGGER refuse", again).await;
    assert_eq!(on_record(&hub).await, ["allow line", "deny line"]);

    report(&agent, &hub, NO_ROUTE).await;
    assert_eq!(way(&agent, &hub).await.0, json!("line"));
    let made = ["allow line", "deny line", "allow line"];
    assert_eq!(on_record(&hub).await, made);
    hub.stop().await;
}

#[tokio::test]
async fn a_hub_that_wants_to_be_asked_changes_nothing_by_itself() {
    let hub = TestHub::allowing("git-asked", Allowed::Asked).await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    report(&agent, &hub, NO_ROUTE).await;
    assert_eq!(way(&agent, &hub).await.0, json!("direct"));
    hub.stop().await;
}
