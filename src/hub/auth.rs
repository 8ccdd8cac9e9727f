//! A request's headers to its principal: people by bearer token, agents by signature.

use std::collections::BTreeSet;

use http::HeaderMap;
use http::request::Parts;
use time::OffsetDateTime;

use crate::clock;
use crate::hub::access::{Asker, Mode};
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::store::{ApiToken, KeyKind, StoreError, UserRow};
use crate::hub::{Hub, api, oidc};
use crate::keys::{self, Public};
use crate::wire::api::{SIGNATURE_HEADER, SIGNATURE_WINDOW, signing_input};
use crate::wire::id::ClusterName;

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    User(User),
    Agent(AgentPrincipal),
}

/// A person or a program with a hub token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: String,
    pub name: String,
    /// As far as the token's scopes go.
    pub roles: Vec<Role>,
    /// Groups that grants can name.
    pub groups: Vec<String>,
    /// The token's id, or that of the session that it belongs to.
    pub token_id: String,
    /// Whether the token may less than its user.
    pub scoped: bool,
    pub scopes: Vec<Scope>,
    /// The clusters that the token reaches; None = all.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// Of the token.
    pub expires_at: Option<OffsetDateTime>,
    /// When what the user runs ends at the latest: with the token, or with the session that renews it.
    pub runs_until: Option<OffsetDateTime>,
}

impl User {
    /// As grants see the user.
    pub fn asker(&self) -> Asker<'_> {
        Asker {
            name: &self.name,
            groups: &self.groups,
        }
    }

    /// How far this token reaches into clusters, whatever the grants say; None = not at all.
    pub fn kube(&self) -> Option<Mode> {
        if !self.scoped || self.scopes.contains(&Scope::Kube) {
            return Some(Mode::Full);
        }
        self.scopes.contains(&Scope::KubeRead).then_some(Mode::Read)
    }

    /// Whether the token reaches a cluster of this name, be it there or not.
    pub fn reaches(&self, name: Option<&ClusterName>) -> bool {
        let Some(clusters) = &self.clusters else {
            return true;
        };
        name.is_some_and(|name| clusters.contains(name))
    }

    /// Whether the user has this role; admins have all of them.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.roles.contains(&Role::Admin)
    }
}

/// What a user may do at the hub. Reaching a cluster's API is a grant, not a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sees clusters, heals and bundles.
    Viewer,
    /// Adds, readopts and removes clusters, imports bundles, pushes to the catalog.
    Operator,
    /// Manages grants.
    Access,
    /// Reads the audit chain.
    Auditor,
    Admin,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Access => "access",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Viewer,
            Self::Operator,
            Self::Access,
            Self::Auditor,
            Self::Admin,
        ]
        .into_iter()
        .find(|r| r.as_str() == text)
    }
}

/// What a machine's token may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The hub's API, by one of the user's roles.
    Role(Role),
    /// Clusters, as the user's grants allow.
    Kube,
    /// The same, reading only.
    KubeRead,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role(role) => role.as_str(),
            Self::Kube => "kube",
            Self::KubeRead => "kube-read",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "kube" => Some(Self::Kube),
            "kube-read" => Some(Self::KubeRead),
            role => Role::parse(role).map(Self::Role),
        }
    }
}

/// A cluster's agent. It comes from the key's record only, never from what the agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPrincipal {
    pub cluster: ClusterName,
    pub cluster_id: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("this call needs a hub token")]
    Missing,
    #[error("the hub token is unknown, expired or revoked")]
    Invalid,
    #[error("this call needs a signature in the header Linesman-Signature")]
    Unsigned,
    #[error("the signature does not fit the call")]
    BadSignature,
    /// The signature's time is too far from the hub's; sign once more with this time.
    #[error("the signature is too old or too new")]
    Stale { now: i64 },
    #[error("the key is not registered at this hub")]
    UnknownIdentity,
    #[error("the key was revoked")]
    Revoked,
    #[error("the cluster was removed")]
    Removed,
    #[error("look up the caller")]
    Store(#[from] StoreError),
}

/// The person behind a request's bearer token. Agents' calls are proven together with their body: [`agent`].
pub async fn authenticate(hub: &Hub, parts: &Parts) -> Result<Principal, AuthError> {
    if let Some(agent) = parts.extensions.get::<AgentPrincipal>() {
        return Ok(Principal::Agent(agent.clone()));
    }
    user(hub, &parts.headers).await.map(Principal::User)
}

