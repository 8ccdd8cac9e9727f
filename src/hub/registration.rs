//! A join token's life: issue, redeem, revoke, expire. Pure: the store calls [`redeem`] inside the transaction
//! that carries its verdict out.

use time::{Duration, OffsetDateTime};

use crate::hub::store::{Cluster, ClusterKey, JoinToken, KeyKind, KeyState, TokenKind};
use crate::keys::Public;
use crate::wire::api::AgentBuild;
use crate::wire::report::Facts;

mod accept;
mod recover;
mod token;

pub use accept::{AcceptRefusal, Acceptance, Accepting, accept, is_same_place};
pub use recover::{Lost, Recovery, recover};
pub use token::{Prefix, TokenText};

/// What a token may live at least and at most, in seconds.
pub const TOKEN_TTL: std::ops::RangeInclusive<u32> = 300..=604_800;
/// How long a redeemed token still answers the key that redeemed it.
const REPEAT: Duration = Duration::hours(24);

/// Whether a token shows its YAML; `record` is what the store has by its id. All that is wrong with one takes the same way, and as
/// long: one look at the store before this, one comparison in it, and nothing after.
pub fn shows(
    token: &TokenText,
    record: Option<JoinToken>,
    now: OffsetDateTime,
) -> Option<JoinToken> {
    let fits = token.matches(record.as_ref().map(|record| &record.hash));
    record.filter(|record| {
        let ended = record.redeemed.is_some() || record.revoked_at.is_some();
        fits && !ended && now < record.expires_at
    })
}

/// A join whose signatures hold.
#[derive(Debug, Clone)]
pub struct Claim {
    pub token: TokenText,
    /// The name that the agent believes to be its own.
    pub cluster: String,
    pub incarnation: String,
    pub identity: Public,
    pub deploy: Public,
    pub agent: AgentBuild,
    pub facts: Facts,
    /// Where the call came from.
    pub addr: String,
}

