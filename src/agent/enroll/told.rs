//! What the hub tells a cluster to be, as far as this build understands it: pure.
//!
//! A hub may be a version ahead. A word of it that is not known here costs the part that it stands in, which stays as it
//! was; all other parts are followed. What was not understood is named, for the operator to see.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::wire::api::{
    Assignment, CatalogRef, ClusterRef, DeployKeyStatus, EngineRef, HubKey, HubRef, Policy,
    RotateWish, SignerRef, TrustBundle, Via,
};

/// Parts of which the words are told.
const NAMED: usize = 8;

/// An assignment, and the parts of it that were not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub assignment: Assignment,
    /// `catalog.via: unknown variant …`, at most [`NAMED`] of them.
    pub unknown: Vec<String>,
}

/// Reads the hub's answer. What it says in words that this build does not know stays as in `kept`; without that, as it
/// would be for a cluster that nobody made a choice for. An error = no assignment comes of it.
pub fn read(body: &[u8], kept: Option<&Assignment>) -> serde_json::Result<Told> {
    let told: Value = serde_json::from_slice(body)?;
    if let Ok(assignment) = serde_json::from_value(told.clone()) {
        let unknown = Vec::new();
        return Ok(Told {
            assignment,
            unknown,
        });
    }
    let mut reading = Reading {
        told,
        kept: kept.map(serde_json::to_value).transpose()?,
        unknown: Vec::new(),
    };
    reading.parts();
    let assignment = serde_json::from_value(reading.told)?;
    reading.unknown.truncate(NAMED);
    Ok(Told {
        assignment,
        unknown: reading.unknown,
    })
}

/// What is understood of an answer of which no assignment comes: who gave it, and whom it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfollowed {
    pub cluster: ClusterRef,
    pub hub: HubRef,
    pub trust: Option<TrustBundle>,
    pub trust_chain: Vec<TrustBundle>,
    /// As in [`Told`], at least one.
    pub unknown: Vec<String>,
}

/// Reads of an answer that [`read`] made nothing of as much as it takes to tell the hub so; `None` where that is not in it.
pub fn unfollowed(body: &[u8]) -> Option<Unfollowed> {
    let mut reading = Reading {
        told: serde_json::from_slice(body).ok()?,
        kept: None,
        unknown: Vec::new(),
    };
    reading.parts();
    let Reading {
        told, mut unknown, ..
    } = reading;
    let (cluster, hub) = (told.get("cluster")?.clone(), told.get("hub")?.clone());
    let trust = told.get("trust").cloned();
    let chain = told.get("trustChain").cloned();
    if unknown.is_empty() {
        let whole = serde_json::from_value::<Assignment>(told);
        unknown.extend(whole.err().map(|error| error.to_string()));
    }
    unknown.truncate(NAMED);
    Some(Unfollowed {
        cluster: serde_json::from_value(cluster).ok()?,
        hub: serde_json::from_value(hub).ok()?,
        trust: trust.and_then(|trust| serde_json::from_value(trust).ok()),
        trust_chain: chain
            .and_then(|chain| serde_json::from_value(chain).ok())
            .unwrap_or_default(),
        unknown,
    })
}

struct Reading {
    told: Value,
    kept: Option<Value>,
    unknown: Vec<String>,
}

