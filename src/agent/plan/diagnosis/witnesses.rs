//! The rows of controllers that are asked as no root is: whether there is an object to ask each with, and what became of the last
//! question.

use super::{
    ANSWERS, Component, Moment, Verdict, answered, fix, group, ripe, row, short, told, yes,
};
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
        return without(moment, kind, &controller, &name);
    };
    // What else is wrong with people's objects has rows of its own.
    let ours = moment.install.wanted.contains_key(id);
    let finding = ripe(moment).find(|f| f.object == *id && (ours || f.class == Class::QueueWedged));
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

/// The row of one that is not asked: what is wrong with ours, or why.
fn without(moment: &Moment<'_>, kind: Kind, controller: &ObjectId, name: &str) -> Component {
    let wanted = moment.install.wanted.keys();
    let ours: Vec<&ObjectId> = wanted.filter(|id| id.kind == kind).collect();
    if !ours.is_empty() {
        let of_ours = group(moment, name, &ours, |_| true);
        if !of_ours.ok() {
            return of_ours;
        }
    }
    Component {
        found: unasked(moment, (kind, ours.first().copied()), controller),
        ..row(name)
    }
}

/// Why one is not asked; `ours` is what it would be asked with, where that is no object of people's.
fn unasked(
    moment: &Moment<'_>,
    (kind, ours): (Kind, Option<&ObjectId>),
    controller: &ObjectId,
) -> String {
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
    if let Some(ours) = ours {
        // It fits, but for that.
        return if observed.witnesses.contains_key(ours) {
            format!("not asked: the last look at {ours} failed, see its condition ErrorOccurred")
        } else {
            format!("{ours} was not asked yet")
        };
    }
    match witness::looked_at(install, observed, kind).count() {
        0 => format!("there is no {kind} to ask it with: its Pod is all that is known of it"),
        n => {
            let more = observed.crowds.contains_key(&kind);
            let more = if more { " and more" } else { "" };
            format!(
                "none of {n}{more} may be asked: suspended, or looked at more seldom than every 10 min"
            )
        }
    }
}
