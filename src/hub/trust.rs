//! The trust bundle that this hub gives out, and how its key came to be. The bundle's number is kept in the data directory
//! and rises whenever its content changes.
//!
//! Another key is told first ([`Times::used`]), beside the one that signs until then; then it signs, and the one before counts
//! for a while yet. All of that is in one file, with the private half of the next key: none is told and lost, and none is there
//! that nobody vouched for. A replica that starts meanwhile says and signs what those that run do.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::hub::serve::{KEY_COMMENT, keep_secret};
use crate::hub::{HubKeys, kid};
use crate::keys::KeyPair;
use crate::secret::Secret;
use crate::trust;
use crate::wire::api::{HubKey, HubRef, TrustBundle};

/// In the data directory. Without it, the next number is as late as the clock, and clusters that know a key before have to
/// be readopted.
const FILE: &str = "trust.json";
/// Changes of the key that a cluster may sleep through.
const CHAIN: usize = 16;

/// When what replaces a key or a CA takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub now: OffsetDateTime,
    /// Until then it is only told.
    pub used: OffsetDateTime,
    /// Until then what was before counts.
    pub ends: OffsetDateTime,
}

/// What this hub says of itself at one moment, and the keys that it says it with.
#[derive(Debug, Clone)]
pub struct Said {
    pub keys: HubKeys,
    /// What agents believe of this hub: its URLs, CA and keys, signed.
    pub trust: TrustBundle,
    /// How its key came to be ([`crate::wire::api::Assignment::trust_chain`]).
    pub chain: Vec<TrustBundle>,
}

impl Said {
    /// How clusters find and trust the hub of this id.
    pub fn reference(&self, id: &str) -> HubRef {
        HubRef {
            id: id.to_owned(),
            urls: self.trust.urls.clone(),
            ca: self.trust.ca.clone(),
            keyset: self.trust.keyset.clone(),
        }
    }
}

/// What was given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    hub_id: String,
    bundle: TrustBundle,
    /// The sets that brought another key, oldest first, each signed by the key before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chain: Vec<TrustBundle>,
    /// The public halves of the keys before, oldest first; that of the key that signs too, while the next one is only told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<HubKey>,
    /// The key that is only told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Next>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Next {
    /// From then on it signs, in unix seconds.
    used: i64,
    /// As in the file of the key that signs.
    #[serde(with = "half")]
    key: Secret<String>,
}

/// A private half goes into the file, and nowhere else.
mod half {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::secret::Secret;

