//! A cluster that lost its identity comes again, on the word of its deploy key.

use time::Duration;

use crate::hub::store::{Cluster, ClusterKey, KeyKind};

/// What the store and this hub know that bears on the recovery of a lost identity.
#[derive(Debug, Clone, Copy)]
pub struct Lost<'a> {
    /// The cluster of that name.
    pub cluster: Option<&'a Cluster>,
    pub incarnation: &'a str,
    /// The record of the new identity key, whichever cluster has it.
    pub identity: Option<&'a ClusterKey>,
    /// The record of the deploy key that signed.
    pub deploy: Option<&'a ClusterKey>,
    /// An operator revoked the cluster.
    pub revoked: bool,
    /// Whether the hub recovers at all.
    pub allowed: bool,
    /// The cluster was heard so lately that it may still be there with the old key: for so long it has to be silent.
    pub wait: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    Bind,
    /// The key is the cluster's already: by an earlier recovery, or by a token since.
    Repeat,
    /// The deploy key is not known for the cluster; `genuine`: it is this very cluster all the same, for it knows its
    /// incarnation, which no outsider does.
    Unknown {
        genuine: bool,
    },
    Removed,
    /// The cluster was revoked, and the key that signed was its.
    Revoked,
    IncarnationChanged,
    KeyKnown,
    Manual,
    Live(Duration),
}

/// Judges whether a cluster's deploy key may name a new identity. Who holds neither a deploy key of the cluster nor an identity
/// that is in force learns nothing of it.
pub fn recover(lost: Lost<'_>) -> Recovery {
    let own = lost
        .deploy
        .zip(lost.cluster)
        .filter(|(key, cluster)| key.cluster_id == cluster.id && key.kind == KeyKind::Deploy);
    if own.is_some() && lost.revoked {
        return Recovery::Revoked;
    }
    let same = |cluster: &Cluster| cluster.incarnation.as_deref() == Some(lost.incarnation);
    let acts = |key: &ClusterKey, cluster: &Cluster| {
        let its = key.cluster_id == cluster.id && key.kind == KeyKind::Identity;
        its && key.state.is_valid() && same(cluster)
    };
    // Before the deploy key is looked at: where that was revoked, the agent gets another one with this identity only.
    if let (Some(key), Some(cluster)) = (lost.identity, lost.cluster)
        && acts(key, cluster)
    {
        return Recovery::Repeat;
    }
    let signed = own.filter(|(key, _)| key.state.is_valid());
    let Some((_, cluster)) = signed else {
        if lost.deploy.is_some_and(|key| key.removed) {
            return Recovery::Removed;
        }
        let genuine = lost.cluster.is_some_and(same);
        return Recovery::Unknown { genuine };
    };
    if !same(cluster) {
        return Recovery::IncarnationChanged;
    }
    if lost.identity.is_some() {
        return Recovery::KeyKnown;
    }
    match lost.wait {
        _ if !lost.allowed => Recovery::Manual,
        Some(wait) => Recovery::Live(wait),
        None => Recovery::Bind,
    }
}
