//! F29: a root that somebody stopped. What a commit stopped is no person's doing, and mended like all else that leads a root
//! astray.

use serde_json::Value;
use time::OffsetDateTime;

use super::Finding;
use crate::agent::engine::Install;
use crate::agent::engine::argocd::SKIP;
use crate::agent::plan::fault::Class;
use crate::agent::plan::quarantine::root::{SUSPEND, is_stopped_by_a_commit, is_untold};
use crate::agent::plan::state::{History, Object, Observed};
use crate::agent::plan::{applied, argocd};
use crate::bundle::{Kind, ObjectId};

/// Who stopped a root, and since when; none while it is not known yet whether a commit did.
pub(super) fn stopped(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> Option<Finding> {
    let text = suspended(install, history, (id, live))?;
    let by_commit = is_stopped_by_a_commit(install, observed, history, (id, live));
    if by_commit || is_untold(now, install, observed, history, (id, live)) {
        return None;
    }
    let mut finding = Finding::new(Class::SuspendedByHuman, id, text);
    if !is_nobodys(history, live) {
        finding = finding.written_by(live);
    }
    if let Some((who, at)) = stopper(live) {
        who.clone_into(&mut finding.writer);
        finding.fault_at = at.or(finding.fault_at);
    }
    Some(finding)
}

/// Whose field it is that stops a root, and since when; what somebody took away to stop one is nobody's.
pub(super) fn stopper(live: &Object) -> Option<(&str, Option<OffsetDateTime>)> {
    let (who, at) = live.stopped.as_ref()?;
    let suspends = live.fields.pointer(SUSPEND) == Some(&Value::Bool(true));
    (suspends || live.annotation(SKIP) == Some("true")).then_some((who.as_str(), *at))
}

/// Who stopped a root, in words that say how.
pub(super) fn suspended(
    install: &Install,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> Option<String> {
    let who = stopper(live).map_or(live.writer.as_str(), |(who, _)| who);
    if id.kind == Kind::Application {
        let how = argocd::suspended(live)?;
        return Some(if is_nobodys(history, live) {
            format!("{how}; who took it away is on no record")
        } else {
            format!("{how} by '{who}'")
        });
    }
    let flag = live.fields.pointer(SUSPEND) == Some(&Value::Bool(true));
    // A canary is never anything else.
    let flag = flag && !install.canaries().any(|canary| canary == id);
    (flag && id.namespace == install.namespace).then(|| format!("spec.suspend is set by '{who}'"))
}

/// Whether a person took away what a root needs to sync by itself: no field says who.
fn is_nobodys(history: &History, live: &Object) -> bool {
    let taken = applied::is_stopped_by_a_commit(history, live) == Some(false);
    taken && stopper(live).is_none()
}
