//! An agent that is older than its hub: its real part that joins and its reporter, against the real hub, whose answer to
//! the join is made a later one's on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use linesman::agent::caller::Caller;
use linesman::agent::enroll::Context;
use linesman::agent::enroll::join::{Belief, Joining};
use linesman::agent::enroll::stored::{self, Join};
use linesman::agent::fault::Faults;
use linesman::agent::identity::Identity;
use linesman::agent::link::{self, Around, LinkConfig, LinkState};
use linesman::agent::report::{self, Outlets, ReportConfig};
use linesman::agent::{Joined, News};
use linesman::clock;
use linesman::lifetime::hearts::{Heart, Hearts};
use linesman::manifests::{EngineNamespaces, scope::Extent};
use linesman::secret::Secret;
use linesman::tunnel::Incoming;
use linesman::wire::api::{AgentBuild, FOLLOWS_KEYS, HubKey};
use linesman::wire::id::ClusterName;
use linesman::wire::report::Facts;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::moved;
use super::rotate::world::{PATIENCE, Secrets};
use super::support::TestHub;
use crate::wait::until_some;

fn cluster() -> ClusterName {
    "eu1".parse().unwrap()
}

/// What becomes of an answer to this path on its way.
pub(super) type Change = fn(&str, &mut Value);

/// The hub behind another certificate; while `changing`, its answers are changed.
pub(super) struct Front {
    pub(super) url: String,
    pub(super) ca: String,
    pub(super) changing: Arc<AtomicBool>,
    _serving: JoinSet<()>,
}

