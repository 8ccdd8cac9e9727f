//! What the planner sees: the cluster as it was last observed, and what was done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::applied::Applied;
use super::argocd;
use super::barred::Denial;
use super::burst::Fate;
use super::busy::Turn;
use super::change::{Ailing, Before};
use super::claims::Claim;
use super::displaced::Item;
use super::exits::Exits;
use super::fault::{Class, Key};
use super::quarantine::Brings;
use super::quarantine::shield::Owner;
use super::redis::Tally;
use super::server::Gate;
use super::silence::Silence;
use super::steps::Action;
use super::undecodable::aside::Suspect;
use super::witness::{Crowd, Witness};
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::PROBED_AT;
use crate::bundle::{Kind, ObjectId};

/// Sync objects that are known; the catalog may hold more, and then of the rest those that say something.
pub const MAX_CHILDREN: usize = 4096;
/// With those, which are known for as long as there is room.
pub const MAX_LOUD: usize = 2 * MAX_CHILDREN;

/// The cluster as far as the install goes.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub objects: BTreeMap<ObjectId, Arc<Object>>,
    pub scopes: BTreeMap<Kind, Scope>,
    /// Of each object that a watch saw deleted, the last UID: no answer that comes late brings that back.
    pub buried: BTreeMap<ObjectId, String>,
    /// The resourceVersion of the last whole list of a kind: what is older and not in it is gone.
    pub listed: BTreeMap<Kind, u64>,
    /// The Pods of the engine's namespace, by name.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// Whether there are more Pods than are known.
    pub pods_cut: bool,
    /// When the Pods were last listed or their watch was last heard.
    pub pods_at: Option<OffsetDateTime>,
    /// When the agent began to look.
    pub since: Option<OffsetDateTime>,
    /// Kinds of sync objects below the root of which no whole list has come yet.
    pub awaited: BTreeSet<Kind>,
    /// The sync objects below the root, in all namespaces.
    pub children: Arc<BTreeMap<ObjectId, Child>>,
    /// The roots, as the watch of the sync objects of their kind told of them last: in order with what it tells of those.
    pub roots: BTreeMap<ObjectId, Fate>,
    /// Kinds of sync objects of which there are more than are known: that one is not known says nothing then.
    pub cut: BTreeSet<Kind>,
    /// Sources in other namespaces than the engine's; some of them, where there are many.
    pub sources: BTreeSet<ObjectId>,
    /// Those that went a moment ago and that nobody would make again, and when they went.
    pub lost: Arc<BTreeMap<ObjectId, (OffsetDateTime, Arc<Value>)>>,
    /// Sync objects that Git still brings, and when each began to go a moment ago.
    pub deletions: Arc<BTreeMap<ObjectId, OffsetDateTime>>,
    /// Kustomizations that were done a moment ago with what was new to them.
    pub moved: BTreeMap<ObjectId, OffsetDateTime>,
    /// What the API server answered last of Pods that it was asked for and does not take.
    pub denied: BTreeMap<ObjectId, Denial>,
    /// By controller, as of the last list.
    pub leases: BTreeMap<String, Lease>,
    /// Namespaces with controllers of the same engine, ours among them.
    pub elsewhere: BTreeSet<String>,
    /// Names of the network policies in the engine's namespace that are not the install's.
    pub policies: BTreeSet<String>,
    /// Objects that other controllers may be asked with.
    pub witnesses: BTreeMap<ObjectId, Witness>,
    /// Of the kinds of which there are more, these.
    pub crowds: BTreeMap<Kind, Crowd>,
    /// What controllers of Argo CD count of their requests to Redis, by Pod.
    pub requests: BTreeMap<String, Tally>,
    pub own_look: OwnLook,
    /// What is known of the Git host's key.
    pub host_keys: HostKeys,
    /// Whether the API server is well enough for a verdict.
    pub gate: Gate,
    /// The minor version of Kubernetes 1.
    pub kubernetes: Option<u32>,
    /// The namespaces on the owner's list; none = the whole cluster was adopted.
    pub covered: Option<BTreeSet<String>>,
}

/// The Git host's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostKeys {
    /// Fingerprints of those that the hub names.
    pub known: Vec<String>,
    /// The one that it showed the agent last.
    pub met: Option<MetKey>,
}

/// A key that the Git host showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetKey {
    /// `SHA256:…`
    pub fingerprint: String,
    pub known: bool,
}

/// What became of the agent's own last look at the catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnLook {
    /// It failed, or there was none.
    #[default]
    Failed,
    /// The Git host does not take the deploy key; since then no look came to anything else.
    Refused(OffsetDateTime),
    Read(OwnRead),
}

impl OwnLook {
    pub fn read(self) -> Option<OwnRead> {
        match self {
            Self::Read(read) => Some(read),
            Self::Failed | Self::Refused(_) => None,
        }
    }
}

/// How the agent itself reads the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnRead {
    /// No look has failed since then.
    pub since: OffsetDateTime,
    /// The last one.
    pub last: OffsetDateTime,
}

