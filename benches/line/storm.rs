//! A hub that is killed under many lines: until when they are all back, and what it costs.
//!
//! The hub is the real one with its store (`end storm-hub`), the agents are the real links of that many clusters
//! in one process (`end storm-agents`), which also asks the hub for something every 50 ms, as people do meanwhile.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linesman::agent::identity::Identity;
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock;
use linesman::hub::audit::Chain;
use linesman::hub::store::Store;
use linesman::hub::tls::TlsSource;
use linesman::hub::{Hub, HubConfig, Listeners, serve};
use linesman::keys::KeyPair;
use linesman::tunnel::Incoming;
use linesman::wire::api::{AgentBuild, HubRef};
use linesman::wire::id::ClusterName;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::joined;
use crate::load::Figures;

const ANY: &str = "127.0.0.1:0";
/// Agents that dial for the first time, each second: that is not the storm that is measured.
const ARRIVALS: u32 = 500;
const PROBE: Duration = Duration::from_millis(50);

/// What may run on through a hub that is told to end, which this one is not.
const DRAIN: Duration = Duration::from_secs(2);

/// A hub at `address` with `count` clusters.
pub(crate) async fn hub(address: &str, directory: &Path, count: usize) {
    let (listeners, hub, chain) =
        started(address, &directory.join("storm-hub"), DRAIN, count).await;
    println!("LISTEN {}", listeners.https.local_addr().unwrap());
    serve::run(listeners, hub, chain).await.unwrap();
}

/// A hub that is about to run; with a data directory that is there it starts from that. What agents have to know of it lies in a
/// file beside that, `.json`.
pub(crate) async fn started(
    address: &str,
    data: &Path,
    drain: Duration,
    count: usize,
) -> (Listeners, Arc<Hub>, Chain) {
    let bind = || TcpListener::bind(ANY);
    let (git, health) = (bind().await.unwrap(), bind().await.unwrap());
    let https = TcpListener::bind(address).await.unwrap();
    let at = |listener: &TcpListener| -> SocketAddr { listener.local_addr().unwrap() };
    let config = HubConfig {
        trusted_proxies: [].into(),
        records: linesman::hub::store::Records::File,
        keys: linesman::hub::rotation::KeyPolicy::default(),
        bounds: linesman::hub::Bounds::default(),
        data: data.to_owned(),
        url: format!("https://{}", at(&https)),
        listen: at(&https),
        health_listen: at(&health),
        git_listen: at(&git),
        git_url: format!("ssh://git@{}", at(&git)),
        tls: TlsSource::Own { names: vec![] },
        agent_image: "bench.invalid/linesman".to_owned(),
        offline_after: Duration::from_secs(45),
        drain,
        audit: linesman::hub::AuditConfig::default(),
        git_over_line: linesman::hub::gitline::Allowed::Auto,
        notify: linesman::hub::notify::Config::default(),
        oidc: None,
        grants: linesman::hub::access::GrantRules::default(),
        sessions: linesman::hub::oidc::Lifetimes::default(),
        peer: None,
    };
    let (hub, chain) = serve::start(config, CancellationToken::new())
        .await
        .unwrap();
    seed(&hub.store, count).await;
    let reference = serde_json::to_vec(&hub.reference()).unwrap();
    std::fs::write(data.with_extension("json"), reference).unwrap();
    let listeners = Listeners {
        https,
        git,
        health,
        peer: None,
    };
    (listeners, hub, chain)
}

pub(crate) fn name(n: usize) -> ClusterName {
    format!("storm-{n}").parse().unwrap()
}

/// The key of cluster `n`; both processes make it from the number.
fn identity(n: usize) -> KeyPair {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&u64::try_from(n).unwrap().to_be_bytes());
    KeyPair::from_seed(&seed)
}

/// Registers the clusters that are not there yet.
async fn seed(store: &Store, count: usize) {
    if store.cluster(&name(count - 1)).await.unwrap().is_some() {
        return;
    }
    joined::bundle(store).await;
    for n in 0..count {
        if store.cluster(&name(n)).await.unwrap().is_some() {
            continue;
        }
        let deploy = KeyPair::from_seed(&clock::random());
        joined::join(store, &name(n), &identity(n), &deploy).await;
        if n % 1000 == 999 {
            eprintln!("storm: {} of {count} clusters registered", n + 1);
        }
    }
}

type State = (watch::Receiver<LinkState>, mpsc::Receiver<Incoming>);

/// The links, which dial one after the other, and what each says of itself, with its streams, of which so many may wait.
pub(crate) fn start(
    hub: &watch::Receiver<HubRef>,
    count: usize,
    waiting: usize,
    stop: &CancellationToken,
) -> (JoinSet<()>, Vec<State>) {
    let mut links = JoinSet::new();
    let mut states = Vec::new();
    for n in 0..count {
        let (out, state) = watch::channel(LinkState::Down {
            since: clock::now(),
            cause: String::new(),
            attempt: 0,
            strange: false,
        });
        let config = LinkConfig {
            hub: hub.clone(),
            cluster: name(n),
            keys: watch::channel(Identity {
                identity: identity(n),
                ..Identity::from_seeds(&[1; 32], &[2; 32])
            })
            .1,
            build: AgentBuild::default(),
            instance: format!("storm-{n} of {}", std::process::id()),
            proxy: watch::channel(None).1,
        };
        let (streams, incoming) = mpsc::channel(waiting);
        let stop = stop.clone();
        links.spawn(async move {
            tokio::time::sleep(Duration::from_secs(1) * u32::try_from(n).unwrap() / ARRIVALS).await;
            link::run(config, out, streams, stop).await.unwrap();
        });
        states.push((state, incoming));
    }
    (links, states)
}

