//! Where an object is healed from that the API server found invalid as the newest snapshot has it: from the one before,
//! and at last from the bundle. A new snapshot ends that.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tracing::warn;

use super::Watchdog;
use crate::agent::Desired;
use crate::agent::engine::{Install, is_git_owned};
use crate::agent::snapshot;
use crate::bundle::ObjectId;
use crate::clock;

/// Objects that are not healed from the newest snapshot: how many sources were given up, and what the next one has;
/// none = the bundle.
#[derive(Debug, Default)]
pub(super) struct Fallback {
    older: BTreeMap<ObjectId, (usize, Option<Value>)>,
}

impl Watchdog {
    pub(super) fn install(&self, desired: &Desired) -> Install {
        let newest = self.snapshot.as_ref().map(|s| s.objects.clone());
        let mut kept = newest.unwrap_or_default();
        // Settings of before the install changed are no longer what it worked with.
        let since = desired.install.since.as_deref();
        let since = since.and_then(clock::parse_rfc3339);
        let old = self.snapshot.as_ref().map(|s| s.taken) < since;
        kept.retain(|_, fields| !old || is_git_owned(fields));
        let mut bundled = Vec::new();
        for (id, (_, fields)) in &self.fallback.older {
            match fields {
                Some(fields) => drop(kept.insert(id.clone(), fields.clone())),
                None => {
                    if kept.remove(id).is_some() {
                        bundled.push(id);
                    }
                }
            }
        }
        let owner = self.context.owner.borrow().as_ref().map(|p| p.mending);
        let mut install = Install::new(desired, &kept, owner);
        for id in bundled {
            install.leave_to_git(id);
        }
        let mut added = self
            .snapshot
            .as_ref()
            .map(|s| s.added.clone())
            .unwrap_or_default();
        added.retain(|id, _| !self.fallback.older.contains_key(id));
        install.keep(&added);
        if let Some(snapshot) = &self.snapshot {
            install.do_without(&snapshot.dropped);
        }
        install
    }

    /// Looks for another source where one was given up. True = what is wanted has changed.
    pub(super) async fn fall_back(&mut self) -> bool {
        let Some(snapshot) = &self.snapshot else {
            return false;
        };
        let due = self.history.refused.iter().filter(|(id, refused)| {
            let known = self.fallback.older.get(*id).map_or(0, |(n, _)| *n);
            let of_it = snapshot.objects.contains_key(*id) || snapshot.added.contains_key(*id);
            refused.given_up > known && of_it
        });
        let due: Vec<(ObjectId, usize)> = due.map(|(id, r)| (id.clone(), r.given_up)).collect();
        for (id, back) in &due {
            let context = &self.context;
            let found = snapshot::older(&context.kube, &context.namespace, *back, id).await;
            let fields = match found {
                Ok(fields) => fields,
                Err(error) => {
                    let error = format!("{error:#}");
                    warn!(object = %id, error, "no older snapshot was read; the bundle is used");
                    None
                }
            };
            let from = if fields.is_some() {
                "an older snapshot"
            } else {
                "the bundle"
            };
            warn!(object = %id, from, "the API server refuses it as last known good");
            self.fallback.older.insert(id.clone(), (*back, fields));
        }
        !due.is_empty()
    }

    /// These are healed from the bundle, as no snapshot has them.
    pub(super) fn leave_snapshots(&mut self, ids: &BTreeSet<ObjectId>) {
        self.fallback.older.retain(|id, _| !ids.contains(id));
        self.history.refused.retain(|id, _| !ids.contains(id));
    }

    /// The newest snapshot is good again.
    pub(super) fn trust_snapshot(&mut self) {
        self.fallback.older.clear();
        self.history.refused.clear();
    }
}
