//! One live object, and what is read from it.

use serde_json::Value;
use time::OffsetDateTime;

use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::PROBED_AT;
use crate::agent::plan::applied::Applied;
use crate::agent::plan::argocd;
use crate::agent::plan::claims::Claim;
use crate::agent::plan::displaced::Item;

/// One live object.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub uid: String,
    /// The resourceVersion as a number, 0 where it is none.
    pub version: u64,
    pub generation: i64,
    pub created: Option<OffsetDateTime>,
    pub deleting: Option<OffsetDateTime>,
    pub finalizers: Vec<String>,
    /// The manager that wrote anything but the status last, and when.
    pub writer: String,
    pub written: Option<OffsetDateTime>,
    /// Whether we ever applied it.
    pub ours: bool,
    /// What we own of it by what we applied, beside labels and annotations.
    pub claim: Claim,
    /// Whether an engine itself put the mark on it that says what of Git it comes from; anybody may write one.
    pub marked: bool,
    /// Who set what stops it, and when; none where that is nobody's field.
    pub stopped: Option<(String, Option<OffsetDateTime>)>,
    /// What Argo CD applied last of it, where that left a word.
    pub applied: Option<Applied>,
    /// What the engine applied and whose content is somebody else's now, where only one can be.
    pub emptied: Vec<Item>,
    /// The Secrets that its Pods pull with because we alone applied that: what our next apply does not name of them goes.
    pub pulls: Vec<String>,
    /// The owner that is its controller, as `Kind name`; empty where there is none.
    pub controller: String,
    /// In the form of [`crate::agent::engine::comparable`].
    pub fields: Value,
}

impl Object {
    pub fn text(&self, pointer: &str) -> &str {
        self.fields
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub fn number(&self, pointer: &str) -> i64 {
        self.fields
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.fields
            .pointer("/metadata/annotations")?
            .get(name)?
            .as_str()
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.fields.pointer("/metadata/labels")?.get(name)?.as_str()
    }

    /// A condition's status, reason and message.
    pub fn condition(&self, kind: &str) -> Option<(&str, &str, &str)> {
        let conditions = self.fields.pointer("/status/conditions")?.as_array()?;
        let found = conditions
            .iter()
            .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))?;
        let field = |name| found.get(name).and_then(Value::as_str).unwrap_or_default();
        Some((field("status"), field("reason"), field("message")))
    }

    pub fn is_true(&self, condition: &str) -> bool {
        self.condition(condition)
            .is_some_and(|(status, _, _)| status == "True")
    }

    /// The probe that this object carries, and whether its controller has answered it.
    pub fn probe(&self) -> Option<Probe> {
        if self.annotation(PROBED_AT).is_some() {
            return argocd::probe(self);
        }
        let asked = self.annotation(REQUESTED_AT)?;
        let sent = crate::clock::parse_rfc3339(asked)?;
        let answered = self.text("/status/lastHandledReconcileAt") == asked;
        Some(Probe { sent, answered })
    }

    /// Changes with every change of what somebody wants of it, not with its status.
    pub fn mark(&self) -> (String, i64, u64) {
        let version = if self.generation > 0 { 0 } else { self.version };
        (self.uid.clone(), self.generation, version)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    pub sent: OffsetDateTime,
    pub answered: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::agent::plan::project;
    use crate::bundle::Kind;

    /// W8: what an apply found to be no difference is none until somebody wants something else of the object. Some kinds have no
    /// generation.
    #[test]
    fn a_mark_is_of_one_object_as_it_is_wanted() {
        for (generation, version, mark) in [
            (1, "7", ("u".to_owned(), 1, 0)),
            (1, "8", ("u".to_owned(), 1, 0)),
            (2, "9", ("u".to_owned(), 2, 0)),
            (0, "7", ("u".to_owned(), 0, 7)),
            (0, "8", ("u".to_owned(), 0, 8)),
        ] {
            let live = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "x", "uid": "u", "generation": generation, "resourceVersion": version},
            });
            let live = serde_json::from_value(live).unwrap();
            let live = project::object(Kind::ConfigMap, live);
            assert_eq!(live.mark(), mark, "{generation} {version}");
        }
    }
}
