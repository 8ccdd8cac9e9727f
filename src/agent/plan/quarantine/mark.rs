//! What a hold leaves on the object itself.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::shield::{self, OPTIONS};
use super::{HELD, Held, RECONCILE, hold, holds, owner, shielding};
use crate::agent::engine::Install;
use crate::agent::plan::fault::Class;
use crate::agent::plan::state::{Object, Observed};
use crate::agent::plan::steps::{Action, Step};
use crate::agent::plan::window;
use crate::wire::api::EngineKind;

/// The annotations of an object that is held, or no longer; null = it is to have none. `said` is what it has of
/// [`OPTIONS`], `note` why and since when.
pub fn annotations(
    engine: EngineKind,
    said: Option<&str>,
    held: bool,
    note: Option<&str>,
) -> Map<String, Value> {
    let (name, value) = match engine {
        EngineKind::Flux => (RECONCILE, json!(held.then_some("disabled"))),
        EngineKind::Argocd => (OPTIONS, json!(shield::options(said, held))),
    };
    Map::from_iter([(HELD.to_owned(), json!(note)), (name.to_owned(), value)])
}

/// `body` with the hold on it, so that it is held from its first moment on, and a later apply takes nothing of that away.
#[must_use]
pub fn on(engine: EngineKind, mut body: Value, live: Option<&Object>, note: &str) -> Value {
    let wanted = body.pointer("/metadata/annotations");
    let wanted = wanted.and_then(|all| all.get(OPTIONS)?.as_str());
    let said = live.and_then(|live| live.annotation(OPTIONS)).or(wanted);
    let marks = annotations(engine, said, true, Some(note));
    let there = body["metadata"].get_mut("annotations");
    match there.and_then(Value::as_object_mut) {
        Some(there) => there.extend(marks),
        None => body["metadata"]["annotations"] = Value::Object(marks),
    }
    body
}

/// What an object says of a hold that is in force with all that it needs.
pub fn note(engine: EngineKind, live: &Object) -> Option<&str> {
    hold(live).filter(|hold| hold.lifted.is_none())?;
    let kept = match engine {
        EngineKind::Flux => live.annotation(RECONCILE) == Some("disabled"),
        EngineKind::Argocd => shield::is_kept(live),
    };
    live.annotation(HELD).filter(|_| kept)
}

/// Puts holds where they have to be among the steps of a plan.
pub fn all(now: OffsetDateTime, install: &Install, observed: &Observed, steps: &mut Vec<Step>) {
    first(install, observed, steps);
    tell_of_removed(now, install, observed, steps);
}

/// Says on what is held that it is so, before anything else is done to it: the next commit may be on its way, and what
/// does not say so is pruned by it.
fn first(install: &Install, observed: &Observed, steps: &mut Vec<Step>) {
    let holds = holds(install, observed);
    let engine = install.traits.kind;
    let mut all = Vec::with_capacity(steps.len());
    for mut step in steps.drain(..) {
        let live = observed.objects.get(&step.target);
        if let Some(held) = holds.get(&step.target) {
            let note = held.hold.text();
            match (&step.action, live) {
                (Action::Create | Action::WriteSecret, None) => {
                    step.action = Action::CreateHeld { note };
                }
                (
                    Action::Apply
                    | Action::Replace
                    | Action::Reinstate { .. }
                    | Action::Reset
                    | Action::WriteSecret,
                    Some(live),
                ) if self::note(engine, live).is_none() => {
                    all.push(Step {
                        action: Action::Hold { note },
                        ..step.clone()
                    });
                }
                _ => {}
            }
        }
        all.push(step);
    }
    *steps = all;
}

/// What a commit removed is pruned within a second or two. Its own word keeps it from that, so that comes first; its
/// Application, which does not apply it any more, is told of all of it together; not one with a window of its own.
fn tell_of_removed(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    steps: &mut Vec<Step>,
) {
    let removed = |step: &&Step| {
        let class = step.cause.as_ref().map(|(class, _)| *class);
        class == Some(Class::EngineRemovedByCommit)
    };
    let Some(cause) = steps.iter().find(removed).map(|step| step.cause.clone()) else {
        return;
    };
    if install.traits.kind != EngineKind::Argocd {
        return;
    }
    let mut all = holds(install, observed);
    for step in steps.iter() {
        let (Action::Hold { note } | Action::CreateHeld { note }) = &step.action else {
            continue;
        };
        if let Ok(hold) = serde_json::from_str(note) {
            let owner = owner(install, observed, &step.target);
            all.insert(step.target.clone(), Held { hold, owner });
        }
    }
    let told = shielding(install, observed, &all).into_iter();
    for (action, target) in told.filter(|(_, target)| !window::rests(now, observed, target)) {
        steps.push(Step {
            action,
            target,
            cause: cause.clone(),
        });
    }
}
