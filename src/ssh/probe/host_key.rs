//! The host key's part of a probe: which kinds to ask for, whether the one that is shown is known, and the words
//! where it is not.

use std::sync::{Arc, Mutex, PoisonError};

use russh::Preferred;
use russh::client::{self, DisconnectReason};
use russh::keys::PublicKeyOrCertificate;
use ssh_key::{Algorithm, EcdsaCurve};

use super::ProbeError;
use super::ending::LastWords;
use crate::ssh::GitUrl;
use crate::ssh::known_hosts::{HostKey, KnownHosts, Verdict, fingerprint};

/// Says yes to a known host key only; the verdict says which it was, or why not.
pub(super) struct Checker {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) known: KnownHosts,
    pub(super) verdict: Arc<Mutex<Option<Result<HostKey, ProbeError>>>>,
    pub(super) last_words: LastWords,
}

impl client::Handler for Checker {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        presented: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        let verdict = self.judge(presented);
        let trusted = verdict.is_ok();
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
        Ok(trusted)
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<russh::Error>,
    ) -> Result<(), russh::Error> {
        match reason {
            DisconnectReason::ReceivedDisconnect(said) => {
                let mut last_words = self
                    .last_words
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                *last_words = Some(said);
                Ok(())
            }
            DisconnectReason::Error(error) => Err(error),
        }
    }
}

impl Checker {
    fn judge(&self, presented: &PublicKeyOrCertificate) -> Result<HostKey, ProbeError> {
        let Self {
            host, port, known, ..
        } = self;
        let expected: Vec<String> = known
            .keys(host, *port)
            .into_iter()
            .map(fingerprint)
            .collect();
        let refuse = |presented: Option<HostKey>, text: String| {
            Err(ProbeError::HostKey {
                presented,
                expected: expected.clone(),
                text,
            })
        };
        let PublicKeyOrCertificate::PublicKey { key, .. } = presented else {
            let text = format!(
                "{host}:{port} shows a host certificate, which is not supported; let it show its plain key"
            );
            return refuse(None, text);
        };
        let shown = HostKey::of(key);
        let print = &shown.fingerprint;
        match known.check(host, *port, key) {
            Verdict::Known => Ok(shown),
            Verdict::Revoked => refuse(
                Some(shown.clone()),
                format!(
                    "{host}:{port} shows the revoked key {print}; do not connect until its keys are replaced"
                ),
            ),
            Verdict::Wrong { .. } | Verdict::Unlisted | Verdict::AuthorityOnly => refuse(
                Some(shown.clone()),
                format!(
                    "{host}:{port} shows {print}, expected {}; if the host's key was changed on purpose, accept it at the hub: linesman githost accept-host-key",
                    expected.join(" or ")
                ),
            ),
        }
    }
}

/// The kinds of key that known_hosts lists come first, so that a host with several shows the one that we know;
/// the others follow, so that a wrong key can be named.
pub(super) fn preferred(known: &KnownHosts, host: &str, port: u16) -> Preferred {
    let mut order: Vec<Algorithm> = Vec::new();
    let listed = known
        .keys(host, port)
        .into_iter()
        .map(ssh_key::PublicKey::algorithm);
    let curves = [
        EcdsaCurve::NistP256,
        EcdsaCurve::NistP384,
        EcdsaCurve::NistP521,
    ];
    let supported =
        std::iter::once(Algorithm::Ed25519).chain(curves.map(|curve| Algorithm::Ecdsa { curve }));
    for algorithm in listed.chain(supported) {
        let ours = matches!(algorithm, Algorithm::Ed25519 | Algorithm::Ecdsa { .. });
        if ours && !order.contains(&algorithm) {
            order.push(algorithm);
        }
    }
    Preferred {
        key: order.into(),
        ..crate::ssh::uncompressed()
    }
}

pub(super) fn handshake_failed(
    error: &russh::Error,
    url: &GitUrl,
    expected: Vec<String>,
) -> ProbeError {
    let GitUrl { host, port, .. } = url;
    let text = match error {
        russh::Error::NoCommonAlgo { theirs, .. } => format!(
            "{host}:{port} offers only {}, none of which is supported (RSA host keys are not); give it an Ed25519 or ECDSA host key",
            theirs.join(", ")
        ),
        e => format!("{host}:{port} did not complete the SSH handshake: {e}"),
    };
    ProbeError::HostKey {
        presented: None,
        expected,
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDlKtWwRsk2zfhYJA2r8tcfjWXIB2HlAHwheVQlRtCo85ORn+ey8ZPX+R/4QknwQ/SuSWxHzWusWwkz31PQNuLfYL2skMNbNItL3WWK+2kwOBygc05HLF13qYEXBNPUQN84ff5odgwIGtxtFYRu8pvmDOGThyVlhQRJ+cxZNlxBSJ/mx4bVdoz/ll60zFHJq4GhQy9GZTuViLWDNlzVnZofi4lopvqZDMpVhjDgynUYYJGEXdH5n96AvW6Kd2zdCxIMmTIgJ4X4fbUrgq1SwAL7Ra4ebfWudv0y37qNdZSj/BnqQqZV3jYx/TKOyc0/M+MxF+IZnoQJUl4MBS8g5DBP";

    #[test]
    fn a_host_with_rsa_alone_is_named() {
        let error = russh::Error::NoCommonAlgo {
            kind: russh::AlgorithmKind::Key,
            ours: vec!["ssh-ed25519".to_owned()],
            theirs: vec!["rsa-sha2-512".to_owned()],
        };
        let url = "ssh://git@h/c.git".parse().unwrap();
        let error = handshake_failed(&error, &url, Vec::new());
        assert!(
            error.to_string().contains("h:22 offers only rsa-sha2-512"),
            "{error}"
        );
    }

    #[test]
    fn the_kinds_of_key_that_are_listed_are_asked_for_first() {
        let ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBJPZAx//MOnge3271HaKDxlaaksaK4aD4fvEyr/5lwommAC9oMXnyDlXbA4LCrPsmmS4cpuDxU+xXmq81r3f2ng=";
        let known = KnownHosts::parse(&format!("h {RSA}\nh {ecdsa}\n")).unwrap();
        let order = preferred(&known, "h", 22).key;
        let p256 = Algorithm::Ecdsa {
            curve: EcdsaCurve::NistP256,
        };
        assert_eq!(order[..2], [p256, Algorithm::Ed25519]);
        assert!(order.iter().all(|a| !a.clone().is_rsa()));
    }
}
