//! Tokens of a ServiceAccount that was made anew, or that gives none. Pure.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::find::Finding;
use super::health::pods_of;
use super::state::{History, Object, Observed, Pod};
use super::{Class, quarantine};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// By then a controller whose tokens are good is ready. Those of Flux wait 35 s for a Lease that the Pod before could not give
/// up, as one cannot whose account is gone, and ask for it every 5 to 11 s.
const READY: Duration = Duration::seconds(50);
/// Where an account says that Pods get no token of it. What somebody wrote there to apply takes not away.
pub(super) const TOKEN: &str = "/automountServiceAccountToken";

/// Accounts that were made anew under Pods that are still there.
pub(super) fn outlived(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    found: &mut Vec<Finding>,
) {
    let accounts = install.wanted.keys();
    for id in accounts.filter(|id| id.kind == Kind::ServiceAccount) {
        if sound_from(now, id, observed, history).is_some() {
            let text = "its Pods hold tokens of the ServiceAccount that was there before";
            found.push(Finding::new(Class::ServiceAccountMissing, id, text));
        }
        let live = observed.objects.get(id);
        let is_told = |f: &Finding| f.class == Class::ObjectAltered && f.object == *id;
        if let Some(live) = live.filter(|live| gives_none(install, observed, id, live))
            && !found.iter().any(is_told)
        {
            let text = format!("differs at {TOKEN}; its next Pods get no token");
            let finding = Finding::new(Class::ObjectAltered, id, text).written_by(live);
            found.push(finding.at(vec![TOKEN.to_owned()]));
        }
    }
}

/// Whether somebody had an account give no tokens of which a controller needs one: those Pods go on that have theirs, and the next
/// ones end. What the Pods say of it themselves goes before what it says, also where somebody has just added it, and what Git says is
/// Git's.
fn gives_none(install: &Install, observed: &Observed, id: &ObjectId, live: &Object) -> bool {
    let says = |id: &ObjectId, path: &str| {
        let wanted = install.wanted.get(id);
        wanted.is_some_and(|wanted| wanted.whole().pointer(path).is_some())
    };
    let none = live.fields.pointer(TOKEN) == Some(&Value::Bool(false));
    if !none || says(id, TOKEN) || live.deleting.is_some() {
        return false;
    }
    let known = install.wanted.get(id).filter(|w| w.is_known_whole());
    let is_ours = known.is_some_and(|wanted| !quarantine::is_from_git(install, wanted, live));
    let of_pods = format!("/spec/template/spec{TOKEN}");
    let gets = |id: &ObjectId| {
        let live = observed.objects.get(id);
        live.is_some_and(|live| live.fields.pointer(&of_pods) == Some(&Value::Bool(true)))
    };
    let mut controllers = install.workloads().filter(|w| w.name == id.name);
    is_ours && controllers.any(|w| !says(w, &of_pods) && !gets(w))
}

/// From when on Pods hold good tokens, if some of those of `account` do not: one that was made anew voids the tokens of Pods
/// that were there before. Kubernetes tells times in whole seconds. Of a Pod that is as old as the account it is known where
/// the agent made it and knew of the Pod; else whether it works tells: it may have got its token in the moment before.
pub(super) fn sound_from(
    now: OffsetDateTime,
    account: &ObjectId,
    observed: &Observed,
    history: &History,
) -> Option<OffsetDateTime> {
    let made = observed.objects.get(account)?.created?;
    let voided = history.voided.get(account);
    let fails = |pod: &Pod| {
        let late = pod.running.is_some_and(|at| now - at >= READY);
        !pod.ready && (late || pod.restarts > 0)
    };
    let from = pods_of(observed, &account.name).filter_map(|pod| match pod.created? {
        at if voided.is_some_and(|uids| uids.contains(&pod.uid)) => {
            Some(at.max(made) + Duration::SECOND)
        }
        at if at < made => Some(made),
        at if at == made && fails(pod) => Some(made + Duration::SECOND),
        _ => None,
    });
    from.max().filter(|_| now >= made)
}

#[cfg(test)]
mod tests;
