//! When something was seen at work last: by what it answered, where no Lease says more.

use super::{ANSWERS, Moment, Verdict, yes};
use crate::agent::engine::argocd::{REDIS, REPO_SERVER};
use crate::agent::plan::state::Probe;
use crate::agent::plan::{argocd, redis, witness};
use crate::bundle::ObjectId;

/// Whether the controller of a root object or a canary answered when it was asked last.
pub(super) fn answers(moment: &Moment<'_>, id: &ObjectId) -> Verdict {
    let Some(live) = moment.observed.objects.get(id) else {
        return Verdict::Unknown;
    };
    match live.probe() {
        None => Verdict::Unknown,
        Some(probe) if probe.answered => yes(is_recent(moment, probe)),
        Some(probe) => {
            let owed = moment.history.owed_since(id, live, probe);
            if moment.now - owed < ANSWERS {
                Verdict::Unknown
            } else {
                Verdict::No
            }
        }
    }
}

fn is_recent(moment: &Moment<'_>, probe: Probe) -> bool {
    moment.now - probe.sent < moment.install.policy.probe_every * 2 + ANSWERS
}

/// Of a workload that has no Lease, as those of Argo CD: the root's answer is of its controller, and by a look that came to an end
/// of what that fetches with, too. None = there is nothing to go by but that it is available, as of Argo CD's server. A silence
/// does not tell whose it is, and the root's own row has it.
pub(super) fn at_work(moment: &Moment<'_>, id: &ObjectId) -> Verdict {
    let (install, observed) = (moment.install, moment.observed);
    let told = match id.name.as_str() {
        REDIS => redis::answered_lately(moment.now, install, observed),
        REPO_SERVER => {
            let root = observed.objects.get(&install.sync);
            let status = root.and_then(|root| root.fields.get("status"));
            let compared = status.is_some_and(argocd::is_compared);
            Some(compared && answers(moment, &install.sync) == Verdict::Yes)
        }
        _ => {
            let roots = install.roots().chain(install.canaries());
            let roots = roots.filter(|root| install.controller(root) == *id);
            let roots = roots.map(|root| answers(moment, root) == Verdict::Yes);
            let others = witness::chosen(install, observed);
            let others = others.filter(|(of, _)| install.controller(of) == *id);
            let others = others.map(|(_, of)| {
                let answered = of.probe.filter(|probe| probe.answered);
                answered.is_some_and(|probe| is_recent(moment, probe))
            });
            // Who answered one question is at work, whatever becomes of another.
            roots.chain(others).reduce(|one, other| one || other)
        }
    };
    match told {
        None => Verdict::None,
        Some(true) => Verdict::Yes,
        Some(false) => Verdict::Unknown,
    }
}
