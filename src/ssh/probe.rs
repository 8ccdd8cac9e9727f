//! Proves a Git path with our own client before an engine is pointed at it, and names the step that fails:
//! dns, tcp, host-key, auth, repo, branch. The host key is checked before any credential is offered.

mod ending;
mod error;
mod host_key;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ending::{Answer, LastWords};
pub use error::{ProbeError, Step};
use host_key::{Checker, handshake_failed, preferred};
use russh::client::{self, AuthResult, Handle};
use russh::keys::PrivateKeyWithHashAlg;
use russh::{ChannelMsg, SshId};
use ssh_key::{Algorithm, PrivateKey};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::GitUrl;
use super::known_hosts::{HostKey, KnownHosts, fingerprint};
use super::lsrefs::{Asking, Turn, farewell, printable};
use crate::secret::Secret;
use crate::tcp;

/// What to prove: that `private_key` (OpenSSH form) reads `branch` of `url`, from a host in `known_hosts`.
#[derive(Debug)]
pub struct Probe<'a> {
    pub url: &'a GitUrl,
    pub private_key: &'a Secret<String>,
    pub known_hosts: &'a str,
    pub branch: &'a str,
}

/// What a probe has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The branch's commit id, lower-case hex.
    pub commit: String,
    /// The key that the host showed, which is a known one.
    pub host_key: HostKey,
}

/// Walks the path once, within `limit` for all steps together.
pub async fn probe(probe: Probe<'_>, limit: Duration) -> Result<Head, ProbeError> {
    let walk = Walk::new(&probe, limit);
    let known = walk.known(probe.known_hosts)?;
    let socket = walk.connect().await?;
    talk(walk, probe, socket, &known).await
}

/// The same over a stream that leads to the URL's host.
pub async fn probe_over<S>(probe: Probe<'_>, stream: S, limit: Duration) -> Result<Head, ProbeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let walk = Walk::new(&probe, limit);
    let known = walk.known(probe.known_hosts)?;
    talk(walk, probe, stream, &known).await
}

async fn talk<S>(
    walk: Walk<'_>,
    probe: Probe<'_>,
    stream: S,
    known: &KnownHosts,
) -> Result<Head, ProbeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let key = private_key(probe.private_key)?;
    let last_words = LastWords::default();
    let (mut session, host_key) = walk.handshake(stream, known, &last_words).await?;
    walk.authenticate(&mut session, key, &last_words).await?;
    let commit = walk.ask(&session, probe.branch).await;
    let goodbye = session.disconnect(russh::Disconnect::ByApplication, "", "");
    // The answer is there; a host that does not take the goodbye changes nothing about it.
    timeout_at(walk.deadline, goodbye).await.ok();
    Ok(Head {
        commit: commit?,
        host_key,
    })
}

struct Walk<'a> {
    url: &'a GitUrl,
    deadline: Instant,
    limit: Duration,
}

impl<'a> Walk<'a> {
    fn new(probe: &Probe<'a>, limit: Duration) -> Self {
        Self {
            url: probe.url,
            deadline: Instant::now() + limit,
            limit,
        }
    }

    async fn within<T>(
        &self,
        step: Step,
        future: impl Future<Output = Result<T, ProbeError>>,
    ) -> Result<T, ProbeError> {
        let GitUrl { host, port, .. } = self.url;
        timeout_at(self.deadline, future).await.unwrap_or_else(|_| {
            let seconds = self.limit.as_secs();
            let text = format!("{host}:{port} did not answer within {seconds} s");
            Err(ProbeError::at(step, text))
        })
    }

    fn known(&self, text: &str) -> Result<KnownHosts, ProbeError> {
        let GitUrl { host, port, .. } = self.url;
        let fail = |text| Err(ProbeError::at(Step::HostKey, text));
        let known = match KnownHosts::parse(text) {
            Ok(known) => known,
            Err(e) => return fail(format!("{e}; correct the host keys at the hub")),
        };
        let keys = known.keys(host, *port);
        if keys.is_empty() && known.has_authority(host, *port) {
            return fail(format!(
                "known_hosts has only a certificate authority for {host}:{port}, which is not supported; add the host's own key"
            ));
        }
        if keys.is_empty() {
            return fail(format!(
                "known_hosts has no key for {host}:{port}; add the host's key at the hub"
            ));
        }
        if keys.iter().all(|k| k.algorithm().is_rsa()) {
            return fail(format!(
                "known_hosts has only RSA keys for {host}:{port}, which are not supported; add the host's Ed25519 or ECDSA key"
            ));
        }
        Ok(known)
    }

