//! Who is at the other end of a peer line. The SHA-256 of the very certificate is known, and nothing else of it counts:
//! no name, no authority, and no time, for replicas' clocks may differ. That the peer holds its key is what the
//! signature of the TLS handshake shows, which is checked as ever.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use subtle::{Choice, ConstantTimeEq as _};

use super::Peer;
use crate::keys;

/// The protocol behind the handshake; another version gets another name.
pub const ALPN: &[u8] = b"linesman-peer/1";

/// The other replicas; clones mean the same.
#[derive(Debug, Clone, Default)]
pub struct Known(Arc<RwLock<Vec<Peer>>>);

impl Known {
    pub fn set(&self, peers: Vec<Peer>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = peers;
    }

    pub fn add(&self, peer: Peer) {
        let mut peers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if peers.iter().all(|known| known.id != peer.id) {
            peers.push(peer);
        }
    }

    pub fn get(&self, id: &str) -> Option<Peer> {
        let peers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        peers.iter().find(|peer| peer.id == id).cloned()
    }

    /// Whose certificate this is.
    pub fn holder(&self, cert: &CertificateDer<'_>) -> Option<String> {
        let hash = keys::sha256(cert);
        let peers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        // How long it takes tells neither whom it is like nor how far.
        let mut holder = None;
        for peer in peers.iter() {
            if bool::from(peer.cert_sha256.ct_eq(&hash)) {
                holder = Some(peer.id.clone());
            }
        }
        holder
    }
}

/// What this replica shows of itself.
#[derive(Clone)]
pub struct Credential {
    certified: Arc<SingleCertAndKey>,
    provider: Arc<CryptoProvider>,
}

impl Credential {
    pub fn new(cert: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Result<Self, Error> {
        let provider = aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(key)?;
        let certified = CertifiedKey::new(vec![cert], key);
        Ok(Self {
            certified: Arc::new(SingleCertAndKey::from(certified)),
            provider: Arc::new(provider),
        })
    }

    /// For a dial to the one who has this certificate.
    pub fn client(&self, cert_sha256: [u8; 32]) -> Result<ClientConfig, Error> {
        let verifier = self.verifier(Pins::One(cert_sha256));
        let resolver: Arc<dyn ResolvesClientCert> = self.certified.clone();
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(resolver);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(config)
    }

    /// For those who dial this replica and are known at that moment.
    pub fn server(&self, known: &Known) -> Result<ServerConfig, Error> {
        let verifier = self.verifier(Pins::Any(known.clone()));
        let resolver: Arc<dyn ResolvesServerCert> = self.certified.clone();
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A session that is resumed shows no certificate: whoever was known once would be for as long as it likes.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn verifier(&self, pins: Pins) -> Arc<Pinned> {
        let algorithms = self.provider.signature_verification_algorithms;
        Arc::new(Pinned { pins, algorithms })
    }
}

#[derive(Debug)]
enum Pins {
    One([u8; 32]),
    Any(Known),
}

#[derive(Debug)]
struct Pinned {
    pins: Pins,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn check(&self, cert: &CertificateDer<'_>) -> Result<(), Error> {
        let known = match &self.pins {
            Pins::One(pin) => pin.ct_eq(&keys::sha256(cert)),
            Pins::Any(known) => Choice::from(u8::from(known.holder(cert).is_some())),
        };
        if bool::from(known) {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn signed(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }
}

fn only_tls13() -> Error {
    Error::General("a peer line is TLS 1.3".to_owned())
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
