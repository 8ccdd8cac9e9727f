//! Which part hears and tells which: the channels between the leader's tasks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::caller::Caller;
use super::coverage::Covering;
use super::diagnose::Diagnosing;
use super::enroll::bundle::Keeper;
use super::enroll::gitpath::GitPath;
use super::enroll::join::Joining;
use super::enroll::keyring::Keyring;
use super::enroll::prepare::Preparing;
use super::enroll::rotate::Rotating;
use super::enroll::stored::{Join, State};
use super::enroll::{self, Progress, keep, stored};
use super::fault::Faults;
use super::forward::Subjects;
use super::gate::Covered;
use super::health::Readiness;
use super::identity::{Identity, SecretData};
use super::lease::Term;
use super::link::{LinkConfig, LinkState};
use super::own::Keeping;
use super::report::{Outlets, ReportConfig};
use super::upgrade::{Upgrade, Upgrading};
use super::{
    Config, EngineGit, Joined, News, Signs, facts, forward, gitline, link, report, watchdog,
};
use crate::backoff::Schedule;
use crate::clock;
use crate::lifetime::Tasks;
use crate::lifetime::hearts::Hearts;
use crate::manifests::{EngineNamespaces, STATE_SECRET, scope::Extent};
use crate::wire::id::ClusterName;
use crate::wire::report::{Facts, StepName};

/// News that wait for the reporter.
const NEWS: usize = 256;
/// Streams that wait for the forwarder.
const INCOMING: usize = 64;
const HINTS: usize = 16;
/// The hub asks one after the other.
const DIAGNOSES: usize = 2;
/// Ready by HTTPS: so long after the last acknowledged report.
const HEARD: Duration = Duration::from_secs(45);
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_millis(500),
    cap: Duration::from_secs(10),
};

/// What the agent found of its own when it began to lead.
pub(super) struct Start {
    cluster: ClusterName,
    keyring: Keyring,
    join: Option<Join>,
    state: Option<State>,
    engines: EngineNamespaces,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    /// For how long it may act.
    term: Term,
    upgrade: Upgrade,
}

/// Reads what an earlier life stored and makes the keys where there are none, as often as it takes; `None` where `stop`
/// came first.
pub(super) async fn start(
    config: &Config,
    kube: &kube::Client,
    office: (Term, Upgrade),
    stop: &CancellationToken,
) -> Option<Start> {
    let mut attempt = 0;
    loop {
        match begin(config, kube, &office).await {
            Ok(start) => return Some(start),
            Err(error) => warn!(error = format!("{error:#}"), "not started yet"),
        }
        let wait = RETRY.full_jitter(attempt, clock::unit());
        attempt += 1;
        stop.run_until_cancelled(sleep(wait)).await?;
    }
}

async fn begin(
    config: &Config,
    kube: &kube::Client,
    (term, upgrade): &(Term, Upgrade),
) -> Result<Start> {
    let secrets = stored::secrets(kube, &config.namespace);
    let join = stored::read_join(&secrets).await;
    let state = stored::read_state(&secrets).await?;
    let join = match (join, &state) {
        (Ok(join), _) => join,
        // An adopted cluster heals whatever became of the YAML's Secret.
        (Err(error), Some(_)) => {
            warn!(error = format!("{error:#}"), "join secret not read");
            None
        }
        (Err(error), None) => return Err(error),
    };
    let named = join.as_ref().map(|join| &join.cluster);
    let kept = state.as_ref().map(|state| &state.assignment.cluster.name);
    let cluster = named
        .or(kept)
        .context("Secret linesman-join is missing; apply the adoption YAML")?;
    let cluster = cluster.clone();
    // The state of another name is not ours; the token in the YAML decides.
    let state = state.filter(|state| state.assignment.cluster.name == cluster);
    let news = mpsc::channel(NEWS);
    let engines = enroll::places::settled(&config.engines, kube, &config.namespace).await?;
    let context = context(config, kube, &cluster, &engines, &news.0);
    let mut step = Progress::new(&context, StepName::Keys);
    step.running().await;
    let engine = state.as_ref().map(|state| state.assignment.engine.kind);
    let identity = stored::keys(kube, &config.namespace, &engines, &cluster, engine).await?;
    let keyring = Keyring::new(secrets, &cluster, identity)?;
    step.done().await;
    Ok(Start {
        cluster,
        keyring,
        join,
        state,
        engines,
        news,
        term: term.clone(),
        upgrade: upgrade.clone(),
    })
}

