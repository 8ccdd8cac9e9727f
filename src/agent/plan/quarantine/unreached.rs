//! A source-controller that is available and answers, and whose artifacts nobody can fetch: it gives an address at which it is not
//! found (`--storage-adv-addr`). What shows it is what kustomize-controller says of the root (F10, F32).

use serde_json::Value;
use time::OffsetDateTime;

use super::harm::DEAF;
use crate::agent::engine::Install;
use crate::agent::plan::fault::Class;
use crate::agent::plan::health::{HANDED, pods_of, root_fault};
use crate::agent::plan::state::{History, Object, Observed};
use crate::bundle::ObjectId;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::wire::api::EngineKind;

/// How kustomize-controller says that it fetches (its `reconcile`). It tries ten times, 5 to 30 s apart (`pkg/http/fetch`), and says
/// only then that it failed; so for longer than [`DEAF`] it does not try where it could have fetched.
const FETCHES: &str = "Fetching manifests";

/// Why source-controller is of no use as it is, whoever wrote it last.
pub(super) fn unreached(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> Option<String> {
    let serves =
        install.traits.kind == EngineKind::Flux && install.controller(&install.source) == *id;
    let root = observed.objects.get(&install.sync).filter(|_| serves)?;
    let vain = Vain::of(now, root)?;
    let runs = |name: &str| pods_of(observed, name).filter_map(|pod| pod.running).max();
    let fetcher = install.controller(&install.sync);
    let since = [
        vain.since,
        live.written,
        // It serves once it leads.
        said_at(live, "Available"),
        runs(&id.name),
        // Until then what it said may be the word of the one before it, whose Lease held.
        runs(&fetcher.name).map(|at| at + HANDED),
        history.at_work,
    ];
    let since = since.into_iter().flatten().max()?;
    let long = vain.until - since > DEAF;
    long.then(|| {
        let sync = &install.sync;
        format!("runs, but nobody fetches from it for {sync}: {}", vain.text)
    })
}

/// A fetch that has come to nothing.
struct Vain {
    /// None = it is not said.
    since: Option<OffsetDateTime>,
    until: OffsetDateTime,
    text: String,
}

impl Vain {
    fn of(now: OffsetDateTime, root: &Object) -> Option<Self> {
        let (status, reason, message) = root.condition("Ready")?;
        if status == "False" && root_fault(reason, message) == Some(Class::ArtifactUnreachable) {
            return Some(Self {
                since: None,
                until: said_at(root, "Ready")?,
                text: format!("{reason}: {message}"),
            });
        }
        let (under_way, reason, message) = root.condition("Reconciling")?;
        // What failed is still called so until it is tried again.
        let fetches = status == "Unknown"
            && under_way == "True"
            && reason == "Progressing"
            && message.starts_with(FETCHES);
        let since = said_at(root, "Reconciling").filter(|_| fetches)?;
        Some(Self {
            since: Some(since),
            until: now,
            text: format!("{message}, since {}", rfc3339(since)),
        })
    }
}

/// Since when a condition is as it is.
pub(super) fn said_at(live: &Object, kind: &str) -> Option<OffsetDateTime> {
    let conditions = live.fields.pointer("/status/conditions")?.as_array()?;
    let mut conditions = conditions.iter();
    let of = conditions.find(|c| c.get("type").and_then(Value::as_str) == Some(kind))?;
    parse_rfc3339(of.get("lastTransitionTime")?.as_str()?)
}

#[cfg(test)]
mod tests;
