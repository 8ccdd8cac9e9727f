//! known_hosts lines: parse, match, print.
//!
//! The dialect is what OpenSSH and Go's `knownhosts` (Flux) have in common, read as strictly as the stricter
//! of the two: a pattern without a port means port 22 only, one key a line, `@cert-authority` is understood
//! but never trusted. See sshd(8), `SSH_KNOWN_HOSTS FILE FORMAT`.

#![deny(clippy::indexing_slicing, clippy::expect_used)]

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use ssh_key::known_hosts::{HostPatterns, Marker};
use ssh_key::{HashAlg, PublicKey};

use crate::keys::Public;

/// Longer texts are refused: a host has a handful of keys.
pub const MAX_BYTES: usize = 256 << 10;

const DEFAULT_PORT: u16 = 22;

/// What is wrong with a known_hosts text, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("known_hosts line {line}: {reason}")]
pub struct KnownHostsError {
    /// Counted from 1.
    pub line: usize,
    pub reason: &'static str,
}

/// A parsed known_hosts text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownHosts {
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    marker: Option<Marker>,
    hosts: HostPatterns,
    key: PublicKey,
}

/// One public host key, in its normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// `ssh-ed25519` and so on.
    pub kind: String,
    /// `type base64`, without a comment.
    pub text: String,
    /// `SHA256:…`
    pub fingerprint: String,
}

impl HostKey {
    /// Reads `type base64`, at most `max` bytes; a comment is left out.
    pub fn parse(text: &str, max: usize) -> Result<Self, &'static str> {
        if text.len() > max {
            return Err("the key is too long");
        }
        let mut words = text.split_whitespace();
        let (Some(kind), Some(data)) = (words.next(), words.next()) else {
            return Err("a key reads 'type base64'");
        };
        let key = PublicKey::from_openssh(&format!("{kind} {data}"));
        Ok(Self::of(&key.map_err(
            |_| "the key is not a valid 'type base64' pair",
        )?))
    }

    /// An Ed25519 key of our own.
    pub fn ed25519(public: Public) -> Self {
        let key = ssh_key::public::KeyData::Ed25519(ssh_key::public::Ed25519PublicKey(public.0));
        Self::of(&PublicKey::new(key, ""))
    }

    pub(crate) fn of(key: &PublicKey) -> Self {
        let bare = PublicKey::new(key.key_data().clone(), "");
        Self {
            kind: bare.algorithm().to_string(),
            // A key that was read prints.
            text: bare.to_openssh().unwrap_or_default().trim_end().to_owned(),
            fingerprint: fingerprint(&bare),
        }
    }

    /// Whether Linesman's own client verifies keys of this kind; both engines read all.
    pub fn is_verified_by_us(&self) -> bool {
        self.kind == "ssh-ed25519" || self.kind.starts_with("ecdsa-sha2-nistp")
    }

    /// The line under which clients find the key: un-hashed, without a line end.
    pub fn line(&self, host: &str, port: u16) -> String {
        format!("{} {}", address(host, port), self.text)
    }
}

/// What a known_hosts text says of one host's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Known,
    Revoked,
    /// Other keys are listed for the host; their `SHA256:…` fingerprints.
    Wrong {
        expected: Vec<String>,
    },
    /// Only a `@cert-authority` line speaks of the host, and certificates are not supported.
    AuthorityOnly,
    /// No line speaks of the host.
    Unlisted,
}

impl KnownHosts {
    /// Reads every line; the first one that is not understood is an error.
    pub fn parse(text: &str) -> Result<Self, KnownHostsError> {
        if text.len() > MAX_BYTES {
            let reason = "the text is longer than 256 KiB";
            return Err(KnownHostsError { line: 1, reason });
        }
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let fail = |reason| KnownHostsError {
                line: number + 1,
                reason,
            };
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                lines.push(parse_line(line).map_err(fail)?);
            }
        }
        Ok(Self { lines })
    }

    /// Whether `key` may be the host's. A revoked key is never right, whatever other lines say.
    pub fn check(&self, host: &str, port: u16, key: &PublicKey) -> Verdict {
        let mut expected = Vec::new();
        let mut known = false;
        let mut authority = false;
        for line in self.lines.iter().filter(|l| l.speaks_of(host, port)) {
            let same = line.key.key_data() == key.key_data();
            match line.marker {
                Some(Marker::Revoked) if same => return Verdict::Revoked,
                Some(Marker::Revoked) => {}
                Some(Marker::CertAuthority) => authority = true,
                None => {
                    known |= same;
                    expected.push(fingerprint(&line.key));
                }
            }
        }
        match (known, expected.is_empty(), authority) {
            (true, _, _) => Verdict::Known,
            (false, false, _) => Verdict::Wrong { expected },
            (false, true, true) => Verdict::AuthorityOnly,
            (false, true, false) => Verdict::Unlisted,
        }
    }

    /// The keys that the host may show, in the order of the text.
    pub fn keys(&self, host: &str, port: u16) -> Vec<&PublicKey> {
        let plain = |l: &&Line| l.marker.is_none() && l.speaks_of(host, port);
        let keys = self.lines.iter().filter(plain).map(|l| &l.key);
        keys.filter(|k| self.check(host, port, k) == Verdict::Known)
            .collect()
    }

    /// The same in their normal form, each once.
    pub fn host_keys(&self, host: &str, port: u16) -> Vec<HostKey> {
        let mut all: Vec<HostKey> = Vec::new();
        for key in self.keys(host, port).into_iter().map(HostKey::of) {
            if !all.contains(&key) {
                all.push(key);
            }
        }
        all
    }

    /// Whether a `@cert-authority` line speaks of the host.
    pub fn has_authority(&self, host: &str, port: u16) -> bool {
        let authority = |l: &Line| l.marker == Some(Marker::CertAuthority);
        self.lines
            .iter()
            .any(|l| authority(l) && l.speaks_of(host, port))
    }
}