    async fn connect(&self) -> Result<TcpStream, ProbeError> {
        let GitUrl { host, port, .. } = self.url;
        let lookup = async {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            let addresses: Vec<_> = found
                .map_err(|e| ProbeError::at(Step::Dns, format!("look up {host}: {e}")))?
                .collect();
            if addresses.is_empty() {
                let text = format!("{host} has no address");
                return Err(ProbeError::at(Step::Dns, text));
            }
            Ok(addresses)
        };
        let addresses = self.within(Step::Dns, lookup).await?;
        let connect = async {
            tcp::connect(&addresses)
                .await
                .map_err(|e| ProbeError::at(Step::Tcp, format!("connect to {host}:{port}: {e}")))
        };
        let socket = self.within(Step::Tcp, connect).await?;
        // Without it a refusal only costs milliseconds, so a failure is of no interest.
        socket.set_nodelay(true).ok();
        Ok(socket)
    }

    async fn handshake<S>(
        &self,
        socket: S,
        known: &KnownHosts,
        last_words: &LastWords,
    ) -> Result<(Handle<Checker>, HostKey), ProbeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let GitUrl { host, port, .. } = self.url;
        let verdict = Arc::new(Mutex::new(None::<Result<HostKey, ProbeError>>));
        let checker = Checker {
            host: host.clone(),
            port: *port,
            known: known.clone(),
            verdict: Arc::clone(&verdict),
            last_words: Arc::clone(last_words),
        };
        let config = client::Config {
            client_id: SshId::Standard("SSH-2.0-linesman".into()),
            preferred: preferred(known, host, *port),
            inactivity_timeout: Some(self.limit),
            ..client::Config::default()
        };
        let expected = || {
            known
                .keys(host, *port)
                .into_iter()
                .map(fingerprint)
                .collect()
        };
        let handshake = async {
            let result = client::connect_stream(Arc::new(config), socket, checker).await;
            let verdict = verdict
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            match (result, verdict) {
                (Ok(session), Some(Ok(key))) => Ok((session, key)),
                (_, Some(Err(refusal))) => Err(refusal),
                (Err(e), _) => Err(handshake_failed(&e, self.url, expected())),
                (Ok(_), None) => {
                    let text = format!("{host}:{port} showed no host key");
                    Err(ProbeError::at(Step::HostKey, text))
                }
            }
        };
        self.within(Step::HostKey, handshake).await
    }

    async fn authenticate(
        &self,
        session: &mut Handle<Checker>,
        key: PrivateKey,
        last_words: &LastWords,
    ) -> Result<(), ProbeError> {
        let GitUrl { user, host, .. } = self.url;
        let print = fingerprint(key.public_key());
        let login = async {
            let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
            let answer = match session.authenticate_publickey(user, key).await {
                Ok(AuthResult::Success) => return Ok(()),
                Ok(AuthResult::Failure {
                    remaining_methods, ..
                }) if !remaining_methods.is_empty() => Answer::Refused,
                // So is a connection told that ended, too: only how it did tells that from a refusal.
                Ok(AuthResult::Failure { .. }) | Err(_) => {
                    let end = session.await;
                    let said = last_words
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .take();
                    ending::answer(&end, said.as_ref())
                }
            };
            Err(match answer {
                Answer::Refused => {
                    let text = format!(
                        "{host} does not accept the key {print} for user {user}; register it there as a read-only deploy key"
                    );
                    ProbeError::at(Step::Auth, text)
                }
                Answer::None(how) => {
                    let text = format!(
                        "{host} ended the connection before it answered for the key {print}: {how}"
                    );
                    ProbeError::at(Step::Offer, text)
                }
            })
        };
        self.within(Step::Offer, login).await
    }

    async fn ask(&self, session: &Handle<Checker>, branch: &str) -> Result<String, ProbeError> {
        let GitUrl { host, path, .. } = self.url;
        let fail = |text: String| ProbeError::at(Step::Repo, text);
        let lost = |e: russh::Error| fail(format!("{host} ended the connection: {e}"));
        let talk = async {
            let mut channel = session.channel_open_session().await.map_err(lost)?;
            // A host that ignores the variable answers in protocol 0, which is read as well.
            channel
                .set_env(false, "GIT_PROTOCOL", "version=2")
                .await
                .map_err(lost)?;
            let command = format!("git-upload-pack '{path}'");
            channel.exec(true, command).await.map_err(lost)?;
            let mut asking = Asking::branch(branch);
            let mut complaint = Vec::new();
            while let Some(message) = channel.wait().await {
                match message {
                    ChannelMsg::Data { data } => match asking.receive(&data) {
                        Ok(Turn::Read) => {}
                        Ok(Turn::Send(bytes)) => channel.data_bytes(bytes).await.map_err(lost)?,
                        Ok(Turn::Found(id)) => {
                            channel.data_bytes(farewell()).await.ok();
                            return Ok(id);
                        }
                        Ok(Turn::Missing) => {
                            let text = format!(
                                "{path} on {host} has no branch '{branch}'; push it, or correct the branch at the hub"
                            );
                            return Err(ProbeError::at(Step::Branch, text));
                        }
                        Ok(Turn::Refused(words)) => return Err(fail(refused(self.url, &words))),
                        Err(e) => return Err(fail(format!("{host} answered for {path}: {e}"))),
                    },
                    ChannelMsg::ExtendedData { data, .. } if complaint.len() < 4096 => {
                        complaint.extend_from_slice(&data);
                    }
                    ChannelMsg::Failure => {
                        return Err(fail(refused(self.url, "the command was refused")));
                    }
                    _ => {}
                }
            }
            Err(fail(refused(self.url, &printable(&complaint))))
        };
        self.within(Step::Repo, talk).await
    }
}

