//! The trust bundle that this hub gives out. Its number is kept in the data directory and rises whenever its content
//! changes.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::hub::HubKeys;
use crate::hub::serve::keep_secret;
use crate::trust;
use crate::wire::api::{HubRef, TrustBundle};

/// In the data directory. Without it, the next number is as late as the clock.
const FILE: &str = "trust.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    hub_id: String,
    bundle: TrustBundle,
}

/// The bundle for what the hub is now. Replicas have a turn at the data directory while they ask.
pub fn current(
    data: &Path,
    hub: &HubRef,
    keys: &HubKeys,
    now: OffsetDateTime,
) -> Result<TrustBundle> {
    let path = data.join(FILE);
    let kept = std::fs::read(&path).ok();
    let kept = kept.and_then(|bytes| serde_json::from_slice::<Given>(&bytes).ok());
    let version = version(kept.as_ref(), hub, now.unix_timestamp());
    let bundle = TrustBundle {
        version,
        urls: hub.urls.clone(),
        ca: hub.ca.clone(),
        keyset: hub.keyset.clone(),
        sig: String::new(),
    };
    let given = Given {
        hub_id: hub.id.clone(),
        bundle: trust::sign(&hub.id, bundle, |message| keys.sign(message)),
    };
    // Before any agent hears of it: a number is never given to another content.
    if kept.as_ref() != Some(&given) {
        keep_secret(&path, &serde_json::to_string(&given)?)?;
    }
    Ok(given.bundle)
}

/// The number of what a hub says of itself. Of another content it is later than the clock: a hub that came back from a
/// backup has forgotten numbers that agents have seen.
fn version(kept: Option<&Given>, hub: &HubRef, now: i64) -> u64 {
    let clock = u64::try_from(now).unwrap_or_default();
    let Some(Given { hub_id, bundle }) = kept else {
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
mod tests {
    use super::*;
    use crate::keys::KeyPair;

    const NOW: OffsetDateTime =
        OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::seconds(1000));

    #[test]
    fn the_number_stays_with_the_content_and_rises_with_each_other_one() {
        let data = std::env::temp_dir().join(format!("linesman-trust-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        std::fs::create_dir_all(&data).unwrap();
        let keys = HubKeys::new(KeyPair::from_seed(&[1; 32]));
        let hub = |ca: &str| HubRef {
            id: "h".to_owned(),
            urls: vec!["https://hub.example".to_owned()],
            ca: ca.to_owned(),
            keyset: keys.keyset(),
        };
        let given = |hub: &HubRef, after: i64| {
            let now = NOW + time::Duration::seconds(after);
            current(&data, hub, &keys, now).unwrap()
        };
        let first = given(&hub("a"), 0);
        assert_eq!(first.version, 1000);
        assert_eq!(given(&hub("a"), 60), first);
        assert_eq!(given(&hub("b"), 60).version, 1060);
        // Twice within a second, and by a clock that was set back.
        assert_eq!(given(&hub("a"), 60).version, 1061);
        assert_eq!(given(&hub("b"), -500).version, 1062);
        // A backup of the first day has forgotten these.
        std::fs::remove_file(data.join(FILE)).unwrap();
        assert_eq!(given(&hub("a"), 3600).version, 4600);
        std::fs::remove_dir_all(data).unwrap();
    }
}
