//! What the agent still owns of an object that Git owns by now. It installed the engine, or mended it, and a field is there for as
//! long as any owner wants it: what a commit takes out of such an object would stay, and a volume that it makes one of
//! another type would have two, which the API server refuses (422). So the agent gives its fields to the engine, and keeps
//! labels and annotations, by which it knows what it once made.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::displaced::owned_items;
use super::fault::Class;
use super::find::Finding;
use super::pace;
use super::state::{History, Object, Observed};
use super::steps::{Action, Step};
use super::window::{held, rests};
use crate::agent::engine::compare::merged;
use crate::agent::engine::{Install, MANAGER, argocd, flux};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

const APPLY: &str = "Apply";
const METADATA: &str = "f:metadata";

/// How an object of Git's is merged with what others set, where it is not to be the whole (Flux: `Merge`, `IfNotPresent`,
/// `Ignore`).
const MERGED: &str = "kustomize.toolkit.fluxcd.io/ssa";

/// Whether the agent owns more of an object than labels and annotations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Claim {
    #[default]
    None,
    Alone,
    /// An engine has applied some fields of it on the server's side, and there would be no such object without ours.
    Partly,
    /// An engine has applied all of it, too.
    Beside,
}

/// By the managers of the object's fields.
pub fn of(kind: Kind, entries: &[ManagedFieldsEntry]) -> Claim {
    if !entries.iter().any(claims) {
        return Claim::None;
    }
    let engines = [flux::TRAITS.applier, argocd::TRAITS.applier];
    let applied = entries
        .iter()
        .filter(|e| engines.iter().any(|engine| is_applied_by(e, engine)));
    let mut sets = applied.filter_map(|e| e.fields_v1.as_ref());
    match sets.next() {
        None => Claim::Alone,
        Some(set) if is_whole(kind, &set.0) => Claim::Beside,
        Some(_) => Claim::Partly,
    }
}

/// The Secrets that a workload's Pods pull with because we, and nobody else, applied that.
pub fn pulls(entries: &[ManagedFieldsEntry]) -> Vec<String> {
    let (ours, others): (Vec<_>, Vec<_>) = entries.iter().partition(|e| is_applied_by(e, MANAGER));
    let named = |of: &[&ManagedFieldsEntry]| -> Vec<String> {
        let all = of.iter().flat_map(|e| owned_items(e, "f:imagePullSecrets"));
        all.collect()
    };
    let theirs = named(&others);
    let mut all = named(&ours);
    all.retain(|name| !theirs.contains(name));
    all
}

/// Whether these fields make an object of that kind that does what its manifest says: what the API server wants to be there, and
/// what it would take to be empty.
fn is_whole(kind: Kind, set: &Value) -> bool {
    let all = |pointers: &[&str]| pointers.iter().all(|at| set.pointer(at).is_some());
    match kind {
        Kind::Deployment | Kind::StatefulSet => {
            let containers = set.pointer("/f:spec/f:template/f:spec/f:containers");
            let containers = containers.and_then(Value::as_object);
            let imaged = |all: &Map<String, Value>| {
                let mut items = all.iter().filter(|(key, _)| *key != ".");
                items.all(|(_, owned)| owned.get("f:image").is_some())
            };
            all(&["/f:spec/f:selector"]) && containers.is_some_and(imaged)
        }
        Kind::Service => all(&["/f:spec/f:ports"]),
        Kind::NetworkPolicy => all(&["/f:spec/f:podSelector"]),
        Kind::ResourceQuota => all(&["/f:spec/f:hard"]),
        Kind::CustomResourceDefinition => all(&["/f:spec/f:names", "/f:spec/f:versions"]),
        Kind::Role | Kind::ClusterRole => all(&["/f:rules"]) || all(&["/f:aggregationRule"]),
        Kind::RoleBinding | Kind::ClusterRoleBinding => all(&["/f:roleRef", "/f:subjects"]),
        Kind::ConfigMap => all(&["/f:data"]),
        _ => all(&["/f:spec"]),
    }
}

fn is_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    let whole = entry.subresource.as_deref().unwrap_or_default().is_empty();
    whole && entry.manager.as_deref() == Some(manager)
}

fn is_applied_by(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    is_by(entry, manager) && entry.operation.as_deref() == Some(APPLY)
}

/// A field that we patched counts, too, such as a volume that was put back.
fn claims(entry: &ManagedFieldsEntry) -> bool {
    let set = entry.fields_v1.as_ref().and_then(|set| set.0.as_object());
    is_by(entry, MANAGER) && set.is_some_and(|set| set.keys().any(|part| part != METADATA))
}

/// The managers of an object's fields once `engine` owns what we did; none where we own nothing. The object itself stays as it
/// is, until the engine applies its own version: what that lacks goes then.
pub fn given_up(entries: &[ManagedFieldsEntry], engine: &str) -> Option<Vec<ManagedFieldsEntry>> {
    let (ours, mut all): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(claims);
    if ours.is_empty() {
        return None;
    }
    for mut entry in ours {
        let set = entry
            .fields_v1
            .as_mut()
            .and_then(|set| set.0.as_object_mut());
        let mut content = set.map(std::mem::take).unwrap_or_default();
        if let Some(kept) = content.remove(METADATA) {
            entry.fields_v1 = Some(FieldsV1(json!({METADATA: kept})));
            all.push(entry.clone());
        }
        give(&mut all, engine, &entry, &Value::Object(content));
    }
    Some(all)
}

