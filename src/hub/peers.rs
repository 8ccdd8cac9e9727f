//! Lines between replicas of a hub: a request that came in at one of them reaches a cluster whose line is at another.
//!
//! A peer can do what the hub can do, so each end knows the other by its very certificate ([`pin`]). Whom to trust and
//! where to dial is a value that the caller gives ([`Peers::know`]). A line is dialled when somebody needs it and ends
//! when nobody did for long; only the end that dialled opens streams on it. What the other end does with them is in
//! [`owner`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use crate::tunnel::budget::Budget;
use crate::tunnel::{Line, LineError, Stream};
use crate::wire::frame::{Class, Code, Kind};
use crate::wire::id::ClusterName;

mod dial;
pub mod owner;
pub mod pin;

use pin::{Credential, Known};

/// Lines that one replica dials to another: two for each direction are the four of a pair.
const MAX_LINES: usize = 2;
/// A line with so many streams is worth a second one.
const CROWDED: usize = 256;
/// Dials that wait for the task that makes them.
const DIALS: usize = 64;
/// The same where a dial failed at once: mostly the other has yet to learn of this replica.
const SOON: Duration = Duration::from_millis(200);
/// What the owner says on a stream as soon as it is open on the cluster's line.
const OPENED: u8 = 0;

/// A replica as others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub id: String,
    /// `host:port`
    pub address: String,
    /// Of the certificate that it shows and asks with.
    pub cert_sha256: [u8; 32],
}

/// How long what may take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// From the dial to the other's first word.
    pub dial: Duration,
    /// Until the owner has opened a stream.
    pub open: Duration,
    /// A replica that let somebody wait in vain is not asked again before this is over.
    pub again: Duration,
    /// A line without streams ends after this.
    pub idle: Duration,
    /// What runs when the replica stops has this long.
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(3),
            open: Duration::from_secs(5),
            again: Duration::from_secs(2),
            idle: Duration::from_mins(10),
            drain: Duration::from_mins(10),
        }
    }
}

/// Why a stream could not be opened at another replica. Nothing of the request has left this one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("the replica is not there any more")]
    Unknown,
    #[error("{0}")]
    Dial(String),
    #[error("the replica does not answer")]
    Late,
    /// The owner's word, or why the line to it takes no more streams now.
    #[error(transparent)]
    Line(#[from] LineError),
}

/// What a stream says first: whose line it is for, and what to open there with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMeta {
    pub cluster: ClusterName,
    pub epoch: u64,
    /// The inner stream's own, as it goes out: a text, so that it stays what was signed.
    pub meta: String,
}

/// The lines to other replicas; clones mean the same.
#[derive(Clone)]
pub struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    credential: Credential,
    known: Known,
    ways: Mutex<HashMap<String, Way>>,
    dials: mpsc::Sender<dial::Job>,
    /// The other end, for [`owner::run`].
    jobs: Mutex<Option<mpsc::Receiver<dial::Job>>>,
    /// For what all lines of the process hold unread.
    memory: Budget,
    timing: Timing,
}

/// The lines to one replica.
#[derive(Default)]
struct Way {
    lines: Vec<Line>,
    /// Present while one is being made; it closes when that is over.
    dialling: Option<watch::Receiver<()>>,
    /// How it last did not answer, and until when it is not asked again.
    failed: Option<(Instant, PeerError)>,
}

impl Peers {
    /// `memory` is what all lines of the process may hold unread.
    pub fn new(credential: Credential, memory: Budget, timing: Timing) -> Self {
        let (dials, jobs) = mpsc::channel(DIALS);
        let inner = Inner {
            credential,
            known: Known::default(),
            ways: Mutex::default(),
            dials,
            jobs: Mutex::new(Some(jobs)),
            memory,
            timing,
        };
        let inner = Arc::new(inner);
        Self { inner }
    }

    /// Who the other replicas are from now on; nobody else is let in. Those that are missing open no more streams here,
    /// and none are opened there; what runs goes on for as long as it likes: a database that was away for a moment has
    /// left nobody a lease.
    pub fn know(&self, peers: Vec<Peer>) {
        let mut ways = self.inner.lock();
        ways.retain(|id, way| {
            let gone = peers.iter().all(|peer| peer.id != *id);
            if gone {
                for line in &way.lines {
                    let (at_once, endless) = (Duration::ZERO, Duration::MAX);
                    line.goaway(Code::None, at_once, endless, "the replica left");
                }
            }
            !gone
        });
        drop(ways);
        self.inner.known.set(peers);
    }

    /// One more of them, which came since.
    pub fn meet(&self, peer: Peer) {
        self.inner.known.add(peer);
    }

