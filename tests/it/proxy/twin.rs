//! L41: a key that is used for another cluster, and one that two processes use.

use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock;
use linesman::hub::twin;
use linesman::tunnel::{Incoming, Line, LineFacts};
use linesman::wire::api::HubRef;
use linesman::wire::frame::{Code, Goaway};
use linesman::wire::report::{HealRecord, HealResult};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use super::figures::scraped;
use super::world::{PATIENCE, World, get, link_config, name, not_dialled, post};
use crate::wait::until_some;

/// The one's line stays, the other gets none, and the attempt is on record under the name that was claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_one_cluster_opens_no_line_of_another() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    world.another("eu2").await;
    let other = "eu2".parse().unwrap();
    let (_held, reference) = watch::channel(world.hub.reference());
    let config = LinkConfig {
        cluster: other,
        ..link_config(reference)
    };
    let (line, mut state) = watch::channel(not_dialled());
    let (incoming, _streams) = mpsc::channel(1);
    let mut agent = JoinSet::new();
    agent.spawn(link::run(config, line, incoming, CancellationToken::new()));
    let down = state.wait_for(|state| matches!(state, LinkState::Down { attempt: 1.., .. }));
    let down = timeout(PATIENCE, down).await.expect("it is refused");
    let LinkState::Down { cause, .. } = down.unwrap().clone() else {
        unreachable!("asked for down");
    };
    let refused = "the hub refused the line: unknown cluster";
    assert!(cause.starts_with(refused), "{cause}");
    assert!(world.hub.tunnels.get(&"eu2".parse().unwrap()).is_none());
    let epoch = world.hub.tunnels.get(&name()).unwrap().facts().epoch;
    assert_eq!(epoch, 1, "the line of the one whose key it is");
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    let rows = world.audit().await;
    let row = rows.iter().find(|row| row.action == "line.open").unwrap();
    let told = (
        row.actor.as_str(),
        row.cluster.as_deref(),
        row.verdict.as_str(),
    );
    assert_eq!(told, ("agent:eu2", Some("eu2"), "deny"));
    assert!(row.remote.starts_with("127.0.0.1:"), "{row:?}");
    let reason = row.reason.as_deref().unwrap();
    let not = "is not registered for the cluster";
    assert!(
        reason.starts_with("unknown cluster: the key SHA256:") && reason.contains(not),
        "{reason}"
    );
}

/// The newest has all that comes from then on, what ran by the other ends soon, and the change is on record with both
/// addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_with_one_key_the_newer_is_served_and_the_other_fenced() {
    let [first, second] = [ApiServer::start().await, ApiServer::start().await];
    let mut world = World::with_line(&first).await;
    let old = world.hub.tunnels.get(&name()).unwrap();
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    let watch = world.send(get("/api/v1/pods?watch=1")).await;
    assert_eq!(watch.status(), 200);
    let asked = first.seen().len();
    world.agent(&second).await;
    let new = async {
        while world
            .hub
            .tunnels
            .get(&name())
            .map(|line| line.facts().epoch)
            != Some(2)
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, new).await.expect("the newer line counts");
    for n in 1..10 {
        let written = world.send(post("/api/v1/namespaces/a/echo", "x")).await;
        assert_eq!(written.status(), 201);
        assert_eq!((first.seen().len(), second.seen().len()), (asked, n));
    }
    // It takes nothing more, and what it has ends.
    assert!(!old.takes_streams());
    timeout(PATIENCE, old.closed())
        .await
        .expect("the old line ends");
    first.no_watches().await;
    let facts = old.facts();
    let rows = world.audit().await;
    let taken: Vec<_> = rows
        .iter()
        .filter(|row| row.action == "line.takeover")
        .collect();
    let [row] = taken.as_slice() else {
        panic!("{taken:?}")
    };
    let held = format!("instance {} at {} held it", facts.instance, facts.remote);
    assert_eq!(row.reason, Some(held));
    let now = world.hub.tunnels.get(&name()).unwrap().facts();
    let told = (
        row.actor.as_str(),
        row.cluster.as_deref(),
        row.remote.as_str(),
    );
    assert_eq!(told, ("agent:eu1", Some("eu1"), now.remote.as_str()));
    assert_ne!(row.remote, facts.remote);
    let counted = scraped(&world)
        .await
        .remove("linesman_hub_line_takeovers_total");
    assert_eq!(counted, Some(1.0));
    // It does not take the line back.
    assert_eq!(now.epoch, 2);
}

/// A process with the cluster's key.
struct Process {
    hub: watch::Sender<HubRef>,
    state: watch::Receiver<LinkState>,
    _streams: mpsc::Receiver<Incoming>,
    _running: JoinSet<()>,
}

impl Process {
    /// It dials at once.
    fn start(world: &World) -> Self {
        let (hub, reference) = watch::channel(world.hub.reference());
        let (line, state) = watch::channel(not_dialled());
        let (incoming, streams) = mpsc::channel(1);
        let mut running = JoinSet::new();
        running.spawn(async move {
            let config = link_config(reference);
            let stop = CancellationToken::new();
            link::run(config, line, incoming, stop).await.unwrap();
        });
        Self {
            hub,
            state,
            _streams: streams,
            _running: running,
        }
    }

    /// It dials at once, as if its wait were over: it hears that the hub has one more URL.
    fn dial(&self) {
        self.hub.send_modify(|hub| {
            let again = hub.urls[0].clone();
            hub.urls.push(again);
        });
    }

