//! Tokens of a ServiceAccount that was made anew. Pure.

use time::{Duration, OffsetDateTime};

use super::Class;
use super::find::Finding;
use super::health::pods_of;
use super::state::{History, Observed, Pod};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// By then a controller whose tokens are good is ready. Those of Flux wait 35 s for a Lease that the Pod before could not give
/// up, as one cannot whose account is gone, and ask for it every 5 to 11 s.
const READY: Duration = Duration::seconds(50);

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
    }
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
