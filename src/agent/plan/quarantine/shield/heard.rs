//! What an Application says, by its status and by our annotation on it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::Hold;
use super::resources::{extra, lists};
use super::{HOLDS, Left, RESPECT, Record, ignored, items, parent, record, respects};
use crate::agent::plan::argocd::{self, revision_at, revisions_at};
use crate::agent::plan::state::Object;
use crate::bundle::ObjectId;
use crate::clock::parse_rfc3339;

/// What an Application says of the engine's own objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The commit that was applied last, whether that went well or not; where there are several sources, what was applied of each.
    pub tried: String,
    /// The commit that was looked at last, or what was of each source; empty where that failed.
    pub seen: String,
    /// Whether an operation goes on that applies another commit than that.
    pub behind: bool,
    /// Whether it is done with that commit, and has nothing left to apply.
    pub rests: bool,
    /// What Argo CD was refused for want of rights when it applied that commit.
    pub refused: Option<String>,
    /// What it brought once, and what is in Git no longer.
    pub extra: BTreeSet<ObjectId>,
    /// Of all that it brings what may be the engine's, be it there or not; none where it lists nothing, or more than is read.
    pub lists: Option<BTreeSet<ObjectId>>,
    /// What our annotation says.
    pub held: BTreeMap<ObjectId, Hold>,
    /// The same of the Applications whose settings it leaves alone. Of the root that is no matter of an annotation.
    pub below: BTreeSet<ObjectId>,
    /// Whether its spec does what the annotation says.
    pub in_force: bool,
}

impl Owner {
    /// Reads an Application below the root; `namespace` is the engine's.
    pub fn of(namespace: &str, annotation: Option<&str>, spec: &Value, status: &Value) -> Self {
        Self::read((namespace, annotation), spec, status, revisions_at)
    }

    /// `revision`: what is read of a place in the status that names one.
    fn read(
        (namespace, annotation): (&str, Option<&str>),
        spec: &Value,
        status: &Value,
        revision: fn(&Value, &str) -> String,
    ) -> Self {
        let seen = if argocd::is_compared(status) {
            revision(status, "/sync")
        } else {
            String::new()
        };
        let text = |pointer| status.pointer(pointer).and_then(Value::as_str);
        let applies = revision(status, "/operationState/operation/sync");
        let result = revision(status, "/operationState/syncResult");
        let runs = text("/operationState/phase") == Some("Running");
        let behind = runs && !applies.is_empty() && applies != seen;
        let synced = text("/sync/status") == Some("Synced");
        let done = synced && looked_since(status) || result == seen;
        // An operation that has just begun has no result yet, or that of the one before.
        let mut tried = [result, applies];
        if runs {
            tried.reverse();
        }
        let tried = tried.into_iter().find(|revision| !revision.is_empty());
        let Record { held, below, .. } = record(annotation);
        let held = held.into_iter();
        let held: BTreeMap<ObjectId, Hold> = held.filter_map(|e| Some((e.id()?, e.hold))).collect();
        let below: BTreeSet<ObjectId> = below.iter().map(Left::id).collect();
        let differences = items(spec.get("ignoreDifferences"));
        let options = items(spec.pointer("/syncPolicy/syncOptions"));
        let in_force = held.keys().all(|id| differences.contains(&ignored(id)))
            && below.iter().all(|id| differences.contains(&parent(id)))
            && (!respects(&options, &held, &below) || options.contains(&json!(RESPECT)));
        Self {
            tried: tried.unwrap_or_else(|| seen.clone()),
            behind,
            rests: done && !runs && !seen.is_empty(),
            seen,
            refused: refused(status),
            extra: extra(namespace, status),
            lists: lists(namespace, status),
            held,
            below,
            in_force,
        }
    }

    /// Whether it knew no more of an object when it looked at Git last. What is in Git and not there is listed, too.
    pub fn lacks(&self, id: &ObjectId) -> bool {
        let lists = self.lists.as_ref().filter(|_| !self.seen.is_empty());
        lists.is_some_and(|all| !all.contains(id))
    }

    /// Whether Git had an object when it looked last, as far as its list is read.
    pub fn has(&self, id: &ObjectId) -> bool {
        let listed = self.lists.as_ref().is_some_and(|all| all.contains(id));
        listed && !self.extra.contains(id)
    }

    /// The root as it is observed. It has one source: with several somebody leads it elsewhere.
    pub(super) fn of_root(namespace: &str, root: &Object) -> Self {
        let part = |name| root.fields.get(name).unwrap_or(&Value::Null);
        let word = (namespace, root.annotation(HOLDS));
        Self::read(word, part("spec"), part("status"), revision_at)
    }
}

fn refused(status: &Value) -> Option<String> {
    let operation = status.get("operationState")?;
    let kept = operation.get("refused").and_then(Value::as_str);
    kept.map(str::to_owned)
        .or_else(|| argocd::refused(operation))
}

/// Whether Argo CD has compared since its operation ended: what it says of before is of another commit.
fn looked_since(status: &Value) -> bool {
    let at = |pointer| parse_rfc3339(status.pointer(pointer)?.as_str()?);
    match (at("/reconciledAt"), at("/operationState/finishedAt")) {
        (Some(looked), Some(ended)) => looked >= ended,
        _ => true,
    }
}
