//! The engine's own roots, and what says whom it trusts. They are never Git's: what the engine follows is what the hub
//! assigned. A commit may have them all the same, and then the engine takes back each repair, until it follows something
//! else and no commit reaches it.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::commit;
use crate::agent::engine::Install;
use crate::agent::engine::argocd::SKIP;
use crate::agent::engine::flux;
use crate::agent::plan::fault::Class;
use crate::agent::plan::find::Finding;
use crate::agent::plan::state::{History, Object, Observed};
use crate::agent::plan::{applied, undecodable};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

/// What leads a root Application elsewhere although its source is as assigned: Argo CD reads these first.
const LEADS: [&str; 2] = ["/spec/sources", "/spec/sourceHydrator"];
/// What a root GitRepository follows instead of the branch that was assigned: source-controller reads these first.
/// <https://fluxcd.io/flux/components/source/gitrepositories/#reference>
const PINS: [&str; 4] = [
    "/spec/ref/commit",
    "/spec/ref/name",
    "/spec/ref/semver",
    "/spec/ref/tag",
];
/// What stops a root of Flux.
pub const SUSPEND: &str = "/spec/suspend";
/// With what a root Kustomization applies all that it brings to another cluster, to one Namespace or under other names: what was
/// there before is pruned then. <https://fluxcd.io/flux/components/kustomize/kustomizations/>
const ELSEWHERE: [&str; 4] = [
    "/spec/kubeConfig",
    "/spec/targetNamespace",
    "/spec/namePrefix",
    "/spec/nameSuffix",
];
/// A duration of a root GitRepository that nobody assigned: with one that Go cannot hold source-controller reads none of its kind.
const TIMEOUT: &str = "/spec/timeout";
/// For so long after a write nothing may be told of the operation that did it; mostly it is told within a second.
const UNTOLD: Duration = Duration::seconds(5);
/// What of a source says where a commit comes from.
const SOURCE: [&str; 3] = ["repoURL", "targetRevision", "path"];

/// One of them that differs: with the commit that made it so, where it was the engine that wrote it last.
pub fn brought(
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
    mut finding: Finding,
) -> Finding {
    let Some(commit) = rewritten(install, observed, history, (id, live)) else {
        return finding;
    };
    if applied::is_stopped_by_a_commit(history, live) == Some(true) {
        install.traits.applier.clone_into(&mut finding.writer);
        finding.fault_at = live.applied.and_then(|applied| applied.at);
    }
    finding.evidence = format!("{}; commit {commit} has it so", finding.evidence);
    finding.brought_by(commit)
}

/// The commit of which the engine wrote one of them last, where that is known.
fn rewritten(
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> Option<String> {
    let assigned = install.trusts(id) || install.roots().any(|root| root == id);
    if !assigned || !is_by_the_engine(install, history, (id, live)) {
        return None;
    }
    let commit = commit(install, observed, id);
    (!commit.is_empty()).then_some(commit)
}

/// Whether it was the engine that brought one of them last to what it is.
fn is_by_the_engine(
    install: &Install,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> bool {
    let stopped = applied::is_stopped_by_a_commit(history, live);
    let wrote = live.writer == install.traits.applier || is_suspended_by_flux(id, live);
    stopped.unwrap_or(wrote)
}

/// Whether it is not known yet of which commit Argo CD wrote one of them. A new operation begins with the one before
/// forgotten, and a look that was under way may write the status of before over both: what is there then names the commit
/// before, while this one is being applied.
pub fn is_untold(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> bool {
    let assigned = install.trusts(id) || install.roots().any(|root| root == id);
    let written = match applied::is_stopped_by_a_commit(history, live) {
        Some(_) => live.applied.and_then(|applied| applied.at),
        None => live.written,
    };
    let Some(at) = written.filter(|at| (now - *at).abs() < UNTOLD) else {
        return false;
    };
    let root = observed.objects.get(&install.sync);
    let operation = root.and_then(|root| root.fields.pointer("/status/operationState"));
    let ended = operation.and_then(|state| parse_rfc3339(state.get("finishedAt")?.as_str()?));
    install.traits.kind == EngineKind::Argocd
        && assigned
        && is_by_the_engine(install, history, (id, live))
        && (operation.is_none_or(Value::is_null) || ended.is_some_and(|ended| ended < at))
}

/// Whether it was a commit that stopped a root. No other one would reach it then, so that is nobody's way to stop a delivery.
pub fn is_stopped_by_a_commit(
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> bool {
    let stopped = if id.kind == Kind::Application {
        live.annotation(SKIP) != Some("true")
    } else {
        is_suspended_by_flux(id, live) && !is_a_persons(history, id)
    };
    stopped && rewritten(install, observed, history, (id, live)).is_some()
}

/// Whether it has been a person's doing since before: kustomize-controller takes the fields of kubectl's managers over as its own
/// before it takes away what Git does not have of them (`pkg/ssa`, `PatchReplaceFieldsManagers`), and names itself in between.
pub fn is_a_persons(history: &History, id: &ObjectId) -> bool {
    let told = history.faults.get(&(Class::SuspendedByHuman, id.clone()));
    told.is_some_and(|past| past.since.is_some())
}

/// Whether kustomize-controller wrote the field that suspends a root of Flux: people's field managers are others.
fn is_suspended_by_flux(id: &ObjectId, live: &Object) -> bool {
    let root = matches!(id.kind, Kind::GitRepository | Kind::Kustomization);
    let by = live.stopped.as_ref().map(|(who, _)| who.as_str());
    root && live.fields.pointer(SUSPEND) == Some(&Value::Bool(true)) && by == Some(flux::APPLIER)
}

/// What a root has beside what was assigned and follows instead of it, stands still by, or cannot be read for. Applying does not
/// take it away.
pub fn astray(id: &ObjectId, live: &Object) -> Vec<String> {
    let leads: &[&str] = match id.kind {
        Kind::Application => &LEADS,
        Kind::GitRepository => &PINS,
        Kind::Kustomization => &ELSEWHERE,
        _ => &[],
    };
    let none = |value: &Value| match value {
        Value::Array(all) => all.is_empty(),
        Value::String(text) => text.is_empty(),
        other => other.is_null(),
    };
    let leads = leads
        .iter()
        .filter(|path| live.fields.pointer(path).is_some_and(|value| !none(value)));
    let timeout = live.fields.pointer(TIMEOUT).and_then(Value::as_str);
    let unread = id.kind == Kind::GitRepository
        && timeout.is_some_and(|text| undecodable::duration(text).is_none());
    leads
        .copied()
        .chain(unread.then_some(TIMEOUT))
        .chain(is_suspended_by_flux(id, live).then_some(SUSPEND))
        .map(str::to_owned)
        .collect()
}

/// Whether what was fetched is of what the source is told now. While a root is bent, it may be of another catalog, whose
/// commits say nothing of ours.
pub(super) fn is_fetched_anew(install: &Install, observed: &Observed) -> bool {
    let Some(live) = observed.objects.get(&install.source) else {
        return false;
    };
    match install.traits.kind {
        EngineKind::Flux => {
            live.number("/status/observedGeneration") >= live.generation && live.is_true("Ready")
        }
        EngineKind::Argocd => {
            let assigned = install.base(&install.source);
            let assigned = assigned.and_then(|body| body.pointer("/spec/source"));
            let followed = live.fields.pointer("/status/sync/comparedTo/source");
            let same = |field: &str| {
                let [assigned, followed] = [assigned, followed].map(|source| source?.get(field));
                assigned == followed
            };
            followed.is_none() || SOURCE.into_iter().all(same)
        }
    }
}

#[cfg(test)]
mod tests;