/// Adds `content` of `entry` to what the engine applied in the same version.
fn give(
    all: &mut Vec<ManagedFieldsEntry>,
    engine: &str,
    entry: &ManagedFieldsEntry,
    content: &Value,
) {
    let theirs = |e: &&mut ManagedFieldsEntry| {
        is_applied_by(e, engine) && e.api_version == entry.api_version
    };
    if let Some(their) = all.iter_mut().find(theirs) {
        let set = their.fields_v1.get_or_insert_with(|| FieldsV1(json!({})));
        set.0 = merged(&set.0, content);
        return;
    }
    all.push(ManagedFieldsEntry {
        manager: Some(engine.to_owned()),
        operation: Some(APPLY.to_owned()),
        fields_v1: Some(FieldsV1(content.clone())),
        ..entry.clone()
    });
}

/// Objects that Git has owned for as long as it takes to be called last known good. Who wrote what is told by the managers
/// until then.
pub(super) fn settled(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    findings: &[Finding],
) -> Vec<Step> {
    let due = install.wanted.iter().filter(|(id, wanted)| {
        let live = observed.objects.get(*id);
        let quiet = |live: &Object| {
            let written = live.written.or(live.created);
            written.is_some_and(|at| now - at >= install.policy.snapshot_after)
        };
        wanted.git_owned
            && install.may_be_gits(id)
            && live.is_some_and(|l| is_ripe(l) && l.marked && quiet(l))
            && !rests(now, observed, id)
            && !findings.iter().any(|f| f.object == **id)
    });
    let give = Action::Relinquish {
        commit: String::new(),
    };
    due.map(|(id, _)| step(give.clone(), id, None)).collect()
}

fn is_to_be_merged(live: &Object) -> bool {
    let said = live.annotation(MERGED);
    said.is_some_and(|said| !said.eq_ignore_ascii_case("override"))
}

/// Whether the engine has applied all of it beside us, and nothing holds it back from Git.
fn is_ripe(live: &Object) -> bool {
    live.claim == Claim::Beside
        && !is_to_be_merged(live)
        && live.deleting.is_none()
        && super::quarantine::hold(live).is_none()
}

/// Objects as a commit wants them, and as the API server does not take them while we own fields of them, too. One that the same
/// commit is refused for once more has but a part of it in Git, and we take it back: without our fields there is no such object.
pub(super) fn refused(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> Vec<Step> {
    let mut steps = Vec::new();
    // What was said before this try is no second refusal.
    let said = findings.iter().filter(|f| !f.recalled);
    let refusals = said.filter(|f| f.class == Class::ApplyFailed);
    for finding in refusals.filter(|f| !held(now, observed, f)) {
        let key = (finding.class, finding.object.clone());
        let tried = history.faults.get(&key).map(|past| &past.attempts[..]);
        let at = tried.and_then(|tried| pace::again(tried, now));
        if at.is_some_and(|at| at > now) {
            continue;
        }
        let named = install
            .wanted
            .keys()
            .filter(|id| is_adjustable(install, id) && finding.evidence.contains(&invalid(id)));
        let before = steps.len();
        steps.extend(named.filter_map(|id| {
            let live = observed.objects.get(id).filter(|l| l.deleting.is_none())?;
            if rests(now, observed, id) {
                return None;
            }
            let commit = super::quarantine::commit(install, observed, id);
            let given = history.given.get(id) == Some(&commit);
            let action = match live.claim {
                Claim::None if given && !live.marked => Action::Apply,
                Claim::Alone if !given && applies_at_server(install, observed) => {
                    Action::Relinquish { commit }
                }
                Claim::Beside if !given && !is_to_be_merged(live) => Action::Relinquish { commit },
                Claim::None | Claim::Alone | Claim::Partly | Claim::Beside => return None,
            };
            Some(step(action, id, Some(key.clone())))
        }));
        if steps.len() > before {
            // It would try again after minutes.
            steps.push(step(Action::Nudge, &finding.object, Some(key)));
        }
    }
    steps
}

/// Of a CRD there is nothing that two could own beside each other.
fn is_adjustable(install: &Install, id: &ObjectId) -> bool {
    install.may_be_gits(id) && id.kind != Kind::CustomResourceDefinition
}

/// Whether our fields count when the engine applies: Argo CD patches by itself what it was not told to apply on the server's side.
fn applies_at_server(install: &Install, observed: &Observed) -> bool {
    match install.traits.kind {
        EngineKind::Flux => true,
        EngineKind::Argocd => {
            let root = observed.objects.get(&install.sync);
            let options = root.and_then(|r| r.fields.pointer("/spec/syncPolicy/syncOptions"));
            let mut options = options.and_then(Value::as_array).into_iter().flatten();
            options.any(|option| option == "ServerSideApply=true")
        }
    }
}

/// How an API server begins to say so (apimachinery, `NewInvalid`), which both engines pass on.
fn invalid(id: &ObjectId) -> String {
    let (group, _, _) = id.kind.resource();
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group} \"{}\" is invalid", id.kind, id.name)
}

fn step(action: Action, id: &ObjectId, cause: Option<super::Key>) -> Step {
    Step {
        action,
        target: id.clone(),
        cause,
    }
}

#[cfg(test)]
mod tests;
