//! F29: a root that somebody stopped. What a commit stopped is no person's doing, and mended like all else that leads a root
//! astray.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::Finding;
use crate::agent::engine::argocd::SKIP;
use crate::agent::engine::{Install, MANAGER};
use crate::agent::plan::fault::Class;
use crate::agent::plan::quarantine::root::{
    SUSPEND, is_a_persons, is_stopped_by_a_commit, is_untold,
};
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
    if let Some((who, at)) = stopper(live).filter(|(who, _)| *who != MANAGER) {
        who.clone_into(&mut finding.writer);
        finding.fault_at = at.or(finding.fault_at);
    }
    Some(finding)
}

/// What is applied to a root after a plan that found it stopped by a person: whatever else is mended of it, and also where it is made
/// again, that does not set it going.
pub fn as_stopped<'a>(
    install: Cow<'a, Install>,
    id: &ObjectId,
    observed: &Observed,
    history: &History,
) -> Cow<'a, Install> {
    let stopped = with_the_stop(&install, id, observed, history);
    stopped.map_or(install, Cow::Owned)
}

fn with_the_stop(
    install: &Install,
    id: &ObjectId,
    observed: &Observed,
    history: &History,
) -> Option<Install> {
    let there = observed.objects.get(id);
    let live = match there {
        Some(live) if is_a_persons(history, id) => live,
        Some(_) => return None,
        None => history.stopped.get(id)?,
    };
    let mut body = install.body(id)?;
    let mut stops = id.kind == Kind::Application && argocd::stop_as(&mut body, live);
    // A person's own field stays where it is; ours goes with an apply that lacks it.
    let by_us = || live.stopped.as_ref().is_some_and(|(who, _)| who == MANAGER);
    if there.is_none() || by_us() {
        if live.fields.pointer(SUSPEND) == Some(&Value::Bool(true)) {
            body["spec"]["suspend"] = json!(true);
            stops = true;
        }
        if live.annotation(SKIP) == Some("true") {
            body["metadata"]["annotations"][SKIP] = json!("true");
            stops = true;
        }
    }
    stops.then(|| install.with(id, body))
}

impl History {
    /// Notes how people had stopped the roots, until these are at work again.
    pub(in crate::agent::plan) fn saw_stops(&mut self, install: &Install, observed: &Observed) {
        for id in install.roots() {
            let Some(live) = observed.objects.get(id) else {
                continue;
            };
            let stands = match id.kind {
                Kind::Application => argocd::suspended(live).is_some(),
                _ => live.fields.pointer(SUSPEND) == Some(&Value::Bool(true)),
            };
            if stands && is_a_persons(self, id) {
                self.stopped.insert(id.clone(), Arc::clone(live));
            } else if !stands && live.deleting.is_none() {
                self.stopped.remove(id);
            }
        }
        let is_root = |id: &ObjectId| install.roots().any(|root| root == id);
        self.stopped.retain(|id, _| is_root(id));
    }
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
        } else if who == MANAGER {
            // What we wrote last of it says nothing of that.
            format!("{how}; by whom is on no record")
        } else {
            format!("{how} by '{who}'")
        });
    }
    let flag = live.fields.pointer(SUSPEND) == Some(&Value::Bool(true));
    // A canary is never anything else.
    let flag = flag && !install.canaries().any(|canary| canary == id);
    (flag && id.namespace == install.namespace).then(|| match who {
        // As the one that was there before it.
        MANAGER => "spec.suspend is set; by whom is on no record".to_owned(),
        who => format!("spec.suspend is set by '{who}'"),
    })
}

/// Whether a person took away what a root needs to sync by itself: no field says who.
fn is_nobodys(history: &History, live: &Object) -> bool {
    let taken = applied::is_stopped_by_a_commit(history, live) == Some(false);
    taken && stopper(live).is_none()
}