fn context(
    config: &Config,
    kube: &kube::Client,
    cluster: &ClusterName,
    engines: &EngineNamespaces,
    news: &mpsc::Sender<News>,
) -> enroll::Context {
    enroll::Context {
        kube: kube.clone(),
        namespace: config.namespace.clone(),
        engines: engines.clone(),
        extent: config.extent,
        pod: config.pod.clone(),
        cluster: cluster.clone(),
        build: config.build.clone(),
        faults: config.faults.clone(),
        news: news.clone(),
    }
}

/// Starts every part of a leader. The token is cancelled when the hub let the cluster go.
#[expect(
    clippy::too_many_lines,
    reason = "one list of channels and of the tasks at their ends"
)]
pub(super) fn parts(
    config: Config,
    kube: &kube::Client,
    signs: Signs,
    start: Start,
    tasks: &mut Tasks,
) -> CancellationToken {
    let Signs {
        hearts,
        ready,
        metrics,
    } = signs;
    let (news, told) = start.news;
    let context = context(&config, kube, &start.cluster, &start.engines, &news);
    let first = start.state.as_ref().map(|s| s.proven.clone());
    let (joined_out, joined) = watch::channel(None::<Joined>);
    let (link_out, line) = watch::channel(LinkState::Down {
        since: clock::now(),
        cause: "not dialled yet".to_owned(),
        attempt: 0,
    });
    let (kept_out, kept) = watch::channel(None);
    let (proven_out, proven) = watch::channel(first.unwrap_or_default());
    let (desired_out, desired) = watch::channel(None);
    let (spoken_out, spoken) = watch::channel(0);
    let (acked_out, acked) = watch::channel(None);
    let (facts_out, facts) = watch::channel(Facts::new());
    let told_facts = facts.clone();
    let (subjects_out, subjects) = watch::channel(Subjects::default());
    let (carried, _) = watch::channel(gitline::Carried::default());
    let (denied_out, denied) = watch::channel(0);
    let (fetched_out, fetched) = watch::channel(String::new());
    let (read_out, read) = watch::channel(None);
    let (engine_git_out, engine_git) = watch::channel(EngineGit::default());
    let (changed_out, changed) = watch::channel(None);
    let (rest_out, rest) = watch::channel(None);
    let (stored_out, stored) = watch::channel(Vec::new());
    let (hints_out, hints) = mpsc::channel(HINTS);
    let (diagnose_out, diagnose_ids) = mpsc::channel(DIAGNOSES);
    let (watchdog_asked, questions) = mpsc::channel(DIAGNOSES);
    let removed = CancellationToken::new();
    let keyring = start.keyring;
    let caller = Caller::new(keyring.current(), joined.clone(), line.clone());
    let path = GitPath {
        link: line.clone(),
        carried: carried.clone(),
    };

    let joining = Joining {
        context: context.clone(),
        keys: keyring.current(),
        caller: caller.clone(),
        state: start.state,
        applied: start.join,
        heart: hearts.heart("join", Duration::from_mins(3)),
        joined: joined_out,
        kept: kept_out,
        spoken,
        proven,
        doubts: false,
    };
    tasks.spawn("join", |stop| joining.run(stop));
    let preparing = Preparing {
        context: context.clone(),
        keys: keyring.current(),
        keeper: Keeper::new(context.clone(), caller.clone()),
        told: changed,
        rest,
        heart: hearts.heart("prepare", Duration::from_mins(3)),
        joined: joined.clone(),
        link: line.clone(),
        path: path.clone(),
        engine_git,
        denied: denied_out,
        read: read_out,
        desired: desired_out,
        proven: proven_out,
    };
    tasks.spawn("prepare", |stop| preparing.run(stop));
    let relay = gitline::Relay {
        context: context.clone(),
        joined: joined.clone(),
        desired: desired.clone(),
        link: line.clone(),
        carried,
    };
    tasks.spawn("git over the line", |stop| relay.run(stop));
    keepers(&context, &keyring, kept, tasks);
    let talk_keys = keyring.current();
    let diagnosed = path.clone();
    let rotating = Rotating {
        context: context.clone(),
        keyring,
        caller: caller.clone(),
        path,
        heart: hearts.heart("rotate", Duration::from_mins(3)),
        joined: joined.clone(),
        fetched,
        denied,
    };
    tasks.spawn("rotate keys", |stop| rotating.run(stop));

    let diagnosing = Diagnosing {
        kube: kube.clone(),
        cluster: start.cluster.clone(),
        caller: caller.clone(),
        path: diagnosed,
        desired: desired.clone(),
        watchdog: watchdog_asked,
        asked: diagnose_ids,
    };
    tasks.spawn("diagnose", |stop| diagnosing.run(stop));
    let refused = Arc::new(Notify::new());
    let keeping = Keeping {
        context: context.clone(),
        joined: joined.clone(),
        heart: hearts.heart("own objects", Duration::from_mins(4)),
        metrics: metrics.clone(),
        refused: Arc::clone(&refused),
        term: start.term.clone(),
    };
    tasks.spawn("own objects", |stop| keeping.run(stop));
    let upgrading = Upgrading {
        upgrade: start.upgrade.clone(),
        context: context.clone(),
        joined: joined.clone(),
        line: line.clone(),
        acked: acked.clone(),
        heart: hearts.heart("own image", Duration::from_mins(3)),
        term: start.term.clone(),
    };
    tasks.spawn("own image", |stop| upgrading.run(stop));
    let reporting = ReportConfig {
        kube: kube.clone(),
        namespace: config.namespace.clone(),
        cluster: start.cluster.clone(),
        build: config.build.clone(),
        caller,
        facts,
        heart: hearts.heart("report", Duration::from_mins(2)),
        hearts: hearts.clone(),
    };
    let outlets = Outlets {
        hints: hints_out,
        subjects: subjects_out,
        assignment: spoken_out,
        diagnose: diagnose_out,
        stored: stored_out,
        acked: acked_out,
        removed: removed.clone(),
    };
    let reported = line.clone();
    tasks.spawn("report", |stop| {
        report::run(reporting, told, reported, outlets, stop)
    });
    let heart = hearts.heart("facts", Duration::from_mins(5));
    let origin = facts::Origin {
        kube: kube.clone(),
        namespace: config.namespace.clone(),
        desired: desired.clone(),
    };
    tasks.spawn("facts", |stop| facts::run(origin, heart, facts_out, stop));

    let covered = cover(&context, &hearts, &start.term, tasks);
    let talk = Talk {
        keys: talk_keys,
        server: config.server,
        context: context.clone(),
        joined: joined.clone(),
        link: link_out,
        line: line.clone(),
        subjects,
        covered: covered.clone(),
        hearts: hearts.clone(),
    };
    tasks.spawn("line", |stop| talk.run(stop));

    let (watchdog_out, watchdog_news) = mpsc::channel(NEWS);
    let faults = config.faults.clone();
    tasks.spawn("watchdog's news", |stop| {
        pass_on(watchdog_news, news, faults, stop)
    });
    let watching = watchdog::Context {
        kube: kube.clone(),
        namespace: config.namespace.clone(),
        engines: start.engines.clone(),
        extent: config.extent,
        covered,
        pod: config.pod.clone(),
        fetched: fetched_out,
        stored,
        engine_git: engine_git_out,
        read,
        facts: told_facts,
        metrics,
        refused,
        term: start.term,
        faults: config.faults.clone(),
        changed: changed_out,
        rest: rest_out,
    };
    tasks.spawn("watchdog", |stop| {
        let inlets = watchdog::Inlets { hints, questions };
        watchdog::run(watching, desired, inlets, watchdog_out, stop)
    });
    let on_trial = start.upgrade.on_trial();
    tasks.spawn("readiness", |stop| {
        let way = (line, acked, on_trial);
        readiness(ready, joined, way, stop)
    });
    let goes = removed.clone();
    // Its end stops all others, keepers of Secrets included.
    tasks.spawn("removal", |stop| async move {
        stop.run_until_cancelled(goes.cancelled()).await;
        Ok(())
    });
    removed
}

