//! Notices on their way to a receiver that is really there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, StatusCode};
use linesman::clock;
use linesman::hub::notify::{Config, Sink};
use linesman::keys;
use linesman::secret::Secret;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::support::{Agent, TestHub};
use crate::postgres;
use crate::proxy::record::{Log, logged};
use crate::wait::{until, until_some};

const SECRET: &str = "shared with the receiver";
const PATIENCE: Duration = Duration::from_secs(30);

/// What came in one call.
pub(super) struct Call {
    headers: HeaderMap,
    text: String,
}

impl Call {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap().to_str().unwrap()
    }
}

#[derive(Clone)]
struct Inbox {
    calls: mpsc::UnboundedSender<Call>,
    /// How the next calls are answered; 200 when there is nothing left.
    answers: Arc<Mutex<VecDeque<u16>>>,
}

pub(super) struct Receiver {
    url: String,
    calls: mpsc::UnboundedReceiver<Call>,
    answers: Arc<Mutex<VecDeque<u16>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let inbox = Inbox {
            calls: sender,
            answers: answers.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://{}/in/token-in-the-url",
            listener.local_addr().unwrap()
        );
        let router = Router::new()
            .route("/in/{token}", post(take))
            .with_state(inbox);
        #[expect(clippy::disallowed_methods, reason = "the receiver owns and ends it")]
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            calls,
            answers,
            task,
        }
    }

    fn answer(&self, codes: &[u16]) {
        self.answers.lock().unwrap().extend(codes);
    }

    pub(super) async fn next(&mut self) -> Call {
        let call = tokio::time::timeout(PATIENCE, self.calls.recv()).await;
        call.expect("a notice comes").unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(State(inbox): State<Inbox>, headers: HeaderMap, text: String) -> StatusCode {
    let code = inbox.answers.lock().unwrap().pop_front().unwrap_or(200);
    drop(inbox.calls.send(Call { headers, text }));
    StatusCode::from_u16(code).unwrap()
}

pub(super) fn to(webhook: &Receiver, slack: &Receiver) -> Config {
    Config {
        sinks: vec![
            Sink::Webhook {
                url: Secret::new(webhook.url.clone()),
                secret: Some(Secret::new(SECRET.to_owned())),
                ca: None,
            },
            Sink::Slack {
                url: Secret::new(slack.url.clone()),
            },
        ],
        look: Duration::from_millis(50),
        ..Config::default()
    }
}

pub(super) async fn reports(agent: &Agent, hub: &TestHub, conditions: &[(&str, &str)]) {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status)| {
            json!({
                "type": kind, "status": status, "reason": "Because", "message": format!("of {kind}"),
                "since": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let report = json!({ "conditions": conditions }).to_string();
    let (code, ack) = agent
        .call(hub, "POST", "/v1/clusters/eu1/reports", &report)
        .await;
    assert_eq!(code, 200, "{ack}");
}

fn signed(call: &Call) -> bool {
    let header = call.header("linesman-notice-signature");
    let mut parts = header.split(';');
    assert_eq!(parts.next(), Some("v1"));
    let time = parts.next().unwrap().strip_prefix("t=").unwrap();
    let sum = parts.next().unwrap().strip_prefix("sig=").unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("v1\n{time}\n{}", call.text).as_bytes());
    keys::hex(&mac.finalize().into_bytes()) == sum
}

/// A trouble reaches both receivers once, signed, again where they fail, and not again when the hub was started anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trouble_is_told_once_to_each_receiver_whatever_fails_in_between() {
    let (mut webhook, mut slack) = (Receiver::start().await, Receiver::start().await);
    let config = to(&webhook, &slack);
    let hub = TestHub::notifying("notify", config.clone()).await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    webhook.answer(&[503, 429]);
    reports(&agent, &hub, &[("HostKeyMismatch", "True")]).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let call = webhook.next().await;
        assert!(signed(&call), "{:?}", call.headers);
        let body = call.json();
        for (key, value) in [
            ("state", json!("open")),
            ("severity", json!("critical")),
            ("class", json!("HostKeyMismatch")),
            ("clusters", json!(["eu1"])),
            ("text", json!("of HostKeyMismatch")),
            ("next", json!("linesman githost show")),
        ] {
            assert_eq!(body[key], value, "{body}");
        }
        assert_eq!(body["id"], json!(call.header("linesman-notice-id")));
        ids.push(body["id"].clone());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let text = slack.next().await.json()["text"].clone();
    assert!(
        text.as_str().unwrap().contains("*eu1* *HostKeyMismatch*"),
        "{text}"
    );

    // The same again is no news; the next call is about the next trouble.
    let both = [("HostKeyMismatch", "True"), ("RightsLost", "True")];
    reports(&agent, &hub, &both).await;
    assert_eq!(webhook.next().await.json()["class"], json!("RightsLost"));
    slack.next().await;
    let hub = TestHub::open_notifying(hub.crash().await, config).await;
    let three = [&both[..], &[("JoinConflict", "True")]].concat();
    // The hub, not its agents, sees a conflict; what agents say of others it takes.
    reports(&agent, &hub, &three).await;
    assert_eq!(webhook.next().await.json()["class"], json!("JoinConflict"));
    slack.next().await;
    hub.stop().await;
}

/// The next leader takes it for told, and so does this one where it leads again: what waited was told by nobody, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_that_waits_for_its_receiver_outlives_a_lost_lead() {
    let (mut webhook, slack) = (Receiver::start().await, Receiver::start().await);
    webhook.answer(&[503; 1_000]);
    let config = to(&webhook, &slack);
    let (hub, url) = TestHub::replica_notifying("notify-lead", config).await;
    let leads = || hub.hub.replica.as_ref().unwrap().leads();
    until("it leads", PATIENCE, async || leads()).await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    reports(&agent, &hub, &[("HostKeyMismatch", "True")]).await;
    let id = webhook.next().await.json()["id"].clone();
    let other = postgres::lead(&url).await;
    until("it leads no more", PATIENCE, async || !leads()).await;
    drop(other);
    until("it leads again", PATIENCE, async || leads()).await;
    {
        let mut answers = webhook.answers.lock().unwrap();
        answers.clear();
        // All that came by then was refused.
        while webhook.calls.try_recv().is_ok() {}
    }
    // The next try may be a minute away.
    let call = tokio::time::timeout(3 * PATIENCE, webhook.calls.recv()).await;
    let call = call.expect("the notice comes").unwrap();
    assert_eq!(call.json()["id"], id);
    hub.stop().await;
}

