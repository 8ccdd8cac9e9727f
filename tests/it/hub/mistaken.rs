//! YAML of one cluster that is applied in another: the agent's real part that joins, and its real line.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use kube::client::Body;
use linesman::agent::enroll::stored::{self, Join, State, Way};
use linesman::agent::identity::token_id;
use linesman::agent::link::ProxyConfig;
use linesman::secret::Secret;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::older::{agent, dialling, on};
use super::rotate::world::{PATIENCE, Secrets};
use super::support::{Agent, TestHub};
use super::{moved, older};
use crate::line::proxy::{Manner, Proxy};
use crate::wait::{until, until_some};

const JOIN: &str = "linesman-join";
/// Long for what is to go on beside a trial, and short of the end of one that is not answered.
const BESIDE: Duration = Duration::from_secs(10);

/// What the YAML of cluster `stage` brings.
fn of_stage(hub: &TestHub, token: &str) -> Join {
    Join {
        cluster: "stage".parse().unwrap(),
        ..moved::applied(hub, token)
    }
}

/// A cluster `eu1` that the hub has accepted and that has a line, and what its agent stored.
async fn adopted(hub: &TestHub) -> (older::Running, Secrets) {
    let (token, secrets) = (hub.add("eu1").await, Secrets::default());
    let agent = dialling(Some(moved::applied(hub, &token)), &secrets).await;
    moved::back(&agent, hub).await;
    (agent, secrets)
}

async fn stored_state(secrets: &Secrets) -> State {
    let secrets = stored::secrets(&secrets.client(), "linesman");
    stored::read_state(&secrets).await.unwrap().unwrap()
}

/// What `kubectl apply` leaves of such YAML in the cluster.
fn apply(secrets: &Secrets, join: &Join) {
    let token = join.token.as_ref().unwrap().expose();
    let data = [
        ("hub", join.hub.as_str()),
        ("ca.crt", join.ca.as_str()),
        ("cluster", join.cluster.as_str()),
        ("token", token.as_str()),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), json!(STANDARD.encode(text))));
    let object = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": JOIN,
            "resourceVersion": "7",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": token},
        },
        "data": Map::from_iter(data),
    });
    secrets.0.lock().unwrap().insert(JOIN.to_owned(), object);
}

/// An API server of which one watch of that Secret hears: that it has no token any more. The next watch hears nothing.
fn telling(secrets: &Secrets, watches: &Arc<AtomicUsize>) -> kube::Client {
    let (secrets, watches) = (secrets.clone(), watches.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (secrets, watches) = (secrets.clone(), watches.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            if !query.contains(JOIN) {
                return Ok::<_, Infallible>(secrets.serve(request).await);
            }
            let now = || secrets.0.lock().unwrap()[JOIN].clone();
            let said = if query.contains("watch=true") {
                if watches.fetch_add(1, Ordering::SeqCst) > 0 {
                    return pending().await;
                }
                while !now()["data"]["token"].is_null() {
                    yield_now().await;
                }
                json!({"type": "MODIFIED", "object": now()})
            } else {
                json!({
                    "apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "7"}, "items": [now()],
                })
            };
            let said = format!("{said}\n");
            Ok(Response::new(Body::from(said.into_bytes())))
        }
    });
    kube::Client::new(service, "linesman")
}

/// What is left of it there.
async fn left(secrets: &Secrets) -> Join {
    let secrets = stored::secrets(&secrets.client(), "linesman");
    stored::read_join(&secrets).await.unwrap().unwrap()
}

/// What this condition of a cluster says, as soon as it says something.
async fn message(hub: &TestHub, cluster: &str, kind: &str) -> String {
    let path = format!("/v1/clusters/{cluster}");
    until_some(kind, PATIENCE, async || {
        let (_, view) = hub.get(&path).await;
        let all = view["conditions"].as_array().unwrap();
        let told = all.iter().find(|told| told["type"] == json!(kind));
        let text = told.and_then(|told| told["message"].as_str());
        let text = text.filter(|text| !text.is_empty()).map(str::to_owned);
        text.ok_or_else(|| view.to_string())
    })
    .await
}