/// What the store knows that bears on a claim.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub token: Option<&'a JoinToken>,
    /// The token's cluster.
    pub cluster: Option<&'a Cluster>,
    /// The record of the claim's identity key, whichever cluster has it.
    pub identity: Option<&'a ClusterKey>,
    /// The record of the claim's deploy key.
    pub deploy: Option<&'a ClusterKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Bind the keys to the cluster.
    Bind {
        /// Other identity keys of the cluster end now.
        replace: bool,
        deploy: Deploy,
    },
    /// The same cluster has redeemed it before, with this key or the one before it: the same answer again.
    Repeat(Deploy),
    Refuse(Refusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deploy {
    Register,
    /// Registered for this cluster before.
    Known,
    /// Another cluster has it, or it was revoked: the agent makes a new one.
    InUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Unknown, wrong, expired or revoked: one answer for all, so that nothing can be guessed.
    TokenInvalid,
    /// Someone else's key has redeemed it: the YAML got into two clusters.
    TokenRedeemed,
    /// The identity key belongs to another cluster, or was revoked since it redeemed the token.
    KeyKnown,
    /// The identity key was this cluster's own until it was revoked: the token is good for another one.
    KeyRevoked,
    /// Another `kube-system` than the one on record.
    IncarnationChanged,
    Removed,
}

/// What a claim came to.
#[derive(Debug, Clone)]
pub enum Redeemed {
    Bound {
        cluster: Box<Cluster>,
        repeated: bool,
        deploy: Deploy,
    },
    Refused {
        refusal: Refusal,
        /// The token's cluster, where the token is genuine.
        cluster: Option<Box<Cluster>>,
        /// Who redeemed the token before.
        winner: Option<crate::hub::store::records::Redemption>,
    },
}

/// Judges a claim. `now` is the hub's clock.
pub fn redeem(now: OffsetDateTime, claim: &Claim, known: Known<'_>) -> Verdict {
    let Some(token) = known.token.filter(|t| claim.token.matches(Some(&t.hash))) else {
        // The comparison runs in any case, so that an unknown id takes as long as a wrong secret.
        claim.token.matches(None);
        return Verdict::Refuse(Refusal::TokenInvalid);
    };
    let Some(cluster) = known.cluster.filter(|c| c.name.as_str() == claim.cluster) else {
        return Verdict::Refuse(Refusal::TokenInvalid);
    };
    if cluster.removed_at.is_some() {
        return Verdict::Refuse(Refusal::Removed);
    }
    let fingerprint = claim.identity.fingerprint();
    if let Some(redeemed) = &token.redeemed {
        // Older YAML in a cluster whose key was replaced since is no other cluster's.
        let own = is_own(claim, cluster, known.identity);
        let same = own || redeemed.fingerprint == fingerprint;
        let placed = own || redeemed.incarnation == claim.incarnation;
        return match (same, placed) {
            (true, true) if now < redeemed.at + REPEAT && token.revoked_at.is_none() => {
                still_valid(cluster, known)
            }
            (true, true) => Verdict::Refuse(Refusal::TokenInvalid),
            (true, false) => Verdict::Refuse(Refusal::IncarnationChanged),
            (false, _) => Verdict::Refuse(Refusal::TokenRedeemed),
        };
    }
    if token.revoked_at.is_some() || now >= token.expires_at {
        return Verdict::Refuse(Refusal::TokenInvalid);
    }
    if let Some(refusal) = foreign(claim, cluster, token, known.identity) {
        return Verdict::Refuse(refusal);
    }
    Verdict::Bind {
        replace: token.kind == TokenKind::Readopt,
        deploy: deploy(cluster, known.deploy),
    }
}

/// Whether the cluster has the claim's identity in force, and is where it is on record.
fn is_own(claim: &Claim, cluster: &Cluster, identity: Option<&ClusterKey>) -> bool {
    let its = |k: &ClusterKey| k.cluster_id == cluster.id && k.kind == KeyKind::Identity;
    identity.is_some_and(|k| its(k) && k.state.is_valid())
        && cluster.incarnation.as_ref() == Some(&claim.incarnation)
}

/// A repeated join is the same answer only as long as its key may act.
fn still_valid(cluster: &Cluster, known: Known<'_>) -> Verdict {
    if known.identity.is_some_and(|k| k.state.is_valid()) {
        Verdict::Repeat(deploy(cluster, known.deploy))
    } else {
        Verdict::Refuse(Refusal::KeyKnown)
    }
}

fn foreign(
    claim: &Claim,
    cluster: &Cluster,
    token: &JoinToken,
    identity: Option<&ClusterKey>,
) -> Option<Refusal> {
    let elsewhere =
        identity.is_some_and(|k| k.cluster_id != cluster.id || k.kind != KeyKind::Identity);
    let revoked = identity.is_some_and(|k| k.state == KeyState::Revoked);
    let moved = cluster
        .incarnation
        .as_ref()
        .is_some_and(|i| *i != claim.incarnation);
    match (elsewhere, moved && !token.new_cluster) {
        (true, _) => Some(Refusal::KeyKnown),
        (false, true) => Some(Refusal::IncarnationChanged),
        (false, false) => revoked.then_some(Refusal::KeyRevoked),
    }
}

fn deploy(cluster: &Cluster, known: Option<&ClusterKey>) -> Deploy {
    match known {
        None => Deploy::Register,
        Some(key)
            if key.cluster_id == cluster.id
                && key.kind == KeyKind::Deploy
                && key.state != KeyState::Revoked =>
        {
            Deploy::Known
        }
        Some(_) => Deploy::InUse,
    }
}

/// Whether all of a cluster's identity keys were revoked. While one is replaced, another is always in force.
pub fn is_revoked(keys: &[ClusterKey]) -> bool {
    let mut identities = keys.iter().filter(|k| k.kind == KeyKind::Identity);
    let joined = identities.clone().next().is_some();
    joined && !identities.any(|k| k.state.is_valid())
}

/// The least epoch of a cluster that a restored hub takes in: higher than any that the hub before counted to, for no
/// cluster opens a million lines a second.
pub fn epoch_after_a_restore(now: OffsetDateTime) -> u64 {
    now.unix_timestamp().unsigned_abs() << 20
}

#[cfg(test)]
mod tests;
