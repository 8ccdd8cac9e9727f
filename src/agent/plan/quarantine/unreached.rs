//! A source-controller that is available and answers, and whose artifacts nobody can fetch: it gives an address at which it is not
//! found (`--storage-adv-addr`). What shows it is what kustomize-controller says of the root (F10, F32).

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::harm::DEAF;
use super::hold;
use crate::agent::engine::Install;
use crate::agent::plan::fault::Class;
use crate::agent::plan::find::Finding;
use crate::agent::plan::health::{HANDED, pods_of, root_fault, works};
use crate::agent::plan::shard;
use crate::agent::plan::state::{History, Object, Observed};
use crate::bundle::ObjectId;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::wire::api::EngineKind;

/// How kustomize-controller says that it fetches (its `reconcile`). It tries ten times, 5 to 30 s apart (`pkg/http/fetch`), and says
/// only then that it failed; so for longer than [`DEAF`] it does not try where it could have fetched.
const FETCHES: &str = "Fetching manifests";

/// Where source-controller says that it is found.
const ADDRESS: &str = "--storage-adv-addr";
/// So long after its start source-controller has told its address anew.
const TOLD: Duration = Duration::seconds(30);

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
    let runs = |name: &str| runs(observed, name);
    let fetcher = install.controller(&install.sync);
    let is_up = observed.objects.get(&fetcher).is_some_and(|f| works(f));
    // One that ended in a fetch leaves what it said of it, which nobody does any more.
    if vain.since.is_some() && !is_up {
        return None;
    }
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

/// A fetch that goes on where a held version of source-controller told it to, while the mended one tells the right address. Who fetches
/// looks at no other before all of its tries have failed, some three minutes later. One that has lasted for [`DEAF`] by then is no
/// download that the change cut off: that is tried again sooner.
pub fn astray(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, root): (&ObjectId, &Object),
) -> Option<Finding> {
    if install.traits.kind != EngineKind::Flux || *id != install.sync {
        return None;
    }
    let serves = install.controller(&install.source);
    let mended = observed.objects.get(&serves).filter(|live| works(live))?;
    let held = hold(mended).filter(|hold| hold.lifted.is_none())?;
    let held = parse_rfc3339(&held.since)?;
    let (since, text) = fetching(root)?;
    let up = runs(observed, &serves.name)?;
    // One that was started since then begins at the right address by itself.
    let fetcher = runs(observed, &install.controller(id).name)?;
    if since > held || up < held || fetcher > since || now - since <= DEAF {
        return None;
    }
    let told = tells(install, observed, mended) || now - up > TOLD;
    told.then(|| {
        let (since, up) = (rfc3339(since), rfc3339(up));
        let text =
            format!("{text}, since {since}; {serves} was mended meanwhile and runs since {up}");
        Finding::new(Class::QueueWedged, id, text)
    })
}

/// Whether the catalog's source has the address that its controller has to tell.
fn tells(install: &Install, observed: &Observed, serves: &Object) -> bool {
    let source = observed.objects.get(&install.source);
    let address = shard::argument(&serves.fields, ADDRESS);
    source.zip(address).is_some_and(|(source, address)| {
        let address = address.replace("$(RUNTIME_NAMESPACE)", &install.namespace);
        let url = source.text("/status/artifact/url");
        url.starts_with(&format!("http://{address}/"))
    })
}

/// Since when the newest of a controller's Pods runs.
fn runs(observed: &Observed, name: &str) -> Option<OffsetDateTime> {
    pods_of(observed, name).filter_map(|pod| pod.running).max()
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
        let (since, message) = fetching(root)?;
        Some(Self {
            since: Some(since),
            until: now,
            text: format!("{message}, since {}", rfc3339(since)),
        })
    }
}

/// Since when a root is fetched for, and how that is said.
fn fetching(root: &Object) -> Option<(OffsetDateTime, &str)> {
    let (status, ..) = root.condition("Ready")?;
    let (under_way, reason, message) = root.condition("Reconciling")?;
    // What failed is still called so until it is tried again. A fetch that begins right behind a try that succeeded may leave the root
    // ready until it ends: kustomize-controller writes what differs from what it read (`pkg/runtime/patch`), and that was a moment old.
    let fetches = status != "False"
        && under_way == "True"
        && reason == "Progressing"
        && message.starts_with(FETCHES);
    let since = said_at(root, "Reconciling").filter(|_| fetches)?;
    Some((since, message))
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
