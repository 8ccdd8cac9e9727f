//! Who took away what makes an Application sync by itself. A field that is gone is in nobody's set of fields, so that these do not
//! tell. What Argo CD applies from Git it leaves as a word on the object, as `kubectl apply` does; the field managers say whose
//! word that is. One that lacks `automated` is a commit's; where it has it, a person took it away.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;
use time::OffsetDateTime;

use super::project::{at, sets};
use super::state::{History, Object, Observed};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::TRAITS;
use crate::bundle::Kind;
use crate::wire::api::EngineKind;

/// What was applied last, as the client side of an apply leaves it.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const AUTOMATED: &str = "/spec/syncPolicy/automated";

/// What Argo CD applied last of an Application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Whether it is to sync by itself by that.
    pub automated: bool,
    pub at: Option<OffsetDateTime>,
}

/// By the annotation's text and the managers of the object's fields; none where the last word is another's.
pub fn of(kind: Kind, text: Option<&str>, entries: &[ManagedFieldsEntry]) -> Option<Applied> {
    let text = text.filter(|_| kind == Kind::Application)?;
    let owners = entries
        .iter()
        .filter(|e| sets(e, "f:annotations", LAST_APPLIED));
    let engines = |e: &ManagedFieldsEntry| e.manager.as_deref() == Some(TRAITS.applier);
    // Times are in whole seconds: of two in one, it may be a person's.
    let last = owners.max_by_key(|e| (e.time.as_ref().map(|t| t.0), !engines(e)))?;
    let said: Value = serde_json::from_str(text).ok()?;
    engines(last).then(|| Applied {
        automated: !is_absent(&said),
        at: last.time.as_ref().and_then(at),
    })
}

fn is_absent(fields: &Value) -> bool {
    fields.pointer(AUTOMATED).is_none_or(Value::is_null)
}

/// Whether a root that stands still because `automated` was taken away does so by a commit; none where it is otherwise, or
/// where Argo CD left no word.
pub fn is_stopped_by_a_commit(history: &History, live: &Object) -> Option<bool> {
    let applied = live.applied.filter(|_| is_absent(&live.fields))?;
    // Beside a word that never had it the root was at work: then it was another that stopped it.
    let before = applied.at.is_none() || history.ran_beside == applied.at;
    Some(!applied.automated && !before)
}

impl History {
    /// Notes what Argo CD had applied when the root was last seen to sync by itself.
    pub(super) fn saw_automated(&mut self, install: &Install, observed: &Observed) {
        let argocd = install.traits.kind == EngineKind::Argocd;
        let root = observed.objects.get(&install.sync).filter(|_| argocd);
        if let Some(root) = root.filter(|root| !is_absent(&root.fields)) {
            self.ran_beside = root.applied.and_then(|applied| applied.at);
        }
    }
}

#[cfg(test)]
mod tests;
