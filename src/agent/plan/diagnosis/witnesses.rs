//! The rows of controllers that neither root nor canary is of: whether there is an object to ask each with, and what became of
//! the last question.

use super::{ANSWERS, Component, Moment, Verdict, answered, fix, ripe, row, short, told, yes};
use crate::agent::plan::{Class, Finding, health, witness};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;

pub(super) fn rows<'a>(moment: &'a Moment<'a>) -> impl Iterator<Item = Component> + 'a {
    let kinds = moment.install.witnesses();
    kinds.map(|kind| one(moment, kind))
}

/// Whether a fault is shown in one of these rows.
pub(super) fn shows(moment: &Moment<'_>, finding: &Finding) -> bool {
    finding.class == Class::QueueWedged && asked(moment).any(|(id, _)| *id == finding.object)
}

fn asked<'a>(moment: &'a Moment<'a>) -> impl Iterator<Item = (&'a ObjectId, &'a witness::Witness)> {
    witness::chosen(moment.install, moment.observed)
}

fn one(moment: &Moment<'_>, kind: Kind) -> Component {
    let controller = moment.install.controller(&ObjectId::new(kind, "", ""));
    let name = format!("{} asked with {kind}", controller.name);
    let Some((id, witness)) = asked(moment).find(|(id, _)| id.kind == kind) else {
        return Component {
            found: unasked(moment, kind, &controller),
            ..row(&name)
        };
    };
    let finding = ripe(moment).find(|f| f.object == *id && f.class == Class::QueueWedged);
    let (now, lately) = (moment.now, moment.install.policy.probe_every * 2 + ANSWERS);
    let (fresh, text) = match witness.probe {
        None => (Verdict::Unknown, format!("{id} was not asked yet")),
        Some(probe) if probe.answered => {
            let text = format!("{id} answered the question of {}", rfc3339(probe.sent));
            (yes(now - probe.sent < lately), text)
        }
        Some(probe) => {
            let waits = now - witness::waited_since(moment.install, moment.observed, kind, probe);
            let patient = waits < witness::patience(moment.install, moment.observed, kind);
            let sent = rfc3339(probe.sent);
            let text = format!("{id} has not answered the question of {sent}");
            let fresh = if patient {
                Verdict::Unknown
            } else {
                Verdict::No
            };
            (fresh, text)
        }
    };
    let wrong = finding.is_some();
    let mended = fresh == Verdict::No && !wrong;
    Component {
        exists: Verdict::Yes,
        works: yes(!wrong),
        fresh,
        found: finding.map_or_else(|| short(&text), told),
        fix: if mended {
            answered(moment, id)
        } else {
            fix(moment, finding, wrong)
        },
        ..row(&name)
    }
}

/// Why one is not asked.
fn unasked(moment: &Moment<'_>, kind: Kind, controller: &ObjectId) -> String {
    let (install, observed) = (moment.install, moment.observed);
    let Some(live) = observed
        .objects
        .get(controller)
        .filter(|live| health::works(live))
    else {
        return format!("not asked while {controller} is not available");
    };
    if witness::only_looks(install, observed, live) {
        return format!("not asked: {controller} was told to change nothing (--dry-run)");
    }
    match witness::looked_at(install, observed, kind).count() {
        0 => format!("there is no {kind} to ask it with: its Pod is all that is known of it"),
        n => {
            let more = observed.crowds.contains_key(&kind);
            let more = if more { " and more" } else { "" };
            let why = if kind == Kind::ApplicationSet {
                "not well, written over by an answer, made from what is neither in the cluster nor in Git"
            } else {
                "suspended"
            };
            format!(
                "none of {n}{more} may be asked: {why}, or looked at more seldom than every 10 min"
            )
        }
    }
}