/// A wrong address was found at the first outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_notice_says_which_receivers_take_it() {
    let (mut webhook, mut slack) = (Receiver::start().await, Receiver::start().await);
    slack.answer(&[404]);
    let hub = TestHub::notifying("notify-test", to(&webhook, &slack)).await;
    let check = async || {
        let (_, checks) = hub.get("/v1/hub/checks").await;
        let all = checks.as_array().unwrap().iter();
        let mut found = all.filter(|check| check["name"] == "notices");
        found.next().unwrap().clone()
    };
    assert_eq!(check().await["ok"], json!(true));
    let path = "/v1/hub/notices/test";
    let ada = hub.user("ada", &["operator"], &[]).await;
    let denied = hub.call_as(&ada, ("POST", path), &[], &json!({})).await;
    assert_eq!(denied.0, 403);
    let (code, tried) = hub.post(path, &json!({})).await;
    assert_eq!(code, 200, "{tried}");
    let tried = tried.as_array().unwrap().iter();
    let ended: Vec<Value> = tried
        .map(|tried| json!([tried["name"], tried["ok"], tried["found"]]))
        .collect();
    let refused = "the receiver refused it with 404";
    assert_eq!(
        ended,
        [
            json!(["webhook", true, "took it"]),
            json!(["slack", false, refused])
        ]
    );
    let body = webhook.next().await.json();
    assert_eq!(body["class"], json!("Test"));
    assert_eq!(body["severity"], json!("info"));
    let text = slack.next().await.text;
    assert!(text.contains("nothing is wrong"), "{text}");
    let notices = check().await;
    assert_eq!(notices["ok"], json!(false));
    let found = notices["found"].as_str().unwrap();
    let fails = "; slack has failed since ";
    assert!(found.contains(fails) && found.ends_with(refused), "{found}");
    let (_, asked) = hub.get("/v1/audit?action=notice.test&verdict=allow").await;
    let asked = asked["items"].as_array().unwrap();
    let targets: Vec<&Value> = asked.iter().map(|record| &record["target"]).collect();
    assert_eq!(targets, [&json!("to webhook, slack")]);
    hub.stop().await;
}

