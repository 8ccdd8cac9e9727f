//! Tells people elsewhere of the fleet's troubles: [`board`] says what and when, a sender a sink carries it out.
//!
//! Each sink has a bounded queue of its own. What does not fit into it, is refused for good, or is not taken within the
//! deadline is dropped, with a line in the log and a count in the metrics. Texts come from agents and are data; secrets
//! and URLs (which may hold one) are in no log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio_util::sync::CancellationToken;

use super::Hub;
use super::api::clusters;
use crate::clock;
use crate::lifetime::Tasks;
use crate::secret::Secret;
use crate::wire::id::ClusterName;
use crate::wire::report::HealRecord;

pub mod board;
pub mod deliver;
mod ended;
pub mod letter;
pub mod test;
pub mod tokens;

use board::{Board, Key, Notice, Seen, Trouble};
use deliver::post;
pub use deliver::{Queue, senders};
pub use ended::Ended;

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
