//! What makes the agent believe that a hub is its hub: the keys that its adoption YAML pinned, and the sets of URLs, CA
//! and keys that a key of the set before signed. Pure.
//!
//! TLS alone says nothing here: whoever ends it (a balancer, a public authority, a stolen certificate) may answer, but
//! cannot sign. A set is followed only where its version is later than the kept one's.

use serde::{Deserialize, Serialize};

use crate::keys::{self, Public};
use crate::wire::api::{HubKey, HubRef, TrustBundle, trust_input};

/// URLs or keys in a set, or sets in a chain; more is no hub's.
const MOST: usize = 32;

/// A set that verified, as the agent keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub hub_id: String,
    pub bundle: TrustBundle,
    /// The keys (base64url) of the YAMLs that it goes back to: another YAML's are another root.
    #[serde(default)]
    pub pins: Vec<String>,
}

/// What is trusted before an answer is read.
#[derive(Debug, Clone, Copy)]
pub struct Roots<'a> {
    /// Of the adoption YAML; none = it has none, or is gone.
    pub pins: &'a [HubKey],
    pub kept: Option<&'a Kept>,
    /// The answer is to a token of the YAML: the owner's word of now, so that its keys count alone.
    pub anew: bool,
    /// Unix seconds.
    pub now: i64,
}

/// What a hub says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    pub hub_id: &'a str,
    /// `None` = the answer has none, and was not authenticated in any way.
    pub keyset: Option<&'a [HubKey]>,
    pub bundle: Option<&'a TrustBundle>,
}

/// What becomes of the hub's URLs, CA and keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No key was ever pinned and the hub signs nothing: it is believed on TLS alone.
    Unpinned,
    /// In force as soon as it is stored.
    Newer(Box<Kept>),
    /// The kept one.
    Same,
    /// By a key that is trusted, as it was once: what is in force stays.
    Older,
    /// The hub signs no sets, but has a key that is trusted: what is in force stays.
    Unsigned,
    Refused(Refusal),
}

/// Nothing of the answer is put in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}: its keys are {}, trusted are {}", said.join(", "), trusted.join(", "))]
pub struct Refusal {
    pub why: Why,
    /// Fingerprints of what the answer says its keys are.
    pub said: Vec<String>,
    pub trusted: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("none of the hub's keys is trusted")]
    Foreign,
    #[error("the hub's key set is not signed by a trusted key")]
    Signature,
    #[error("the hub says other keys than those that it signed")]
    Keyset,
    #[error("the hub signed two key sets of one version")]
    Forked,
    #[error("the hub's key set leaves no way to reach it")]
    Unusable,
}

impl<'a> Roots<'a> {
    /// Whether there is a key by which a hub can be told from others.
    pub fn is_rooted(&self) -> bool {
        !self.keys().is_empty()
    }

    /// The same once this set is kept.
    fn after(self, kept: Option<&'a Kept>) -> Self {
        match kept {
            Some(kept) => Self {
                kept: Some(kept),
                anew: false,
                ..self
            },
            None => self,
        }
    }

    /// The kept set, unless the YAML's keys say that it is another hub's.
    fn kept(&self) -> Option<&'a Kept> {
        let kept = self.kept.filter(|_| !self.anew || self.pins.is_empty())?;
        let goes_back = |pin: &HubKey| {
            kept.pins.contains(&pin.key) || kept.bundle.keyset.iter().any(|k| k.key == pin.key)
        };
        let ours = self.pins.is_empty() || self.pins.iter().any(goes_back);
        ours.then_some(kept)
    }

    fn keys(&self) -> &'a [HubKey] {
        self.kept().map_or(self.pins, |kept| &kept.bundle.keyset)
    }

    fn keep(&self, said: &Said<'_>, bundle: &TrustBundle) -> Verdict {
        let before = self.kept.filter(|kept| {
            let shares = |key: &HubKey| kept.bundle.keyset.iter().any(|k| k.key == key.key);
            self.kept().is_some() || bundle.keyset.iter().any(shares)
        });
        let mut pins = before.map(|kept| kept.pins.clone()).unwrap_or_default();
        pins.extend(self.pins.iter().map(|pin| pin.key.clone()));
        pins.sort();
        pins.dedup();
        Verdict::Newer(Box::new(Kept {
            hub_id: said.hub_id.to_owned(),
            bundle: bundle.clone(),
            pins,
        }))
    }
}

