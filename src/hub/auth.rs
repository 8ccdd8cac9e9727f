//! A request's headers to its principal: people by bearer token, agents by signature.

use std::collections::BTreeSet;

use http::HeaderMap;
use http::request::Parts;
use time::OffsetDateTime;

use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{Asker, Denied, Mode};
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::store::{ApiToken, StoreError, UserRow};
use crate::wire::id::ClusterName;

mod role;
mod signature;
mod word;

pub use role::{Role, Scope};
pub use signature::{agent, is_signed, signed_by};
pub use word::{
    LOG_IN, Lapsed, groups, lapsed, roles, roles_given, roles_on_record, vouched_before,
    vouched_until, vouched_within,
};

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
    /// Groups that grants can name, as far as they are in force.
    pub groups: Vec<String>,
    /// Why those on record are not.
    pub lapsed: Option<Lapsed>,
    /// Which these are.
    pub lapsed_groups: Vec<String>,
    /// The token's id, or that of the session that it belongs to.
    pub token_id: String,
    /// Whether the token may less than its user.
    pub scoped: bool,
    pub scopes: Vec<Scope>,
    /// The clusters that the token reaches; None = all.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// Of the token.
    pub expires_at: Option<OffsetDateTime>,
    /// When the token ends before that, unless the identity provider vouches for its user anew; None = not.
    pub vouched_until: Option<OffsetDateTime>,
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

    /// The same with the groups that have lapsed: after a login they are the user's again.
    pub fn asker_on_record(&self) -> Asker<'_> {
        Asker {
            name: &self.name,
            groups: match self.lapsed {
                Some(_) => &self.lapsed_groups,
                None => &self.groups,
            },
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

    /// A no to this user, who may have it for want of groups only.
    #[must_use]
    pub fn told(&self, no: Denied) -> Denied {
        match self.lapsed {
            None => no,
            Some(why) => why.told(&no),
        }
    }

    /// Whether the user has this role, or one that holds it.
    pub fn is(&self, role: Role) -> bool {
        self.roles.iter().any(|own| own.holds(role))
    }
}

/// A cluster's agent. It comes from the key's record only, never from what the agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPrincipal {
    pub cluster: ClusterName,
    pub cluster_id: String,
    /// The fingerprint of the identity key that proved it.
    pub key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("this call needs a hub token")]
    Missing,
    #[error("the hub token is unknown, expired or revoked")]
    Invalid,
    #[error("the identity provider has not vouched for this token's user for too long")]
    Unvouched,
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
    let (now, oidc) = (clock::now(), hub.config.oidc.as_ref());
    let over = stored.expires_at.is_some_and(|e| now >= e);
    if over || stored.revoked_at.is_some() || row.disabled {
        return Err(AuthError::Invalid);
    }
    let vouched = vouched_until(row, oidc);
    if vouched.is_some_and(|until| now >= until) {
        return Err(AuthError::Unvouched);
    }
    let user = principal(whole(row, hub, now), stored);
    Ok(User {
        runs_until: user.runs_until.into_iter().chain(vouched).min(),
        vouched_until: vouched_before(stored.expires_at, row, oidc),
        ..user
    })
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
        token_id: session.id.clone(),
        expires_at: Some(pair.access_until),
        runs_until: Some(session.expires_at),
        ..whole(row, hub, now)
    })
}

/// What a user may by all that is on record, whatever they show for it.
fn whole(row: &UserRow, hub: &Hub, now: OffsetDateTime) -> User {
    let oidc = hub.config.oidc.as_ref();
    let lapsed = lapsed(row, oidc, now);
    User {
        roles: roles(row, oidc, now),
        id: row.id.clone(),
        name: row.name.clone(),
        groups: groups(row, oidc, now).to_vec(),
        lapsed_groups: match lapsed {
            Some(_) => row.groups.clone(),
            None => Vec::new(),
        },
        lapsed,
        token_id: String::new(),
        scoped: false,
        scopes: Vec::new(),
        clusters: None,
        expires_at: None,
        vouched_until: None,
        runs_until: None,
    }
}

/// The same with a token's own limits.
fn principal(whole: User, token: &ApiToken) -> User {
    // A scope that this build does not know is kept as nothing, never as "all".
    let scopes: Vec<Scope> = token
        .scopes
        .iter()
        .filter_map(|s| Scope::parse(s))
        .collect();
    let whole = User {
        token_id: token.id.clone(),
        expires_at: token.expires_at,
        runs_until: token.expires_at,
        clusters: token.clusters.clone(),
        ..whole
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Roles of the user, scopes of the token, and: roles in force, reach into clusters.
    #[test]
    fn scopes_narrow_what_a_user_may() {
        type Row<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], Option<Mode>);
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rows: [Row<'_>; 8] = [
            (&["admin"], &[], &["admin"], Some(Mode::Full)),
            (&["operator"], &["viewer"], &["viewer"], None),
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
            let own = strings(roles);
            let user = User {
                id: "u".into(),
                name: "ada".into(),
                roles: own.iter().filter_map(|r| Role::parse(r)).collect(),
                groups: vec![],
                lapsed: None,
                lapsed_groups: vec![],
                token_id: String::new(),
                scoped: false,
                scopes: vec![],
                clusters: None,
                expires_at: None,
                vouched_until: None,
                runs_until: None,
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
            let user = principal(user, &token);
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
