//! What an agent says of its cluster: facts, adoption steps, conditions and heals.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

mod heal;
mod weight;

pub use heal::{HealRecord, HealResult, HealStep, ObjectCondition, ObjectEvent, Remade, Scene};
pub use weight::{Said, Weight, weights};

/// Key and value as strings; at most 64 of each source, values at most 4 KiB.
pub type Facts = BTreeMap<String, String>;

/// An element of a list, or what only a later build reads as one: its words are not ours.
#[derive(Deserialize)]
#[serde(untagged)]
enum Element<T> {
    Known(T),
    Later(IgnoredAny),
}

fn elements<T>(all: Vec<Element<T>>) -> Vec<T> {
    let known = |element| match element {
        Element::Known(known) => Some(known),
        Element::Later(IgnoredAny) => None,
    };
    all.into_iter().filter_map(known).collect()
}

/// Reads a part that may be absent; one that only a later build reads is absent, too.
pub(super) fn known_part<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(match Option::deserialize(from)? {
        Some(Element::Known(known)) => Some(known),
        Some(Element::Later(IgnoredAny)) | None => None,
    })
}

/// Reads texts by their keys, without values that are none.
pub(super) fn texts<'de, D>(from: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    let all: BTreeMap<String, Element<String>> = BTreeMap::deserialize(from)?;
    let known = |(key, value)| match value {
        Element::Known(text) => Some((key, text)),
        Element::Later(IgnoredAny) => None,
    };
    Ok(all.into_iter().filter_map(known).collect())
}

/// The same where there may be none.
pub(super) fn texts_if_any<'de, D>(from: D) -> Result<Option<BTreeMap<String, String>>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct Texts(#[serde(deserialize_with = "texts")] BTreeMap<String, String>);
    let texts: Option<Texts> = Option::deserialize(from)?;
    Ok(texts.map(|Texts(texts)| texts))
}

/// Reads a list without the elements that this build does not know.
pub(super) fn known<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Vec::deserialize(from).map(elements)
}

/// The same where there may be no list.
pub(super) fn known_if_any<'de, D, T>(from: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let all: Option<Vec<Element<T>>> = Option::deserialize(from)?;
    Ok(all.map(elements))
}

/// The boundaries of an adoption, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepName {
    Keys,
    Join,
    Line,
    Git,
    Bundle,
    Apply,
    Secret,
    Sync,
    Revision,
    Adopted,
}