impl Kept {
    /// How the hub is found and known by it.
    pub fn hub(&self) -> HubRef {
        HubRef {
            id: self.hub_id.clone(),
            urls: self.bundle.urls.clone(),
            ca: self.bundle.ca.clone(),
            keyset: self.bundle.keyset.clone(),
        }
    }
}

/// Judges what a hub says of itself by what is trusted so far.
pub fn judge(said: &Said<'_>, roots: &Roots<'_>) -> Verdict {
    let trusted = roots.keys();
    let pinned = !trusted.is_empty();
    let refused = |why| {
        let said = said
            .keyset
            .or_else(|| said.bundle.map(|b| b.keyset.as_slice()));
        Verdict::Refused(Refusal {
            why,
            said: fingerprints(said.unwrap_or_default()),
            trusted: fingerprints(trusted),
        })
    };
    // A hub that is asked without any authentication has nothing but its signature.
    let shares = said
        .keyset
        .is_none_or(|keys| keys.iter().any(|key| is_in(key, trusted, roots.now)));
    let Some(bundle) = said.bundle else {
        return match (pinned, said.keyset) {
            (false, Some(_)) => Verdict::Unpinned,
            (true, Some(_)) if shares => Verdict::Unsigned,
            (_, Some(_) | None) => refused(Why::Foreign),
        };
    };
    let signers = if pinned {
        trusted
    } else {
        said.keyset.unwrap_or_default()
    };
    if !is_signed(said.hub_id, bundle, signers, roots.now) {
        return refused(Why::Signature);
    }
    let covered = said
        .keyset
        .is_none_or(|keys| keys.iter().all(|key| bundle.keyset.contains(key)));
    match roots.kept() {
        Some(kept) if bundle.version < kept.bundle.version && shares => Verdict::Older,
        Some(kept) if bundle.version < kept.bundle.version => refused(Why::Foreign),
        _ if !is_usable(bundle, roots.now) => refused(Why::Unusable),
        _ if !covered => refused(Why::Keyset),
        Some(kept) if bundle.version > kept.bundle.version => roots.keep(said, bundle),
        Some(kept) if is_same(bundle, &kept.bundle) && kept.hub_id == said.hub_id => Verdict::Same,
        Some(_) => refused(Why::Forked),
        None => roots.keep(said, bundle),
    }
}

/// How far the sets with which the hub's key changed lead from what is trusted; what leads nowhere is passed over, for it is
/// of a time before.
fn advance(hub_id: &str, chain: &[TrustBundle], roots: &Roots<'_>) -> Option<Kept> {
    let mut reached: Option<Kept> = None;
    for bundle in chain.iter().take(MOST) {
        let said = Said {
            hub_id,
            keyset: None,
            bundle: Some(bundle),
        };
        if let Verdict::Newer(next) = judge(&said, &roots.after(reached.as_ref())) {
            reached = Some(*next);
        }
    }
    reached
}

/// What is kept after an answer that nothing vouches for but the signatures in it; `None` = what was kept before.
pub fn unvouched(
    hub_id: &str,
    bundle: Option<&TrustBundle>,
    chain: &[TrustBundle],
    roots: &Roots<'_>,
) -> Result<Option<Kept>, Refusal> {
    let reached = advance(hub_id, chain, roots);
    let said = Said {
        hub_id,
        keyset: None,
        bundle,
    };
    match judge(&said, &roots.after(reached.as_ref())) {
        Verdict::Newer(kept) => Ok(Some(*kept)),
        Verdict::Same | Verdict::Older | Verdict::Unsigned | Verdict::Unpinned => Ok(reached),
        Verdict::Refused(refusal) => Err(refusal),
    }
}

