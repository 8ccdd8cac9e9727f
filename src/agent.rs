//! The agent: wires its parts and owns their tasks.

use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::lifetime::Tasks;
use crate::lifetime::hearts::{Heart, Hearts, STILL};
use crate::manifests::{EngineNamespaces, scope::Extent};
use crate::telemetry::HealMetrics;
use crate::wire::api::{AgentBuild, Assignment, EngineKind, HostKeysReport};
use crate::wire::report::{Condition, HealRecord, StepReport};

use calls::Calls;
use engine::domain::Domain;
use fault::Faults;
use gitline::label::Unmarked;
use health::{Readiness, Told};
use upgrade::{Stance, Upgrade};

pub mod apply;
pub mod caller;
pub mod calls;
mod coverage;
mod desired;
pub mod diagnose;
pub mod engine;
pub mod enroll;
pub mod facts;
pub mod fault;
mod fitting;
pub mod forward;
pub mod gate;
pub mod gitline;
pub mod health;
pub mod identity;
pub mod lease;
pub mod link;
pub mod observe;
mod own;
mod owner;
pub mod plan;
mod replace;
pub mod report;
mod saves;
pub mod snapshot;
mod upgrade;
pub mod watchdog;
mod wiring;

pub use desired::{DeployKey, Desired, Engine, EngineKeys, InForce};

/// How long parts may take to end.
const DRAIN: Duration = Duration::from_secs(20);
/// The calls of one look of a standby, all at the end of their time.
const STANDING: Duration = Duration::from_secs(85);

/// What the command line decides.
#[derive(Clone)]
pub struct Config {
    /// The agent's own namespace.
    pub namespace: String,
    pub engines: EngineNamespaces,
    /// How far the rights reach that the adoption YAML gave.
    pub extent: Extent,
    /// The Pod's name: holder of the Lease, source of Events.
    pub pod: String,
    /// The domain of the cluster's Services.
    pub domain: Domain,
    /// What runs here, as the hub is told.
    pub build: AgentBuild,
    /// The proxy of its environment.
    pub around: link::Around,
    /// Where the API server is, for requests of the line.
    pub server: kube::Config,
    /// What becomes of the calls to it.
    pub calls: Calls,
    pub faults: Faults,
}

/// Runs the agent until `stop`: `/livez`, `/readyz` and `/metrics` at once, all else as soon as this replica leads.
pub async fn run(
    config: Config,
    kube: kube::Client,
    health: TcpListener,
    stop: CancellationToken,
) -> Result<()> {
    let hearts = Hearts::default();
    let (ready, readiness) = watch::channel(Readiness::NotReady("starting".to_owned()));
    let mut tasks = Tasks::watched(stop, &hearts);
    let metrics = HealMetrics::default();
    let told = Told {
        hearts: hearts.clone(),
        readiness,
        metrics: metrics.clone(),
    };
    tasks.spawn("health", |stop| health::serve(health, told, stop));
    let heart = hearts.heart("runtime", STILL);
    tasks.spawn("runtime", |stop| pulse(heart, stop));
    let signs = Signs {
        hearts,
        ready,
        metrics,
    };
    tasks.spawn("agent", |stop| lead(config, kube, signs, stop));
    tasks.run(DRAIN + Duration::from_secs(5)).await
}

/// Beats as long as the runtime turns at all.
async fn pulse(heart: Heart, stop: CancellationToken) -> Result<()> {
    while stop
        .run_until_cancelled(sleep(Duration::from_secs(1)))
        .await
        .is_some()
    {
        heart.beat();
    }
    Ok(())
}

/// What the parts tell the endpoints.
#[derive(Clone)]
struct Signs {
    hearts: Hearts,
    ready: watch::Sender<Readiness>,
    metrics: HealMetrics,
}

/// Waits for the Lease, then runs all parts; the same again where it gave the Lease to another one.
async fn lead(
    config: Config,
    kube: kube::Client,
    signs: Signs,
    stop: CancellationToken,
) -> Result<()> {
    let mut leaving = JoinSet::new();
    let ended = Box::pin(terms(config, kube, signs, stop, &mut leaving)).await;
    // Each has its own bound.
    while leaving.join_next().await.is_some() {}
    ended
}