impl StepName {
    pub const ALL: [Self; 10] = [
        Self::Keys,
        Self::Join,
        Self::Line,
        Self::Git,
        Self::Bundle,
        Self::Apply,
        Self::Secret,
        Self::Sync,
        Self::Revision,
        Self::Adopted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Join => "join",
            Self::Line => "line",
            Self::Git => "git",
            Self::Bundle => "bundle",
            Self::Apply => "apply",
            Self::Secret => "secret",
            Self::Sync => "sync",
            Self::Revision => "revision",
            Self::Adopted => "adopted",
        }
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    Running,
    Waiting,
    Done,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport<N = StepName, S = StepState> {
    pub step: N,
    pub state: S,
    /// Why it waits or failed, for people; at most 1 KiB.
    #[serde(default)]
    pub reason: String,
    /// RFC 3339 with milliseconds: since when it is in this state, by the agent's clock.
    pub at: String,
}

/// A fact: the agent can put one engine in the other's place.
pub const REPLACES_ENGINES: &str = "agent.replaces-engines";

/// A fact: the agent has each engine verify who signed the catalog's head, and the one in force can, and was not told to leave that.
pub const VERIFIES: &str = "engine.verifies";

/// A fact: the engine that is in force verifies signatures of SSH keys, too.
pub const VERIFIES_SSH: &str = "engine.verifies-ssh";

/// A fact: the engine that is in force, while another one may be wished.
pub const ENGINE_IN_FORCE: &str = "engine.in-force";

/// A fact: the engine that is in force with the catalog's path that it follows, `flux=clusters/eu1`, and, behind a comma, the same of the
/// engine that a change goes back to, where it is the other one. The hub leads neither elsewhere.
pub const PATHS_IN_FORCE: &str = "engine.paths";

/// A fact: the digest of the bundle that is in force and, behind a comma, that of the one that a change goes back to, where it
/// is another one. The hub keeps both.
pub const BUNDLES_IN_FORCE: &str = "engine.bundles";

/// A fact: the way to the Git host that the agent has proven and the engine is set up for, while another one may be wished.
pub const GIT_IN_FORCE: &str = "git.in-force";

/// The reason of `GitReachable` where the agent, with its line up, finds no way to the Git host time and again.
pub const NO_ROUTE: &str = "NoRoute";

/// The closed set of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionType {
    Joined,
    LineUp,
    DeployKeyRegistered,
    HostKeysKnown,
    HostKeyMismatch,
    GitReachable,
    /// The agent's Service `linesman-git` carries the engine's Git.
    GitOverLine,
    EngineInstalled,
    EngineHealthy,
    /// The engine's version and images are as the hub wants them.
    EngineCurrent,
    /// The catalog itself installs the engine: versions change by a commit.
    EngineFromGit,
    Synced,
    /// What the catalog brought below the root is Ready.
    ChildrenReady,
    Quarantined,
    SnapshotFresh,
    /// Deleting the engine's CRDs, Namespace or roots is refused.
    Guarded,
    ObserveOnly,
    Paused,
    /// Many clusters fail alike: only what is missing is put back.
    SafeHealsOnly,
    AgentCurrent,
    PolicyAccepted,
    Uncovered,
    RightsLost,
    JoinConflict,
    /// An operator revoked the cluster's keys: the hub takes nothing from it.
    IdentityRevoked,
    /// The hub keeps all heals that the agent tells of.
    HealsTaken,
    /// The agent knows all words of what the hub tells its cluster to be.
    HubUnderstood,
    /// What the hub says of its own keys goes back to the key in the adoption YAML.
    HubTrusted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    True,
    False,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition<K = ConditionType, S = Status> {
    #[serde(rename = "type")]
    pub kind: K,
    pub status: S,
    /// CamelCase, one word.
    pub reason: String,
    /// At most 1 KiB.
    pub message: String,
    /// RFC 3339.
    pub since: String,
}

/// Whether a condition's message, behind the image that it is about, is the word on this wish: `wish 4: the agent runs it`. An agent
/// of before gives no number, and a hub of before none (0).
pub fn is_of_wish(rest: &str, wish: u64) -> bool {
    let Some((number, _)) = rest
        .strip_prefix("wish ")
        .and_then(|rest| rest.split_once(": "))
    else {
        return true;
    };
    wish == 0 || number == wish.to_string()
}

/// How the message of condition `Paused` begins while the hub's own maintenance window is the one in force, which lasts `until`
/// (RFC 3339, as the hub gave it).
pub fn hub_window(until: &str) -> String {
    format!("until {until}: ")
}

/// A condition of which this build does not know a word: told as it was said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LaterCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    /// RFC 3339.
    pub since: String,
}

/// What a report says of conditions in words that this build does not know, read from the same body.
#[derive(Debug, Default, Deserialize)]
pub struct LaterConditions {
    #[serde(default, deserialize_with = "later")]
    pub conditions: Vec<LaterCondition>,
}

fn later<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<LaterCondition>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Said {
        Known(Condition),
        Later(LaterCondition),
        Other(IgnoredAny),
    }
    let all: Option<Vec<Said>> = Option::deserialize(from)?;
    let later = |said| match said {
        Said::Later(later) if !later.kind.is_empty() => Some(later),
        Said::Known(Condition { .. }) | Said::Later(_) | Said::Other(IgnoredAny) => None,
    };
    Ok(all.into_iter().flatten().filter_map(later).collect())
}

/// A cluster at a glance, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    Conflict,
    Offline,
    Broken,
    Healing,
    Degraded,
    Installing,
    Joining,
    Pending,
    Paused,
    Unknown,
    Healthy,
}
