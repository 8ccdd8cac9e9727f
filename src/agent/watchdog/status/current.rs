//! Whether the engine is in the version and from the registry that the hub wants, and what a change of that waits for.

use super::{Moment, condition};
use crate::agent::plan::change::{self, Change};
use crate::agent::plan::replace;
use crate::wire::report::{Condition, ConditionType, Status};

/// Whether version and images are as the hub wants them. Its number says which wish this is about.
pub(super) fn current(moment: &Moment<'_>) -> Condition {
    let (status, reason, text) = match moment.install.change() {
        Some(change) => changing(moment, change),
        None => in_force(moment),
    };
    let kind = ConditionType::EngineCurrent;
    condition(moment.now, kind, status, reason, &text)
}

fn in_force(moment: &Moment<'_>) -> (Status, &'static str, String) {
    let form = moment.install.form();
    let (wish, number) = moment.install.wish();
    let words = form.words();
    if wish == *form {
        let text = format!("change {number}: {words}");
        (Status::True, "InForce", text)
    } else {
        let text = format!("{words}; waits for the bundle of change {number}");
        (Status::False, "Waiting", text)
    }
}

fn changing(moment: &Moment<'_>, change: &Change) -> (Status, &'static str, String) {
    let (from, to) = (change.from.words(), change.to.words());
    let Change { number, within, .. } = change;
    if let Some(why) = &change.failed {
        let again = if change.replaces() {
            "linesman cluster engine --replace"
        } else {
            "linesman engine set"
        };
        // What is in force stands before the reason: the hub keeps the beginning of a long text, and with it that bundle.
        let text = format!(
            "change {number}: {to} did not work within {within} s; back at {from}: {why}; mend it, then '{again}' again"
        );
        return (Status::False, "Returned", text);
    }
    let Moment {
        now,
        install,
        observed,
        ..
    } = *moment;
    let (findings, history) = (&moment.plan.findings, moment.history);
    let left = change::left(install, observed, findings, &history.ailing).count();
    let rests = change::waits(now, install, observed, history, findings);
    let waits = match (left, rests) {
        (0, _) => replace::lacks(change, install, observed)
            .or_else(|| moment.lacks.map(str::to_owned))
            .unwrap_or_else(|| "waits for the controllers".to_owned()),
        (left, Some(id)) => {
            format!("{left} objects to go; waits for the end of the maintenance window on {id}")
        }
        (left, None) => format!("{left} objects to go"),
    };
    let text = format!("change {number}: {from} to {to}: {waits}");
    (Status::False, "Changing", text)
}