/// Leads, again and again. What ran when it gave the Lease away comes to its end in `leaving`: it may have to lead again
/// before that.
async fn terms(
    config: Config,
    kube: kube::Client,
    signs: Signs,
    stop: CancellationToken,
    leaving: &mut JoinSet<()>,
) -> Result<()> {
    let Signs { hearts, ready, .. } = &signs;
    let heart = hearts.heart("lease", STILL);
    let (namespace, pod) = (config.namespace.as_str(), config.pod.as_str());
    let built = &config.build.image;
    let upgrade = Upgrade::new(&kube, (namespace, pod), built, (&heart, &stop));
    let Some(upgrade) = upgrade.await else {
        return Ok(());
    };
    while !stop.is_cancelled() {
        let mut candidate =
            lease::Candidate::new(kube.clone(), &config.namespace, config.pod.clone());
        let (term, let_go) = (candidate.term(), candidate.let_go());
        if !stand_by(&mut candidate, &upgrade, &heart, ready, &stop).await {
            return Ok(());
        }
        ready.send_replace(Readiness::NotReady("starting to lead".to_owned()));
        let heir = upgrade.heir();
        let turn = stop.child_token();
        let office = (term, upgrade.clone());
        let mut tasks = Tasks::watched(turn.clone(), hearts);
        let beat = heart.clone();
        let freed = CancellationToken::new();
        let over = freed.clone().drop_guard();
        // Renewed from the start: to begin may take as long as the API server takes.
        tasks.spawn("lease", |stop| async move {
            let _over = over;
            candidate.keep(beat, heir, stop).await
        });
        let begun = tokio::select! {
            start = wiring::start(&config, &kube, office, &turn) => start.ok_or(None),
            lease = tasks.first() => Err(Some(lease)),
        };
        let start = match begun {
            Ok(start) => start,
            Err(over) => {
                let first = match over {
                    Some(lease) => lease,
                    None => tasks.first().await,
                };
                tasks.finish(DRAIN, &first).await;
                return first;
            }
        };
        let removed = wiring::parts(config.clone(), &kube, signs.clone(), start, &mut tasks);
        let first = tasks.first().await;
        let removed = removed.is_cancelled();
        if first.is_ok() && upgrade.stepped_back() && !removed {
            // As long as it names this Pod, it would be taken again.
            let _late = timeout(DRAIN, freed.cancelled()).await;
            upgrade.gave(*let_go.borrow());
            leaving.spawn(async move { tasks.finish(DRAIN, &Ok(())).await });
            continue;
        }
        // Before the others end: adoption YAML that comes later is new.
        let known = enroll::stored::waiting_token(&kube, namespace);
        let known = if removed {
            Some(heart.through(known).await)
        } else {
            None
        };
        tasks.finish(DRAIN, &first).await;
        first?;
        if let Some(known) = known {
            let (places, known) = ((namespace, &config.engines), known?);
            let known = known.as_deref();
            let removal = enroll::removal::remove(&kube, places, config.extent, known, &stop);
            // Nobody keeps the Lease any more, and this takes longer than a probe waits.
            return heart.through(Box::pin(removal)).await;
        }
        return Ok(());
    }
    Ok(())
}

/// Waits until this replica leads; `false` where `stop` came first. The label of the one that leads is taken away: it may
/// be there since this one led, or of the container's former life, or come late.
async fn stand_by(
    candidate: &mut lease::Candidate,
    upgrade: &Upgrade,
    heart: &Heart,
    ready: &watch::Sender<Readiness>,
    stop: &CancellationToken,
) -> bool {
    let mut label = Unmarked::default();
    loop {
        heart.rests(STANDING);
        upgrade.stays_unmarked(&mut label, stop).await;
        let stance = upgrade.stand(candidate).await;
        let mut wait = lease::RETRY;
        let now = match stance {
            Ok(Stance::Out(why)) => Some(Readiness::NotReady(why)),
            Ok(stance @ (Stance::Rival | Stance::OnTrial)) => match candidate.try_lead().await {
                Ok(()) => return true,
                Err(leader) => {
                    let leader = leader.map(|leader| format!("{leader} leads"));
                    if matches!(stance, Stance::OnTrial) {
                        wait = Duration::from_secs(1);
                        leader.map(|who| Readiness::NotReady(format!("on trial; {who}")))
                    } else {
                        leader.map(|who| Readiness::Ready(format!("standby; {who}")))
                    }
                }
            },
            Err(error) => {
                warn!(error = format!("{error:#}"), "not standing by yet");
                None
            }
        };
        if let Some(now) = now {
            ready.send_replace(now);
        }
        heart.rests(wait);
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            return false;
        }
    }
}

/// What the hub told this cluster, and how it is reached. Published on a `watch` channel by [`enroll`].
#[derive(Debug, Clone)]
pub struct Joined {
    pub assignment: Assignment,
    pub proxy: Option<link::ProxyConfig>,
}

/// The watchdog leaves this engine alone, because of the change with this number.
pub type Rest = Option<(u64, EngineKind)>;

/// What the watchdog found of the change with this number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The engine works with it, and what it does not need is gone.
    Works(u64),
    /// It did not work in time, and why.
    Failed(u64, String),
    /// The engine works with what was before, and what the change brought is gone.
    Trimmed(u64),
}

impl Verdict {
    pub fn number(&self) -> u64 {
        match self {
            Self::Works(number) | Self::Failed(number, _) | Self::Trimmed(number) => *number,
        }
    }
}

/// Something to tell the hub. Sent on a bounded channel to [`report`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    Step(StepReport),
    /// Replaces the condition of the same type. `GitReachable` is what the engine says of its fetching.
    Condition(Condition),
    /// The same as the agent's own probe found it; the report tells one answer from both.
    OwnGit(Condition),
    /// The root revision that the engine last applied.
    Revision(String),
    /// Replaces what was told before of the Git host's keys.
    HostKeys(HostKeysReport),
    /// Sent at opening and at closing of a heal, with the same id.
    Heal(Box<HealRecord>),
    /// Sent once, after the start: the ids of the heals that this process goes on with.
    GoesOn(Vec<String>),
}

/// The engine's way to the Git host as the watchdog sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineGit {
    /// Its words, where it says that the host showed another key than is known.
    pub other_key: Option<String>,
    /// Fingerprints of the host's keys that it was given and has; empty while it lacks them.
    pub trusted: Vec<String>,
    /// It says that it does not reach the host, or, for as long as a fault is let pass, that the host
    /// refuses its key.
    pub unreachable: bool,
    /// That its key is refused was told.
    pub revoked: bool,
}

/// Something the watchdog should look at now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The catalog's branch moved to this commit id.
    CatalogHead(String),
}

#[cfg(test)]
mod tests;