    pub(super) fn serialize<S: Serializer>(key: &Secret<String>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(key.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Secret<String>, D::Error> {
        String::deserialize(from).map(Secret::new)
    }
}

impl Given {
    /// The key that is to sign after `signs`, and from when on. One that another key vouched for is of no use to this one.
    fn next_after(&self, signs: &KeyPair) -> Result<Option<(KeyPair, i64)>> {
        let Some(next) = &self.next else {
            return Ok(None);
        };
        let pair = KeyPair::from_openssh(next.key.expose())
            .with_context(|| format!("read the key that {FILE} tells of"))?;
        let own = signs.public().to_base64();
        let follows = self.former.iter().any(|key| key.key == own);
        Ok((follows || pair.public() == signs.public()).then_some((pair, next.used)))
    }

    /// From `end` on, in unix seconds, the key counts no more.
    fn retire(&mut self, pair: &KeyPair, end: i64) {
        let key = public(pair, Some(end));
        self.former.retain(|former| former.key != key.key);
        self.former.push(key);
    }
}

fn public(pair: &KeyPair, not_after: Option<i64>) -> HubKey {
    HubKey {
        kid: kid(pair.public()),
        key: pair.public().to_base64(),
        not_after,
    }
}

fn kept(data: &Path) -> Result<Option<Given>> {
    let path = data.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    // A file that a person has to look at is never written over: what it had may be all that clusters go by.
    let given = serde_json::from_slice(&text).with_context(|| {
        let path = path.display();
        format!(
            "read {path}; restore it from the backup, or delete it: clusters that know a hub key before the present one then \
             have to be readopted"
        )
    })?;
    Ok(Some(given))
}

/// Whether this hub has told anybody of its key.
pub fn is_kept(data: &Path) -> bool {
    data.join(FILE).exists()
}

/// The CA that agents were told of last; empty where they trust their systems' roots.
pub fn told_ca(data: &Path) -> Result<Option<String>> {
    Ok(kept(data)?.map(|given| given.bundle.ca))
}

fn keep(data: &Path, given: &Given) -> Result<()> {
    keep_secret(&data.join(FILE), &serde_json::to_string(given)?)
}

/// The key that signs, the one that is told of beside it, and those before, each with its end.
pub fn keys(data: &Path, signs: &KeyPair) -> Result<HubKeys> {
    let given = kept(data)?;
    let next = given.as_ref().map(|given| given.next_after(signs));
    let newest = match next.transpose()?.flatten() {
        Some((next, _)) => next,
        None => signs.clone(),
    };
    let mut former = given.map(|given| given.former).unwrap_or_default();
    // A change that was cut off has made none of the present one.
    former.retain(|key| key.key != newest.public().to_base64());
    Ok(HubKeys::new(newest).with_former(former).signed_by(signs))
}

/// The key whose time it is to sign in the place of `signs`. Whoever asks has a turn at the data directory, stores it, and says so
/// ([`took_up`]).
pub fn due(data: &Path, signs: &KeyPair, now: OffsetDateTime) -> Result<Option<KeyPair>> {
    let next = kept(data)?.map(|given| given.next_after(signs));
    let due = next.transpose()?.flatten();
    let due = due.filter(|(_, used)| *used <= now.unix_timestamp());
    Ok(due.map(|(key, _)| key))
}

/// The next key is where the one that signs is, and nowhere else from now on.
pub fn took_up(data: &Path) -> Result<()> {
    match kept(data)? {
        Some(given) => keep(
            data,
            &Given {
                next: None,
                ..given
            },
        ),
        None => Ok(()),
    }
}

/// The bundle for what the hub is now, and the sets that lead to its key. Replicas have a turn at the data directory while
/// they ask.
pub fn current(
    data: &Path,
    hub: &HubRef,
    keys: &HubKeys,
    now: OffsetDateTime,
) -> Result<(TrustBundle, Vec<TrustBundle>)> {
    let kept = kept(data)?;
    let bundle = TrustBundle {
        version: version(kept.as_ref(), hub, now.unix_timestamp()),
        urls: hub.urls.clone(),
        ca: hub.ca.clone(),
        keyset: hub.keyset.clone(),
        sig: String::new(),
    };
    let mine = kept.as_ref().filter(|kept| kept.hub_id == hub.id);
    let given = Given {
        hub_id: hub.id.clone(),
        bundle: trust::sign(&hub.id, bundle, |message| keys.vouch(message)),
        chain: mine.map(|kept| kept.chain.clone()).unwrap_or_default(),
        former: mine.map(|kept| kept.former.clone()).unwrap_or_default(),
        next: mine.and_then(|kept| kept.next.clone()),
    };
    // Before any agent hears of it: a number is never given to another content.
    if kept.as_ref() != Some(&given) {
        keep(data, &given)?;
    }
    Ok((given.bundle, given.chain))
}

/// Another key, told from now on.
#[derive(Debug)]
pub struct Told {
    /// The newest key until now.
    pub before: KeyPair,
    pub bundle: TrustBundle,
}

/// Vouches with the newest key for the next one, which shall take the place of `signs`, and keeps it. One that was told before
/// and does not sign yet never will: its private half ends with this.
pub fn succeed(data: &Path, signs: &KeyPair, next: &KeyPair, times: Times) -> Result<Told> {
    let missing = || {
        let file = data.join(FILE);
        format!(
            "{} is not there: this hub has told nobody of its key yet; start it once",
            file.display()
        )
    };
    let mut given = kept(data)?.with_context(missing)?;
    let [now, used, ends] = [times.now, times.used, times.ends].map(OffsetDateTime::unix_timestamp);
    let before = match given.next_after(signs)? {
        Some((told, _)) => {
            given.retire(&told, now);
            told
        }
        None => signs.clone(),
    };
    given.retire(signs, ends);
    let clock = u64::try_from(now).unwrap_or_default();
    let key = next.openssh(KEY_COMMENT).context("encode a key")?;
    given.next = Some(Next { used, key });
    // As the hub will say it, so that this is one change to all that see it.
    let keys = HubKeys::new(next.clone()).with_former(given.former.clone());
    let bundle = TrustBundle {
        version: given.bundle.version.saturating_add(1).max(clock),
        keyset: keys.keyset(now),
        sig: String::new(),
        ..given.bundle.clone()
    };
    let bundle = trust::sign(&given.hub_id, bundle, |message| before.sign(message));
    given.chain.push(bundle.clone());
    let over = given.chain.len().saturating_sub(CHAIN);
    given.chain.drain(..over);
    given.bundle = bundle.clone();
    keep(data, &given)?;
    Ok(Told { before, bundle })
}

/// The number of what a hub says of itself. Of another content it is later than the clock: a hub that came back from a
/// backup has forgotten numbers that agents have seen.
fn version(kept: Option<&Given>, hub: &HubRef, now: i64) -> u64 {
    let clock = u64::try_from(now).unwrap_or_default();
    let Some(Given { hub_id, bundle, .. }) = kept else {
        return clock;
    };
    let said = (hub_id, &bundle.urls, &bundle.ca, &bundle.keyset);
    if said == (&hub.id, &hub.urls, &hub.ca, &hub.keyset) {
        bundle.version
    } else {
        bundle.version.saturating_add(1).max(clock)
    }
}

#[cfg(test)]
mod tests;
