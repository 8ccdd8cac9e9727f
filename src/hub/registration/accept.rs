//! An agent whose key the hub does not know, let in by an operator.

use super::is_revoked;
use crate::hub::store::{Cluster, ClusterKey, KeyKind, UnknownAgent};

/// What the store and this hub know that bears on letting in an agent by its key.
#[derive(Debug, Clone, Copy)]
pub struct Accepting<'a> {
    pub agent: Option<&'a UnknownAgent>,
    /// The record of its key, whichever cluster has it.
    pub key: Option<&'a ClusterKey>,
    /// The cluster of the name that it claims.
    pub cluster: Option<&'a Cluster>,
    /// That cluster's identity keys, in any state.
    pub identities: &'a [ClusterKey],
    /// The cluster was heard with another key a moment ago.
    pub live: bool,
    /// An operator said that the cluster's other identity ends.
    pub replace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    /// There is no cluster of that name.
    Create,
    /// Its other identities end.
    Bind,
    /// The key is the cluster's identity.
    Already,
    Refuse(AcceptRefusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptRefusal {
    /// No such agent is listed.
    Unknown,
    /// The key is another cluster's, or is used in two clusters of one name.
    KeyKnown,
    /// The key, or the cluster, was revoked.
    Revoked,
    /// The cluster is there, with another key.
    Live,
    /// The cluster has another identity in force.
    NeedsReplace,
}

/// Judges whether the key of an agent that is listed becomes the identity of the cluster that it claims.
pub fn accept(asked: Accepting<'_>) -> Acceptance {
    let Some(agent) = asked.agent else {
        return Acceptance::Refuse(AcceptRefusal::Unknown);
    };
    if let Some(key) = asked.key {
        let own = asked
            .cluster
            .filter(|c| key.cluster_id == c.id && key.kind == KeyKind::Identity && !key.removed);
        return match own {
            Some(_) if !key.state.is_valid() => Acceptance::Refuse(AcceptRefusal::Revoked),
            Some(cluster) if is_same_place(cluster, agent) => Acceptance::Already,
            Some(_) | None => Acceptance::Refuse(AcceptRefusal::KeyKnown),
        };
    }
    if asked.cluster.is_none() {
        return Acceptance::Create;
    }
    if is_revoked(asked.identities) {
        return Acceptance::Refuse(AcceptRefusal::Revoked);
    }
    let other = asked.identities.iter().any(|k| k.state.is_valid());
    match (other, asked.live, asked.replace) {
        (true, true, _) => Acceptance::Refuse(AcceptRefusal::Live),
        (true, false, false) => Acceptance::Refuse(AcceptRefusal::NeedsReplace),
        (false, ..) | (true, false, true) => Acceptance::Bind,
    }
}

/// Whether nothing says that the agent is in another cluster than the one on record.
pub fn is_same_place(cluster: &Cluster, agent: &UnknownAgent) -> bool {
    match (&cluster.incarnation, &agent.incarnation) {
        (Some(known), Some(told)) => known == told,
        (None, _) | (_, None) => true,
    }
}