/// The line under which clients find an Ed25519 host key: un-hashed, without a line end.
pub fn known_hosts_line(host: &str, port: u16, public: Public) -> String {
    HostKey::ed25519(public).line(host, port)
}

/// The text, and after it the keys of `real` under the name `alias`: of a host that is reached by both.
pub fn under_both(
    text: &str,
    real: (&str, u16),
    alias: (&str, u16),
) -> Result<String, KnownHostsError> {
    let known = KnownHosts::parse(text)?;
    let mut both = text.trim_end().to_owned() + "\n";
    for key in known.keys(real.0, real.1) {
        both.push_str(&HostKey::of(key).line(alias.0, alias.1));
        both.push('\n');
    }
    Ok(both)
}

/// How known_hosts spells a host and port: `host`, or `[host]:port` where the port is not 22.
pub fn address(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == DEFAULT_PORT {
        host
    } else {
        format!("[{host}]:{port}")
    }
}

/// `SHA256:…` as OpenSSH prints it.
pub fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

fn parse_line(line: &str) -> Result<Line, &'static str> {
    let mut words = line.split_whitespace().peekable();
    let marker = match words.next_if(|w| w.starts_with('@')) {
        Some(word) => Some(
            word.parse::<Marker>()
                .map_err(|_| "the marker is neither @revoked nor @cert-authority")?,
        ),
        None => None,
    };
    let hosts = words.next().ok_or("the host is missing")?;
    let (Some(kind), Some(data)) = (words.next(), words.next()) else {
        return Err("the key is missing: a line reads 'host type base64'");
    };
    if words.any(|w| w.starts_with("AAAA") && w.len() > 40) {
        return Err("two keys on one line; write one key a line");
    }
    let key = PublicKey::from_openssh(&format!("{kind} {data}"))
        .map_err(|_| "the key is not a valid 'type base64' pair")?;
    let hosts = hosts
        .parse::<HostPatterns>()
        .map_err(|_| "the hashed host is not '|1|salt|hash'")?;
    if let HostPatterns::Patterns(patterns) = &hosts
        && patterns.iter().any(|p| split(p).is_none())
    {
        return Err("a host pattern is empty or not 'host' or '[host]:port'");
    }
    Ok(Line { marker, hosts, key })
}

impl Line {
    fn speaks_of(&self, host: &str, port: u16) -> bool {
        match &self.hosts {
            HostPatterns::HashedName { salt, hash } => hashes_to(salt, hash, &address(host, port)),
            HostPatterns::Patterns(patterns) => {
                let host = host.to_ascii_lowercase();
                let mut hit = false;
                for pattern in patterns.iter().filter_map(|p| split(p)) {
                    let matched = pattern.port == port && glob(pattern.host, &host);
                    if matched && pattern.negated {
                        return false;
                    }
                    hit |= matched;
                }
                hit
            }
        }
    }
}

struct Pattern<'a> {
    negated: bool,
    host: &'a str,
    port: u16,
}

/// Reads `!`, `host` and `[host]:port`.
fn split(text: &str) -> Option<Pattern<'_>> {
    let (negated, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let port = match port.strip_prefix(':') {
                Some(port) => port.parse().ok()?,
                None if port.is_empty() => DEFAULT_PORT,
                None => return None,
            };
            (host, port)
        }
        None => (text, DEFAULT_PORT),
    };
    (!host.is_empty()).then_some(Pattern {
        negated,
        host,
        port,
    })
}

/// `*` is any run of characters, `?` any one; letters compare without case. Linear in memory, no recursion.
fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(&c) = text.get(t) {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&want) if want == '?' || want.eq_ignore_ascii_case(&c) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star_at, from)) = star else {
                    return false;
                };
                star = Some((star_at, from + 1));
                p = star_at + 1;
                t = from + 1;
            }
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

fn hashes_to(salt: &[u8], hash: &[u8; 20], name: &str) -> bool {
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(salt) else {
        return false;
    };
    mac.update(name.as_bytes());
    mac.verify_slice(hash).is_ok()
}

#[cfg(test)]
mod tests;
