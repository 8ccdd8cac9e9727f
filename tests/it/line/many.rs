//! Many lines to one hub, the real program: what an idle one costs it, and how they come back when it is killed.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linesman::agent::identity::Identity;
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock;
use linesman::hub::tls::TlsSource;
use linesman::hub::{HubConfig, serve};
use linesman::keys::KeyPair;
use linesman::wire::api::{AgentBuild, HubRef};
use linesman::wire::id::ClusterName;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::joined;

const ANY: &str = "127.0.0.1:0";
const PATIENCE: Duration = Duration::from_mins(1);
/// No agent dials sooner after its line broke.
const FLOOR: Duration = Duration::from_millis(500);
/// Agents that dial for the first time, each second: they are not what is looked at.
const ARRIVALS: u32 = 200;
const LOOK: Duration = Duration::from_millis(100);

/// A hub's data with many clusters.
struct World {
    data: PathBuf,
    reference: HubRef,
}

/// The program; killed when it goes out of scope.
struct Hub {
    process: Child,
    address: String,
}

impl World {
    async fn new(clusters: usize) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let data = std::env::temp_dir().join(format!("linesman-many-{}", clock::id()));
        // Nobody listens there: this hub only makes what the program finds.
        let any: SocketAddr = "127.0.0.1:8443".parse().unwrap();
        let config = HubConfig {
            trusted_proxies: [].into(),
            records: linesman::hub::store::Records::File,
            keys: linesman::hub::rotation::KeyPolicy::default(),
            bounds: linesman::hub::Bounds::default(),
            data: data.clone(),
            url: format!("https://{any}"),
            listen: any,
            health_listen: any,
            git_listen: any,
            git_url: format!("ssh://git@{any}"),
            tls: TlsSource::Own { names: vec![] },
            agent_image: "lab.invalid/linesman:test".to_owned(),
            offline_after: Duration::from_secs(45),
            drain: Duration::from_secs(2),
            git_over_line: linesman::hub::gitline::Allowed::Auto,
            audit: linesman::hub::AuditConfig::default(),
            notify: linesman::hub::notify::Config::default(),
            oidc: None,
            grants: linesman::hub::access::GrantRules::default(),
            sessions: linesman::hub::oidc::Lifetimes::default(),
            peer: None,
        };
        let stop = CancellationToken::new();
        let (hub, _chain) = serve::start(config, stop).await.unwrap();
        joined::bundle(&hub.store).await;
        for n in 0..clusters {
            let deploy = KeyPair::from_seed(&clock::random());
            joined::join(&hub.store, &name(n), &identity(n), &deploy).await;
        }
        Self {
            data,
            reference: hub.reference(),
        }
    }

    /// Starts the agents of these clusters, one after the other.
    fn agents(&self, hub: &Hub, clusters: std::ops::Range<usize>) -> Agents {
        let urls = vec![format!("https://{}", hub.address)];
        let (held, hub) = watch::channel(HubRef {
            urls,
            ..self.reference.clone()
        });
        let (mut states, mut links) = (vec![], JoinSet::new());
        for (place, n) in (0..).zip(clusters) {
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
                instance: format!("instance-{n}"),
                proxy: watch::channel(None).1,
            };
            let (streams, incoming) = mpsc::channel(1);
            links.spawn(async move {
                sleep(Duration::from_secs(1) * place / ARRIVALS).await;
                drop(link::run(config, out, streams, CancellationToken::new()).await);
                drop(incoming);
            });
            states.push(state);
        }
        Agents {
            states,
            _links: links,
            _hub: held,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.data));
    }
}

