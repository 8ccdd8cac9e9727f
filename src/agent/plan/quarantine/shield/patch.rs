//! What is told to an Application, so that it leaves alone what is held.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::Hold;
use super::{
    Entry, Former, HOLDS, Left, RESPECT, Record, SERVER_SIDE, ignored, items, list, parent, record,
    respects,
};
use crate::bundle::ObjectId;

/// What an Application is to hold back, and which Applications below it do so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shield {
    pub held: BTreeMap<ObjectId, Hold>,
    /// Applications that it brings, and whose settings it leaves alone.
    pub below: BTreeSet<ObjectId>,
    /// What was one of these until now: where our word is lost, nothing else tells what is in its spec for that.
    pub ended: BTreeSet<ObjectId>,
}

impl Shield {
    /// The same, said to an Application that was to say `was`.
    #[must_use]
    pub fn after(&self, was: &Self) -> Self {
        let held = was.held.keys().filter(|id| !self.held.contains_key(*id));
        let below = was.below.difference(&self.below);
        Self {
            ended: held.chain(below).cloned().collect(),
            ..self.clone()
        }
    }

    fn entries(&self) -> impl Iterator<Item = Value> {
        let below = self.below.iter().map(parent);
        below.chain(self.held.keys().map(ignored))
    }

    /// What an Application said before, where our word is not on it: not on it yet, or lost with its annotations, which an
    /// `ApplicationSet` takes away. With an entry of ours [`RESPECT`] is taken for ours, too, though a user may have set it before:
    /// nothing tells any more.
    pub(super) fn before(&self, spec: &Value) -> Former {
        let former = Former::of(spec);
        let held = self.held.keys().chain(&self.ended);
        let held: Vec<Value> = held.map(ignored).collect();
        let below = self.below.iter().chain(&self.ended);
        let below: Vec<Value> = below.map(parent).collect();
        let mut differences = items(Some(&former.ignore_differences));
        let has = |ours: &[Value]| differences.iter().any(|entry| ours.contains(entry));
        let (holds, lets) = (has(&held), has(&below));
        if !holds && !lets {
            return former;
        }
        differences.retain(|entry| !held.contains(entry) && !below.contains(entry));
        let mut options = items(Some(&former.sync_options));
        // As in `respects`: it is not ours where nothing was held.
        if holds || !options.contains(&json!(SERVER_SIDE)) {
            options.retain(|option| *option != RESPECT);
        }
        Former {
            ignore_differences: list(differences),
            sync_options: list(options),
        }
    }

    pub(super) fn differences(&self, former: &Value) -> Value {
        let mut all = items(Some(former));
        all.extend(self.entries());
        if all.is_empty() {
            former.clone()
        } else {
            json!(all)
        }
    }

    /// The merge patch that makes an Application hold back just this; `ours` is the spec of one that we made.
    pub fn patch(&self, live: &Value, ours: Option<&Value>) -> Value {
        let at = |pointer| live.pointer(pointer).unwrap_or(&Value::Null);
        let annotation = at("/metadata/annotations")
            .get(HOLDS)
            .and_then(Value::as_str);
        let former = match (ours, annotation) {
            (Some(spec), _) => Former::of(spec),
            (None, Some(_)) => record(annotation).former,
            (None, None) => self.before(at("/spec")),
        };
        let mut options = items(Some(&former.sync_options));
        let respects = respects(&options, &self.held, &self.below);
        if respects && !options.contains(&json!(RESPECT)) {
            options.push(json!(RESPECT));
        }
        let options = if options.is_empty() {
            former.sync_options.clone()
        } else {
            json!(options)
        };
        let mut spec = json!({"ignoreDifferences": self.differences(&former.ignore_differences)});
        if *at("/spec/syncPolicy/syncOptions") != options {
            spec["syncPolicy"] = json!({"syncOptions": options});
        }
        let held = self.held.iter().map(|(id, hold)| Entry {
            group: id.kind.resource().0.to_owned(),
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            hold: hold.clone(),
        });
        let told = told_to(at("/status/operationState"), respects);
        // What the root leaves alone is part of what it is to be.
        let below = self.below.iter().filter(|_| ours.is_none());
        let below = below.map(|id| Left {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        });
        let record = Record {
            held: held.collect(),
            below: below.collect(),
            former,
        };
        let note = serde_json::to_string(&record).ok();
        let note = note.filter(|_| !record.held.is_empty() || !record.below.is_empty());
        let mut patch = json!({
            "metadata": {
                "annotations": {HOLDS: note},
                "resourceVersion": at("/metadata/resourceVersion"),
            },
            "spec": spec,
        });
        if let Some(options) = told {
            patch["status"]["operationState"]["operation"]["sync"]["syncOptions"] = options;
        }
        patch
    }
}

/// The options of an operation that was begun before the hold, with which it leaves alone what is held when it is tried again:
/// Argo CD takes what is to be ignored from the Application each time, and the options from the operation (`controller/sync.go`).
fn told_to(operation: &Value, respects: bool) -> Option<Value> {
    let runs = operation.get("phase").and_then(Value::as_str) == Some("Running");
    let sync = operation
        .pointer("/operation/sync")
        .filter(|sync| runs && respects && sync.is_object())?;
    let mut options = items(sync.get("syncOptions"));
    if options.contains(&json!(RESPECT)) {
        return None;
    }
    options.push(json!(RESPECT));
    Some(json!(options))
}