/// Who of a controller's Pods leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub uid: String,
    /// The Pod's name.
    pub holder: String,
    pub renewed: OffsetDateTime,
    /// When it was read.
    pub seen: OffsetDateTime,
}

/// A sync object that the catalog brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Child {
    /// Why it is not Ready: reason and message.
    pub trouble: Option<(String, String)>,
    /// Whether its deletion takes with it what it brought.
    pub prunes: bool,
    /// What it takes to make it again, where neither Git nor an `ApplicationSet` does.
    pub keepsake: Option<Arc<Value>>,
    /// What an Application says of the engine's own objects.
    pub owner: Option<Arc<Owner>>,
    /// What a Kustomization says of them.
    pub brings: Option<Arc<Brings>>,
    /// The revision that a Kustomization tried last.
    pub tried: String,
    /// What there is to know of one that cannot be read, or could not be.
    pub suspect: Option<Arc<Suspect>>,
    /// What its end means; also while it says nothing else.
    pub fate: Fate,
    /// While a controller's worker is with it.
    pub turn: Option<Turn>,
    /// How long a worker will be with a source that is slow to fetch.
    pub fetch: Option<Duration>,
}

/// How well one kind is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scope {
    /// When the API server last told what there is of this kind; absent = not yet.
    pub answered: Option<OffsetDateTime>,
    pub answer: Answer,
}

/// What the API server answers to a list of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answer {
    /// All objects that there are.
    #[default]
    Whole,
    /// It does not know the kind, or what gives the right to see the objects went with their namespace.
    Nothing,
    /// The agent may not list them: what is there now is not known.
    Refused,
}

/// One live object.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub uid: String,
    /// The resourceVersion as a number, 0 where it is none.
    pub version: u64,
    pub generation: i64,
    pub created: Option<OffsetDateTime>,
    pub deleting: Option<OffsetDateTime>,
    pub finalizers: Vec<String>,
    /// The manager that wrote anything but the status last, and when.
    pub writer: String,
    pub written: Option<OffsetDateTime>,
    /// Whether we ever applied it.
    pub ours: bool,
    /// What we own of it by what we applied, beside labels and annotations.
    pub claim: Claim,
    /// Whether an engine itself put the mark on it that says what of Git it comes from; anybody may write one.
    pub marked: bool,
    /// Who set what stops it, and when; none where that is nobody's field.
    pub stopped: Option<(String, Option<OffsetDateTime>)>,
    /// What Argo CD applied last of it, where that left a word.
    pub applied: Option<Applied>,
    /// What the engine applied and whose content is somebody else's now, where only one can be.
    pub emptied: Vec<Item>,
    /// The Secrets that its Pods pull with because we alone applied that: what our next apply does not name of them goes.
    pub pulls: Vec<String>,
    /// The owner that is its controller, as `Kind name`; empty where there is none.
    pub controller: String,
    /// In the form of [`crate::agent::engine::comparable`].
    pub fields: Value,
}

impl Object {
    pub fn text(&self, pointer: &str) -> &str {
        self.fields
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub fn number(&self, pointer: &str) -> i64 {
        self.fields
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.fields
            .pointer("/metadata/annotations")?
            .get(name)?
            .as_str()
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.fields.pointer("/metadata/labels")?.get(name)?.as_str()
    }

    /// A condition's status, reason and message.
    pub fn condition(&self, kind: &str) -> Option<(&str, &str, &str)> {
        let conditions = self.fields.pointer("/status/conditions")?.as_array()?;
        let found = conditions
            .iter()
            .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))?;
        let field = |name| found.get(name).and_then(Value::as_str).unwrap_or_default();
        Some((field("status"), field("reason"), field("message")))
    }

    pub fn is_true(&self, condition: &str) -> bool {
        self.condition(condition)
            .is_some_and(|(status, _, _)| status == "True")
    }

    /// The probe that this object carries, and whether its controller has answered it.
    pub fn probe(&self) -> Option<Probe> {
        if self.annotation(PROBED_AT).is_some() {
            return argocd::probe(self);
        }
        let asked = self.annotation(REQUESTED_AT)?;
        let sent = crate::clock::parse_rfc3339(asked)?;
        let answered = self.text("/status/lastHandledReconcileAt") == asked;
        Some(Probe { sent, answered })
    }

    /// Changes with every change of what somebody wants of it, not with its status.
    pub fn mark(&self) -> (String, i64, u64) {
        let version = if self.generation > 0 { 0 } else { self.version };
        (self.uid.clone(), self.generation, version)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    pub sent: OffsetDateTime,
    pub answered: bool,
}

/// One Pod of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    pub uid: String,
    /// Empty until it has one.
    pub address: String,
    /// Its Deployment or StatefulSet, by its label `app` or `app.kubernetes.io/name`.
    pub app: String,
    pub created: Option<OffsetDateTime>,
    /// Since when all of its containers run without a break.
    pub running: Option<OffsetDateTime>,
    pub deleting: bool,
    pub ready: bool,
    /// Why a container waits: reason and message.
    pub waiting: Option<(String, String)>,
    /// How a container ended last: exit code and reason.
    pub ended: Option<(i32, String)>,
    pub restarts: i32,
    /// A StatefulSet's Pod: the revision that it is of.
    pub revision: String,
    pub image: String,
    /// Why no node takes it.
    pub unschedulable: Option<String>,
    /// Why it ended for good: reason and message.
    pub failed: Option<String>,
}

