//! Tells people elsewhere of the fleet's troubles: [`board`] says what and when, a sender a sink carries it out.
//!
//! Each sink has a bounded queue of its own. What does not fit into it, is refused for good, or is not taken within the
//! deadline is dropped, with a line in the log and a count in the metrics. Texts come from agents and are data; secrets
//! and URLs (which may hold one) are in no log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Hub;
use super::api::clusters;
use crate::backoff::Schedule;
use crate::clock;
use crate::lifetime::Tasks;
use crate::secret::Secret;
use crate::wire::id::ClusterName;
use crate::wire::report::HealRecord;

pub mod board;
pub mod letter;
pub mod test;
pub mod tokens;

use board::{Board, Key, Notice, Seen, Trouble};
use letter::Letter;

/// Notices that wait for one sink.
const QUEUE: usize = 256;
/// One try.
const TIMEOUT: Duration = Duration::from_secs(10);
/// All tries of one notice.
const DEADLINE: Duration = Duration::from_hours(1);
/// Heals that closed since the last look, of all clusters and of one.
const MAX_ENDED: usize = 1_000;
const MAX_ENDED_OF_ONE: usize = 100;
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Whom the hub tells, and how often.
#[derive(Debug, Clone)]
pub struct Config {
    pub sinks: Vec<Sink>,
    /// How often of what lasts; None = once.
    pub remind: Option<time::Duration>,
    /// Between looks at the fleet.
    pub look: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sinks: Vec::new(),
            remind: Some(time::Duration::hours(4)),
            look: Duration::from_secs(10),
        }
    }
}

/// Where notices go.
#[derive(Debug, Clone)]
pub enum Sink {
    /// `POST` of a JSON object; 2xx takes it over.
    Webhook {
        url: Secret<String>,
        /// Signs each call ([`letter::signature`]).
        secret: Option<Secret<String>>,
        /// PEM: these roots only.
        ca: Option<String>,
    },
    /// An incoming webhook of Slack, or of what takes the same.
    Slack { url: Secret<String> },
}

impl Sink {
    /// Its word in metrics, and where people see it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Slack { .. } => "slack",
        }
    }
}

/// Heals that have closed, for the next look.
#[derive(Debug, Default)]
pub struct Ended {
    heals: Mutex<Vec<(ClusterName, HealRecord)>>,
}

impl Ended {
    /// What finds no place is in the heals' history, as all are.
    pub fn add(&self, cluster: &ClusterName, heals: &[HealRecord]) {
        if heals.is_empty() {
            return;
        }
        let mut all = self.heals.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().filter(|(of, _)| of == cluster).count();
        let room = MAX_ENDED.saturating_sub(all.len());
        let room = room.min(MAX_ENDED_OF_ONE.saturating_sub(own));
        let new = heals.iter().take(room);
        all.extend(new.map(|heal| (cluster.clone(), heal.clone())));
        drop(all);
        let untold = heals.len().saturating_sub(room);
        if untold > 0 {
            tracing::warn!(%cluster, untold, "more heals ended since the last look than people are told of; 'heal list' has them");
        }
    }

