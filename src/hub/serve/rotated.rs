//! Another key or CA that clusters know the hub by, on record. `linesman hub rotate` changes files, so the hub that sees them changed
//! puts it there, also when it was stopped meanwhile; of several replicas, the one that leads.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use crate::hub::store::Noted;
use crate::hub::trust::Said;
use crate::hub::{Hub, audit};
use crate::keys;

/// By what clusters know the hub. Fingerprints as `linesman hub rotate` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    /// The newest key, be it only told.
    key: String,
    /// In their order: the present one first.
    cas: Vec<String>,
}

impl Known {
    fn of(said: &Said) -> Self {
        let cas = CertificateDer::pem_slice_iter(said.trust.ca.as_bytes());
        let cas = cas.filter_map(Result::ok);
        Self {
            key: said.keys.public().fingerprint(),
            cas: cas.map(|ca| keys::sha256_hex(&ca)).collect(),
        }
    }

    /// What is new to who knew the hub by `before`: `key A -> B`. One that is told no longer is not.
    fn since(&self, before: &Self) -> Vec<String> {
        let mut new = Vec::new();
        if self.key != before.key {
            new.push(format!("key {} -> {}", before.key, self.key));
        }
        let known: BTreeSet<_> = before.cas.iter().collect();
        let none = "none".to_owned();
        let former = before.cas.first().unwrap_or(&none);
        for ca in self.cas.iter().filter(|ca| !known.contains(ca)) {
            new.push(format!("ca {former} -> {ca}"));
        }
        new
    }
}

/// Puts on record what is new since that was done last; true = it is, or there was nothing.
pub(super) async fn record(hub: &Hub) -> Result<bool> {
    if hub.replica.as_ref().is_some_and(|own| !own.leads()) {
        return Ok(false);
    }
    let now = Known::of(&hub.says());
    let noted = hub.store.noted(Noted::Known).await?;
    let before: Option<Known> = noted.and_then(|text| serde_json::from_str(&text).ok());
    if before.as_ref() == Some(&now) {
        return Ok(true);
    }
    for new in before.map(|before| now.since(&before)).unwrap_or_default() {
        tracing::info!(new, "the hub is known by another key or CA from now on");
        let entry = audit::Entry {
            actor: "hub".to_owned(),
            action: "hub.rotate".to_owned(),
            target: new,
            ..audit::Entry::default()
        };
        hub.audit.event(entry).await?;
    }
    let text = serde_json::to_string(&now).context("note the hub's key and CA")?;
    hub.store.note(Noted::Known, Some(text)).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(key: &str, cas: &[&str]) -> Known {
        Known {
            key: key.to_owned(),
            cas: cas.iter().map(ToString::to_string).collect(),
        }
    }

    /// Told beside the present one, then first, then alone: that is one change.
    #[test]
    fn each_change_is_told_once_in_the_words_of_the_command() {
        let start = known("SHA256:a", &["1"]);
        let told = known("SHA256:a", &["1", "2"]);
        let serves = known("SHA256:a", &["2", "1"]);
        let alone = known("SHA256:b", &["2"]);
        assert_eq!(told.since(&start), ["ca 1 -> 2"]);
        assert_eq!(serves.since(&told), Vec::<String>::new());
        assert_eq!(alone.since(&serves), ["key SHA256:a -> SHA256:b"]);
        assert_eq!(start.since(&known("SHA256:a", &[])), ["ca none -> 1"]);
    }
}