    /// Opens a stream on the line of that epoch at the replica. When this returns, it is open there.
    pub async fn open(
        &self,
        replica: &str,
        (cluster, epoch): (&ClusterName, u64),
        (kind, class): (Kind, Class),
        meta: &[u8],
    ) -> Result<Stream, PeerError> {
        let meta = PeerMeta {
            cluster: cluster.clone(),
            epoch,
            meta: String::from_utf8_lossy(meta).into_owned(),
        };
        let meta = serde_json::to_vec(&meta)
            .map_err(|error| LineError::new(Code::Internal, error.to_string()))?;
        // Its own dial may wait for others'.
        let line = timeout(self.inner.timing.open, self.line(replica)).await;
        let line = line.map_err(|_| PeerError::Late)??;
        let mut stream = match line.open(kind, class, Bytes::from(meta)).await {
            Ok(stream) => stream,
            // It drains, or is over, since it was found here.
            Err(error) if error.code == Code::LineLost || !line.takes_streams() => {
                return Err(lost());
            }
            Err(error) => return Err(error.into()),
        };
        // Before the owner has said so the request is not begun: what it refuses may go another way, be there a body or not.
        let opened = timeout(self.inner.timing.open, stream.read_u8()).await;
        match opened {
            Ok(Ok(OPENED)) => Ok(stream),
            Ok(Ok(_)) => Err(LineError::new(Code::Protocol, "not what an owner says").into()),
            // Of the line of the agent nothing was said.
            Ok(Err(_)) if line.is_over() => Err(lost()),
            Ok(Err(error)) => Err(stream
                .failure()
                .unwrap_or_else(|| LineError::new(Code::Protocol, error.to_string()))
                .into()),
            Err(_) => {
                let until = Instant::now() + self.inner.timing.again;
                self.inner.failed(replica, PeerError::Late, until);
                Err(PeerError::Late)
            }
        }
    }

    /// A line to the replica, which is made where there is none.
    async fn line(&self, replica: &str) -> Result<Line, PeerError> {
        for _ in 0..2 {
            let mut dialling = match self.inner.find(replica)? {
                Found::Line(line) => return Ok(line),
                Found::Dialling(dialling) => dialling,
            };
            // It has a deadline of its own, and closes with its end.
            while dialling.changed().await.is_ok() {}
        }
        match self.inner.find(replica)? {
            Found::Line(line) => Ok(line),
            Found::Dialling(_) => Err(PeerError::Late),
        }
    }
}

/// A line to the replica that is no more: the next one leads there as well.
fn lost() -> PeerError {
    PeerError::Dial("the line to it was lost".to_owned())
}

enum Found {
    Line(Line),
    Dialling(watch::Receiver<()>),
}

impl Inner {
    /// The line with the fewest streams, or the dial that is to bring the first.
    fn find(self: &Arc<Self>, replica: &str) -> Result<Found, PeerError> {
        let peer = self.known.get(replica).ok_or(PeerError::Unknown)?;
        let now = Instant::now();
        let mut ways = self.lock();
        let way = ways.entry(replica.to_owned()).or_default();
        let failed = way.failed.as_ref().filter(|(until, _)| *until > now);
        let failed = failed.map(|(_, error)| error.clone());
        way.lines.retain(Line::takes_streams);
        let load = |line: &&Line| line.facts().live;
        let best = way.lines.iter().min_by_key(load).cloned();
        match (failed, &best) {
            // What failed is the dial of one more, which is a wish.
            (Some(PeerError::Dial(_)), Some(line)) => return Ok(Found::Line(line.clone())),
            (Some(error), _) => return Err(error),
            (None, _) => {}
        }
        let crowded = best.as_ref().is_none_or(|line| load(&line) >= CROWDED);
        if crowded && way.dialling.is_none() && way.lines.len() < MAX_LINES {
            let (done, dialling) = watch::channel(());
            let job = dial::Job {
                peers: self.clone(),
                peer,
                done,
            };
            if self.dials.try_send(job).is_ok() {
                way.dialling = Some(dialling);
            } else if best.is_none() {
                return Err(PeerError::Dial("no line is made to it now".to_owned()));
            }
        }
        match (best, &way.dialling) {
            (Some(line), _) => Ok(Found::Line(line)),
            (None, Some(dialling)) => Ok(Found::Dialling(dialling.clone())),
            // Without a line one is dialled.
            (None, None) => Err(PeerError::Late),
        }
    }

    /// Spares those who come next the wait.
    fn failed(&self, replica: &str, error: PeerError, until: Instant) {
        if let Some(way) = self.lock().get_mut(replica) {
            way.failed = Some((until, error));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Way>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
