//! An agent that is older than its hub: its real part that joins and its reporter, against the real hub, whose answer to
//! the join is made a later one's on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use linesman::agent::News;
use linesman::agent::caller::Caller;
use linesman::agent::enroll::Context;
use linesman::agent::enroll::join::Joining;
use linesman::agent::enroll::stored::Join;
use linesman::agent::fault::Faults;
use linesman::agent::identity::Identity;
use linesman::agent::link::LinkState;
use linesman::agent::report::{self, Outlets, ReportConfig};
use linesman::clock;
use linesman::lifetime::hearts::{Heart, Hearts};
use linesman::manifests::{EngineNamespaces, scope::Extent};
use linesman::secret::Secret;
use linesman::wire::api::AgentBuild;
use linesman::wire::id::ClusterName;
use linesman::wire::report::Facts;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use crate::wait::until_some;

fn cluster() -> ClusterName {
    "eu1".parse().unwrap()
}

/// The hub behind another certificate; while `later`, the answer to a join names an engine of tomorrow.
struct Front {
    url: String,
    ca: String,
    later: Arc<AtomicBool>,
    _serving: JoinSet<()>,
}

impl Front {
    async fn start(hub: &TestHub) -> Self {
        let (acceptor, pem) = crate::tls::loopback();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let ca = std::fs::read(hub.data().join("ca.crt")).unwrap();
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
            .no_proxy()
            .build()
            .unwrap();
        let (to, later) = (hub.hub.config.url.clone(), Arc::new(AtomicBool::new(true)));
        let mut serving = JoinSet::new();
        let says = later.clone();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, client, to, says) =
                    (acceptor.clone(), client.clone(), to.clone(), says.clone());
                open.spawn(async move {
                    let tls = acceptor.accept(socket).await.unwrap();
                    let service = hyper::service::service_fn(|request| {
                        pass(&client, &to, request, says.load(Ordering::Relaxed))
                    });
                    let served = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(tls), service);
                    drop(served.await);
                });
            }
        });
        Self {
            url,
            ca: pem,
            later,
            _serving: serving,
        }
    }
}

async fn pass(
    client: &reqwest::Client,
    to: &str,
    request: http::Request<hyper::body::Incoming>,
    later: bool,
) -> Result<http::Response<Full<Bytes>>, reqwest::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut asked = client.request(parts.method, format!("{to}{}", parts.uri));
    for (name, value) in &parts.headers {
        if name.as_str().starts_with("linesman") || name == http::header::CONTENT_TYPE {
            asked = asked.header(name, value);
        }
    }
    let answer = asked.body(body).send().await?;
    let (status, mut bytes) = (answer.status(), answer.bytes().await?);
    if later && parts.uri.path() == "/v1/join" && status.is_success() {
        let mut told: Value = serde_json::from_slice(&bytes).unwrap();
        told["engine"]["kind"] = json!("sveltos");
        bytes = told.to_string().into();
    }
    let mut response = http::Response::new(Full::new(bytes));
    *response.status_mut() = status;
    Ok(response)
}

/// The agent's part that joins, and its reporter; dropped, they end as by SIGKILL.
fn agent(front: &Front, token: String) -> JoinSet<()> {
    let kube = Secrets::default().client();
    let (keys_out, keys) = watch::channel(Identity::from_seeds(&[1; 32], &[101; 32]));
    let (link_out, link) = watch::channel(LinkState::Down {
        since: clock::now(),
        cause: "not dialled".to_owned(),
        attempt: 0,
    });
    let (joined_out, joined) = watch::channel(None);
    let (assignment, spoken) = watch::channel(0);
    let (news, told) = mpsc::channel(64);
    let (facts_out, facts) = watch::channel(Facts::new());
    let (proven_out, proven) = watch::channel(String::new());
    let caller = Caller::new(keys.clone(), joined, link.clone());
    let hearts = Hearts::default();
    let joining = Joining {
        context: Context {
            kube: kube.clone(),
            namespace: "linesman".to_owned(),
            engines: EngineNamespaces::default(),
            extent: Extent::Cluster,
            pod: "agent".to_owned(),
            cluster: cluster(),
            build: AgentBuild::default(),
            faults: Faults::default(),
            news,
        },
        keys,
        caller: caller.clone(),
        state: None,
        applied: Some(Join {
            token: Some(Secret::new(token)),
            echoed: false,
            hub: front.url.clone(),
            hub_keys: Vec::new(),
            ca: front.ca.clone(),
            cluster: cluster(),
            proxy: None,
        }),
        heart: hearts.heart("join", Duration::from_mins(1)),
        joined: joined_out,
        kept: watch::Sender::new(None),
        spoken,
        proven,
        doubts: false,
    };
    let reporter = (
        kube,
        caller,
        facts,
        hearts.heart("report", Duration::from_mins(1)),
    );
    let mut tasks = JoinSet::new();
    // Who tells these is not part of it.
    tasks.spawn(async move {
        tokio::join!(
            keys_out.closed(),
            link_out.closed(),
            facts_out.closed(),
            proven_out.closed()
        );
    });
    let joining = Box::pin(joining.run(CancellationToken::new()));
    tasks.spawn(async move { drop(joining.await) });
    tasks.spawn(reports(reporter, (told, link, assignment)));
    tasks
}

