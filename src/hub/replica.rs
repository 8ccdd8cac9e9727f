//! This process as one of several of the hub: who it is to the others.

use anyhow::{Context as _, Result};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::PeerConfig;
use crate::hub::store::Replica;
use crate::keys;

/// The name in every replica's certificate. It says nothing: the others know a certificate by its hash.
pub const NAME: &str = "replica.linesman.invalid";

/// This process among the replicas. The certificate is new with each start and never on disk.
pub struct Own {
    pub record: Replica,
    pub cert: CertificateDer<'static>,
    pub key: PrivatePkcs8KeyDer<'static>,
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
            id: uuid::Uuid::now_v7().to_string(),
            peer: config.url.clone(),
            cert_sha256: keys::sha256(&cert),
        };
        Ok(Self {
            record,
            key: PrivatePkcs8KeyDer::from(pair.serialize_der()),
            cert,
        })
    }
}