/// Where requests of the line may lie; keeps the bindings there, where the adoption is not of the whole cluster.
fn cover(
    context: &enroll::Context,
    hearts: &Hearts,
    term: &Term,
    tasks: &mut Tasks,
) -> watch::Receiver<Covered> {
    let first = match context.extent {
        Extent::Cluster => Covered::Cluster,
        Extent::Namespaces => Covered::Unread,
    };
    let (covered_out, covered) = watch::channel(first);
    if context.extent == Extent::Namespaces {
        let covering = Covering {
            context: context.clone(),
            heart: hearts.heart("scope", Duration::from_mins(2)),
            term: term.clone(),
            covered: covered_out,
        };
        tasks.spawn("scope", |stop| covering.run(stop));
    }
    covered
}

/// Keeps the Secrets that the agent cannot live without.
fn keepers(
    context: &enroll::Context,
    keyring: &Keyring,
    state: watch::Receiver<Option<SecretData>>,
    tasks: &mut Tasks,
) {
    let secrets = stored::secrets(&context.kube, &context.namespace);
    tasks.spawn("keep keys", |stop| keyring.keep(stop));
    let known = state.clone();
    let same = move |data: &SecretData| known.borrow().as_ref() == Some(data);
    tasks.spawn("keep state", |stop| {
        keep::secret(secrets, STATE_SECRET, state, same, stop)
    });
}