impl Front {
    pub(super) async fn start(hub: &TestHub, change: Change) -> Self {
        let (acceptor, pem) = crate::tls::loopback();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let ca = std::fs::read(hub.data().join("ca.crt")).unwrap();
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
            .no_proxy()
            .build()
            .unwrap();
        let (to, changing) = (hub.hub.config.url.clone(), Arc::new(AtomicBool::new(true)));
        let mut serving = JoinSet::new();
        let says = changing.clone();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, client, to, says) =
                    (acceptor.clone(), client.clone(), to.clone(), says.clone());
                open.spawn(async move {
                    let Ok(tls) = acceptor.accept(socket).await else {
                        return;
                    };
                    let service = hyper::service::service_fn(|request| {
                        let change = says.load(Ordering::Relaxed).then_some(change);
                        pass(&client, &to, request, change)
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
            changing,
            _serving: serving,
        }
    }
}

async fn pass(
    client: &reqwest::Client,
    to: &str,
    request: http::Request<hyper::body::Incoming>,
    change: Option<Change>,
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
    if let Some(change) = change.filter(|_| status.is_success())
        && let Ok(mut told) = serde_json::from_slice::<Value>(&bytes)
    {
        change(parts.uri.path(), &mut told);
        bytes = told.to_string().into();
    }
    let mut response = http::Response::new(Full::new(bytes));
    *response.status_mut() = status;
    Ok(response)
}

/// The YAML's Secret, as it comes with this token through the front.
pub(super) fn applied(front: &Front, hub_keys: Vec<HubKey>, token: &str) -> Join {
    Join {
        token: Some(Secret::new(token.to_owned())),
        echoed: false,
        hub: front.url.clone(),
        hub_keys,
        ca: front.ca.clone(),
        cluster: cluster(),
        proxy: None,
    }
}

/// The agent's part that joins, and its reporter; dropped, they end as by SIGKILL.
pub(super) struct Running {
    pub(super) joined: watch::Receiver<Option<Joined>>,
    pub(super) line: watch::Receiver<LinkState>,
    /// What the hub opens on its lines.
    pub(super) streams: mpsc::Receiver<Incoming>,
    /// To its reporter.
    pub(super) news: mpsc::Sender<News>,
    tasks: JoinSet<()>,
}

impl Running {
    /// Ends with it.
    pub(super) fn serve(&mut self, part: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(part);
    }
}

/// One that dials no line.
pub(super) async fn agent(join: Option<Join>, secrets: &Secrets) -> Running {
    on(join, secrets.client()).await
}

/// The same on this API server.
pub(super) async fn on(join: Option<Join>, kube: kube::Client) -> Running {
    let none = Around::default();
    begun(join, kube, (own_keys(), None, none)).await
}

/// One that dials no line, and whose environment names a proxy.
pub(super) async fn behind(around: Around, join: Join, secrets: &Secrets) -> Running {
    begun(Some(join), secrets.client(), (own_keys(), None, around)).await
}

/// One with these keys, which dials no line.
pub(super) async fn with_keys(join: Join, secrets: &Secrets, keys: Identity) -> Running {
    let none = Around::default();
    begun(Some(join), secrets.client(), (keys, None, none)).await
}

fn own_keys() -> Identity {
    Identity::from_seeds(&[1; 32], &[101; 32])
}

/// One with a line to the hub that is in force.
pub(super) async fn dialling(join: Option<Join>, secrets: &Secrets) -> Running {
    let of_this = AgentBuild {
        features: vec![FOLLOWS_KEYS.to_owned()],
        ..AgentBuild::default()
    };
    dialling_as(of_this, join, secrets).await
}

/// The same of another build.
pub(super) async fn dialling_as(
    build: AgentBuild,
    join: Option<Join>,
    secrets: &Secrets,
) -> Running {
    let none = Around::default();
    begun(join, secrets.client(), (own_keys(), Some(build), none)).await
}

fn not_dialled() -> LinkState {
    LinkState::Down {
        since: clock::now(),
        cause: "not dialled".to_owned(),
        attempt: 0,
        strange: false,
    }
}

async fn begun(
    join: Option<Join>,
    kube: kube::Client,
    (keys, dials, around): (Identity, Option<AgentBuild>, Around),
) -> Running {
    let stored = stored::secrets(&kube, "linesman");
    let state = stored::read_state(&stored).await.unwrap();
    let (keys_out, keys) = watch::channel(keys);
    let (link_out, link) = watch::channel(not_dialled());
    let (joined_out, joined) = watch::channel(None);
    let (assignment, spoken) = watch::channel(0);
    let (news, told) = mpsc::channel(64);
    let (facts_out, facts) = watch::channel(Facts::new());
    let (proven_out, proven) = watch::channel(String::new());
    let caller = Caller::new(keys.clone(), joined.clone(), link.clone());
    let dialled_as = keys.clone();
    let hearts = Hearts::default();
    let context = Context {
        kube,
        namespace: "linesman".to_owned(),
        engines: EngineNamespaces::default(),
        extent: Extent::Cluster,
        pod: "agent".to_owned(),
        cluster: cluster(),
        build: AgentBuild::default(),
        faults: Faults::default(),
        news: news.clone(),
        heart: None,
    };
    let joining = Joining {
        context: context.clone(),
        keys,
        caller: caller.clone(),
        around,
        state,
        applied: join,
        heart: hearts.heart("join", Duration::from_mins(1)),
        joined: joined_out,
        disowned: watch::Sender::new(None),
        kept: watch::Sender::new(None),
        spoken,
        proven,
        doubts: false,
        belief: Belief::default(),
        other: None,
    };
    let heart = hearts.heart("report", Duration::from_mins(1));
    let reporter = (context, caller, facts, heart);
    let mut tasks = JoinSet::new();
    // Who tells these is not part of it.
    tasks.spawn(async move {
        tokio::join!(keys_out.closed(), facts_out.closed(), proven_out.closed());
    });
    let dialled = link.clone();
    let (incoming, streams) = mpsc::channel(64);
    if let Some(build) = dials {
        let joined = joined.clone();
        tasks.spawn(dial((dialled_as, build), joined, link_out, incoming));
    } else {
        tasks.spawn(async move { link_out.closed().await });
    }
    let joining = Box::pin(joining.run(CancellationToken::new()));
    tasks.spawn(async move { drop(joining.await) });
    tasks.spawn(reports(reporter, (told, link, assignment)));
    Running {
        joined,
        line: dialled,
        streams,
        news,
        tasks,
    }
}

/// Keeps a line, as soon as the cluster has joined, to the hub that is in force.
async fn dial(
    (keys, build): (watch::Receiver<Identity>, AgentBuild),
    mut joined: watch::Receiver<Option<Joined>>,
    line: watch::Sender<LinkState>,
    streams: mpsc::Sender<Incoming>,
) {
    let hub_of = |joined: &Option<Joined>| joined.as_ref().map(|j| j.assignment.hub.clone());
    let first = joined.wait_for(Option::is_some).await.unwrap().clone();
    let (hub_out, hub) = watch::channel(hub_of(&first).unwrap());
    let config = LinkConfig {
        hub,
        cluster: cluster(),
        keys,
        build,
        instance: clock::id(),
        proxy: watch::channel(None).1,
    };
    let following = async {
        while joined.changed().await.is_ok() {
            let now = hub_of(&joined.borrow_and_update()).unwrap();
            hub_out.send_if_modified(|hub| std::mem::replace(hub, now.clone()) != now);
        }
    };
    let (ran, ()) = tokio::join!(
        link::run(config, line, streams, CancellationToken::new()),
        following
    );
    ran.unwrap();
}

async fn reports(
    (context, caller, facts, heart): (Context, Caller, watch::Receiver<Facts>, Heart),
    (told, link, assignment): (
        mpsc::Receiver<News>,
        watch::Receiver<LinkState>,
        watch::Sender<u64>,
    ),
) {
    let config = ReportConfig {
        context,
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

/// The condition and the cluster's view, as soon as this condition is `status`.
pub(super) async fn shown(hub: &TestHub, kind: &str, status: &str) -> (Value, Value) {
    let what = format!("{kind} is {status}");
    until_some(&what, PATIENCE, async || {
        let (code, view) = hub.get("/v1/clusters/eu1").await;
        assert_eq!(code, 200, "{view}");
        let all = view["conditions"].as_array().unwrap();
        let told = all.iter().find(|c| c["type"] == json!(kind));
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
    let front = Front::start(&hub, |path, told| {
        if path == "/v1/join" {
            told["engine"]["kind"] = json!("sveltos");
        }
    })
    .await;
    let _agent = agent(
        Some(applied(&front, Vec::new(), &token)),
        &Secrets::default(),
    )
    .await;
    let (told, view) = shown(&hub, "HubUnderstood", "False").await;
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

    front.changing.store(false, Ordering::Relaxed);
    let asked = json!({ "seconds": 600, "reason": "the assignment changes" });
    let (code, paused) = hub.post("/v1/clusters/eu1/pause", &asked).await;
    assert_eq!(code, 200, "{paused}");
    let (_, view) = shown(&hub, "HubUnderstood", "True").await;
    let steps = view["steps"].as_array().unwrap();
    let join = steps.iter().find(|s| s["step"] == json!("join")).unwrap();
    assert_eq!(join["state"], json!("done"));
    hub.stop().await;
}

/// Pauses the cluster for this reason, and waits until its agent has heard of it.
async fn heard(hub: &TestHub, agent: &Running, reason: &str) {
    let asked = json!({ "seconds": 600, "reason": reason });
    let (code, paused) = hub.post("/v1/clusters/eu1/pause", &asked).await;
    assert_eq!(code, 200, "{paused}");
    let wanted = format!("{reason} (admin)");
    until_some(reason, PATIENCE, async || {
        let joined = agent.joined.borrow();
        let assignment = joined.as_ref().map(|joined| &joined.assignment);
        let told = assignment.map(|a| (a.revision, a.policy.pause_reason.clone()));
        match told {
            Some((_, Some(told))) if told == wanted => Ok(()),
            told => Err(told),
        }
    })
    .await;
}

/// The records are an older copy, the agent stayed up: it heard of more assignments than the hub has counted by now.
#[tokio::test]
async fn an_agent_that_stays_up_follows_a_hub_that_counts_from_an_older_record() {
    let hub = TestHub::start("older-record").await;
    let token = hub.add("eu1").await;
    let join = moved::applied(&hub, &token);
    let agent = dialling(Some(join), &Secrets::default()).await;
    moved::back(&agent, &hub).await;
    // Numbers are as late as the hub's clock, which was ahead; else they would only rise.
    let ahead = "UPDATE cluster SET assignment_revision = assignment_revision + 1000000000000";
    hub.execute(ahead, ahead).await;
    for reason in ["one", "two", "three", "four"] {
        heard(&hub, &agent, reason).await;
    }
    let older = "UPDATE cluster SET assignment_revision = assignment_revision - 3";
    hub.execute(older, older).await;
    heard(&hub, &agent, "after the restore").await;
    hub.stop().await;
}