/// What the hub with this data directory says of itself.
pub(crate) fn reference(data: &Path) -> HubRef {
    let text = std::fs::read(data.with_extension("json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// `count` links; prints `UP` when all are up, and the result when they are all back after a loss.
pub(crate) async fn agents(directory: &Path, count: usize) {
    let reference = reference(&directory.join("storm-hub"));
    let (_hub, hub) = watch::channel(reference.clone());
    let (_links, states) = start(&hub, count, 1, &CancellationToken::new());
    let mut first = JoinSet::new();
    for (mut state, incoming) in states {
        first.spawn(async move {
            let epoch = up(&mut state, 0).await;
            (state, incoming, epoch)
        });
    }
    let states = first.join_all().await;
    let lost = Arc::new(tokio::sync::OnceCell::new());
    let mut back = JoinSet::new();
    for (mut state, incoming, epoch) in states {
        let lost = lost.clone();
        back.spawn(async move {
            // A short Down may be overlooked; a newer line says the same.
            let changed = |state: &LinkState| match state {
                LinkState::Up { line, .. } => line.facts().epoch > epoch,
                LinkState::Down { .. } => true,
            };
            drop(state.wait_for(changed).await.unwrap());
            lost.get_or_init(|| async { Instant::now() }).await;
            up(&mut state, epoch).await;
            drop(incoming);
            (Instant::now(), state)
        });
    }
    println!("UP {count}");
    let mut asking = JoinSet::new();
    asking.spawn(probes(reference));
    // The states are kept: a link without a listener would still run, but that is not what is looked at.
    let (times, _states): (Vec<_>, Vec<_>) = back.join_all().await.into_iter().unzip();
    drop(asking);
    let lost = *lost.get().unwrap();
    let mut times: Vec<f64> = times
        .into_iter()
        .map(|time| time.duration_since(lost).as_secs_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    let mut figures = shape(&times);
    let answers = std::mem::take(&mut *ANSWERS.lock().unwrap());
    // What was asked after the loss, the new hub has answered.
    let since = || answers.iter().filter(|(began, _)| *began >= lost);
    let ready = since().map(|(began, took)| *began + *took).min();
    let mut took: Vec<f64> = since().map(|(_, took)| took.as_secs_f64() * 1e3).collect();
    took.sort_by(f64::total_cmp);
    if let Some((ready, worst)) = ready.zip(took.last()) {
        figures.insert("s until hub answers".into(), (ready - lost).as_secs_f64());
        figures.insert("p99 request ms".into(), took[took.len() * 99 / 100]);
        figures.insert("worst request ms".into(), *worst);
    }
    println!("RESULT {}", serde_json::to_string(&figures).unwrap());
}

/// When half, nearly all and all were back, and how uneven their coming was.
fn shape(times: &[f64]) -> Figures {
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    let all = times[times.len() - 1];
    let peak = (0..times.len())
        .map(|from| times.partition_point(|time| *time < times[from] + 1.0) - from)
        .max()
        .unwrap_or_default();
    Figures::from([
        ("s until 50 %".into(), at(50)),
        ("s until 99 %".into(), at(99)),
        ("s until all".into(), all),
        ("peak lines/s".into(), peak as f64),
        (
            "peak to mean".into(),
            peak as f64 * all / times.len() as f64,
        ),
    ])
}

pub(crate) async fn up(state: &mut watch::Receiver<LinkState>, after: u64) -> u64 {
    let newer = |state: &LinkState| match state {
        LinkState::Up { line, .. } => Some(line.facts().epoch).filter(|epoch| *epoch > after),
        LinkState::Down { .. } => None,
    };
    let state = state
        .wait_for(|state| newer(state).is_some())
        .await
        .unwrap();
    newer(&state).unwrap()
}

/// What the hub answered: when it was asked, and how long it took.
static ANSWERS: std::sync::Mutex<Vec<(Instant, Duration)>> = std::sync::Mutex::new(Vec::new());
/// More than a storm takes at one every [`PROBE`].
const MOST: usize = 100_000;

/// A client that trusts the hub and goes there directly.
pub(crate) fn client(hub: &HubRef) -> reqwest::ClientBuilder {
    let ca = reqwest::Certificate::from_pem(hub.ca.as_bytes()).unwrap();
    reqwest::Client::builder().tls_certs_only([ca]).no_proxy()
}

/// New connections all the time, as of people with kubectl.
async fn probes(hub: HubRef) {
    let url = format!("{}/v1/hub", hub.urls[0]);
    let client = client(&hub).pool_max_idle_per_host(0).build().unwrap();
    for _ in 0..MOST {
        let began = Instant::now();
        let answer = client.get(&url).send().await;
        let took = began.elapsed();
        if answer.is_ok_and(|answer| answer.status().is_success()) {
            ANSWERS.lock().unwrap().push((began, took));
        }
        tokio::time::sleep(PROBE).await;
    }
}
