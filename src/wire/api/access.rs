//! Bodies about who may do what, and who did.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::id::ClusterName;

/// Which clusters a grant is for: `"all"`, `{"names": ["eu1"]}` or `{"labels": "env=prod,!frozen"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClusterChoice {
    All,
    Names(BTreeSet<ClusterName>),
    /// A label selector in the syntax of Kubernetes.
    Labels(String),
}

/// `POST /v1/grants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewGrant {
    /// `user:NAME` or `group:NAME`
    pub subject: String,
    pub clusters: ClusterChoice,
    /// Kubernetes groups without the prefix `linesman:`; every cluster knows `view`, `edit` and `admin`.
    pub groups: BTreeSet<String>,
    /// `user:NAME` and `group:NAME`: whom `kubectl --as` and `--as-group` may name.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub act_as: BTreeSet<String>,
    /// Absent = all, and what lies in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
    #[serde(default)]
    pub read_only: bool,
    /// Seconds from now; absent = until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u64>,
    #[serde(default)]
    pub reason: String,
}

/// `GET /v1/grants` and `GET /v1/grants/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantView {
    pub id: String,
    pub subject: String,
    pub clusters: ClusterChoice,
    pub groups: BTreeSet<String>,
    /// `user:NAME` and `group:NAME`: whom `kubectl --as` and `--as-group` may name.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub act_as: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
    pub read_only: bool,
    /// RFC 3339; absent = until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// RFC 3339; absent = it was not revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    /// Who revoked it; absent = nobody by name: it went with its user or its cluster, or before that was on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
    /// Its end has passed, or it was revoked.
    pub over: bool,
    pub reason: String,
    pub created_by: String,
    pub created_at: String,
    pub rev: i64,
}

/// `GET /v1/grants/check`: whether a user gets through to a cluster, and what each grant says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantCheck {
    pub user: String,
    /// Whether the hub has this user. Nobody else gets through, whatever grants name them.
    #[serde(default = "known")]
    pub known: bool,
    /// Groups of the hub that the user is in, as far as they count.
    pub user_groups: Vec<String>,
    /// Why groups that are on record do not count; a login brings them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_lapsed: Option<String>,
    pub cluster: ClusterName,
    pub allowed: bool,
    /// Why, in words.
    pub reason: String,
    /// What to do about it; empty where allowed.
    #[serde(default)]
    pub next: String,
    /// `linesman:<name>`, where allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acts_as: Option<String>,
    /// `linesman:<group>` each, where allowed.
    pub acts_in: Vec<String>,
    /// `off`, `view`, `edit` or `admin`, where allowed: the most of these groups that the cluster's adoption YAML binds. Absent from
    /// a hub of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    pub opinions: Vec<GrantOpinion>,
}

/// A hub of before does not say, and judged everybody as if it had them.
fn known() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantOpinion {
    pub grant: GrantView,
    pub says: bool,
    /// Why not; empty where it says yes.
    #[serde(default)]
    pub why: String,
}

/// `GET /v1/audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditView {
    pub seq: i64,
    /// RFC 3339 with milliseconds.
    pub at: String,
    /// `open`, `close` or `event`.
    pub stage: String,
    pub actor: String,
    pub action: String,
    /// Whom a Kubernetes request went as, where that is not the actor: `linesman:bob in linesman:edit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acted_as: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    pub target: String,
    /// Of `kube.exec` and `kube.attach`, where the request names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Of `kube.exec`: the command with its arguments, as a shell would take it. Absent where the hub leaves them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Of `kube.portforward`, where the request names them and not what follows it: `8080,5432`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
    pub request_id: String,
    /// `allow` or `deny`.
    pub verdict: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a close: the `seq` of its open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<i64>,
    /// Of a close, and of a refusal: that of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Of a session's close: with which code its command ended, where the API server said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub millis: Option<u64>,
    pub remote: String,
    /// 64 hex digits each.
    pub prev: String,
    pub hash: String,
}

/// `GET /v1/audit/anchors`: the hub's signature under the chain as it was, hourly and where records were removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnchorView {
    /// The last record below it.
    pub seq: i64,
    /// That record's hash, 64 hex digits.
    pub hash: String,
    /// Unix milliseconds.
    pub at: i64,
    /// base64url, Ed25519 over `linesman/audit-anchor/v1`, hub id, seq, hash and at, joined by newlines.
    pub sig: String,
    /// The records up to here were removed: the chain begins behind it.
    pub start: bool,
    /// The hub's public key, base64url.
    pub key: String,
}

/// `GET /v1/whoami`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhoAmI {
    pub user: String,
    pub roles: Vec<String>,
    /// Groups of the hub that the user is in; grants can name them.
    pub groups: Vec<String>,
    /// Why groups that are on record do not count; a login brings them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_lapsed: Option<String>,
    /// What the token may be used for; none = all that the user may.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// RFC 3339; absent = no end.
    pub expires_at: Option<String>,
    /// RFC 3339: when the token ends before that, unless the identity provider vouches for its user anew, as at a login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched_until: Option<String>,
    pub hub: String,
}

/// `POST /v1/users`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewUser {
    pub name: String,
    /// `viewer`, `operator`, `access`, `auditor`, `admin`.
    #[serde(default)]
    pub roles: BTreeSet<String>,
    /// Groups that grants can name.
    #[serde(default)]
    pub groups: BTreeSet<String>,
}

/// `PATCH /v1/users/{name}`: each list that is there replaces the one on record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<BTreeSet<String>>,
}

/// `GET /v1/users`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserView {
    pub name: String,
    /// The user's own, which `PATCH` replaces.
    pub roles: Vec<String>,
    /// What groups of the identity provider give beside these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles_by_group: Vec<RoleByGroup>,
    pub groups: Vec<String>,
    /// Tokens in force.
    pub tokens: u32,
    /// The identity provider whose word the groups are; absent = a local user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// RFC 3339: when it vouched for the user last, to the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched_at: Option<String>,
    #[serde(default)]
    pub rev: i64,
}

/// A role at the hub that a group of the identity provider gives to a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleByGroup {
    pub role: String,
    pub group: String,
    /// Whether the provider's word on the user's groups counts now; where not, it does from the next login on.
    pub in_force: bool,
}

/// `POST /v1/api-tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewApiToken {
    /// Absent = the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it is for, such as `laptop` or `ci`.
    pub title: String,
    /// Seconds from now, at most 366 days.
    pub lasts: u64,
    /// A role, `kube` or `kube-read` each; none = all that the user may.
    #[serde(default)]
    pub scopes: BTreeSet<String>,
    /// The clusters that it reaches, which takes the scope `kube` or `kube-read`; absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<BTreeSet<ClusterName>>,
}

impl NewApiToken {
    /// The title of a token by which an Argo CD elsewhere uses this cluster, as `cluster argocd-secret` makes it.
    pub fn argocd_title(cluster: &ClusterName) -> String {
        format!("Argo CD for {cluster}")
    }
}

/// The answer: the only time that the token is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiTokenAnswer {
    pub token: String,
    #[serde(flatten)]
    pub view: ApiTokenView,
}

/// `GET /v1/api-tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiTokenView {
    pub id: String,
    pub user: String,
    pub title: String,
    pub scopes: Vec<String>,
    /// Absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<BTreeSet<ClusterName>>,
    pub created_by: String,
    pub created_at: String,
    /// RFC 3339; absent = no end, which the hub's first token has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// As in [`WhoAmI`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched_until: Option<String>,
}