/// A sync object that is to be brought back.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// What is applied of it, and its inventory.
    pub object: Value,
    /// When it was saved first.
    pub since: OffsetDateTime,
    /// Since when no try has brought it back; none = there was no try.
    pub tried: Option<OffsetDateTime>,
}

impl Saved {
    /// One that is saved now.
    pub fn new(object: Value, now: OffsetDateTime) -> Self {
        Self {
            object,
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

/// What happened so far; folded by the edge from plans and outcomes with [`super::history`].
#[derive(Debug, Clone, Default)]
pub struct History {
    pub faults: BTreeMap<Key, Past>,
    /// Differences that an apply found to be none: the object's mark when it was sent.
    pub settled: BTreeMap<ObjectId, (String, i64, u64)>,
    /// The install was proven to work once.
    pub adopted: bool,
    /// The last write that was no probe.
    pub last_write: Option<OffsetDateTime>,
    /// When host keys that a Pod mounts were last written.
    pub host_keys: Option<OffsetDateTime>,
    /// The catalog's head as the hub last said it, and when.
    pub head: Option<(String, OffsetDateTime)>,
    /// Sync objects that died with their CRD or Namespace and that Git will not bring back, by CRD.
    pub saved: BTreeMap<ObjectId, Vec<Saved>>,
    /// Rights that the guard took and that are not back, and the UID that each had; empty = it is not known any more.
    pub cut: BTreeMap<ObjectId, String>,
    /// When those that did not come back are tried again, by CRD.
    pub restore_after: BTreeMap<ObjectId, OffsetDateTime>,
    /// Objects that the API server found invalid as they were sent.
    pub refused: BTreeMap<ObjectId, Refused>,
    /// When each object was last asked to reconcile.
    pub nudged: BTreeMap<ObjectId, OffsetDateTime>,
    /// When Kubernetes was made to look at each controller whose Pods had been refused, in the last hour.
    pub retried: BTreeMap<ObjectId, Vec<OffsetDateTime>>,
    /// The last time that a sync object kept its controller from all of its kind, or was seen to be gone.
    pub blinded: Option<OffsetDateTime>,
    /// The last time that the controller that applies had no worker left.
    pub at_work: Option<OffsetDateTime>,
    /// The same of the controller of releases.
    pub releasing: Option<OffsetDateTime>,
    /// How far the operation of the root Application that runs has come, and since when it was seen to be there.
    pub operation: Option<(String, OffsetDateTime)>,
    /// When Argo CD had applied the root last, as of the moment in which that was last seen to sync by itself.
    pub ran_beside: Option<OffsetDateTime>,
    /// Since when each workload that does not work has not, without a break.
    pub down: BTreeMap<ObjectId, OffsetDateTime>,
    /// How often each Pod of the install's controllers failed lately, by UID.
    pub exits: BTreeMap<String, Exits>,
    /// When a write that is against no fault came to nothing, by its object: the last times in a row, oldest first.
    pub vain: BTreeMap<ObjectId, Vec<OffsetDateTime>>,
    /// What was done last to keep a hold in force, by its name and object, and when the same was done: oldest first.
    pub kept: BTreeMap<(&'static str, ObjectId), (Action, Vec<OffsetDateTime>)>,
    /// Objects that were given to the engine because a commit was refused for them, and that commit.
    pub given: BTreeMap<ObjectId, String>,
    /// The Pods, by UID, that were there when the agent made their ServiceAccount again, which was gone: their tokens are void.
    pub voided: BTreeMap<ObjectId, BTreeSet<String>>,
    /// What of the engine its version in Git does without, since the last snapshot, and since when that is known.
    pub without: BTreeMap<ObjectId, OffsetDateTime>,
    /// Roots and canaries whose controllers owe an answer.
    pub silent: BTreeMap<ObjectId, Silence>,
    /// What roots had of the catalog's faults when no change of the engine was under way.
    pub ailing: Ailing,
    /// How the install was wanted before the change that is under way.
    pub before: Before,
}

impl History {
    /// Until when the controllers may not have been able to read what they were asked.
    pub fn blind_until(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let there =
            |(key, past): (&Key, &Past)| key.0 == Class::UndecodableObject && past.since.is_some();
        if self.faults.iter().any(there) {
            Some(now)
        } else {
            self.blinded
        }
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
    /// When something was done about it, oldest first, at most [`super::pace::MAX_ATTEMPTS`].
    pub attempts: Vec<OffsetDateTime>,
    /// When the API server did not get so far as to do it, or the object could not be held first; bounded likewise.
    pub unserved: Vec<OffsetDateTime>,
    /// The budget was spent: one trial an hour, until the fault has been away for an hour.
    pub spent: bool,
}
