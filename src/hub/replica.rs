//! This process as one of several of the hub: who it is to the others, what it tells them, and what it hears of them.
//!
//! The records are the truth. A replica learns what the others changed from counters that the database keeps in the very
//! transactions of the changes; it looks at them every second, and bells only make it look earlier. So a bell that is lost
//! costs a second, and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::sync::{Notify, mpsc};

use super::PeerConfig;
use crate::clock;
use crate::hub::store::{Bell, Replica};
use crate::keys;

pub mod agree;
pub mod follow;
pub mod leader;
pub mod lease;
pub mod lines;

/// How long a replica counts as live after it said so.
pub const TTL: Duration = Duration::from_secs(15);
/// The name in every replica's certificate. It says nothing: the others know a certificate by its hash.
pub const NAME: &str = "replica.linesman.invalid";
/// Bells that wait to be rung.
const BELLS: usize = 4096;

/// This process among the replicas. The certificate is new with each start and never on disk.
pub struct Own {
    pub record: Replica,
    pub cert: CertificateDer<'static>,
    pub key: PrivatePkcs8KeyDer<'static>,
    leads: AtomicBool,
    /// Somebody changed something.
    look: Notify,
    /// The lines that are held here, or what the others know of them, may be others now.
    count: Notify,
    bells: mpsc::Sender<Bell>,
    rung: std::sync::Mutex<Option<mpsc::Receiver<Bell>>>,
}

impl Own {
    pub fn new(config: &PeerConfig) -> Result<Self> {
        let pair = KeyPair::generate().context("make the replica's key")?;
        let params = CertificateParams::new(vec![NAME.to_owned()]);
        let cert = params
            .and_then(|params| params.self_signed(&pair))
            .context("sign the replica's certificate")?;
        let cert = cert.der().clone();
        let record = Replica {
            id: clock::id(),
            peer: config.url.clone(),
            cert_sha256: keys::sha256(&cert),
        };
        let (bells, rung) = mpsc::channel(BELLS);
        Ok(Self {
            record,
            key: PrivatePkcs8KeyDer::from(pair.serialize_der()),
            cert,
            leads: AtomicBool::new(false),
            look: Notify::new(),
            count: Notify::new(),
            bells,
            rung: std::sync::Mutex::new(Some(rung)),
        })
    }

    /// Whether it does what only one replica does.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// Wakes the other replicas soon. What finds no room is found by their own looks.
    pub fn ring(&self, bell: Bell) {
        drop(self.bells.try_send(bell));
    }
}