fn refused(url: &GitUrl, words: &str) -> String {
    let GitUrl { host, path, .. } = url;
    let words = if words.is_empty() {
        "no reason given"
    } else {
        words
    };
    format!("{host} does not serve {path}: {words}; check the path and that the key may read it")
}

fn private_key(text: &Secret<String>) -> Result<PrivateKey, ProbeError> {
    let fail = |text: &str| Err(ProbeError::at(Step::Auth, text.to_owned()));
    let Ok(key) = PrivateKey::from_openssh(text.expose()) else {
        return fail("the deploy key is not an OpenSSH private key");
    };
    if key.is_encrypted() {
        return fail("the deploy key has a passphrase; a deploy key has none");
    }
    if !matches!(
        key.algorithm(),
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. }
    ) {
        return fail("the deploy key is neither Ed25519 nor ECDSA; RSA keys are not supported");
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDlKtWwRsk2zfhYJA2r8tcfjWXIB2HlAHwheVQlRtCo85ORn+ey8ZPX+R/4QknwQ/SuSWxHzWusWwkz31PQNuLfYL2skMNbNItL3WWK+2kwOBygc05HLF13qYEXBNPUQN84ff5odgwIGtxtFYRu8pvmDOGThyVlhQRJ+cxZNlxBSJ/mx4bVdoz/ll60zFHJq4GhQy9GZTuViLWDNlzVnZofi4lopvqZDMpVhjDgynUYYJGEXdH5n96AvW6Kd2zdCxIMmTIgJ4X4fbUrgq1SwAL7Ra4ebfWudv0y37qNdZSj/BnqQqZV3jYx/TKOyc0/M+MxF+IZnoQJUl4MBS8g5DBP";

    #[test]
    fn known_hosts_with_rsa_alone_is_refused_before_connecting() {
        let walk = Walk {
            url: &"ssh://git@h/c.git".parse().unwrap(),
            deadline: Instant::now(),
            limit: Duration::ZERO,
        };
        let error = walk.known(&format!("h {RSA}\n")).unwrap_err();
        assert_eq!(error.step(), Step::HostKey);
        assert!(
            error.to_string().contains("only RSA keys for h:22"),
            "{error}"
        );
    }
}