async fn reports(
    (kube, caller, facts, heart): (kube::Client, Caller, watch::Receiver<Facts>, Heart),
    (told, link, assignment): (
        mpsc::Receiver<News>,
        watch::Receiver<LinkState>,
        watch::Sender<u64>,
    ),
) {
    let config = ReportConfig {
        kube,
        namespace: "linesman".to_owned(),
        cluster: cluster(),
        build: AgentBuild::default(),
        caller,
        facts,
        heart,
        hearts: Hearts::default(),
    };
    let outlets = Outlets {
        hints: mpsc::channel(8).0,
        subjects: watch::Sender::default(),
        assignment,
        diagnose: mpsc::channel(8).0,
        stored: watch::Sender::new(Vec::new()),
        acked: watch::Sender::new(None),
        removed: CancellationToken::new(),
    };
    let stop = CancellationToken::new();
    report::run(config, told, link, outlets, stop)
        .await
        .unwrap();
}

/// The cluster's view, as soon as condition `HubUnderstood` is `status`.
async fn shown(hub: &TestHub, status: &str) -> (Value, Value) {
    let what = format!("HubUnderstood is {status}");
    until_some(&what, PATIENCE, async || {
        let (code, view) = hub.get("/v1/clusters/eu1").await;
        assert_eq!(code, 200, "{view}");
        let all = view["conditions"].as_array().unwrap();
        let told = all.iter().find(|c| c["type"] == json!("HubUnderstood"));
        match told.filter(|c| c["status"] == json!(status)) {
            Some(told) => Ok((told.clone(), view)),
            None => Err(view),
        }
    })
    .await
}

/// H51: a cluster that joins with an engine that its agent does not know is no silent one: the hub shows what was not
/// understood and the next action, and the agent goes on as soon as it is told something that it can be.
#[tokio::test]
async fn an_agent_that_cannot_be_what_it_is_told_to_be_says_so_at_the_hub() {
    let hub = TestHub::start("older").await;
    let token = hub.add("eu1").await;
    let front = Front::start(&hub).await;
    let _agent = agent(&front, token);
    let (told, view) = shown(&hub, "False").await;
    let text = told["message"].as_str().unwrap();
    assert_eq!(told["reason"], json!("AgentOlder"));
    for part in ["engine", "`sveltos`", "linesman cluster readopt eu1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let steps = view["steps"].as_array().unwrap();
    let join = steps.iter().find(|s| s["step"] == json!("join")).unwrap();
    assert_eq!(
        (&join["state"], &join["reason"], &view["phase"]),
        (&json!("failed"), &told["message"], &json!("Degraded"))
    );

    front.later.store(false, Ordering::Relaxed);
    let asked = json!({ "seconds": 600, "reason": "the assignment changes" });
    let (code, paused) = hub.post("/v1/clusters/eu1/pause", &asked).await;
    assert_eq!(code, 200, "{paused}");
    let (_, view) = shown(&hub, "True").await;
    let steps = view["steps"].as_array().unwrap();
    let join = steps.iter().find(|s| s["step"] == json!("join")).unwrap();
    assert_eq!(join["state"], json!("done"));
    hub.stop().await;
}