/// The former agent gave up line and watchdog for a cluster that the hub did not let it be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_of_another_cluster_leaves_a_cluster_what_it_is() {
    let hub = TestHub::start("mistaken").await;
    let (former, secrets) = adopted(&hub).await;
    drop(former);
    let token = hub.add("stage").await;
    let agent = dialling(Some(of_stage(&hub, &token)), &secrets).await;
    moved::back(&agent, &hub).await;

    let said = message(&hub, "eu1", "Joined").await;
    let expected = "the YAML of cluster stage was applied in this cluster, which is eu1 and goes on as that; was it a mistake: \
        linesman cluster readopt eu1, and apply what it prints; is it to become stage: linesman cluster remove eu1; \
        is it a copy of eu1: kubectl delete namespace linesman here; then apply that YAML again; \
        hub: this identity key belongs to another cluster or was revoked; run, for the cluster that this is: \
        linesman cluster readopt NAME, and apply its YAML (409 Conflict)";
    assert_eq!(said, expected);
    assert_eq!(secrets.event("OtherCluster").as_deref(), Some(expected));
    let refused = message(&hub, "stage", "JoinConflict").await;
    for part in [
        "the YAML of stage was applied in the cluster that is eu1 (key SHA256:",
        "was it a mistake: linesman cluster readopt eu1,",
        "is it to become stage: linesman cluster remove eu1;",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let (_, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!(view["line"]["up"], Value::Bool(true), "{view}");
    let name = stored_state(&secrets).await.assignment.cluster.name;
    assert_eq!(name.as_str(), "eu1");
    hub.stop().await;
}

/// The token of the other cluster went out with each later start, when its own agent had redeemed it long ago: each time a cluster that
/// was well was put into Conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_refused_in_the_wrong_cluster_is_not_sent_by_a_later_start() {
    let hub = TestHub::start("mistaken-later").await;
    let (former, secrets) = adopted(&hub).await;
    drop(former);
    let token = hub.add("stage").await;
    apply(&secrets, &of_stage(&hub, &token));
    let applied = left(&secrets).await;
    assert!(applied.token.is_some() && applied.echoed);
    let watches = Arc::default();
    let first = on(Some(applied.clone()), telling(&secrets, &watches)).await;
    // Whoever watches on has followed what was heard before.
    until("it hears of the token's end", PATIENCE, async || {
        watches.load(Ordering::SeqCst) > 1
    })
    .await;
    let removed = Join {
        token: None,
        echoed: false,
        ..applied
    };
    assert_eq!(left(&secrets).await, removed);
    let refused = secrets.event("OtherCluster").unwrap();
    assert!(refused.ends_with("(409 Conflict)"), "{refused}");
    drop(first);

    let (code, joined) = Agent::new(2).join(&hub, "stage", &token).await;
    assert_eq!(code, 200, "{joined}");
    let _next = agent(Some(left(&secrets).await), &secrets).await;
    let said = until_some("it says so again", PATIENCE, async || {
        let said = secrets.event("OtherCluster");
        said.filter(|said| *said != refused).ok_or("not yet")
    })
    .await;
    let expected = "then apply that YAML again; \
        there is no join token in it, or no more: one that its hub refuses is removed";
    assert!(said.ends_with(expected), "{said}");
    let (_, view) = hub.get("/v1/clusters/stage").await;
    let mut told = view["conditions"].as_array().unwrap().iter();
    let conflict = told.find(|told| told["type"] == json!("JoinConflict"));
    assert_eq!(conflict, None);
    hub.stop().await;
}

/// What the cluster's own hub asks for waited until the other one's had answered, or had not for long enough, time and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_follows_its_hub_while_the_one_of_another_clusters_yaml_says_nothing() {
    let hub = TestHub::start("mistaken-silent").await;
    let (former, secrets) = adopted(&hub).await;
    drop(former);
    let token = hub.add("stage").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let join = Join {
        hub: format!("https://{}", listener.local_addr().unwrap()),
        ..of_stage(&hub, &token)
    };
    let mut agent = dialling(Some(join), &secrets).await;
    let asked = timeout(PATIENCE, listener.accept()).await;
    let _silent = asked.expect("the trial begins").unwrap();
    moved::back(&agent, &hub).await;

    let window = json!({ "seconds": 600, "reason": "a window" });
    let (code, paused) = hub.post("/v1/clusters/eu1/pause", &window).await;
    assert_eq!(code, 200, "{paused}");
    let heard = agent.joined.wait_for(|joined| {
        let assignment = joined.as_ref().map(|joined| &joined.assignment);
        let reason = assignment.and_then(|told| told.policy.pause_reason.as_deref());
        reason == Some("a window (admin)")
    });
    let heard = timeout(BESIDE, heard).await;
    assert!(heard.expect("it hears of the window").is_ok());
    hub.stop().await;
}

/// The way that an agent goes as soon as it has joined.
async fn way(agent: &mut older::Running) -> Option<ProxyConfig> {
    let joined = timeout(PATIENCE, agent.joined.wait_for(Option::is_some)).await;
    let joined = joined.expect("it joins").unwrap().clone();
    joined.unwrap().proxy
}

/// L12: an agent that is started again beside YAML of another cluster goes the way that its own YAML said. It went the other one's,
/// and was cut off where that leads nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_of_another_cluster_leaves_a_cluster_its_way_to_the_hub() {
    let hub = TestHub::start("mistaken-way").await;
    let (token, secrets) = (hub.add("eu1").await, Secrets::default());
    let proxy = Proxy::new(Manner::Willing).await;
    let config = proxy.config(Some("user:p@ss"), &["other.example"]);
    let join = Join {
        proxy: Some(config.clone()),
        ..moved::applied(&hub, &token)
    };
    let mut former = agent(Some(join), &secrets).await;
    assert_eq!(way(&mut former).await, Some(config.clone()));
    drop(former);
    let token = hub.add("stage").await;
    for applied in [Some(of_stage(&hub, &token)), None] {
        let mut next = agent(applied, &secrets).await;
        assert_eq!(way(&mut next).await, Some(config.clone()));
    }
    hub.stop().await;
}

/// A cluster that goes to another hub, under another name: what that hub answered is stored, and the next process leads as it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_becomes_another_one_when_that_ones_hub_accepts_it() {
    let hub = TestHub::start("mistaken-first").await;
    let (former, secrets) = adopted(&hub).await;
    drop(former);
    let next = TestHub::start("mistaken-next").await;
    let token = next.add("stage").await;
    let proxy = Proxy::new(Manner::Willing).await;
    let config = proxy.config(Some("user:p@ss"), &[]);
    let join = Join {
        proxy: Some(config.clone()),
        ..of_stage(&next, &token)
    };
    let _agent = agent(Some(join), &secrets).await;
    let state = until_some("the other hub accepted it", PATIENCE, async || {
        let state = stored_state(&secrets).await;
        let name = state.assignment.cluster.name.clone();
        (name.as_str() == "stage").then_some(state).ok_or(name)
    })
    .await;
    let token = Secret::new(token);
    assert_eq!(state.assignment.hub.id, next.hub.id);
    assert_eq!(Some(state.redeemed.as_str()), token_id(&token));
    assert_eq!(state.way, Some(Way(Some(config))));
    next.stop().await;
    hub.stop().await;
}