    /// Its line with this epoch.
    async fn line(&mut self, epoch: u64) -> Line {
        let is = |state: &LinkState| match state {
            LinkState::Up { line, .. } => line.facts().epoch == epoch,
            LinkState::Down { .. } => false,
        };
        let up = timeout(PATIENCE, self.state.wait_for(is)).await;
        match up.expect("the line comes up").unwrap().clone() {
            LinkState::Up { line, .. } => line,
            LinkState::Down { .. } => unreachable!("asked for up"),
        }
    }

    /// Loses its line to the one with this epoch, and says so; gives what it was told, by the hub's word.
    async fn loses(&mut self, line: &Line, to: u64) -> Goaway {
        let told = timeout(PATIENCE, line.draining()).await.expect("told");
        let text = format!("line {to} took over");
        assert_eq!((told.code, told.text.as_str()), (Code::Superseded, &*text));
        let down = |state: &LinkState| matches!(state, LinkState::Down { .. });
        let down = timeout(PATIENCE, self.state.wait_for(down)).await;
        let LinkState::Down { cause, .. } = down.expect("it is down").unwrap().clone() else {
            unreachable!("asked for down");
        };
        assert!(cause.ends_with(&text), "{cause}");
        told
    }
}

/// The hub's facts of the cluster's line with this epoch.
async fn facts(world: &World, epoch: u64) -> LineFacts {
    until_some("the hub has the line", PATIENCE, async || {
        let facts = world.hub.tunnels.get(&name()).map(|line| line.facts());
        match facts {
            Some(facts) if facts.epoch == epoch => Ok(facts),
            other => Err(other),
        }
    })
    .await
}

async fn heals(world: &World) -> Vec<HealRecord> {
    let heals = world.hub.store.heals(None, None, 9).await.unwrap();
    heals.into_iter().map(|(_, heal)| heal).collect()
}

/// The one fault, when its evidence says so.
async fn told(world: &World, evidence: &str) -> HealRecord {
    until_some(evidence, PATIENCE, async || {
        let all = heals(world).await;
        match all.as_slice() {
            [one] if one.evidence.ends_with(evidence) => Ok(one.clone()),
            _ => Err(all),
        }
    })
    .await
}

fn words(to: &LineFacts, from: &LineFacts) -> String {
    format!(
        "instance {} at {} took the line from instance {} at {}, which still answered",
        to.instance, to.remote, from.instance, from.remote
    )
}

/// L41, F57: the third takeover makes a fault of it, which names both; the loser waits; ten minutes of peace end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_that_take_the_line_from_each_other_are_a_fault_until_they_stop() {
    let world = World::new().await;
    let mut holder = Process::start(&world);
    let mut line = holder.line(1).await;
    let (mut before, mut waits) = (facts(&world, 1).await, Vec::new());
    let mut other = Process::start(&world);
    for epoch in 2..6 {
        let next = other.line(epoch).await;
        let now = facts(&world, epoch).await;
        waits.push(holder.loses(&line, epoch).await.retry_after_ms);
        if epoch > 3 {
            told(&world, &words(&now, &before)).await;
        } else {
            assert_eq!(heals(&world).await, []);
        }
        (line, before) = (next, now);
        std::mem::swap(&mut holder, &mut other);
        other.dial();
    }
    assert_eq!((waits[0], waits[3]), (0, 30_000));
    let fault = told(&world, &words(&facts(&world, 6).await, &before)).await;
    let told = (fault.class.as_str(), fault.number, fault.object.as_str());
    assert_eq!(told, ("DuplicateAgent", 57, "Cluster eu1"));
    assert_eq!(fault.result, HealResult::Reported);
    assert!(fault.next.contains("linesman cluster revoke"), "{fault:?}");

    // An agent's list of its own heals does not end it; the clock does.
    let now = clock::now();
    let minutes = time::Duration::minutes;
    twin::look(&world.hub, now + minutes(9)).await.unwrap();
    assert_eq!(heals(&world).await, std::slice::from_ref(&fault));
    let later = now + minutes(10);
    twin::look(&world.hub, later).await.unwrap();
    let over = HealRecord {
        restored_at: Some(clock::rfc3339(later)),
        next: String::new(),
        ..fault
    };
    assert_eq!(heals(&world).await, [over]);
}

/// L41, L16: an agent that is rolled out says goodbye first, however often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_follow_each_other_are_no_duplicate() {
    let mut world = World::new().await;
    for _ in 0..5 {
        let (stop, _streams, _state) = world.dial().await;
        stop.cancel();
        world.has_line(false).await;
    }
    let rows = world.audit().await;
    assert!(rows.iter().all(|row| row.action != "line.takeover"));
    assert_eq!(heals(&world).await, []);
}

/// L41, L19: each replica judges the lines that were taken from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_take_the_line_from_each_other_at_two_replicas_are_a_fault() {
    let worlds = World::replicas::<2>().await;
    let [a, b] = &worlds;
    let at = |epoch: u64| if epoch % 2 == 1 { a } else { b };
    let reached = |epoch: u64| a.to.send_replace(at(epoch).https);
    let mut holder = Process::start(a);
    let mut line = holder.line(1).await;
    let mut before = facts(a, 1).await;
    reached(2);
    let mut other = Process::start(a);
    for epoch in 2..7 {
        let next = other.line(epoch).await;
        let now = facts(at(epoch), epoch).await;
        timeout(PATIENCE, line.closed())
            .await
            .expect("it loses its line");
        if epoch == 6 {
            let fault = told(a, &words(&now, &before)).await;
            assert_eq!(fault.class, "DuplicateAgent");
            return;
        }
        (line, before) = (next, now);
        std::mem::swap(&mut holder, &mut other);
        reached(epoch + 1);
        other.dial();
    }
}