/// The line and what it carries, as soon as the cluster has joined.
struct Talk {
    keys: watch::Receiver<Identity>,
    server: kube::Config,
    context: enroll::Context,
    joined: watch::Receiver<Option<Joined>>,
    link: watch::Sender<LinkState>,
    line: watch::Receiver<LinkState>,
    subjects: watch::Receiver<Subjects>,
    covered: watch::Receiver<Covered>,
    hearts: Hearts,
}

impl Talk {
    async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let waiting = self.joined.wait_for(Option::is_some);
        let Some(first) = stop.run_until_cancelled(waiting).await else {
            return Ok(());
        };
        let first = first.context("the task that joins has ended")?.clone();
        let first = first.context("joined without an assignment")?;
        let (hub_out, hub) = watch::channel(first.assignment.hub.clone());
        let (incoming_out, incoming) = mpsc::channel(INCOMING);
        let dial = LinkConfig {
            hub,
            cluster: self.context.cluster.clone(),
            keys: self.keys.clone(),
            build: self.context.build.clone(),
            instance: uuid::Builder::from_random_bytes(clock::random())
                .into_uuid()
                .to_string(),
            proxy: first.proxy.clone(),
        };
        let forwarding = forward::Context {
            kube: self.context.kube.clone(),
            server: self.server,
            namespace: self.context.namespace.clone(),
            hub_id: first.assignment.hub.id.clone(),
            cluster_id: first.assignment.cluster.id.clone(),
            news: self.context.news.clone(),
            covered: self.covered,
            hearts: self.hearts.clone(),
        };
        let mut tasks = Tasks::watched(stop, &self.hearts);
        let (state_out, state, subjects) = (self.link, self.line, self.subjects);
        tasks.spawn("link", |stop| {
            link::run(dial, state_out, incoming_out, stop)
        });
        tasks.spawn("forward", |stop| {
            forward::run(forwarding, incoming, state, subjects, stop)
        });
        tasks.spawn("hub's record", |stop| {
            follow(self.joined, first, hub_out, stop)
        });
        tasks.run(super::DRAIN).await
    }
}

