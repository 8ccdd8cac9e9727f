//! What happened so far, and what is to be brought back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use time::OffsetDateTime;

use super::Object;
use crate::agent::engine::flux::WITNESSES;
use crate::agent::plan::behind::Followed;
use crate::agent::plan::change::{Ailing, Before};
use crate::agent::plan::exits::Exits;
use crate::agent::plan::fault::{Class, Key};
use crate::agent::plan::retry::Complaint;
use crate::agent::plan::silence::Silence;
use crate::agent::plan::steps::Action;
use crate::bundle::ObjectId;

/// A sync object that is to be brought back.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// What is applied of it, and its inventory. There may be thousands, and who acts has a history of its own.
    pub object: Arc<Value>,
    /// When it was saved first.
    pub since: OffsetDateTime,
    /// Since when no try has brought it back; none = there was no try.
    pub tried: Option<OffsetDateTime>,
}

impl Saved {
    /// One that is saved now.
    pub fn new(object: Value, now: OffsetDateTime) -> Self {
        Self {
            object: Arc::new(object),
            since: now,
            tried: None,
        }
    }

    pub fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        let Self {
            object: _,
            since,
            tried,
        } = self;
        std::iter::once(since).chain(tried)
    }

    /// `namespace/name`.
    pub fn place(&self) -> String {
        let text = |pointer| self.object.pointer(pointer).and_then(Value::as_str);
        let [namespace, name] = ["/metadata/namespace", "/metadata/name"].map(text);
        format!(
            "{}/{}",
            namespace.unwrap_or_default(),
            name.unwrap_or_default()
        )
    }
}

