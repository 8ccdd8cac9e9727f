//! A refusal of the Git host that Argo CD tells of no more, though it need not have asked the host again. Of a look that nobody asked
//! it for, what it had read before may come (`controller/state.go`, `CompareAppState`: refs are cached): the refusal was seen for a
//! moment, and by itself the controller looks at the host minutes later. So the refusal stands until Argo CD was asked, and has
//! answered without it.

use time::{Duration, OffsetDateTime};

use super::argocd::{faults, looked};
use super::fault::Class;
use super::find::Finding;
use super::state::{Object, Observed};
use crate::agent::engine::argocd::{REFRESH, SKIP};
use crate::bundle::ObjectId;

/// It stands for so long at most: whoever cannot be asked has faults of his own.
const LASTS: Duration = Duration::minutes(3);

/// Between two questions. An answer to a further one may be of its own second: whoever could have taken that away unseen took away
/// the first.
const AGAIN: Duration = Duration::seconds(5);

/// What a root said of the Git host, and does not say any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenBack {
    /// Of the root.
    uid: String,
    text: String,
    /// When the look was that met it, in whole seconds; none = it named no time.
    looked: Option<OffsetDateTime>,
    at: OffsetDateTime,
}

/// The refusal that `before` tells of, where `after`, which came in its place, tells of no trouble with the host.
pub fn taken_back(before: &Object, after: &Object, now: OffsetDateTime) -> Option<TakenBack> {
    let (class, text) = met(before)?;
    let taken = class == Class::KeyRevoked && before.uid == after.uid && met(after).is_none();
    taken.then(|| TakenBack {
        uid: before.uid.clone(),
        text,
        looked: looked(before),
        at: now,
    })
}

/// What it says of the Git host.
fn met(root: &Object) -> Option<(Class, String)> {
    let of_host = |(class, _): &(Class, String)| {
        matches!(
            class,
            Class::KeyRevoked | Class::HostKeyMismatch | Class::GitUnreachable
        )
    };
    faults(root).find(of_host)
}

/// The refusal that stands, in the words in which it was told.
fn stands<'a>(now: OffsetDateTime, observed: &'a Observed, live: &Object) -> Option<&'a str> {
    let told = observed.taken_back.as_ref()?;
    let same = told.uid == live.uid && live.deleting.is_none();
    let looks = live.annotation(SKIP) != Some("true");
    if !same || !looks || (now - told.at).abs() >= LASTS || met(live).is_some() {
        return None;
    }
    // Looks name whole seconds: a question in the second of one may have come before it or after it.
    let later = told.looked.map_or(told.at, |at| at + Duration::SECOND);
    let over = live.probe().is_some_and(|probe| {
        let look = looked(live).filter(|_| probe.answered && probe.sent >= later);
        let second = probe.sent - Duration::nanoseconds(probe.sent.nanosecond().into());
        let again = probe.sent >= later + AGAIN;
        look.is_some_and(|at| at > probe.sent || again && at >= second)
    });
    (!over).then_some(told.text.as_str())
}

/// What is found of a root by what it said.
pub(super) fn found(
    now: OffsetDateTime,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> Option<Finding> {
    let text = stands(now, observed, live)?;
    Some(Finding {
        recalled: true,
        ..Finding::new(Class::KeyRevoked, id, text)
    })
}

/// Whether an answer is wanted, and no question waits for one.
pub(super) fn asks(now: OffsetDateTime, observed: &Observed, live: &Object) -> bool {
    stands(now, observed, live).is_some() && live.annotation(REFRESH).is_none()
}

#[cfg(test)]
mod tests;
