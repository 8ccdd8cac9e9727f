//! What an Application says, by its status and by our annotation on it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::Hold;
use super::resources::{extra, lists};
use super::{HOLDS, Left, RESPECT, Record, ignored, items, parent, record, respects};
use crate::agent::plan::argocd::{self, head};
use crate::agent::plan::state::Object;
use crate::bundle::ObjectId;
use crate::clock::parse_rfc3339;

/// What an Application says of the engine's own objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The commit that was applied last, whether that went well or not.
    pub tried: String,
    /// The commit that was looked at last; empty where that failed.
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
    /// Reads an Application of this namespace, as it is or as it is observed.
    pub fn of(namespace: &str, annotation: Option<&str>, spec: &Value, status: &Value) -> Self {
        let seen = head(status);
        let operation = |field| {
            let at = status.pointer(&format!("/operationState/{field}"));
            at.and_then(Value::as_str).unwrap_or_default()
        };
        let applies = operation("operation/sync/revision");
        let runs = operation("phase") == "Running";
        let behind = runs && !applies.is_empty() && applies != seen;
        let synced = status.pointer("/sync/status").and_then(Value::as_str) == Some("Synced");
        let done = synced && looked_since(status) || operation("syncResult/revision") == seen;
        // An operation that has just begun has no result yet, or that of the one before.
        let mut tried = [operation("syncResult/revision"), applies];
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
            tried: tried.unwrap_or(seen).to_owned(),
            seen: seen.to_owned(),
            behind,
            rests: done && !runs && !seen.is_empty(),
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

    pub(super) fn of_root(namespace: &str, root: &Object) -> Self {
        let part = |name| root.fields.get(name).unwrap_or(&Value::Null);
        Self::of(
            namespace,
            root.annotation(HOLDS),
            part("spec"),
            part("status"),
        )
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