/// The hub that is in force after an answer, and what is kept for it. `now` is what it says of itself, `chain` how its key
/// came to be, `before` what was in force without a kept set.
pub fn settle(
    now: &HubRef,
    bundle: Option<&TrustBundle>,
    chain: &[TrustBundle],
    roots: &Roots<'_>,
    before: &HubRef,
) -> Result<(HubRef, Option<Kept>), Refusal> {
    let said = Said {
        hub_id: &now.id,
        keyset: Some(&now.keyset),
        bundle,
    };
    let reached = advance(&now.id, chain, roots);
    let roots = &roots.after(reached.as_ref());
    match judge(&said, roots) {
        Verdict::Unpinned => Ok((now.clone(), None)),
        Verdict::Newer(kept) => Ok((kept.hub(), Some(*kept))),
        Verdict::Same | Verdict::Older | Verdict::Unsigned => {
            let hub = roots.kept().map_or_else(|| before.clone(), Kept::hub);
            // What another YAML's keys do not lead to may count again with the next.
            let kept = roots.kept.filter(|_| !roots.anew || roots.kept().is_some());
            Ok((hub, kept.cloned()))
        }
        Verdict::Refused(refusal) => Err(refusal),
    }
}

/// A set with the signature of `key`.
pub fn sign(
    hub_id: &str,
    mut bundle: TrustBundle,
    key: impl FnOnce(&[u8]) -> [u8; 64],
) -> TrustBundle {
    bundle.sig = keys::encode(&key(trust_input(hub_id, &bundle).as_bytes()));
    bundle
}

fn is_signed(hub_id: &str, bundle: &TrustBundle, keys: &[HubKey], now: i64) -> bool {
    // The signed lines are told apart by their ends.
    let words = bundle.keyset.iter().flat_map(|key| [&key.kid, &key.key]);
    let words = words.chain(&bundle.urls).map(String::as_str);
    let plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_graphic());
    let bounded = bundle.urls.len() <= MOST && bundle.keyset.len() <= MOST;
    if !bounded || !words.chain([hub_id]).all(plain) {
        return false;
    }
    let Some(signature) = keys::decode(&bundle.sig) else {
        return false;
    };
    let message = trust_input(hub_id, bundle);
    keys.iter()
        .filter(|key| is_valid(key, now))
        .filter_map(|key| Public::from_base64(&key.key).ok())
        .any(|key| key.verify(message.as_bytes(), &signature))
}

fn is_usable(bundle: &TrustBundle, now: i64) -> bool {
    let readable = |key: &HubKey| is_valid(key, now) && Public::from_base64(&key.key).is_ok();
    !bundle.urls.is_empty()
        && bundle.urls.iter().all(|url| url.starts_with("https://"))
        && bundle.keyset.iter().any(readable)
}

fn is_same(one: &TrustBundle, other: &TrustBundle) -> bool {
    let TrustBundle {
        version,
        urls,
        ca,
        keyset,
        // Another key of the set may have signed it since.
        sig: _,
    } = one;
    (version, urls, ca, keyset) == (&other.version, &other.urls, &other.ca, &other.keyset)
}

fn is_in(key: &HubKey, trusted: &[HubKey], now: i64) -> bool {
    trusted.iter().any(|t| t.key == key.key && is_valid(t, now))
}

fn is_valid(key: &HubKey, now: i64) -> bool {
    key.not_after.is_none_or(|end| now < end)
}

/// At most four, for people.
fn fingerprints(keys: &[HubKey]) -> Vec<String> {
    if keys.is_empty() {
        return vec!["none".to_owned()];
    }
    let print = |key: &HubKey| {
        Public::from_base64(&key.key).map_or_else(|_| "not a key".to_owned(), Public::fingerprint)
    };
    keys.iter().take(4).map(print).collect()
}

#[cfg(test)]
mod tests;