/// An Argo CD elsewhere lost its clusters after a quarter, and nothing had told of it: the end of a program's token is told while there is
/// time, once, and not again by a hub that was started anew. The token itself is in none of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_programs_token_is_told_before_it_comes() {
    const TOKENS: &str = "programs' tokens";
    let (mut webhook, slack) = (Receiver::start().await, Receiver::start().await);
    let config = to(&webhook, &slack);
    let hub = TestHub::start("notify-tokens").await;
    let user = json!({"name": "deployer"});
    assert_eq!(hub.post("/v1/users", &user).await.0, 201);
    let quarter =
        json!({"user": "deployer", "title": "deploy", "lasts": 7_776_000, "scopes": ["kube"]});
    let (code, made) = hub.post("/v1/api-tokens", &quarter).await;
    assert_eq!(code, 201, "{made}");
    let check = async |hub: &TestHub| {
        let (_, checks) = hub.get("/v1/hub/checks").await;
        let all = checks.as_array().unwrap().iter();
        let mut found = all.filter(|check| check["name"] == TOKENS);
        found.next().unwrap().clone()
    };
    assert_eq!(check(&hub).await["ok"], json!(true));
    // 80 days go by.
    let later = "UPDATE api_token SET created_at = created_at - 6912000000, expires_at = expires_at - 6912000000
                 WHERE title = 'deploy'";
    hub.execute(later, later).await;
    let hub = TestHub::open_notifying(hub.crash().await, config.clone()).await;
    let call = webhook.next().await;
    let body = call.json();
    let next = "linesman token create --user deployer --title NAME --scope kube";
    for (key, value) in [
        ("state", json!("open")),
        ("severity", json!("warning")),
        ("class", json!("TokenEnds")),
        ("clusters", json!([])),
        ("next", json!(next)),
    ] {
        assert_eq!(body[key], value, "{body}");
    }
    let (id, secret) = (
        made["id"].as_str().unwrap(),
        made["token"].as_str().unwrap(),
    );
    let text = body["text"].as_str().unwrap();
    let names = format!("token {id} of deployer ('deploy') ends at 2");
    assert!(text.starts_with(&names), "{text}");
    let secret = secret.rsplit('.').next().unwrap();
    assert!(!call.text.contains(secret), "{}", call.text);
    let ends = check(&hub).await;
    assert_eq!(ends["ok"], json!(false));
    assert!(
        ends["found"].as_str().unwrap().starts_with(&names),
        "{ends}"
    );

    let hub = TestHub::open_notifying(hub.crash().await, config).await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    reports(&agent, &hub, &[("HostKeyMismatch", "True")]).await;
    let class = webhook.next().await.json()["class"].clone();
    assert_eq!(class, json!("HostKeyMismatch"));
    hub.stop().await;
}

/// What a receiver refuses for good is dropped and counted; the next notice goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_notice_is_counted_and_holds_nothing_up() {
    let (mut webhook, mut slack) = (Receiver::start().await, Receiver::start().await);
    webhook.answer(&[410]);
    let hub = TestHub::notifying("notify-refused", to(&webhook, &slack)).await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    reports(&agent, &hub, &[("HostKeyMismatch", "True")]).await;
    webhook.next().await;
    slack.next().await;
    let both = [("HostKeyMismatch", "True"), ("RightsLost", "True")];
    reports(&agent, &hub, &both).await;
    assert_eq!(webhook.next().await.json()["class"], json!("RightsLost"));
    slack.next().await;
    until_some("one is dropped and one delivered", PATIENCE, async || {
        let lines = linesman::telemetry::Lines::default();
        let text = hub.hub.metrics.text(&lines).unwrap();
        let dropped = r#"linesman_hub_notices_total{sink="webhook",outcome="dropped"} 1"#;
        let delivered = r#"linesman_hub_notices_total{sink="webhook",outcome="delivered"} 1"#;
        if text.contains(dropped) && text.contains(delivered) {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    hub.stop().await;
}

/// What is known is stored before anything is told. A heal that closed while that could not be is told when it can.
#[tokio::test]
async fn a_heal_is_told_though_it_closed_while_nothing_could_be_stored() {
    let log = Log::default();
    let writer = log.clone();
    let logging = logged(move || writer.clone());
    let failed = || {
        let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
        log.matches("look at the fleet's troubles").count()
    };
    let (mut webhook, slack) = (Receiver::start().await, Receiver::start().await);
    let hub = TestHub::notifying("notify-heals", to(&webhook, &slack)).await;
    let agent = Agent::new(1);
    let token = hub.add("eu1").await;
    agent.join(&hub, "eu1", &token).await;
    let full = "CREATE TRIGGER refuse BEFORE INSERT ON trouble BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let refuse = "ALTER TABLE trouble ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    hub.execute(full, refuse).await;
    reports(&agent, &hub, &[("HostKeyMismatch", "True")]).await;
    let now = clock::rfc3339(clock::now());
    let heal = json!({"id": "01900000-0000-7000-8000-000000000001", "class": "ObjectMissing", "object": "Deployment x/y",
        "evidence": "gone", "steps": [], "detectedAt": now, "restoredAt": now, "result": "healed"});
    let agents = json!({"version": "0.1.0", "image": "i", "arch": "amd64"});
    let report = json!({"agent": agents, "heals": [heal]}).to_string();
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(&hub, "POST", path, &report).await;
    assert_eq!(code, 200, "{ack}");
    // The first of them may have begun before.
    let before = failed();
    let twice = async || failed() >= before + 2;
    until("two looks fail", PATIENCE, twice).await;
    let again = "ALTER TABLE trouble DROP CONSTRAINT refuse";
    hub.execute("DROP TRIGGER refuse", again).await;
    let mut told = Vec::new();
    for _ in 0..2 {
        let body = webhook.next().await.json();
        told.push((body["state"].clone(), body["class"].clone()));
    }
    let open = (json!("open"), json!("HostKeyMismatch"));
    assert_eq!(told, [open, (json!("healed"), json!("ObjectMissing"))]);
    hub.stop().await;
    drop(logging);
}
