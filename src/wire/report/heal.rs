//! One heal, and what the cluster said around it.

use serde::{Deserialize, Serialize};

/// One heal: the episode from a fault to restored function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealRecord<R = HealResult> {
    /// UUIDv7, made by the agent.
    pub id: String,
    /// The fault's class, `ObjectMissing` and so on.
    pub class: String,
    /// The class's number in `docs/faults.md`; 0 = none.
    #[serde(default)]
    pub number: u8,
    /// What the class stands for, for people.
    #[serde(default)]
    pub meaning: String,
    /// What was at fault: `Deployment flux-system/source-controller`.
    pub object: String,
    /// What was seen, for people; at most 4 KiB.
    pub evidence: String,
    /// The field manager that wrote the bad version last, where known.
    #[serde(default)]
    pub writer: String,
    /// The catalog revision at that time, where known.
    #[serde(default)]
    pub revision: String,
    /// The catalog revision that brought the bad version; empty where it did not come from Git.
    #[serde(default)]
    pub commit: String,
    pub steps: Vec<HealStep>,
    /// RFC 3339 with milliseconds. When it broke, as far as the cluster tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_at: Option<String>,
    pub detected_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acted_at: Option<String>,
    /// When function was proven again; absent while the heal is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<String>,
    pub result: R,
    /// What a person should do next; empty = nothing.
    #[serde(default)]
    pub next: String,
    /// What the cluster said around it.
    #[serde(default, skip_serializing_if = "Scene::is_empty")]
    pub scene: Scene,
}

/// What the cluster said around a fault. Each part is empty where nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scene {
    /// Of the object at fault, when that was found; empty where it was gone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// What the object said of itself then; at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ObjectCondition>,
    /// About the object or its Pods, of the ten minutes before, newest first; at most 10.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<ObjectEvent>,
    /// The last lines of a controller's container that ended, without what looks like a secret; at most 40.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// The catalog revision in force when function was proven again.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision_after: String,
    /// After a collapse, what the engine made since it was found: that was gone, if no commit brought it.
    #[serde(skip_serializing_if = "Remade::is_empty")]
    pub remade: Remade,
}

impl Scene {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the engine made again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Remade {
    pub count: u32,
    /// `ConfigMap shop/settings`; at most 50.
    pub objects: Vec<String>,
}

impl Remade {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A condition of an object, in its own words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    /// At most 512 characters.
    pub message: String,
    /// As the object says it.
    pub since: String,
}

/// An Event of the cluster's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectEvent {
    /// RFC 3339: the last time.
    pub at: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `Pod source-controller-7f9c`.
    pub object: String,
    pub reason: String,
    /// At most 512 characters.
    pub message: String,
    /// How often.
    pub count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealStep {
    /// `create`, `apply`, `recreate`, `restart`, `nudge`, `retry`, `write-key`, `report`.
    pub action: String,
    pub object: String,
    pub at: String,
    /// `ok`, or the error.
    pub outcome: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealResult {
    Open,
    Healed,
    Reported,
    Failed,
}
