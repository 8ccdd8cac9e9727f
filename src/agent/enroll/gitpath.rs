//! The way to the catalog as the agent itself proves it: with a key, from a host that shows a known key.

use std::time::Duration;

use tokio::sync::watch;

use crate::agent::gitline::{self, Carried};
use crate::agent::link::LinkState;
use crate::secret::Secret;
use crate::ssh::{self, GitUrl, Head, Probe, ProbeError};
use crate::wire::api::{CatalogRef, Via};

/// All steps of one proof together.
const PROBE: Duration = Duration::from_secs(10);
/// A walk ends within this time: to the first word of the Git host, and through the proof.
pub const LONGEST: Duration = PROBE.saturating_mul(2);

/// What a proof goes through.
#[derive(Clone)]
pub struct GitPath {
    pub link: watch::Receiver<LinkState>,
    /// Out: how a look over the line went.
    pub carried: watch::Sender<Carried>,
}

impl GitPath {
    /// Reads the branch with `private_key` (OpenSSH form).
    pub async fn walk(
        &self,
        url: &GitUrl,
        catalog: &CatalogRef,
        private_key: &Secret<String>,
    ) -> Result<Head, ProbeError> {
        let probe = Probe {
            url,
            private_key,
            known_hosts: &catalog.known_hosts,
            branch: &catalog.branch,
        };
        match catalog.via {
            Via::Direct => ssh::probe(probe, PROBE).await,
            Via::Line => self.over_line(probe).await,
        }
    }

    /// As the engine's own connections go, but for the Service: a NetworkPolicy keeps all but the engine from it.
    async fn over_line(&self, probe: Probe<'_>) -> Result<Head, ProbeError> {
        let stream = gitline::heard(self.link.clone(), &self.carried, PROBE).await;
        let stream = stream.map_err(|error| ProbeError::Tcp {
            text: format!("over the line: {error}"),
        })?;
        ssh::probe_over(probe, stream, PROBE).await
    }
}