/// The person behind `Authorization: Bearer lmt1.…`, or `lma1.…` after a login with the identity provider.
pub async fn user(hub: &Hub, headers: &HeaderMap) -> Result<User, AuthError> {
    let text = bearer(headers).ok_or(AuthError::Missing)?;
    if let Some(token) = TokenText::parse(Prefix::Access, text) {
        return by_session(hub, &token).await;
    }
    let token = TokenText::parse(Prefix::Api, text).ok_or(AuthError::Invalid)?;
    let found = hub.lookups.api_token(&token.id).await?;
    let matches = token.matches(found.as_ref().map(|known| &known.0.hash));
    let Some(known) = found.filter(|_| matches) else {
        return Err(AuthError::Invalid);
    };
    let (stored, row) = &*known;
    let over = stored.expires_at.is_some_and(|e| clock::now() >= e);
    if over || stored.revoked_at.is_some() || row.disabled {
        return Err(AuthError::Invalid);
    }
    let roles = roles(row, hub.config.oidc.as_ref());
    Ok(principal(row.clone(), roles, stored.clone()))
}

async fn by_session(hub: &Hub, token: &TokenText) -> Result<User, AuthError> {
    let found = hub.lookups.session_token(&token.id).await?;
    let matches = token.matches(found.as_ref().map(|known| &known.0.access_hash));
    let Some(known) = found.filter(|_| matches) else {
        return Err(AuthError::Invalid);
    };
    let (pair, session, row) = &*known;
    let now = clock::now();
    let over = now >= pair.access_until || now >= session.expires_at;
    if over || session.ended || row.disabled {
        return Err(AuthError::Invalid);
    }
    Ok(User {
        roles: roles(row, hub.config.oidc.as_ref()),
        id: row.id.clone(),
        name: row.name.clone(),
        groups: row.groups.clone(),
        token_id: session.id.clone(),
        scoped: false,
        scopes: Vec::new(),
        clusters: None,
        expires_at: Some(pair.access_until),
        runs_until: Some(session.expires_at),
    })
}