/// What happened so far; folded by the edge from plans and outcomes with [`super::super::history`].
#[derive(Debug, Clone, Default)]
pub struct History {
    pub faults: BTreeMap<Key, Past>,
    /// Differences that an apply found to be none: the object's mark when it was sent.
    pub settled: BTreeMap<ObjectId, (String, i64, u64)>,
    /// The install was proven to work once.
    pub adopted: bool,
    /// The last write that was no probe.
    pub last_write: Option<OffsetDateTime>,
    /// When host keys or signers' keys that a Pod mounts were last written.
    pub host_keys: Option<OffsetDateTime>,
    /// The catalog's head as the hub last said it, and when.
    pub head: Option<(String, OffsetDateTime)>,
    /// The hub's last order to give back what is held, and when it was heard of.
    pub order: Option<(OffsetDateTime, OffsetDateTime)>,
    /// Sync objects that died with their CRD or Namespace and that Git will not bring back, by CRD.
    pub saved: BTreeMap<ObjectId, Vec<Saved>>,
    /// Rights that the guard took and that are not back, and the UID that each had; empty = it is not known any more.
    pub cut: BTreeMap<ObjectId, String>,
    /// Whether all of the engine's rights have been there since this agent began: no guard of an agent before it took any that are
    /// missing later.
    pub had_rights: bool,
    /// When those that did not come back are tried again, by CRD.
    pub restore_after: BTreeMap<ObjectId, OffsetDateTime>,
    /// Objects that the API server found invalid as they were sent.
    pub refused: BTreeMap<ObjectId, Refused>,
    /// When each object was last asked to reconcile.
    pub nudged: BTreeMap<ObjectId, OffsetDateTime>,
    /// When Kubernetes was made to look at each controller whose Pods had been refused, or Argo CD to begin the root's operation anew, in
    /// the last hour.
    pub retried: BTreeMap<ObjectId, Vec<OffsetDateTime>>,
    /// The last time that a sync object kept its controller from all of its kind, or was seen to be gone.
    pub blinded: Option<OffsetDateTime>,
    /// Sync objects that cannot be read and are of shards, whose own controllers they keep from all of their kind.
    pub apart: BTreeSet<ObjectId>,
    /// The last time that the controller that applies had no worker left.
    pub at_work: Option<OffsetDateTime>,
    /// The same of the controller of releases.
    pub releasing: Option<OffsetDateTime>,
    /// How far the operation of the root Application that runs has come, and since when it was seen to be there.
    pub operation: Option<(String, OffsetDateTime)>,
    /// When Argo CD had applied the root last, as of the moment in which that was last seen to sync by itself.
    pub ran_beside: Option<OffsetDateTime>,
    /// When each object of the engine was written last, by the API server's clock, and when it was first seen to be as it is since then,
    /// by the agent's: how old a version is goes by one clock.
    pub versions: BTreeMap<ObjectId, (OffsetDateTime, OffsetDateTime)>,
    /// Since when each workload that does not work has not, without a break.
    pub down: BTreeMap<ObjectId, OffsetDateTime>,
    /// Since when each sync object below the roots says that it is not Ready, whatever for.
    pub unready: BTreeMap<ObjectId, OffsetDateTime>,
    /// How often each Pod of the install's controllers failed lately, by UID.
    pub exits: BTreeMap<String, Exits>,
    /// When a write that is against no fault came to nothing, by its object: the last times in a row, oldest first.
    pub vain: BTreeMap<ObjectId, Vec<OffsetDateTime>>,
    /// What was done last to keep a hold in force, by its name and object, and when the same was done: oldest first.
    pub kept: BTreeMap<(&'static str, ObjectId), (Action, Vec<OffsetDateTime>)>,
    /// When people were told, in the last hour, of a word on an object that allows nothing.
    pub told: BTreeMap<ObjectId, Vec<OffsetDateTime>>,
    /// Objects that were given to the engine because a commit was refused for them, and that commit.
    pub given: BTreeMap<ObjectId, String>,
    /// The Pods, by UID, that were there when the agent made their ServiceAccount again, which was gone: their tokens are void.
    pub voided: BTreeMap<ObjectId, BTreeSet<String>>,
    /// What of the engine its version in Git does without, since the last snapshot, and since when that is known.
    pub without: BTreeMap<ObjectId, OffsetDateTime>,
    /// Roots that a person had stopped when they were there last, as they were then.
    pub stopped: BTreeMap<ObjectId, Arc<Object>>,
    /// What roots found wrong with the catalog, as far as they have not said anything else since, nor come further.
    pub complaints: BTreeMap<ObjectId, Complaint>,
    /// Roots and canaries whose controllers owe an answer.
    pub silent: BTreeMap<ObjectId, Silence>,
    /// What roots had of the catalog's faults when no change of the engine was under way.
    pub ailing: Ailing,
    /// How the install was wanted before the change that is under way.
    pub before: Before,
    /// What the root applied, and left for that a moment ago.
    pub followed: Followed,
}

impl History {
    /// Until when the controllers may not have been able to read what they were asked.
    pub fn blind_until(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let there = |((class, object), past): (&Key, &Past)| {
            self.is_blinding(*class, object) && past.since.is_some()
        };
        if self.faults.iter().any(there) {
            Some(now)
        } else {
            self.blinded
        }
    }

    /// Whether a fault keeps the controllers of the roots, or of what they bring, from reading what they are asked.
    pub(in crate::agent::plan) fn is_blinding(&self, class: Class, object: &ObjectId) -> bool {
        let is_beside = WITNESSES.iter().any(|(kind, _)| *kind == object.kind);
        class == Class::UndecodableObject && !is_beside && !self.apart.contains(object)
    }
}

/// How it went with an object that is healed from a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// In a row, as it is in the present source.
    pub failures: u32,
    /// Sources that were given up: the newest snapshot, then each older one; after the last comes the bundle.
    pub given_up: usize,
}

/// What is known of one fault, kept for an hour after it has gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// Since when it has been there without a break; absent = it is not there now.
    pub since: Option<OffsetDateTime>,
    /// When something was done about it, oldest first, at most [`super::super::pace::MAX_ATTEMPTS`].
    pub attempts: Vec<OffsetDateTime>,
    /// When the API server did not get so far as to do it, or the object could not be held first; bounded likewise.
    pub unserved: Vec<OffsetDateTime>,
    /// The budget was spent: one trial an hour, until the fault has been away for an hour.
    pub spent: bool,
    /// Since when it has been seen to be away without a break, where its budget was spent.
    pub away: Option<OffsetDateTime>,
}
