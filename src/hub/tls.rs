//! The hub's own CA and leaf, or a given certificate.
//!
//! The CA is made once and kept; the leaf lives 90 days and is made again at 60, so that an open listener
//! never serves an expired one. Given files are read again whenever they change. Another CA ([`succeed`]) is told beside the
//! present one first, then serves, and then is told alone; where that stands is in the files, so that all replicas agree.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use anyhow::{Context as _, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

use super::serve::CannotStart;
use super::{trust, whole};
use crate::clock;

mod doubt;
mod lost;
mod succession;

pub use succession::succeed;
use succession::take_up;

/// By its name a CA of a hub's own is told from others.
const CA_NAME: &str = "linesman hub CA";
const CA_LIFE: Duration = Duration::days(3650);
const LEAF_LIFE: Duration = Duration::days(90);
/// A leaf with less than this to live is made again.
const LEAF_MARGIN: Duration = Duration::days(30);
/// Certificates start this much in the past, for clusters whose clock is behind.
const BACKDATE: Duration = Duration::hours(24);

/// Where the hub's certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsSource {
    /// A CA of its own in the data directory, and a leaf for these DNS names and addresses.
    Own { names: Vec<String> },
    /// PEM files; `ca` is what agents and users shall trust, absent = the system's roots.
    Files {
        cert: PathBuf,
        key: PathBuf,
        ca: Option<PathBuf>,
    },
}

/// What the listener serves and what others have to trust.
#[derive(Clone)]
pub struct Tls {
    source: TlsSource,
    data: PathBuf,
    current: Arc<Current>,
}

#[derive(Debug)]
struct Current(RwLock<Served>);

#[derive(Debug)]
struct Served {
    leaf: Leaf,
    /// PEM of the roots to trust; empty where the system's roots do.
    ca: String,
    /// When the last of the hub's own CAs in it ends; none of a given certificate's.
    ends: Option<OffsetDateTime>,
}

#[derive(Debug, Clone)]
struct Leaf {
    key: Arc<CertifiedKey>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Leaf {
    /// Whether another one is to be made in its place: near its end, or where a clock that was ahead made it. Such a one is not
    /// valid yet, and has longer to live than one that is made now.
    fn is_due(&self, now: OffsetDateTime) -> bool {
        let left = self.not_after - now;
        self.not_before > now || left < LEAF_MARGIN || left > LEAF_LIFE + BACKDATE
    }
}

impl Current {
    fn served(&self) -> RwLockReadGuard<'_, Served> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve_now(&self) -> Arc<CertifiedKey> {
        self.served().leaf.key.clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.resolve_now())
    }
}

impl Served {
    fn of(data: &Path, source: &TlsSource, now: OffsetDateTime) -> Result<Self> {
        match source {
            TlsSource::Own { names } => {
                take_up(data, now)?;
                own(data, names, now)
            }
            TlsSource::Files { cert, key, ca } => Ok(Self {
                leaf: given(cert, key)?,
                ca: trusted(data, ca.as_deref())?,
                ends: None,
            }),
        }
    }
}

impl Tls {
    /// Loads or makes what `source` names. `data` is the hub's data directory.
    pub fn load(data: &Path, source: TlsSource, now: OffsetDateTime) -> Result<Self> {
        let served = Served::of(data, &source, now)?;
        Ok(Self {
            source,
            data: data.to_owned(),
            current: Arc::new(Current(RwLock::new(served))),
        })
    }

    /// Takes over what is in the files by now, and makes the leaf again where that is due. Called again and again by the hub.
    pub fn renew(&self, now: OffsetDateTime) -> Result<()> {
        if matches!(self.source, TlsSource::Own { .. }) {
            take_up(&self.data, now)?;
            let due = self.current.served().leaf.is_due(now);
            // Another leaf alone is another replica's, which may have other names.
            if !due && read(&self.data.join("ca.crt"))? == self.ca() {
                return Ok(());
            }
        }
        let served = Served::of(&self.data, &self.source, now)?;
        *self
            .current
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner) = served;
        Ok(())
    }

    /// PEM of the roots that are to be trusted now; empty where the system's roots do.
    pub fn ca(&self) -> String {
        self.current.served().ca.clone()
    }

    /// When the served certificate ends.
    pub fn not_after(&self) -> OffsetDateTime {
        self.current.served().leaf.not_after
    }

    /// Why those that call the hub by this URL may not accept the certificate that was given, where that can be told from here.
    pub fn doubt(&self, url: &str, now: OffsetDateTime) -> Option<String> {
        if matches!(self.source, TlsSource::Own { .. }) {
            return None;
        }
        let (key, ca) = {
            let served = self.current.served();
            (served.leaf.key.clone(), served.ca.clone())
        };
        doubt::doubt(&key.cert, &ca, &host(url)?, now)
    }

    /// When the hub's own CA ends, the one that is to follow included; none where the certificate was given.
    pub fn ca_not_after(&self) -> Option<OffsetDateTime> {
        self.current.served().ends
    }

    /// The rustls configuration of the listener: HTTP/2 and HTTP/1.1, TLS 1.3 and nothing below. All that calls a hub speaks it.
    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        let versions = [&rustls::version::TLS13];
        let mut config = rustls::ServerConfig::builder_with_protocol_versions(&versions)
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

