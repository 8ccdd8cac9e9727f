//! Another CA in the place of the present one. Until its time it is only told, beside the present one; then it serves, with
//! the one before told beside it; and then it is told alone.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use time::OffsetDateTime;

use super::{keep, lost, new_ca, read};
use crate::hub::trust::Times;
use crate::keys;

/// The CA that is to serve, with its times, in one file, so that there is all of it or nothing.
const NEXT: &str = "ca.next";
/// Until when the CA before is told, in unix seconds. There while it is.
const ENDS: &str = "ca.ends";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// What [`NEXT`] holds.
struct Next {
    used: i64,
    ends: i64,
    key: String,
    certificate: String,
}

impl Next {
    fn text(&self) -> String {
        let Self {
            used,
            ends,
            key,
            certificate,
        } = self;
        format!("used {used}\nends {ends}\n{key}{certificate}")
    }

    /// One without times is of a version that had none: it serves at once, and alone.
    fn parse(text: &str) -> Option<Self> {
        let (head, certificate) = text.split_at_checked(text.find(BEGIN)?)?;
        let (times, key) = head.split_at_checked(head.find("-----BEGIN")?)?;
        let time = |name: &str| {
            let line = times.lines().find_map(|line| line.strip_prefix(name));
            line.map_or(Some(0), |text| text.trim().parse().ok())
        };
        Some(Self {
            used: time("used ")?,
            ends: time("ends ")?,
            key: key.to_owned(),
            certificate: certificate.to_owned(),
        })
    }
}

/// Makes the CA that is to serve; the fingerprints (SHA-256 of the certificate) of the present one and of it. One that was made
/// before and does not serve yet never will.
pub fn succeed(data: &Path, times: Times) -> Result<(String, String)> {
    let path = data.join("ca.crt");
    let key = data.join("ca.key");
    if !path.exists()
        && !key.exists()
        && let Some(told) = lost::told(data)?
    {
        // Nothing is left beside which the next one could be told.
        let (certificate, pair) = new_ca(times.now)?;
        keep(&key, &pair.serialize_pem(), 0o600)?;
        keep(&path, &certificate, 0o644)?;
        // The leaf is the former CA's.
        remove(&data.join("tls.names"))?;
        return Ok((fingerprint(&told)?, fingerprint(&certificate)?));
    }
    let present = read(&path).with_context(|| {
        format!(
            "{}: a hub with --tls-cert has no CA of its own to replace",
            data.display()
        )
    })?;
    let (certificate, pair) = new_ca(times.now)?;
    let prints = (fingerprint(&present)?, fingerprint(&certificate)?);
    let next = Next {
        used: times.used.unix_timestamp(),
        ends: times.ends.unix_timestamp(),
        key: pair.serialize_pem(),
        certificate,
    };
    keep(&data.join(NEXT), &next.text(), 0o600)?;
    // For people it is in force with this; a hub that runs looks by itself.
    take_up(data, times.now)?;
    Ok(prints)
}

/// SHA-256, as `openssl x509 -fingerprint -sha256` prints it without the colons, in lower case.
pub(super) fn fingerprint(pem: &str) -> Result<String> {
    let certificate =
        CertificateDer::from_pem_slice(pem.as_bytes()).context("read the certificate of a CA")?;
    Ok(keys::sha256_hex(&certificate))
}

/// Brings the files to where a change of the CA is by now. Cut off at any point, the next one goes on.
pub(super) fn take_up(data: &Path, now: OffsetDateTime) -> Result<()> {
    let (path, now) = (data.join(NEXT), now.unix_timestamp());
    if path.exists() {
        let text = read(&path)?;
        let next = Next::parse(&text).with_context(|| {
            let path = path.display();
            format!("{path} is not what 'linesman hub rotate ca' writes; delete it to stay with the CA that there is")
        })?;
        if now < next.used {
            tell(data, &next.certificate)?;
        } else {
            serve(data, &next)?;
        }
    }
    let ends = data.join(ENDS);
    if ends.exists() && read(&ends)?.trim().parse().is_ok_and(|end: i64| end <= now) {
        let told = read(&data.join("ca.crt"))?;
        let alone = certificates(&told).next().unwrap_or_default();
        ensure!(!alone.is_empty(), "ca.crt holds no certificate");
        keep(&data.join("ca.crt"), &alone, 0o644)?;
        remove(&ends)?;
    }
    Ok(())
}

/// Tells the next CA beside the present one, which is the first of the file: it issues.
fn tell(data: &Path, next: &str) -> Result<()> {
    let (path, ends) = (data.join("ca.crt"), data.join(ENDS));
    let told = read(&path)?;
    let mut both = certificates(&told).next().unwrap_or_default();
    both.push_str(next);
    if told != both {
        keep(&path, &both, 0o644)?;
    }
    // What was told beside the present one is told no more.
    if ends.exists() { remove(&ends) } else { Ok(()) }
}

fn serve(data: &Path, next: &Next) -> Result<()> {
    let path = data.join("ca.crt");
    let told = read(&path)?;
    let before = certificates(&told).find(|told| told != &next.certificate);
    keep(&data.join("ca.key"), &next.key, 0o600)?;
    // From here on the file has an end, be it reached or not.
    keep(&data.join(ENDS), &next.ends.to_string(), 0o644)?;
    let both = next.certificate.clone() + &before.unwrap_or_default();
    keep(&path, &both, 0o644)?;
    // The leaf is the former CA's.
    for name in ["tls.names", NEXT] {
        remove(&data.join(name))?;
    }
    Ok(())
}

/// Each certificate of a PEM file, in their order.
fn certificates(pem: &str) -> impl Iterator<Item = String> {
    let blocks = pem.split_inclusive(END);
    blocks.filter_map(|block| Some(format!("{}\n", block.get(block.find(BEGIN)?..)?)))
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
