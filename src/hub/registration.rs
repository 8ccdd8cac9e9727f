//! A join token's life: issue, redeem, revoke, expire. Pure: the store calls [`redeem`] inside the transaction
//! that carries its verdict out.

use time::{Duration, OffsetDateTime};

use crate::hub::store::{
    Cluster, ClusterKey, JoinToken, KeyKind, KeyState, TokenKind, UnknownAgent,
};
use crate::keys::{self, Public};
use crate::secret::Secret;
use crate::wire::api::AgentBuild;
use crate::wire::report::Facts;

/// What a token may live at least and at most, in seconds.
pub const TOKEN_TTL: std::ops::RangeInclusive<u32> = 300..=604_800;
/// How long a redeemed token still answers the key that redeemed it.
const REPEAT: Duration = Duration::hours(24);

/// A token as it stands in the YAML: `<prefix>.<id>.<secret>`.
#[derive(Debug, Clone)]
pub struct TokenText {
    pub id: String,
    secret: Secret<[u8; 32]>,
}

/// What a token is for; the first part of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// `lmj1`
    Join,
    /// `lmt1`
    Api,
    /// `lma1`: access by a login, short-lived.
    Access,
    /// `lmr1`: the next access, once.
    Refresh,
    /// `lml1`: a session of a local user, once.
    Login,
}

impl Prefix {
    fn as_str(self) -> &'static str {
        match self {
            Self::Join => "lmj1",
            Self::Api => "lmt1",
            Self::Access => "lma1",
            Self::Refresh => "lmr1",
            Self::Login => "lml1",
        }
    }
}

impl TokenText {
    /// A token out of 16 bytes for the id and 32 for the secret, all random.
    pub fn new(id: [u8; 16], secret: [u8; 32]) -> Self {
        Self {
            id: keys::encode(&id),
            secret: Secret::new(secret),
        }
    }

    /// Reads a token of this kind; anything else is None, without a reason that would help to guess.
    pub fn parse(prefix: Prefix, text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        let (kind, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
        if kind != prefix.as_str() || parts.next().is_some() || id.len() != 22 {
            return None;
        }
        keys::decode(id)?;
        let secret = keys::decode(secret)?.try_into().ok()?;
        Some(Self {
            id: id.to_owned(),
            secret: Secret::new(secret),
        })
    }

    /// The same secret under the id of a token that is there already.
    #[must_use]
    pub fn with_id(self, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            ..self
        }
    }

    pub fn text(&self, prefix: Prefix) -> Secret<String> {
        let secret = keys::encode(self.secret.expose());
        Secret::new(format!("{}.{}.{secret}", prefix.as_str(), self.id))
    }

    /// What the store keeps of the secret.
    pub fn hash(&self) -> [u8; 32] {
        keys::sha256(self.secret.expose())
    }

    /// Compares in constant time, also where there is nothing to compare with.
    pub fn matches(&self, stored: Option<&[u8; 32]>) -> bool {
        use subtle::ConstantTimeEq as _;
        let known = stored.is_some();
        let equal: bool = self.hash().ct_eq(stored.unwrap_or(&[0; 32])).into();
        known && equal
    }
}

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
    /// The same key and cluster have redeemed it before: the same answer again.
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
        let same = redeemed.fingerprint == fingerprint;
        return match (same, redeemed.incarnation == claim.incarnation) {
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
    /// It was recovered with this key before.
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

/// Judges whether a cluster's deploy key may name a new identity. Who does not hold a deploy key of the cluster learns
/// nothing of it.
pub fn recover(lost: Lost<'_>) -> Recovery {
    let own = lost
        .deploy
        .zip(lost.cluster)
        .filter(|(key, cluster)| key.cluster_id == cluster.id && key.kind == KeyKind::Deploy);
    if own.is_some() && lost.revoked {
        return Recovery::Revoked;
    }
    let signed = own.filter(|(key, _)| key.state.is_valid());
    let same = |cluster: &Cluster| cluster.incarnation.as_deref() == Some(lost.incarnation);
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
    match lost.identity {
        Some(key)
            if key.cluster_id == cluster.id
                && key.kind == KeyKind::Identity
                && key.state.is_valid() =>
        {
            return Recovery::Repeat;
        }
        Some(_) => return Recovery::KeyKnown,
        None => {}
    }
    match lost.wait {
        _ if !lost.allowed => Recovery::Manual,
        Some(wait) => Recovery::Live(wait),
        None => Recovery::Bind,
    }
}

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

/// The least epoch of a cluster that a restored hub takes in: higher than any that the hub before counted to, for no
/// cluster opens a million lines a second.
pub fn epoch_after_a_restore(now: OffsetDateTime) -> u64 {
    now.unix_timestamp().unsigned_abs() << 20
}

#[cfg(test)]
mod tests;