/// Whether a handshake failed because the client speaks nothing above TLS 1.2.
pub fn is_old(error: &std::io::Error) -> bool {
    use rustls::{Error, PeerIncompatible};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(
        inner,
        Some(Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::Tls12NotOffered
        ))
    )
}

/// The leaf in the data directory, made again where it is missing, due or for other names.
fn own(data: &Path, names: &[String], now: OffsetDateTime) -> Result<Served> {
    let (ca, issuer) = own_ca(data, now)?;
    let ends = Some(last_end(&data.join("ca.crt"), &ca)?);
    let (cert, key) = (data.join("tls.crt"), data.join("tls.key"));
    if let Ok(leaf) = files(&cert, &key)
        && !leaf.is_due(now)
        && std::fs::read_to_string(data.join("tls.names")).is_ok_and(|n| n == names.join("\n"))
    {
        return Ok(Served { leaf, ca, ends });
    }
    let key_pair = KeyPair::generate().context("make the hub's TLS key")?;
    let mut params = CertificateParams::new(names.to_vec())
        .with_context(|| format!("make a certificate for {}", names.join(", ")))?;
    params
        .distinguished_name
        .push(DnType::CommonName, "linesman hub");
    params.not_before = now - BACKDATE;
    params.not_after = now + LEAF_LIFE;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params
        .signed_by(&key_pair, &issuer)
        .context("sign the hub's certificate")?;
    keep(&key, &key_pair.serialize_pem(), 0o600)?;
    keep(&cert, &certificate.pem(), 0o644)?;
    keep(&data.join("tls.names"), &names.join("\n"), 0o644)?;
    let leaf = files(&cert, &key)?;
    Ok(Served { leaf, ca, ends })
}

fn new_ca(now: OffsetDateTime) -> Result<(String, KeyPair)> {
    let pair = KeyPair::generate().context("make the CA's key")?;
    let pem = ca_params(now)
        .self_signed(&pair)
        .context("sign the CA")?
        .pem();
    Ok((pem, pair))
}

fn ca_params(now: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, CA_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now - BACKDATE;
    params.not_after = now + CA_LIFE;
    params
}

fn own_ca(data: &Path, now: OffsetDateTime) -> Result<(String, Issuer<'static, KeyPair>)> {
    let (cert, key) = (data.join("ca.crt"), data.join("ca.key"));
    match (cert.exists(), key.exists()) {
        (true, true) => {
            let pem = read(&cert)?;
            let pair = KeyPair::from_pem(&read(&key)?)
                .with_context(|| format!("read the key in {}", key.display()))?;
            let issuer = Issuer::from_ca_cert_pem(&pem, pair)
                .with_context(|| format!("read the certificate in {}", cert.display()))?;
            // Agents know the hub by it, so none takes its place unasked.
            if let Some(begins) = begins_later(&cert, &pem, now)? {
                tracing::error!(
                    file = %cert.display(),
                    begins = clock::rfc3339(begins),
                    "the hub's CA is not valid yet, and who looks at its dates refuses the hub: set this machine's clock where \
                     it is wrong, else run 'linesman hub rotate ca'"
                );
            }
            Ok((pem, issuer))
        }
        (true, false) => bail!(
            "{} is there but {} is not; restore the key from the backup, for every cluster trusts this CA",
            cert.display(),
            key.display()
        ),
        (false, has_key) => {
            if let Some(why) = lost::lost(data, has_key)? {
                return Err(why.into());
            }
            let (pem, pair) = new_ca(now)?;
            // The key first: a certificate without its key could never be used again.
            keep(&key, &pair.serialize_pem(), 0o600)?;
            keep(&cert, &pem, 0o644)?;
            let issuer = Issuer::from_ca_cert_pem(&pem, pair).context("read the new CA")?;
            Ok((pem, issuer))
        }
    }
}

