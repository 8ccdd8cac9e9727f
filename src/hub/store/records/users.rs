//! People: users, their logins with an identity provider, the hub tokens and SSH keys that they hold.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::Revision;
use crate::keys::Public;
use crate::wire::id::ClusterName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    pub id: String,
    pub name: String,
    pub roles: Vec<String>,
    /// Groups that grants can name.
    pub groups: Vec<String>,
    pub disabled: bool,
    /// Whose word the groups are; None = a local user's, who is changed here.
    pub provider: Option<Provided>,
    pub rev: i64,
}

impl UserRow {
    pub fn revision(&self) -> Revision<'_> {
        Revision {
            id: &self.id,
            rev: self.rev,
        }
    }
}

/// Who a user is at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provided {
    pub issuer: String,
    pub subject: String,
    /// When it vouched for the user last, to the hour.
    pub vouched_at: OffsetDateTime,
    /// Whether it was asked since and said no, and nobody else can be asked with.
    pub refused: bool,
}

/// The name of the user whom the hub makes by itself, and again where nobody could administer it.
pub const FIRST_ADMIN: &str = "admin";

/// Someone whom an identity provider vouches for.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// For one who is new.
    pub id: String,
    pub issuer: String,
    pub subject: String,
    pub name: String,
    pub groups: BTreeSet<String>,
}

/// What the store makes of them.
#[derive(Debug)]
pub enum Known {
    User {
        user: Box<UserRow>,
        /// As they were; None = they are new.
        before: Option<Box<UserRow>>,
        /// Whether a local user who was removed had the name until now.
        freed: bool,
    },
    /// An admin removed them, under the name that they had then.
    Removed { name: String },
    /// Someone else has the name.
    Taken,
}

/// A login with an identity provider.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: String,
    pub user_id: String,
    /// The provider's refresh token, sealed.
    pub sealed: Option<Vec<u8>>,
    pub asked_at: OffsetDateTime,
    pub idle_until: OffsetDateTime,
    pub expires_at: OffsetDateTime,
    pub ended: bool,
}

/// A pair of tokens as it is stored.
#[derive(Debug, Clone)]
pub struct Pair {
    pub id: String,
    pub access_hash: [u8; 32],
    pub refresh_hash: [u8; 32],
    pub access_until: OffsetDateTime,
}

/// A stored pair with what became of it.
#[derive(Debug, Clone)]
pub struct SessionToken {
    pub id: String,
    pub session_id: String,
    pub access_hash: [u8; 32],
    pub refresh_hash: [u8; 32],
    pub access_until: OffsetDateTime,
    /// When the refresh token was first used.
    pub used_at: Option<OffsetDateTime>,
}

/// A hub token; its secret is stored as SHA-256 only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    pub id: String,
    pub user_id: String,
    pub hash: [u8; 32],
    pub title: String,
    /// What it may be used for ([`crate::hub::auth::Scope`]); none = all that its user may.
    pub scopes: Vec<String>,
    /// The clusters that it reaches; None = all.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// The name of the user who made it; `hub` for the first.
    pub created_by: String,
    pub created_at: OffsetDateTime,
    pub expires_at: Option<OffsetDateTime>,
    pub revoked_at: Option<OffsetDateTime>,
}

/// The ids of the grants and tokens that were for a cluster by its name, once that is removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedAccess {
    /// They were for this cluster alone.
    pub revoked_grants: Vec<String>,
    /// They go on for others.
    pub narrowed_grants: Vec<String>,
    pub revoked_tokens: Vec<String>,
    pub narrowed_tokens: Vec<String>,
}

/// How the end of a token or user went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// It was gone before, never there, or is of another revision by now.
    Unknown,
    /// Nothing was done: nobody could administer the hub any more.
    LastAdmin,
}

/// A POST with its Idempotency-Key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub user_id: String,
    pub key: String,
    /// Of what it asks for.
    pub digest: [u8; 32],
}

/// What is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Called {
    /// It came for the first time, or again after it stored nothing.
    First,
    /// It is carried out now.
    Running,
    /// It was carried out, and answered so.
    Before(String),
    /// It stored a change, be it all or a part, and its answer is lost.
    Changed,
    /// Another call came with this key.
    Other,
}

/// A person's SSH key for the built-in Git server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKey {
    pub id: String,
    pub user_id: String,
    pub public: Public,
    pub title: String,
    pub created_at: OffsetDateTime,
}
