//! The key of the built-in Git server, replaced without a fetch that fails. Pure.
//!
//! Both keys are told before the new one is shown, and the old one is told until nobody was shown it any more:
//!
//! 1. `next`: the new key is told beside the present one. It waits until every cluster in reach says that its engine has it,
//!    for as long as that engine may still read with what it had before.
//! 2. The server shows it: it is `current`, the one before `old`.
//! 3. Every cluster in reach was shown the new one: the old one is told no longer.
//!
//! A cluster out of reach is waited for, but not for ever: it gets the keys from the hub as soon as it is back, and until
//! then its engine fetches nothing from a hub whose key it does not know.

use time::{Duration, OffsetDateTime};

use super::hostkeys::{Standing, TrustedKey};
use crate::ssh::known_hosts::HostKey;
use crate::wire::api::EngineKind;
use crate::wire::id::ClusterName;

/// A fetch that began before the engine's Secret was written is over after this time.
const SETTLE_FLUX: Duration = Duration::seconds(10);
/// Argo CD's repo-server reads a mounted ConfigMap, which a kubelet brings up to date once a minute or so.
const SETTLE_ARGOCD: Duration = Duration::minutes(2);
/// A cluster out of reach holds a rotation up for this long.
pub const GRACE: Duration = Duration::hours(24);

/// A cluster that follows the hub's catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: ClusterName,
    pub engine: EngineKind,
    /// Its line is up, or it was heard a moment ago.
    pub in_reach: bool,
    /// Fingerprints that its engine has, and since when it says just these.
    pub trusted: Vec<String>,
    pub trusted_at: OffsetDateTime,
    /// The fingerprint of the key that it was shown last.
    pub shown: Option<String>,
}

/// What a rotation does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// None is under way.
    Nothing,
    /// For these clusters.
    Wait(Vec<ClusterName>),
    /// Show this key from now on.
    Serve(HostKey),
    /// Tell these no longer.
    Drop(Vec<HostKey>),
}

/// The next step of the rotation that is under way.
pub fn next(
    now: OffsetDateTime,
    trusted: &[TrustedKey],
    served: &HostKey,
    members: &[Member],
) -> Next {
    let coming = trusted.iter().find(|t| t.standing == Standing::Next);
    if let Some(coming) = coming {
        let has = |m: &Member| {
            m.trusted.contains(&coming.key.fingerprint) && now - m.trusted_at >= settle(m.engine)
        };
        return match waited_for(now, coming.since, members, has) {
            nobody if nobody.is_empty() => Next::Serve(coming.key.clone()),
            some => Next::Wait(some),
        };
    }
    let old: Vec<&TrustedKey> = trusted
        .iter()
        .filter(|t| t.standing == Standing::Old && t.source == "hub" && t.key != *served)
        .collect();
    let Some(since) = old.iter().map(|t| t.since).max() else {
        return Next::Nothing;
    };
    let met = |m: &Member| m.shown.as_deref() == Some(served.fingerprint.as_str());
    match waited_for(now, since, members, met) {
        nobody if nobody.is_empty() => Next::Drop(old.iter().map(|t| t.key.clone()).collect()),
        some => Next::Wait(some),
    }
}

fn waited_for(
    now: OffsetDateTime,
    since: OffsetDateTime,
    members: &[Member],
    done: impl Fn(&Member) -> bool,
) -> Vec<ClusterName> {
    let open = |m: &&Member| !done(m) && (m.in_reach || now - since < GRACE);
    let names = members.iter().filter(open).map(|m| m.name.clone());
    names.collect()
}

fn settle(engine: EngineKind) -> Duration {
    match engine {
        EngineKind::Flux => SETTLE_FLUX,
        EngineKind::Argocd => SETTLE_ARGOCD,
    }
}

/// Tells `key` beside the present ones.
pub fn announced(
    trusted: &[TrustedKey],
    key: HostKey,
    (by, now): (&str, OffsetDateTime),
) -> Vec<TrustedKey> {
    let new = TrustedKey {
        key,
        standing: Standing::Next,
        source: "hub".to_owned(),
        added_by: by.to_owned(),
        added_at: now,
        since: now,
    };
    let rest = trusted.iter().filter(|t| t.standing != Standing::Next);
    rest.cloned().chain([new]).collect()
}

/// `key` is shown from now on; what the hub showed before is old.
pub fn served(trusted: &[TrustedKey], key: &HostKey, now: OffsetDateTime) -> Vec<TrustedKey> {
    let mut after = trusted.to_vec();
    for known in &mut after {
        let standing = match known.standing {
            _ if known.key == *key => Standing::Current,
            Standing::Current if known.source == "hub" => Standing::Old,
            other => other,
        };
        if known.standing != standing {
            (known.standing, known.since) = (standing, now);
        }
    }
    after
}

#[cfg(test)]
mod tests;
