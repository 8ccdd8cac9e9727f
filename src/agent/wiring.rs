//! Which part hears and tells which: the channels between the leader's tasks.

use std::sync::Arc;

use anyhow::Result;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::coverage::Covering;
use super::diagnose::Diagnosing;
use super::enroll::bundle::Keeper;
use super::enroll::gitpath::GitPath;
use super::enroll::join::{Belief, Joining};
use super::enroll::keyring::Keyring;
use super::enroll::prepare::Preparing;
use super::enroll::rotate::Rotating;
use super::enroll::{self, keep};
use super::fault::Faults;
use super::forward::Subjects;
use super::gate::Covered;
use super::identity::SecretData;
use super::lease::Term;
use super::link::LinkState;
use super::own::Keeping;
use super::plan::state::{HostKeys, OwnLook};
use super::report::{Outlets, ReportConfig};
use super::upgrade::Upgrading;
use super::{Config, EngineGit, Joined, News, Signs, facts, gitline, owner, report, watchdog};
use crate::clock;
use crate::lifetime::Tasks;
use crate::lifetime::hearts::{Heart, STILL};
use crate::manifests::{STATE_SECRET, scope::Extent};
use crate::wire::report::Facts;

mod readiness;
mod start;
mod talk;

use start::{NEWS, context};
pub(super) use start::{Start, start};
use talk::Talk;

