//! F17: an object that the API server does not apply, for a field manager of it speaks of a version that its CRD does not have
//! (fluxcd/flux2#5598). Of most kinds nobody here sees the field managers: kustomize-controller names the object, and the step looks
//! first whether that is so.

use serde_json::Value;

use super::Finding;
use super::altered::{is_stale, storage};
use crate::agent::engine::{Install, OUTDATED};
use crate::agent::plan::fault::Class;
use crate::agent::plan::state::{History, Object, Observed};
use crate::bundle::{Kind, ObjectId};

/// So many objects are named in one step: what is said of one may be old.
const MOST: usize = 8;
/// The reason of a Kustomization of which something could not be applied.
const NOT_APPLIED: &str = "ReconciliationFailed";

/// An object of a CRD, by the word of kustomize-controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub namespace: String,
    pub name: String,
    /// The one of which a field manager of it speaks, and which the CRD does not have.
    pub version: String,
}

/// It may have been said before the last try, so there is one an hour.
pub(super) fn outdated(
    install: &Install,
    observed: &Observed,
    history: &History,
    id: &ObjectId,
) -> Option<Finding> {
    let named = named(install, observed, id);
    let first = named.first()?;
    let past = history.faults.get(&(Class::CrdStoredVersion, id.clone()));
    if past.is_some_and(|past| !past.attempts.is_empty()) {
        return None;
    }
    let kind = observed.objects.get(id)?.text("/spec/names/kind");
    let (namespace, name, version) = (&first.namespace, &first.name, &first.version);
    let text = format!(
        "Flux says of {kind}/{namespace}/{name} that it has field managers of {version}, which the CRD does not have: \
         server-side apply of it is refused"
    );
    Some(Finding::new(Class::CrdStoredVersion, id, text))
}

/// The objects of a CRD of which that is said; none where all of them are to be written anyway, or nothing that is written would stay.
pub(in crate::agent::plan) fn named(
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
) -> Vec<Named> {
    let mut all = Vec::new();
    let live = observed.objects.get(id).filter(|l| l.deleting.is_none());
    let group = id.name.split_once('.').map(|(_, group)| group);
    let (Kind::CustomResourceDefinition, Some(live), Some(group)) = (id.kind, live, group) else {
        return all;
    };
    let kind = live.text("/spec/names/kind");
    for message in said(install, observed) {
        let one = parsed(message, group, kind).filter(|one| !has_version(live, &one.version));
        if let Some(one) = one.filter(|one| all.len() < MOST && !all.contains(one)) {
            all.push(one);
        }
    }
    let in_vain = || storage(install, observed, id).is_none();
    if !all.is_empty() && (is_stale(install, observed, (id, live)) || in_vain()) {
        all.clear();
    }
    all
}

/// What Kustomizations, the root first, say of what they could not apply, as far as it is of that.
fn said<'a>(install: &'a Install, observed: &'a Observed) -> impl Iterator<Item = &'a str> {
    let roots = install.roots().filter_map(|id| observed.objects.get(id));
    let roots = roots.filter_map(|root| root.condition("Ready"));
    let roots = roots.filter(|(status, _, _)| *status == "False");
    let roots = roots.map(|(_, reason, message)| (reason, message));
    let below = observed.children.iter();
    let below = below.filter(|(id, _)| id.kind == Kind::Kustomization);
    let below = below.filter_map(|(_, child)| child.trouble.as_ref());
    let below = below.map(|(reason, message)| (reason.as_str(), message.as_str()));
    let all = roots.chain(below);
    all.filter(|(reason, message)| *reason == NOT_APPLIED && message.contains(OUTDATED))
        .map(|(_, message)| message)
}

/// A message begins with `Kind/namespace/name dry-run failed (Reason): `, without a reason where the API server gives none
/// (fluxcd/pkg, `ssa/errors`), and what follows are the API server's words. What a path or a field in Git puts into one stands elsewhere.
fn parsed(message: &str, group: &str, kind: &str) -> Option<Named> {
    let (object, how) = message.trim().split_once(" dry-run failed")?;
    let (how, version) = how.split_once(OUTDATED)?;
    let version = version.strip_prefix(group)?.strip_prefix('/')?;
    let version = version.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    let [of, namespace, name] = object.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_one = !kind.is_empty() && of == kind && [namespace, name].into_iter().all(is_name);
    (is_one && !version.is_empty() && is_of_server(how)).then(|| Named {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
    })
}

/// As the API server lets objects be called (RFC 1123): such a name is no path.
fn is_name(text: &str) -> bool {
    let alike = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alike) && text.chars().all(|c| alike(c) || matches!(c, '-' | '.'))
}

/// Whether there is nothing in between but a reason and what the API server could not do, of which it quotes nothing
/// (structured-merge-diff, `merge/update.go`: `failed to …: failed to …: `).
fn is_of_server(how: &str) -> bool {
    let reason = how.strip_prefix(" (").and_then(|rest| rest.split_once(')'));
    let how = match reason {
        Some((word, rest)) if word.chars().all(|c| c.is_ascii_alphabetic()) => rest,
        Some(_) => return false,
        None => how,
    };
    let Some(rest) = how.strip_prefix(": ") else {
        return false;
    };
    let quotes = |words: &str| words.contains(['"', '\'', '`', '\n']);
    let mut failures = rest.split_terminator(": ");
    (rest.is_empty() || rest.ends_with(": "))
        && failures.all(|words| words.starts_with("failed ") && !quotes(words))
}

fn has_version(live: &Object, version: &str) -> bool {
    let all = live.fields.pointer("/spec/versions");
    let mut all = all.and_then(Value::as_array).into_iter().flatten();
    all.any(|v| v.get("name").and_then(Value::as_str) == Some(version))
}

#[cfg(test)]
mod tests;