/// A user's own roles, and those that groups of the identity provider give to its users.
pub fn roles(row: &UserRow, oidc: Option<&oidc::Config>) -> Vec<Role> {
    let mut roles: Vec<Role> = row.roles.iter().filter_map(|r| Role::parse(r)).collect();
    let provided = row.provider.as_ref();
    let oidc = oidc.filter(|config| provided.is_some_and(|p| p.issuer == config.issuer));
    for role in oidc::roles(oidc, &row.groups) {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    roles
}

fn principal(row: UserRow, roles: Vec<Role>, token: ApiToken) -> User {
    // A scope that this build does not know is kept as nothing, never as "all".
    let scopes: Vec<Scope> = token
        .scopes
        .iter()
        .filter_map(|s| Scope::parse(s))
        .collect();
    let whole = User {
        id: row.id,
        name: row.name,
        groups: row.groups,
        token_id: token.id,
        expires_at: token.expires_at,
        runs_until: token.expires_at,
        scoped: false,
        scopes: Vec::new(),
        clusters: token.clusters,
        roles,
    };
    if token.scopes.is_empty() {
        return whole;
    }
    let roles = scopes.iter().filter_map(|scope| match scope {
        Scope::Role(role) => whole.is(*role).then_some(*role),
        Scope::Kube | Scope::KubeRead => None,
    });
    User {
        roles: roles.collect(),
        scoped: true,
        scopes,
        ..whole
    }
}

/// RFC 6750: the scheme's name in any case, one space, the token.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers
        .get(http::header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The agent that signed a call with this body.
pub async fn agent(hub: &Hub, parts: &Parts, body: &[u8]) -> Result<AgentPrincipal, AuthError> {
    let signature = SignatureHeader::of(&parts.headers)?;
    let key = hub
        .store
        .cluster_key_by_fingerprint(&signature.key)
        .await?
        .filter(|k| k.kind == KeyKind::Identity)
        .ok_or(AuthError::UnknownIdentity)?;
    signature.verify(&hub.id, parts, body, key.public)?;
    let now = clock::now().unix_timestamp();
    if (now - signature.time).abs() > SIGNATURE_WINDOW {
        return Err(AuthError::Stale { now });
    }
    if key.removed {
        return Err(AuthError::Removed);
    }
    if !key.state.is_valid() {
        return Err(AuthError::Revoked);
    }
    Ok(AgentPrincipal {
        cluster: key.cluster,
        cluster_id: key.cluster_id,
    })
}

/// Proves that the holder of `key` signed this call, at whatever time: joins are safe to replay.
pub fn signed_by(hub_id: &str, parts: &Parts, body: &[u8], key: Public) -> Result<(), AuthError> {
    let signature = SignatureHeader::of(&parts.headers)?;
    if signature.key != key.fingerprint() {
        return Err(AuthError::BadSignature);
    }
    signature.verify(hub_id, parts, body, key)
}

/// `Linesman-Signature: v1;key=<SHA-256 fp>;t=<unix s>;sig=<b64url>`
struct SignatureHeader {
    key: String,
    time: i64,
    sig: Vec<u8>,
}

impl SignatureHeader {
    fn of(headers: &HeaderMap) -> Result<Self, AuthError> {
        let text = headers
            .get(SIGNATURE_HEADER)
            .ok_or(AuthError::Unsigned)?
            .to_str()
            .map_err(|_| AuthError::BadSignature)?;
        Self::parse(text).ok_or(AuthError::BadSignature)
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("v1;")?;
        let (mut key, mut time, mut sig) = (None, None, None);
        for part in rest.split(';') {
            match part.trim().split_once('=')? {
                ("key", v) => key = Some(v.to_owned()),
                ("t", v) => time = v.parse().ok(),
                ("sig", v) => sig = keys::decode(v),
                _ => {}
            }
        }
        Some(Self {
            key: key?,
            time: time?,
            sig: sig?,
        })
    }

    fn verify(
        &self,
        hub_id: &str,
        parts: &Parts,
        body: &[u8],
        key: Public,
    ) -> Result<(), AuthError> {
        let path = api::path_and_query(parts);
        let sum = keys::sha256_hex(body);
        let input = signing_input(hub_id, parts.method.as_str(), path, self.time, &sum);
        if key.verify(input.as_bytes(), &self.sig) {
            Ok(())
        } else {
            Err(AuthError::BadSignature)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_header_is_read_in_its_one_form() {
        let read = SignatureHeader::parse("v1;key=SHA256:ab;t=12;sig=AAAA").unwrap();
        assert_eq!(
            (read.key.as_str(), read.time, read.sig),
            ("SHA256:ab", 12, vec![0; 3])
        );
        for bad in [
            "",
            "v2;key=a;t=1;sig=AA",
            "v1;key=a;t=x;sig=AA",
            "v1;key=a;t=1",
            "v1;key",
        ] {
            assert!(SignatureHeader::parse(bad).is_none(), "{bad}");
        }
    }

    /// Roles of the user, scopes of the token, and: roles in force, reach into clusters.
    #[test]
    fn scopes_narrow_what_a_user_may() {
        type Row<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], Option<Mode>);
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rows: [Row<'_>; 7] = [
            (&["admin"], &[], &["admin"], Some(Mode::Full)),
            (&["admin"], &["viewer"], &["viewer"], None),
            (&["viewer"], &["operator", "kube"], &[], Some(Mode::Full)),
            (
                &["viewer", "auditor"],
                &["auditor", "kube-read"],
                &["auditor"],
                Some(Mode::Read),
            ),
            (&["viewer"], &["kube-read", "kube"], &[], Some(Mode::Full)),
            (&["admin"], &["of-tomorrow"], &[], None),
            (&[], &[], &[], Some(Mode::Full)),
        ];
        for (roles, scopes, in_force, kube) in rows {
            let row = UserRow {
                id: "u".into(),
                name: "ada".into(),
                roles: strings(roles),
                groups: vec![],
                disabled: false,
                provider: None,
                rev: 1,
            };
            let token = ApiToken {
                id: "t".into(),
                user_id: "u".into(),
                hash: [0; 32],
                title: String::new(),
                scopes: strings(scopes),
                clusters: None,
                created_by: String::new(),
                created_at: OffsetDateTime::UNIX_EPOCH,
                expires_at: None,
                revoked_at: None,
            };
            let own = super::roles(&row, None);
            let user = principal(row, own, token);
            let got: Vec<&str> = user.roles.iter().map(|r| r.as_str()).collect();
            assert_eq!(
                (got.as_slice(), user.kube()),
                (in_force, kube),
                "{roles:?} {scopes:?}"
            );
        }
    }

    #[test]
    fn the_bearer_scheme_is_read_in_any_case() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers), None);
        headers.insert("authorization", "bearer abc".parse().unwrap());
        assert_eq!(bearer(&headers), Some("abc"));
        headers.insert("authorization", "Basic abc".parse().unwrap());
        assert_eq!(bearer(&headers), None);
    }
}