impl Reading {
    fn parts(&mut self) {
        self.list::<HubKey>("/hub/keyset");
        self.part::<HubRef>("/hub", None);
        self.part::<Option<TrustBundle>>("/trust", None);
        self.list::<TrustBundle>("/trustChain");
        if self.part::<Via>("/catalog/via", Some(json!(Via::Direct))) {
            let by_line = self.kept_at("/catalog/via") == Some(json!(Via::Line));
            // The host's keys for another way need not name the one that stays.
            if by_line {
                self.keep("/catalog/lineUrl");
                self.keep("/catalog/knownHosts");
            }
        }
        self.part::<Option<String>>("/catalog/lineUrl", None);
        let pending = json!({ "state": "pending", "reason": "the agent is older than the hub" });
        self.part::<DeployKeyStatus>("/catalog/deployKey", Some(pending));
        self.list::<SignerRef>("/catalog/signers");
        if self.part::<EngineRef>("/engine", None) {
            // Each engine follows a path of its own.
            self.keep("/catalog/path");
        }
        if self.part::<CatalogRef>("/catalog", None) {
            self.keep("/engine");
        }
        self.fields::<Policy>("/policy");
        self.fields::<RotateWish>("/rotate");
        if self.part::<Option<String>>("/agentImage", None) {
            self.keep("/agentImageWish");
        }
        if self.part::<u64>("/agentImageWish", None) {
            self.keep("/agentImage");
        }
    }

    fn kept_at(&self, at: &str) -> Option<Value> {
        self.kept.as_ref()?.pointer(at).cloned()
    }

    /// Puts back what was kept; what was not there then is not there now.
    fn keep(&mut self, at: &str) {
        if self.kept.is_some() {
            let kept = self.kept_at(at);
            self.set(at, kept);
        }
    }

    fn set(&mut self, at: &str, value: Option<Value>) {
        let Some((parent, key)) = at.rsplit_once('/') else {
            return;
        };
        if let Some(Value::Object(parent)) = self.told.pointer_mut(parent) {
            match value {
                Some(value) => parent.insert(key.to_owned(), value),
                None => parent.remove(key),
            };
        }
    }

    fn name(&mut self, at: &str, error: &serde_json::Error) {
        let part = at.trim_start_matches('/').replace('/', ".");
        let error: String = error.to_string().chars().take(160).collect();
        self.unknown.push(format!("{part}: {error}"));
    }

    /// True = it was not understood, and is now as it was, or as `usual`.
    fn part<T: DeserializeOwned>(&mut self, at: &str, usual: Option<Value>) -> bool {
        // What is a part of something that is not understood is not looked at.
        let parent = at.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !self.told.pointer(parent).is_some_and(Value::is_object) {
            return false;
        }
        let value = match self.told.pointer(at) {
            Some(value) => value.clone(),
            None if parent.is_empty() => Value::Null,
            // The whole that needs it says so.
            None => return false,
        };
        let Err(error) = serde_json::from_value::<T>(value) else {
            return false;
        };
        self.name(at, &error);
        if self.kept.is_some() {
            self.keep(at);
        } else {
            self.set(at, usual);
        }
        true
    }

    /// A list without the elements that are not known. One of which nothing is left is as it was: it may restrict.
    fn list<T: DeserializeOwned>(&mut self, at: &str) {
        let Some(value) = self.told.pointer(at).cloned() else {
            return;
        };
        let Value::Array(all) = value else {
            self.part::<Vec<T>>(at, None);
            return;
        };
        let mut known = Vec::new();
        for element in all {
            match serde_json::from_value::<T>(element.clone()) {
                Ok(_) => known.push(element),
                Err(error) => self.name(at, &error),
            }
        }
        if !known.is_empty() {
            self.set(at, Some(Value::Array(known)));
        } else if !self.unknown.is_empty() {
            self.keep(at);
        }
    }

    /// A structure of which every field can do without the others.
    fn fields<T: DeserializeOwned>(&mut self, at: &str) {
        let Some(value) = self.told.pointer(at).cloned() else {
            return;
        };
        let Value::Object(fields) = value else {
            self.part::<T>(at, None);
            return;
        };
        for (key, value) in fields {
            let alone = Map::from_iter([(key.clone(), value)]);
            if let Err(error) = serde_json::from_value::<T>(Value::Object(alone)) {
                let at = format!("{at}/{key}");
                self.name(&at, &error);
                let kept = self.kept_at(&at);
                self.set(&at, kept);
            }
        }
    }
}

#[cfg(test)]
mod tests;
