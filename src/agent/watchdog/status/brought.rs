//! What the catalog brought, and whether it works.

use super::{Because, Moment, condition, counts_at, holds, ripe, text};
use crate::agent::plan::{Finding, behind, children, outlook};
use crate::clock::rfc3339;
use crate::wire::report::{Condition, ConditionType, Status};

/// Sync objects that are waited for; more do not fit into a text.
const MAX_AWAITED: usize = 8;

/// Whether what the catalog brought is Ready. What a commit breaks is no fault at once, and not well, either: whoever waits for a
/// push has to wait for that.
pub(super) fn ready(moment: &Moment<'_>) -> Condition {
    let kind = ConditionType::ChildrenReady;
    match (unready(moment), awaited(moment)) {
        (None, Some(text)) => condition(moment.now, kind, Status::Unknown, "Waits", &text),
        (unready, _) => holds(moment, kind, unready, "Ready"),
    }
}

/// Sync objects that are not Ready, or are not done with the root's commit, for so short a time that nobody is to be called.
fn awaited(moment: &Moment<'_>) -> Option<String> {
    let young = moment.plan.findings.iter().filter_map(|f| {
        let at = counts_at(moment, f);
        let is = at > moment.now && children::is_child(moment.observed, f);
        is.then(|| format!("{}; {}", text(f), outlook::awaited(f, at)))
    });
    let revision = &moment.history.followed.revision;
    let late = behind::behind(moment.now, moment.observed, moment.history).map(|(id, until)| {
        let until = rfc3339(until);
        format!("{id} is not done with {revision} yet; it is waited for until {until}")
    });
    let named: Vec<String> = young.chain(late).take(MAX_AWAITED).collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// What the catalog brought and what does not work: neither engine nor root are at fault.
fn unready(moment: &Moment<'_>) -> Because {
    let found: Vec<&Finding> = ripe(moment)
        .filter(|f| children::is_child(moment.observed, f))
        .collect();
    let first = found.first()?;
    let (_, troubled) = children::count(moment.observed);
    let total = children::told(moment.observed);
    let named: Vec<String> = found.iter().map(|f| text(f)).collect();
    let text = format!(
        "{troubled} of {total} sync objects: {}; {}",
        named.join("; "),
        first.advice()
    );
    Some((first.class.to_string(), text))
}
