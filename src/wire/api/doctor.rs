//! Bodies about a diagnosis on demand, what `linesman doctor --cluster` shows.

use serde::{Deserialize, Serialize};

/// The answer to one of the three questions about a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Yes,
    No,
    /// The question makes no sense for this component.
    #[default]
    None,
    /// It cannot be told now, or is told in a word of a later build.
    #[serde(other)]
    Unknown,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::None => "",
        }
    }
}

/// One component of a cluster's engine or of the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// `Deployment flux-system/source-controller`, `API server`
    pub name: String,
    #[serde(default)]
    pub exists: Verdict,
    #[serde(default)]
    pub works: Verdict,
    /// It was seen at work lately, not only found well.
    #[serde(default)]
    pub fresh: Verdict,
    /// What was found, for people; at most 1 KiB.
    pub found: String,
    /// The next action where something is wrong.
    #[serde(default)]
    pub fix: String,
}

impl Component {
    /// Nothing about it is wrong.
    pub fn ok(&self) -> bool {
        ![self.exists, self.works, self.fresh].contains(&Verdict::No)
    }
}

/// `POST /v1/clusters/{name}/diagnoses`: the agent's answer to the order `diagnose`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosisAnswer {
    /// As the order said.
    pub id: String,
    /// RFC 3339 with milliseconds, by the agent's clock, when it was sent.
    pub at: String,
    pub components: Vec<Component>,
}

/// `GET /v1/clusters/{name}/diagnosis`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The agent answered this question now. Else `components` is empty: what the hub knew last are the cluster's
    /// conditions.
    pub live: bool,
    /// RFC 3339: what is told was true then; empty = the cluster was never seen.
    pub at: String,
    /// Why it is not live.
    #[serde(default)]
    pub note: String,
    pub components: Vec<Component>,
}