/// Hands changes of the hub's record to the link. Another hub or another cluster id is another life.
async fn follow(
    mut joined: watch::Receiver<Option<Joined>>,
    first: Joined,
    hub: watch::Sender<crate::wire::api::HubRef>,
    stop: CancellationToken,
) -> Result<()> {
    let of = |joined: &Joined| {
        let assignment = &joined.assignment;
        (assignment.hub.id.clone(), assignment.cluster.id.clone())
    };
    while let Some(changed) = stop.run_until_cancelled(joined.changed()).await {
        changed.context("the task that joins has ended")?;
        let Some(now) = joined.borrow_and_update().clone() else {
            continue;
        };
        anyhow::ensure!(of(&now) == of(&first), "adopted anew: starting again");
        hub.send_if_modified(|hub| {
            let changed = *hub != now.assignment.hub;
            hub.clone_from(&now.assignment.hub);
            changed
        });
    }
    Ok(())
}

/// The watchdog's steps are fault points, too.
async fn pass_on(
    mut heard: mpsc::Receiver<News>,
    news: mpsc::Sender<News>,
    faults: Faults,
    stop: CancellationToken,
) -> Result<()> {
    while let Some(Some(item)) = stop.run_until_cancelled(heard.recv()).await {
        if let News::Step(step) = &item {
            faults.report(step);
        }
        if news.send(item).await.is_err() {
            break;
        }
    }
    stop.cancelled().await;
    Ok(())
}

/// Says what is true of the way to the hub.
async fn readiness(
    ready: watch::Sender<Readiness>,
    joined: watch::Receiver<Option<Joined>>,
    (line, acked, on_trial): (
        watch::Receiver<LinkState>,
        watch::Receiver<Option<Instant>>,
        watch::Receiver<bool>,
    ),
    stop: CancellationToken,
) -> Result<()> {
    loop {
        let now = if *on_trial.borrow() {
            // Ready, the Deployment would end the one that can still go back.
            Readiness::NotReady("on trial until the hub has acknowledged a report".to_owned())
        } else {
            judge(
                joined.borrow().is_some(),
                &line.borrow(),
                acked.borrow().map(|at| at.elapsed()),
            )
        };
        ready.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
        let pause = sleep(Duration::from_millis(500));
        if stop.run_until_cancelled(pause).await.is_none() {
            return Ok(());
        }
    }
}

fn judge(joined: bool, line: &LinkState, acked: Option<Duration>) -> Readiness {
    match (joined, line) {
        (false, _) => Readiness::NotReady("not joined yet".to_owned()),
        (true, LinkState::Up { .. }) => Readiness::Ready("line up".to_owned()),
        (true, LinkState::Down { cause, .. }) => match acked {
            Some(ago) if ago <= HEARD => {
                Readiness::Ready(format!("reporting over HTTPS; line down: {cause}"))
            }
            _ => Readiness::NotReady(format!("the hub is not reached: {cause}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_follows_the_way_to_the_hub() {
        let down = LinkState::Down {
            since: clock::now(),
            cause: "connection refused".into(),
            attempt: 3,
        };
        let text = "the hub is not reached: connection refused".to_owned();
        assert_eq!(judge(true, &down, None), Readiness::NotReady(text.clone()));
        let late = Some(Duration::from_mins(2));
        assert_eq!(judge(true, &down, late), Readiness::NotReady(text));
        let lately = Some(Duration::from_secs(5));
        assert!(matches!(judge(true, &down, lately), Readiness::Ready(_)));
        assert_eq!(
            judge(false, &down, lately),
            Readiness::NotReady("not joined yet".into())
        );
    }
}
