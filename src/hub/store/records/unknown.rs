//! Agents that sign well by keys that the hub does not know.

use time::OffsetDateTime;

use super::{Cluster, ClusterKey, NewClusterRow};
use crate::hub::registration::AcceptRefusal;
use crate::keys::Public;
use crate::wire::id::ClusterName;

/// An agent that proved that it has a key, and no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAgent {
    pub public: Public,
    /// The name that it claims.
    pub cluster: ClusterName,
    /// UID of its `kube-system`, as far as it said so.
    pub incarnation: Option<String>,
    pub reason: UnknownReason,
    pub addr: String,
    pub first_seen: OffsetDateTime,
    pub last_seen: OffsetDateTime,
}

/// Why it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownReason {
    UnknownIdentity,
    /// The key is on record for something else than it claims.
    KeyKnown,
    IncarnationChanged,
}

impl UnknownReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownIdentity => "unknown-identity",
            Self::KeyKnown => "key-known",
            Self::IncarnationChanged => "incarnation-changed",
        }
    }
}

/// Whom to let in, and how.
#[derive(Debug, Clone)]
pub struct Accept {
    pub fingerprint: String,
    /// Another identity of the cluster ends with it.
    pub replace: bool,
    /// The cluster was heard with another key a moment ago.
    pub live: bool,
    /// What the cluster is, where the hub has none of that name; absent = there is no bundle for it.
    pub new: Option<NewClusterRow>,
}

/// What an acceptance came to.
#[derive(Debug, Clone)]
pub enum Accepted {
    Bound {
        cluster: Box<Cluster>,
        /// It had no record.
        created: bool,
        /// It had been let in before.
        already: bool,
        ended: Vec<ClusterKey>,
    },
    NoBundle,
    Refused(AcceptRefusal),
}
