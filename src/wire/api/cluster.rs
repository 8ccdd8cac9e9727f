//! A cluster as people add, see and change it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use super::super::id::{ClusterName, Digest};
use super::super::report::{self, Condition, Facts, LaterCondition, Phase, StepReport};
use super::assignment::Via;
use super::engine::EngineKind;

/// What the operator chose for a cluster's way to the Git host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitRoute {
    /// Directly, and over the line where the agent finds no route and the hub allows it.
    #[default]
    Auto,
    Direct,
    Line,
}

/// `PUT /v1/clusters/{name}/git-route`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitRouteRequest {
    pub route: GitRoute,
}

/// The answer, and a part of [`ClusterView`]: what was chosen, and what is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitRouteView<R = GitRoute, V = Via> {
    pub route: R,
    pub via: V,
}

/// What the catalog has for a cluster with Argo CD by the URL of the way to Git that is not in force. Argo CD has no key for that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherWay {
    /// The catalog's URL by the way that is in force.
    pub url: String,
    /// Files that somebody else wrote or changed, of which an Application names the other URL; some of them, where they are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The branch on which the hub's own wait, where the catalog's head has to be signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<String>,
}

/// `PATCH /v1/clusters/{name}/labels`. What is not named stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LabelsRequest {
    pub set: BTreeMap<String, String>,
    /// Keys; one that is not there is not missed.
    pub remove: BTreeSet<String>,
    /// Whether a key that has another value gets this one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub overwrite: bool,
}

/// The answer: all labels that the cluster has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelsView {
    pub labels: BTreeMap<String, String>,
}

/// `PUT /v1/clusters/{name}/agent-image`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentImageRequest {
    /// `REPOSITORY@sha256:…`; absent = the agent stays with what it runs.
    pub image: Option<String>,
    /// A tag will do, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_tag: bool,
}

/// The answer: what the agent is told from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentImageView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The number of this wish, with which the agent tells how it goes; 0 = the hub is of before there were any.
    #[serde(default)]
    pub wish: u64,
}

/// `POST /v1/clusters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewCluster {
    pub name: ClusterName,
    #[serde(default = "flux")]
    pub engine: EngineKind,
    /// Absent = the newest imported bundle of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Digest>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub git_route: GitRoute,
    /// Whether the catalog keeps a copy of the agent, from which the engine brings it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent_copy: bool,
    #[serde(default)]
    pub adoption: AdoptionOptions,
}

/// `PUT /v1/clusters/{name}/agent-copy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentCopyRequest {
    /// Write the copy of the agent in the catalog as it has to be now; else take it out.
    pub kept: bool,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCopyView {
    pub kept: bool,
    /// The branch on which the change waits, where the catalog's head has to be signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<String>,
}

/// How the catalog's copy of an agent stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCopyStanding {
    /// The catalog has one.
    pub kept: bool,
    /// It is as it has to be now.
    #[serde(default)]
    pub current: bool,
    /// The branch on which it waits as it has to be, where the catalog's head has to be signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<String>,
    /// Whether the cluster's engine has applied the catalog with the copy as it is there now, or without one; absent = it is
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<bool>,
    /// Why the hub cannot renew it, or cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

fn flux() -> EngineKind {
    EngineKind::Flux
}

/// What the cluster's owner may choose about the generated YAML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdoptionOptions {
    /// The agent's image; empty = the hub's default.
    pub image: String,
    /// The most that access groups get in the cluster.
    pub access: AccessLevel,
    /// Absent = the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeOptions>,
    /// Seconds that the join token lives: 300 to 604,800.
    pub token_ttl: u32,
    pub image_pull_secret: String,
    pub https_proxy: String,
    pub no_proxy: String,
    /// Where Argo CD lives; empty = `argocd`. It stays as the cluster was added.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub engine_namespace: String,
}

impl Default for AdoptionOptions {
    fn default() -> Self {
        Self {
            image: String::new(),
            access: AccessLevel::Admin,
            scope: None,
            token_ttl: 86_400,
            image_pull_secret: String::new(),
            https_proxy: String::new(),
            no_proxy: String::new(),
            engine_namespace: String::new(),
        }
    }
}

/// What is to differ from the [`AdoptionOptions`] of a cluster that is adopted again; what is absent stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdoptionChanges {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessLevel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeOptions>,
    /// Absent = a day, whatever it was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ttl: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Refused where it is another one than the cluster has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_namespace: Option<String>,
}

impl AdoptionChanges {
    /// What comes of them.
    pub fn of(self, known: &AdoptionOptions) -> AdoptionOptions {
        let Self {
            image,
            access,
            scope,
            token_ttl,
            image_pull_secret,
            https_proxy,
            no_proxy,
            engine_namespace,
        } = self;
        let or = |new: Option<String>, known: &String| new.unwrap_or_else(|| known.clone());
        let usual = AdoptionOptions::default();
        AdoptionOptions {
            image: or(image, &known.image),
            access: access.unwrap_or(known.access),
            scope: scope.or_else(|| known.scope.clone()),
            token_ttl: token_ttl.unwrap_or(usual.token_ttl),
            image_pull_secret: or(image_pull_secret, &known.image_pull_secret),
            https_proxy: or(https_proxy, &known.https_proxy),
            no_proxy: or(no_proxy, &known.no_proxy),
            engine_namespace: or(engine_namespace, &known.engine_namespace),
        }
    }
}