const HINTS: usize = 16;
/// The hub asks one after the other.
const DIAGNOSES: usize = 2;

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
    // Whatever of a leader writes, stops writing when its term is over.
    let led = start.term.client(kube, None);
    let context = context(&config, &led, &start.cluster, &start.engines, &news);
    let heart = |task| hearts.heart(task, STILL);
    let beating = |heart: &Heart| context.of(kube, &start.term, heart);
    let first = start.state.as_ref().map(|s| s.proven.clone());
    let (joined_out, joined) = watch::channel(None::<Joined>);
    let (link_out, line) = watch::channel(LinkState::Down {
        since: clock::now(),
        cause: "not dialled yet".to_owned(),
        attempt: 0,
        strange: false,
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
    let (look_out, look) = watch::channel(OwnLook::default());
    let (met_out, met) = watch::channel(HostKeys::default());
    let (engine_git_out, engine_git) = watch::channel(EngineGit::default());
    let (changed_out, changed) = watch::channel(None);
    let (rest_out, rest) = watch::channel(None);
    let (stored_out, stored) = watch::channel(Vec::new());
    let (hints_out, hints) = mpsc::channel(HINTS);
    let (diagnose_out, diagnose_ids) = mpsc::channel(DIAGNOSES);
    let (watchdog_asked, questions) = mpsc::channel(DIAGNOSES);
    let removed = CancellationToken::new();
    let (owner_out, owner) = watch::channel(None);
    let policies = context.clone();
    tasks.spawn("owner policy", |stop| {
        owner::keep(policies, owner_out, stop)
    });
    let keyring = start.keyring;
    let caller = Caller::new(keyring.current(), joined.clone(), line.clone());
    let path = GitPath {
        link: line.clone(),
        carried: carried.clone(),
    };

    let (disowned_out, disowned) = watch::channel(None);
    let joins = heart("join");
    let joining = Joining {
        context: beating(&joins),
        keys: keyring.current(),
        caller: caller.of(&joins),
        around: config.around.clone(),
        state: start.state,
        applied: start.join,
        heart: joins,
        joined: joined_out,
        disowned: disowned_out,
        kept: kept_out,
        spoken,
        proven,
        doubts: false,
        belief: Belief::default(),
        other: None,
    };
    tasks.spawn("join", |stop| joining.run(stop));
    let prepares = heart("prepare");
    let preparing = Preparing {
        context: beating(&prepares),
        keys: keyring.current(),
        keeper: Keeper::new(beating(&prepares), caller.of(&prepares), owner.clone()),
        told: changed,
        rest,
        heart: prepares,
        joined: joined.clone(),
        link: line.clone(),
        path: path.clone(),
        domain: config.domain.clone(),
        engine_git,
        denied: denied_out,
        look: look_out,
        met: met_out,
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
    let rotates = heart("rotate");
    let rotating = Rotating {
        context: beating(&rotates),
        keyring,
        caller: caller.of(&rotates),
        path,
        heart: rotates,
        joined: joined.clone(),
        fetched,
        disowned,
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
    let keeps = heart("own objects");
    let keeping = Keeping {
        context: beating(&keeps),
        joined: joined.clone(),
        owner: owner.clone(),
        heart: keeps,
        metrics: metrics.clone(),
        refused: Arc::clone(&refused),
        calls: config.calls.clone(),
        term: start.term.clone(),
    };
    tasks.spawn("own objects", |stop| keeping.run(stop));
    let upgrades = heart("own image");
    let upgrading = Upgrading {
        upgrade: start.upgrade.clone(),
        context: beating(&upgrades),
        joined: joined.clone(),
        owner: owner.clone(),
        line: line.clone(),
        acked: acked.clone(),
        heart: upgrades,
        term: start.term.clone(),
    };
    tasks.spawn("own image", |stop| upgrading.run(stop));
    let reports = heart("report");
    let reporting = ReportConfig {
        context: context.clone(),
        caller: caller.of(&reports),
        facts,
        heart: reports,
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
    let collects = heart("facts");
    let origin = facts::Origin {
        kube: start.term.client(kube, Some(collects.clone())),
        namespace: config.namespace.clone(),
        desired: desired.clone(),
    };
    tasks.spawn("facts", |stop| {
        facts::run(origin, collects, facts_out, stop)
    });

    let covers = heart("scope");
    let covered = cover(&beating(&covers), covers, &start.term, tasks);
    let talk = Talk {
        keys: talk_keys,
        server: config.server,
        context: context.clone(),
        joined: joined.clone(),
        link: link_out,
        line: line.clone(),
        subjects,
        owner: owner.clone(),
        covered: covered.clone(),
        hearts: hearts.clone(),
    };
    tasks.spawn("line", |stop| talk.run(stop));

    let (watchdog_out, watchdog_news) = mpsc::channel(NEWS);
    let faults = config.faults.clone();
    tasks.spawn("watchdog's news", |stop| {
        pass_on(watchdog_news, news, faults, stop)
    });
    let guards = heart("watchdog");
    let watching = watchdog::Context {
        kube: start.term.client(kube, Some(guards.clone())),
        watches: kube.clone(),
        heart: guards,
        namespace: config.namespace.clone(),
        engines: start.engines.clone(),
        extent: config.extent,
        covered,
        pod: config.pod.clone(),
        fetched: fetched_out,
        stored,
        engine_git: engine_git_out,
        look,
        met,
        facts: told_facts,
        owner,
        metrics,
        calls: config.calls.clone(),
        refused,
        term: start.term,
        faults: config.faults.clone(),
        changed: changed_out,
        rest: rest_out,
    };
    let (calls, server) = (config.calls.clone(), kube.clone());
    tasks.spawn("api server's health", |stop| calls.ask(server, stop));
    tasks.spawn("watchdog", |stop| {
        let inlets = watchdog::Inlets { hints, questions };
        watchdog::run(watching, desired, inlets, watchdog_out, stop)
    });
    let on_trial = start.upgrade.on_trial();
    tasks.spawn("readiness", |stop| {
        let way = (line, acked, on_trial);
        readiness::run(ready, joined, way, stop)
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
    heart: Heart,
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
            heart,
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
    let of_keys = context.clone();
    tasks.spawn("keep keys", |stop| keyring.keep(of_keys, stop));
    let known = state.clone();
    let same = move |data: &SecretData| known.borrow().as_ref() == Some(data);
    let of_state = context.clone();
    tasks.spawn("keep state", |stop| {
        keep::secret(of_state, STATE_SECRET, state, same, stop)
    });
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
