//! The trust bundle that this hub gives out, and how its key came to be. The bundle's number is kept in the data directory
//! and rises whenever its content changes.
//!
//! Another key is told first, while the one before still signs in the hubs that run ([`Times::used`]); then it signs, and the
//! one before counts for a while yet.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::hub::serve::keep_secret;
use crate::hub::{HubKeys, kid};
use crate::keys::KeyPair;
use crate::trust;
use crate::wire::api::{HubKey, HubRef, TrustBundle};

/// In the data directory. Without it, the next number is as late as the clock, and clusters that know a key before have to
/// be readopted.
const FILE: &str = "trust.json";
/// Changes of the key that a cluster may sleep through.
const CHAIN: usize = 16;
/// A key that ends so soon signs nothing more.
const LAST_WORD: Duration = Duration::seconds(10);

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

/// What was given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    hub_id: String,
    bundle: TrustBundle,
    /// The sets that brought another key, oldest first, each signed by the key before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chain: Vec<TrustBundle>,
    /// The public halves of the keys before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<HubKey>,
    /// From when the present key signs, in unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signs: Option<i64>,
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

fn keep(data: &Path, given: &Given) -> Result<()> {
    keep_secret(&data.join(FILE), &serde_json::to_string(given)?)
}

/// `active`, and the keys before it, each with its end.
pub fn keys(data: &Path, active: KeyPair) -> Result<HubKeys> {
    let mut former = kept(data)?.map(|given| given.former).unwrap_or_default();
    // A change that was cut off has made none of the present one.
    former.retain(|key| key.key != active.public().to_base64());
    Ok(HubKeys::new(active).with_former(former))
}

/// The same for a hub that runs: what signed before goes on while the present key is only told.
pub fn keys_after(
    data: &Path,
    active: KeyPair,
    before: &HubKeys,
    now: OffsetDateTime,
) -> Result<HubKeys> {
    let told = kept(data)?.and_then(|given| given.signs);
    let next = keys(data, active)?;
    let waits = told.is_some_and(|signs| now.unix_timestamp() < signs);
    // Its last word has to hold until it is read.
    let soon = (now + LAST_WORD).unix_timestamp();
    let counts = next.keyset(soon).iter().any(|key| key.kid == before.kid());
    Ok(if waits && counts {
        next.signed_by(before)
    } else {
        next
    })
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
        signs: mine.and_then(|kept| kept.signs),
    };
    // Before any agent hears of it: a number is never given to another content.
    if kept.as_ref() != Some(&given) {
        keep(data, &given)?;
    }
    Ok((given.bundle, given.chain))
}

/// Vouches with the present key for the one that shall sign next. Beyond the hubs that run, its private half is of no use any
/// more: a cluster that sleeps for a year is led by what is written here.
pub fn succeed(data: &Path, active: &KeyPair, next: &KeyPair, times: Times) -> Result<TrustBundle> {
    let Times { now, used, ends } = times;
    let missing = || {
        let file = data.join(FILE);
        format!(
            "{} is not there: this hub has told nobody of its key yet; start it once",
            file.display()
        )
    };
    let mut given = kept(data)?.with_context(missing)?;
    let key = |pair: &KeyPair, not_after| HubKey {
        kid: kid(pair.public()),
        key: pair.public().to_base64(),
        not_after,
    };
    let clock = u64::try_from(now.unix_timestamp()).unwrap_or_default();
    let before = key(active, Some(ends.unix_timestamp()));
    // As the hub will say it, so that this is one change to all that see it.
    let bundle = TrustBundle {
        version: given.bundle.version.saturating_add(1).max(clock),
        keyset: vec![key(next, None), before.clone()],
        sig: String::new(),
        ..given.bundle.clone()
    };
    let bundle = trust::sign(&given.hub_id, bundle, |message| active.sign(message));
    given.chain.push(bundle.clone());
    let over = given.chain.len().saturating_sub(CHAIN);
    given.chain.drain(..over);
    given.former.retain(|key| key.key != before.key);
    given.former.push(before);
    given.bundle = bundle.clone();
    given.signs = Some(used.unix_timestamp());
    keep(data, &given)?;
    Ok(bundle)
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