    fn take(&self) -> Vec<(ClusterName, HealRecord)> {
        std::mem::take(&mut self.heals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was taken and not told comes first at the next look.
    fn put_back(&self, mut heals: Vec<(ClusterName, HealRecord)>) {
        let mut all = self.heals.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_ENDED.saturating_sub(heals.len());
        heals.extend(std::mem::take(&mut *all).into_iter().take(room));
        *all = heals;
    }
}

/// What waits for one sink, by its word.
pub type Queue = (&'static str, mpsc::Sender<Arc<Letter>>);

/// Starts what sends to each sink; gives what is to be filled.
pub fn senders(hub: &Arc<Hub>, tasks: &mut Tasks) -> Vec<Queue> {
    let mut queues = Vec::new();
    for sink in &hub.config.notify.sinks {
        hub.metrics.notices_begin(sink.name());
        let (queue, letters) = mpsc::channel(QUEUE);
        queues.push((sink.name(), queue));
        let (hub, sink) = (hub.clone(), sink.clone());
        tasks.spawn("notices to a sink", |stop| send(hub, sink, letters, stop));
    }
    queues
}

/// Looks at the fleet and has people told, until `stop`.
pub async fn run(hub: Arc<Hub>, queues: Vec<Queue>, stop: CancellationToken) -> Result<()> {
    let mut tasks = Tasks::watched(stop, &hub.hearts);
    let (to, own) = (queues.clone(), hub.clone());
    tasks.spawn("tokens that end", |stop| tokens::watch(own, to, stop));
    tasks.spawn("troubles of the fleet", |stop| watch(hub, queues, stop));
    tasks.run(Duration::from_secs(3)).await
}

async fn watch(hub: Arc<Hub>, queues: Vec<Queue>, stop: CancellationToken) -> Result<()> {
    let mut kept: Option<Board> = None;
    loop {
        let looked = stop.run_until_cancelled(look(&hub, &mut kept)).await;
        match looked {
            None => return Ok(()),
            Some(Ok(notices)) => {
                for notice in notices {
                    post(&hub, &queues, notice);
                }
            }
            Some(Err(_)) if hub.store.is_away() => {}
            Some(Err(error)) => {
                tracing::error!(error = format!("{error:#}"), "look at the fleet's troubles");
            }
        }
        let wait = tokio::time::sleep(hub.config.notify.look);
        if stop.run_until_cancelled(wait).await.is_none() {
            return Ok(());
        }
    }
}

/// What is to be told now. What is known is stored before it is told: a hub that is killed in between leaves the rest to
/// the next reminder, instead of telling everything twice.
async fn look(hub: &Hub, kept: &mut Option<Board>) -> Result<Vec<Notice>> {
    let board = match kept {
        Some(board) => board,
        None => kept.insert(Board::of(read(hub).await?)),
    };
    let fleet = fleet(hub).await?;
    let before = board.clone();
    let now = clock::now();
    let mut notices = board.look(now, hub.config.notify.remind, &fleet);
    let heals = hub.notices.take();
    notices.extend(board.healed(now, &heals));
    if board.surplus > 0 {
        tracing::warn!(
            troubles = board.surplus,
            "more troubles than are kept; these are told by nobody"
        );
    }
    if let Err(error) = write(hub, &before, board).await {
        // The same is found at the next look.
        *kept = Some(before);
        hub.notices.put_back(heals);
        return Err(error);
    }
    Ok(notices)
}

async fn fleet(hub: &Hub) -> Result<Vec<Seen>> {
    let mut open: BTreeMap<ClusterName, Vec<HealRecord>> = BTreeMap::new();
    for (cluster, heal) in hub.store.open_heals().await? {
        open.entry(cluster).or_default().push(heal);
    }
    let mut fleet = Vec::new();
    clusters::pages(hub, |page| {
        fleet.extend(page.into_iter().map(|view| Seen {
            heals: open.remove(&view.name).unwrap_or_default(),
            cluster: view.name,
            phase: view.phase,
            conditions: view.conditions,
        }));
    })
    .await?;
    Ok(fleet)
}

async fn read(hub: &Hub) -> Result<Vec<(Key, Trouble)>> {
    let rows = hub.store.troubles().await?;
    let read = rows.into_iter().filter_map(|(key, text)| {
        // One of another version is found anew.
        Some((key, serde_json::from_str(&text).ok()?))
    });
    Ok(read.collect())
}

async fn write(hub: &Hub, before: &Board, after: &Board) -> Result<()> {
    let (before, after) = (before.troubles(), after.troubles());
    let changed = after.iter().filter(|(key, t)| before.get(*key) != Some(*t));
    let put: Result<Vec<_>, serde_json::Error> = changed
        .map(|(key, trouble)| Ok((key.clone(), serde_json::to_string(trouble)?)))
        .collect();
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone: Vec<Key> = gone.cloned().collect();
    let put = put.context("encode a trouble")?;
    if !(put.is_empty() && gone.is_empty()) {
        hub.store.change_troubles(put, gone).await?;
    }
    Ok(())
}

fn post(hub: &Hub, queues: &[Queue], notice: Notice) {
    tracing::info!(
        class = notice.class,
        state = ?notice.state,
        clusters = notice.clusters_total,
        "notice"
    );
    let letter = Arc::new(Letter {
        id: clock::id(),
        at: clock::rfc3339(clock::now()),
        hub_id: hub.id.clone(),
        hub_url: hub.config.url.clone(),
        notice,
    });
    for (sink, queue) in queues {
        if queue.try_send(letter.clone()).is_err() {
            dropped(hub, sink, &letter, "its queue is full");
        }
    }
}

fn dropped(hub: &Hub, sink: &'static str, letter: &Letter, why: &str) {
    hub.metrics.noticed(sink, "dropped");
    tracing::error!(
        sink,
        id = letter.id,
        class = letter.notice.class,
        clusters = letter.notice.clusters_total,
        why,
        "a notice was dropped"
    );
}

/// How one try ended badly.
enum Failed {
    /// Another may do better.
    Passing(String),
    /// The receiver does not want it.
    ForGood(String),
}

async fn send(
    hub: Arc<Hub>,
    sink: Sink,
    mut letters: mpsc::Receiver<Arc<Letter>>,
    stop: CancellationToken,
) -> Result<()> {
    let name = sink.name();
    while let Some(Some(letter)) = stop.run_until_cancelled(letters.recv()).await {
        match stop
            .run_until_cancelled(deliver(&hub, &sink, &letter))
            .await
        {
            Some(Ok(())) => hub.metrics.noticed(name, "delivered"),
            Some(Err(why)) => dropped(&hub, name, &letter, &why),
            None => dropped(&hub, name, &letter, "the hub stops"),
        }
        if hub.replica.as_ref().is_some_and(|own| !own.leads()) {
            // Another replica tries from now on.
            hub.tried.forget();
        }
    }
    letters.close();
    while let Ok(letter) = letters.try_recv() {
        dropped(&hub, name, &letter, "the hub stops");
    }
    Ok(())
}

/// As often as it takes, within the deadline.
async fn deliver(hub: &Hub, sink: &Sink, letter: &Letter) -> Result<(), String> {
    let ends = Instant::now() + DEADLINE;
    let mut attempt = 0;
    loop {
        let why = match tried(hub, sink, letter).await {
            Ok(()) => return Ok(()),
            Err(Failed::ForGood(why)) => return Err(why),
            Err(Failed::Passing(why)) => why,
        };
        hub.metrics.noticed(sink.name(), "failed");
        let wait = RETRY.full_jitter(attempt, clock::unit());
        if Instant::now() + wait >= ends {
            return Err(format!("nobody took it within an hour: {why}"));
        }
        tracing::warn!(
            sink = sink.name(),
            id = letter.id,
            attempt,
            why,
            "a notice waits"
        );
        attempt += 1;
        tokio::time::sleep(wait).await;
    }
}

/// Once, and how that ended is known from then on.
async fn tried(hub: &Hub, sink: &Sink, letter: &Letter) -> Result<(), Failed> {
    let ended = try_once(sink, letter, clock::now()).await;
    let told = match &ended {
        Ok(()) => Ok(()),
        Err(Failed::Passing(why) | Failed::ForGood(why)) => Err(why.clone()),
    };
    hub.tried.went(sink.name(), clock::now(), told);
    ended
}

async fn try_once(sink: &Sink, letter: &Letter, now: OffsetDateTime) -> Result<(), Failed> {
    let (url, ca, body) = match sink {
        Sink::Webhook { url, ca, .. } => (url, ca.as_deref(), letter::body(letter)),
        Sink::Slack { url } => (url, None, letter::slack(letter)),
    };
    let body = body.to_string();
    let client =
        crate::client::http(ca).map_err(|e| Failed::Passing(format!("set up TLS: {e}")))?;
    let mut request = client
        .post(url.expose())
        .timeout(TIMEOUT)
        .header("content-type", "application/json")
        .header("linesman-notice-id", &letter.id);
    if let Sink::Webhook {
        secret: Some(secret),
        ..
    } = sink
    {
        let signature = letter::signature(secret, now.unix_timestamp(), &body);
        request = request.header("linesman-notice-signature", signature);
    }
    // The URL may be a secret: an error must not show it.
    let answer = request.body(body).send().await;
    let answer = answer.map_err(|e| {
        let error = e.without_url();
        Failed::Passing(format!("send it: {}", super::chain_of(&error)))
    })?;
    let status = answer.status().as_u16();
    match status {
        200..300 => Ok(()),
        408 | 425 | 429 | 500.. => Err(Failed::Passing(format!("the receiver answered {status}"))),
        _ => Err(Failed::ForGood(format!(
            "the receiver refused it with {status}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heals(ids: std::ops::Range<usize>) -> Vec<HealRecord> {
        let heal = |id| {
            serde_json::json!({"id": format!("h{id}"), "class": "ObjectMissing", "object": "", "evidence": "", "steps": [],
                "detectedAt": "", "result": "healed"})
        };
        ids.map(|id| serde_json::from_value(heal(id)).unwrap())
            .collect()
    }

    fn ids(taken: &[(ClusterName, HealRecord)]) -> Vec<&str> {
        taken.iter().map(|(_, heal)| heal.id.as_str()).collect()
    }

    /// One that makes up ends without end keeps nobody else's from being told.
    #[test]
    fn a_cluster_has_a_share_of_the_heals_that_are_told() {
        let [eu1, us1] = ["eu1", "us1"].map(|name| name.parse::<ClusterName>().unwrap());
        let ended = Ended::default();
        for _ in 0..20 {
            ended.add(&eu1, &heals(0..60));
        }
        ended.add(&us1, &heals(0..2));
        let taken = ended.take();
        let of = |name: &ClusterName| taken.iter().filter(|(of, _)| of == name).count();
        assert_eq!((of(&eu1), of(&us1)), (MAX_ENDED_OF_ONE, 2));
    }

    #[test]
    fn heals_that_could_not_be_told_come_first_again_and_no_more_than_fit() {
        let eu1: ClusterName = "eu1".parse().unwrap();
        let ended = Ended::default();
        ended.add(&eu1, &heals(0..2));
        let taken = ended.take();
        ended.add(&eu1, &heals(2..3));
        ended.put_back(taken);
        let taken = ended.take();
        assert_eq!(ids(&taken), ["h0", "h1", "h2"]);
        for cluster in 0..10 {
            let first = 3 + cluster * MAX_ENDED_OF_ONE;
            let cluster = format!("c{cluster}").parse().unwrap();
            ended.add(&cluster, &heals(first..first + MAX_ENDED_OF_ONE));
        }
        ended.put_back(taken);
        let taken = ended.take();
        assert_eq!((taken.len(), ids(&taken)[3]), (MAX_ENDED, "h3"));
        assert_eq!(ended.take(), []);
    }
}
