//! What the planner sees: the cluster as it was last observed, and what was done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::barred::Denial;
use super::burst::Fate;
use super::busy::Turn;
use super::doubt::TakenBack;
use super::quarantine::Brings;
use super::quarantine::shield::Owner;
use super::redis::Tally;
use super::server::Gate;
use super::shard::Shard;
use super::undecodable::aside::Suspect;
use super::witness::{Crowd, Witness};
use crate::bundle::{Kind, ObjectId};

mod object;
mod past;

pub use object::{Object, Probe};
pub use past::{History, Past, Refused, Saved};

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
    /// The refusal that a root of Argo CD's told of last, and then no more.
    pub taken_back: Option<TakenBack>,
    /// What the API server answered last of Pods that it was asked for and does not take.
    pub denied: BTreeMap<ObjectId, Denial>,
    /// Those of the engine's controllers by their names, as of the last list.
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
    /// The Pod's name; empty where it was given back.
    pub holder: String,
    /// Since when it leads; none = the Lease does not say.
    pub acquired: Option<OffsetDateTime>,
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
    /// The revision that a Kustomization tried last, or that an Application was compared with: one of each source, with commas.
    pub tried: String,
    /// It has not come to an end with what it is told to be now.
    pub pending: bool,
    /// When an Application was last applied whose objects are not all up, by the engine's clock.
    pub rolls: Option<OffsetDateTime>,
    /// It is told to stand still, and tries nothing.
    pub suspended: bool,
    /// What there is to know of one that cannot be read, or could not be.
    pub suspect: Option<Arc<Suspect>>,
    /// What its end means; also while it says nothing else.
    pub fate: Fate,
    /// While a controller's worker is with it.
    pub turn: Option<Turn>,
    /// How long a worker will be with a source that is slow to fetch.
    pub fetch: Option<Duration>,
    /// Which controllers these may be of.
    pub shard: Shard,
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
    /// By when one that is being deleted has to be gone, its grace included.
    pub ends: Option<OffsetDateTime>,
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