/// The namespaces that rights of agent and people are bound in. The hub keeps it to print the same YAML again; what is in
/// force is in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScopeOptions {
    pub namespaces: Vec<String>,
    /// The agent reads the engine's namespace and its own only, and people get `view` at most.
    pub strict: bool,
}

impl ScopeOptions {
    /// No bound: the whole cluster.
    pub fn is_whole(&self) -> bool {
        self.namespaces.is_empty() && !self.strict
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLevel {
    Off,
    View,
    Edit,
    Admin,
}

impl AccessLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::View => "view",
            Self::Edit => "edit",
            Self::Admin => "admin",
        }
    }
}

/// The answer to `POST /v1/clusters` and to `POST /v1/clusters/{name}/join-tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionAnswer<C = ClusterView> {
    pub cluster: C,
    /// The whole YAML, ready for `kubectl apply -f -`. It holds the join token.
    pub yaml: String,
    /// RFC 3339.
    pub token_expires_at: String,
    /// `https://…/adopt/<token>.yaml`: the same YAML.
    pub adopt_url: String,
    /// The branch with the cluster's files, where they wait for somebody to sign them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<String>,
}

/// `POST /v1/clusters/{name}/join-tokens`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NewJoinToken {
    pub adoption: AdoptionChanges,
    /// Accept another incarnation (UID of `kube-system`) than the one on record.
    pub new_cluster: bool,
}

/// `POST /v1/clusters/{name}/pause`: a maintenance window from now on, in place of one that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseRequest {
    /// 60 to 86,400.
    pub seconds: u32,
    /// At most 200 characters in one line.
    pub reason: String,
}

/// `POST /v1/clusters/{name}/lift`: what is held back from Git there is given back to it, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LiftRequest {
    /// At most 200 characters in one line.
    pub reason: String,
}

/// One cluster as `GET /v1/clusters` and `GET /v1/clusters/{name}` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(
        deserialize = "P: Deserialize<'de>, E: Deserialize<'de>, G: Deserialize<'de>, \
                         S: Deserialize<'de>, C: Deserialize<'de>"
    )
)]
pub struct ClusterView<P = Phase, E = EngineKind, G = GitRouteView, S = StepReport, C = Condition> {
    pub name: ClusterName,
    pub id: String,
    pub phase: P,
    pub engine: E,
    pub engine_version: String,
    pub labels: BTreeMap<String, String>,
    /// Whether the line is up at this moment.
    pub line: LineView,
    /// RFC 3339; absent = never seen.
    pub last_seen: Option<String>,
    pub revision: Option<String>,
    pub agent_version: Option<String>,
    pub catalog_path: String,
    pub git: G,
    /// What the YAML was made for; absent = the whole cluster.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "scope_in_force"
    )]
    pub scope: Option<ScopeOptions>,
    /// `off`, `view`, `edit` or `admin`: the most that access groups get by that YAML; absent = a hub of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    pub created_at: String,
    /// The adoption's steps, in order.
    #[serde(deserialize_with = "report::known")]
    pub steps: Vec<S>,
    #[serde(deserialize_with = "report::known")]
    pub conditions: Vec<C>,
    /// What an agent of a later version says in words that the hub does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_conditions: Vec<LaterCondition>,
    pub facts: Facts,
    /// How the catalog's copy of the agent stands; absent = it is not told here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_copy: Option<AgentCopyStanding>,
    /// What the catalog has by the URL of another way to Git than the one in force; absent = nothing, or it is not told here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_way: Option<OtherWay>,
    /// Public keys of the cluster with their fingerprints and states.
    pub keys: Vec<KeyView>,
    pub rev: i64,
}

/// Reads what a hub tells: unlike what a person asks for, it may say more than is known here.
fn scope_in_force<'de, D>(from: D) -> Result<Option<ScopeOptions>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Told {
        namespaces: Vec<String>,
        strict: bool,
    }
    let told: Option<Told> = Option::deserialize(from)?;
    Ok(told.map(|Told { namespaces, strict }| ScopeOptions { namespaces, strict }))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineView {
    pub up: bool,
    pub epoch: u64,
    pub since: Option<String>,
    pub remote: Option<String>,
    pub rtt_micros: Option<u64>,
    pub streams: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// `identity` or `deploy`.
    pub kind: String,
    /// `SHA256:…`
    pub fingerprint: String,
    pub public: String,
    /// `pending`, `active`, `retiring` or `revoked`.
    pub state: String,
    /// RFC 3339; of a cluster's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}
