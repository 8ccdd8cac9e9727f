//! Whether those that call a hub accept the certificate that it was given: each of them finds out alone, and late.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use time::OffsetDateTime;

/// Why those that trust `ca` (PEM; empty = their systems' roots) do not accept the chain for a URL of this host.
pub(super) fn doubt(
    chain: &[CertificateDer<'_>],
    ca: &str,
    host: &str,
    now: OffsetDateTime,
) -> Option<String> {
    let (leaf, more) = chain.split_first()?;
    if is_ca(leaf) {
        return Some(
            "it is a CA's certificate, which nobody accepts as a server's; make one with basicConstraints=CA:FALSE that \
             the CA signs"
                .to_owned(),
        );
    }
    let other_name = format!("it is not for the name {host} of --url");
    let Ok(name) = ServerName::try_from(host) else {
        return Some(other_name);
    };
    let parsed = ParsedCertificate::try_from(leaf).ok()?;
    if rustls::client::verify_server_name(&parsed, &name).is_err() {
        return Some(other_name);
    }
    match verify((leaf, more), &name, ca, now) {
        // The end is told elsewhere.
        Ok(())
        | Err(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => None,
        Err(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => Some("it does not come from the CA of --tls-ca".to_owned()),
        Err(error) => Some(format!(
            "it is not accepted with the CA of --tls-ca: {error}"
        )),
    }
}

/// With their systems' roots others have other ones than this machine.
fn verify(
    (leaf, more): (&CertificateDer<'_>, &[CertificateDer<'_>]),
    name: &ServerName<'_>,
    ca: &str,
    now: OffsetDateTime,
) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_slice_iter(ca.as_bytes()).filter_map(Result::ok),
    );
    if roots.is_empty() {
        return Ok(());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
    let seconds = u64::try_from(now.unix_timestamp()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let judged = verifier.verify_server_cert(leaf, more, name, &[], now);
    judged.map(drop)
}

fn is_ca(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    parsed.is_ok_and(|(_, parsed)| parsed.is_ca())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    const NOW: OffsetDateTime =
        OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::days(20_000));

    /// A CA in PEM, and a certificate of it for the hub.
    fn made() -> (String, CertificateDer<'static>) {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&pair).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&ca, pair).unwrap();
        let own = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["hub.example".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&own, &issuer).unwrap();
        (ca, leaf.der().clone())
    }

    #[test]
    fn what_callers_do_not_accept_is_told_with_its_cause() {
        let (ca, leaf) = made();
        let (other, _) = made();
        let of_ca = CertificateDer::from_pem_slice(ca.as_bytes()).unwrap();
        let told = |leaf: &CertificateDer<'static>, ca: &str, host: &str| {
            doubt(std::slice::from_ref(leaf), ca, host, NOW)
        };
        let no_name = |host: &str| Some(format!("it is not for the name {host} of --url"));
        assert_eq!(told(&leaf, &ca, "hub.example"), None);
        assert_eq!(told(&leaf, "", "hub.example"), None);
        assert_eq!(told(&leaf, &ca, "other.example"), no_name("other.example"));
        assert_eq!(told(&leaf, "", "192.0.2.1"), no_name("192.0.2.1"));
        assert_eq!(
            told(&leaf, &other, "hub.example"),
            Some("it does not come from the CA of --tls-ca".to_owned())
        );
        let as_server = told(&of_ca, &ca, "hub.example").unwrap();
        assert!(
            as_server.starts_with("it is a CA's certificate"),
            "{as_server}"
        );
    }
}