impl Hub {
    fn start(world: &World, address: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_linesman"))
            .args(["hub", "--listen", address, "--git-listen", ANY])
            .args(["--health-listen", ANY, "--data"])
            .arg(&world.data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
        let first = said.next().expect("the hub starts").unwrap();
        let url = first.strip_prefix("hub").unwrap().trim();
        let address = url.strip_prefix("https://").unwrap().to_owned();
        Self { process, address }
    }

    fn resident_kib(&self) -> f64 {
        let kib = crate::process::resident_kib(self.process.id());
        f64::from(u32::try_from(kib).unwrap())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

struct Agents {
    states: Vec<watch::Receiver<LinkState>>,
    _links: JoinSet<()>,
    _hub: watch::Sender<HubRef>,
}

impl Agents {
    /// The epochs of their lines when all are up.
    async fn up(&mut self) -> Vec<u64> {
        let mut epochs = Vec::new();
        for state in &mut self.states {
            let up = state.wait_for(|state| matches!(state, LinkState::Up { .. }));
            let state = timeout(PATIENCE, up).await.expect("a line comes up");
            if let LinkState::Up { line, .. } = &*state.unwrap() {
                epochs.push(line.facts().epoch);
            }
        }
        epochs
    }
}

fn name(n: usize) -> ClusterName {
    format!("many-{n}").parse().unwrap()
}

fn identity(n: usize) -> KeyPair {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&u64::try_from(n).unwrap().to_be_bytes());
    KeyPair::from_seed(&seed)
}

/// How a line came back.
struct Back {
    /// Since the kill.
    after: Duration,
    /// Waits of the agent, as far as it was seen.
    waits: u32,
}

/// Follows an agent from before the kill until its next line is up.
async fn back(mut state: watch::Receiver<LinkState>, epoch: u64, killed: Instant) -> Back {
    let (mut first, mut last) = (None, 0);
    loop {
        match &*state.borrow_and_update() {
            LinkState::Down { attempt, .. } => {
                first.get_or_insert(*attempt);
                last = *attempt;
            }
            LinkState::Up { line, .. } if line.facts().epoch > epoch => {
                let waits = last.saturating_sub(first.unwrap_or_default()).max(1);
                let after = killed.elapsed();
                return Back { after, waits };
            }
            LinkState::Up { .. } => {}
        }
        state.changed().await.unwrap();
    }
}

/// L15: they all come back, each after its waits, and not at one moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_hub_gets_all_its_lines_back_spread_over_the_time() {
    const LINES: usize = 500;
    let world = World::new(LINES).await;
    let hub = Hub::start(&world, ANY);
    let mut agents = world.agents(&hub, 0..LINES);
    let epochs = agents.up().await;
    let address = hub.address.clone();

    let killed = Instant::now();
    let mut coming = JoinSet::new();
    for (state, epoch) in agents.states.iter().zip(epochs) {
        coming.spawn(back(state.clone(), epoch, killed));
    }
    drop(hub);
    let _hub = Hub::start(&world, &address);
    let there = killed.elapsed();
    let mut came = timeout(PATIENCE, coming.join_all())
        .await
        .expect("all lines come back");

    for Back { after, waits } in &came {
        assert!(*after >= FLOOR * *waits, "{waits} waits in {after:?}");
    }
    came.sort_by_key(|back| back.after);
    let times: Vec<f64> = came.iter().map(|back| back.after.as_secs_f64()).collect();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    let second = |from: f64| {
        times
            .iter()
            .filter(|t| (from..from + 1.0).contains(*t))
            .count()
    };
    let peak = times.iter().map(|from| second(*from)).max().unwrap();
    let mean = f64::from(u32::try_from(LINES).unwrap()) / at(100);
    println!(
        "figure | L15 | kill -9 under {LINES} lines: hub there, 50 %, 99 %, all back, peak to mean of a second | \
         99 % ≤ 5 s, all ≤ 15 s, ≤ 3 | {:.1} s, {:.1} s, {:.1} s, {:.1} s, {:.1}",
        there.as_secs_f64(),
        at(50),
        at(99),
        at(100),
        f64::from(u32::try_from(peak).unwrap()) / mean,
    );
    // Agents that wait equally long come at the same moments.
    assert!(at(90) - at(10) >= 0.3, "{:.2} s to {:.2} s", at(10), at(90));
}

/// L53: what one idle line more costs the hub's process, TLS and all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_line_takes_little_memory_of_the_hub() {
    const FIRST: usize = 100;
    const LINES: usize = 400;
    /// Twice the 20 KiB of a line and the 16 KiB that TLS takes.
    const MOST_KIB: f64 = 72.0;
    let world = World::new(FIRST + LINES).await;
    let hub = Hub::start(&world, ANY);
    // What is made once is there after these.
    let mut first = world.agents(&hub, 0..FIRST);
    first.up().await;
    let before = hub.resident_kib();
    let mut more = world.agents(&hub, FIRST..FIRST + LINES);
    more.up().await;
    let each = || (hub.resident_kib() - before) / f64::from(u32::try_from(LINES).unwrap());
    // What a handshake took is given back a little later.
    let given_back = async {
        while each() > MOST_KIB {
            sleep(LOOK).await;
        }
    };
    drop(timeout(Duration::from_secs(20), given_back).await);
    let each = each();
    println!("figure | L53 | KiB an idle line, hub, TLS with it | ≤ 20 KiB and TLS | {each:.1}");
    assert!(each <= MOST_KIB, "{each:.1} KiB a line");
}