/// What others make for the hub.
fn given(cert: &Path, key: &Path) -> Result<Leaf> {
    files(cert, key).map_err(|error| {
        let next = "give the certificate in PEM, those that issued it behind it, and the private key that it was made for";
        let why = CannotStart {
            what: format!("--tls-cert and --tls-key cannot be used: {error:#}"),
            next: next.to_owned(),
        };
        why.into()
    })
}

fn files(cert: &Path, key: &Path) -> Result<Leaf> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
        .with_context(|| format!("read {}", cert.display()))?
        .collect::<Result<_, _>>()
        .with_context(|| format!("read the certificates in {}", cert.display()))?;
    let Some(first) = chain.first() else {
        bail!("{} holds no certificate", cert.display())
    };
    let (not_before, not_after) = validity(first, cert)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("read the key in {}", key.display()))?;
    let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private)
        .with_context(|| format!("use the key in {}", key.display()))?;
    let certified = CertifiedKey::new(chain, signing);
    if certified.keys_match().is_err() {
        bail!(
            "{} and {} do not belong together",
            cert.display(),
            key.display()
        );
    }
    Ok(Leaf {
        key: Arc::new(certified),
        not_before,
        not_after,
    })
}

/// From when until when the certificate in this file is valid.
fn validity(
    certificate: &CertificateDer<'_>,
    path: &Path,
) -> Result<(OffsetDateTime, OffsetDateTime)> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .with_context(|| format!("read the certificate in {}", path.display()))?;
    let validity = parsed.validity();
    Ok((
        validity.not_before.to_datetime(),
        validity.not_after.to_datetime(),
    ))
}

/// When the CA of this file begins, where that is yet to come: a clock that was ahead made it.
fn begins_later(path: &Path, pem: &str, now: OffsetDateTime) -> Result<Option<OffsetDateTime>> {
    let ca = CertificateDer::from_pem_slice(pem.as_bytes())
        .with_context(|| format!("read the certificate in {}", path.display()))?;
    let (begins, _) = validity(&ca, path)?;
    Ok((begins > now).then_some(begins))
}

/// When the last of the CAs in this file ends: one that is to follow is beside the present one.
fn last_end(path: &Path, pem: &str) -> Result<OffsetDateTime> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .with_context(|| format!("read the certificates in {}", path.display()))?;
    let ends = all.iter().map(|ca| Ok(validity(ca, path)?.1));
    let ends = ends.collect::<Result<Vec<_>>>()?;
    let last = ends.into_iter().max();
    last.with_context(|| format!("{} holds no certificate", path.display()))
}

/// What others are told to trust, which each of them takes as it is.
fn trusted(data: &Path, ca: Option<&Path>) -> Result<String> {
    let Some(path) = ca else {
        return Ok(String::new());
    };
    let pem = read(path)?;
    // A Secret of an issuer that everybody trusts has such a one.
    if pem.trim().is_empty() {
        if trust::told_ca(data)?.is_some_and(|told| !told.trim().is_empty()) {
            let why = "is empty, and clusters were told of a CA";
            return Err(unusable(path, why).into());
        }
        return Ok(String::new());
    }
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let added = certificate.map_err(anyhow::Error::from);
        added
            .and_then(|certificate| Ok(roots.add(certificate)?))
            .map_err(|error| unusable(path, &format!("cannot be read ({error:#})")))?;
    }
    if roots.is_empty() {
        return Err(unusable(path, "holds no certificate").into());
    }
    Ok(pem)
}

fn unusable(path: &Path, why: &str) -> CannotStart {
    CannotStart {
        what: format!("{} of --tls-ca {why}", path.display()),
        next: "give the CA that issued --tls-cert in PEM, or leave --tls-ca out where clusters trust it anyhow".to_owned(),
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn keep(path: &Path, text: &str, mode: u32) -> Result<()> {
    whole::write(path, &[text], mode)
}

/// The host of a URL, as certificates name it.
pub fn host(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    Some(host.to_owned())
}

/// The names that a certificate needs for a URL's host and listening addresses.
pub fn names(host: &str, listen: &[IpAddr]) -> Vec<String> {
    let mut names = vec![
        host.to_owned(),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    names.extend(
        listen
            .iter()
            .filter(|ip| !ip.is_unspecified())
            .map(ToString::to_string),
    );
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
