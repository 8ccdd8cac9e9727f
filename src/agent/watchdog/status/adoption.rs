//! The steps of the adoption that the engine has to bring about, and what each waits for.

use super::{Moment, foreign, short, text};
use crate::agent::plan::{Class, Finding, Mode, Object, children, health};
use crate::bundle::Kind;
use crate::clock::rfc3339;
use crate::wire::report::{StepName, StepReport, StepState};

/// The adoption's steps from `apply` on: all that are done, and the first that is not.
pub(in crate::agent::watchdog) fn steps(moment: &Moment<'_>) -> Vec<StepReport> {
    let all: [(StepName, Option<String>); 5] = [
        (StepName::Apply, apply(moment)),
        (StepName::Secret, blocked(moment, &[Class::GitSecretBad])),
        (StepName::Sync, sync(moment)),
        (StepName::Revision, revision(moment)),
        (
            StepName::Adopted,
            (!moment.history.adopted).then(|| unproven(moment)),
        ),
    ];
    let mut reports = Vec::new();
    for (step, waits) in all {
        let (state, reason) = match &waits {
            None => (StepState::Done, String::new()),
            Some(_) if moment.plan.mode == Mode::ObserveOnly => {
                (StepState::Failed, foreign(moment.plan))
            }
            Some(reason) if step == StepName::Apply => (StepState::Running, short(reason)),
            Some(reason) => (StepState::Waiting, short(reason)),
        };
        reports.push(StepReport {
            step,
            state,
            reason,
            at: rfc3339(moment.now),
        });
        if waits.is_some() {
            break;
        }
    }
    reports
}

pub(super) fn apply(moment: &Moment<'_>) -> Option<String> {
    let install = moment
        .install
        .wanted
        .keys()
        .filter(|id| id.kind.installable() && id.kind != Kind::Secret);
    let (total, there) = install.fold((0, 0), |(total, there), id| {
        (
            total + 1,
            there + usize::from(moment.observed.objects.contains_key(id)),
        )
    });
    let last = moment.plan.findings.first();
    (there < total).then(|| match last {
        Some(f) if is_to_come(moment, f) => {
            format!("{there} of {total} objects; next: {}", f.object)
        }
        Some(f) => format!("{there} of {total} objects; {}: {}", f.class, f.object),
        None => format!("{there} of {total} objects"),
    })
}

/// Whether it is no more than an object that a first install has not made yet.
fn is_to_come(moment: &Moment<'_>, finding: &Finding) -> bool {
    let absent = !moment.observed.objects.contains_key(&finding.object);
    let missing = matches!(
        finding.class,
        Class::ObjectMissing
            | Class::ServiceAccountMissing
            | Class::CrdMissing
            | Class::NamespaceMissing
            | Class::RootDeleted
            | Class::ProjectMissing
            | Class::GitSecretBad
            | Class::EngineSecretMissing
    );
    !moment.history.adopted && absent && missing
}

/// What an engine that has applied the catalog waits for.
fn unproven(moment: &Moment<'_>) -> String {
    let mut all = moment.plan.findings.iter();
    let wrong = all.find(|f| !children::is_well(moment.observed, std::slice::from_ref(f)));
    wrong.map_or_else(
        || "waits for the engine's answer to a probe".to_owned(),
        text,
    )
}

fn blocked(moment: &Moment<'_>, classes: &[Class]) -> Option<String> {
    let found = moment
        .plan
        .findings
        .iter()
        .find(|f| classes.contains(&f.class));
    found.map(text).or_else(|| {
        (!moment.observed.objects.contains_key(&moment.install.secret))
            .then(|| "is not applied yet".to_owned())
    })
}

fn sync(moment: &Moment<'_>) -> Option<String> {
    let mut roots = moment.install.roots();
    let absent = roots.find(|id| !moment.observed.objects.contains_key(*id));
    absent.map(|id| format!("{id} is not applied yet"))
}

pub(super) fn revision(moment: &Moment<'_>) -> Option<String> {
    if health::revision(moment.install, moment.observed).is_some() {
        return None;
    }
    let at_fault = moment
        .plan
        .findings
        .iter()
        .find(|f| f.class != Class::SuspendedByHuman && !children::is_child(moment.observed, f))
        .map(text);
    let said = [&moment.install.sync, &moment.install.source]
        .into_iter()
        .find_map(|id| {
            if id.kind == Kind::Application {
                return of_application(moment.observed.objects.get(id)?);
            }
            let (status, reason, message) = moment.observed.objects.get(id)?.condition("Ready")?;
            (status != "True").then(|| format!("{id}: {reason}: {message}"))
        });
    Some(
        at_fault
            .or(said)
            .unwrap_or_else(|| "waits for the first revision".to_owned()),
    )
}

/// How far the root Application is, where it says so.
fn of_application(root: &Object) -> Option<String> {
    let sync = root.text("/status/sync/status");
    let phase = root.text("/status/operationState/phase");
    let message = root.text("/status/operationState/message");
    let said = match (phase, message) {
        ("", _) => format!("the root is {sync}"),
        (_, "") => format!("the root is {sync}; operation {phase}"),
        _ => format!("the root is {sync}; operation {phase}: {message}"),
    };
    (!sync.is_empty()).then_some(said)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::plan::project;

    #[test]
    fn a_root_application_is_told_of_as_far_as_it_says_anything() {
        let at = |phase: &str, message: &str| {
            json!({
                "sync": {"status": "OutOfSync"},
                "operationState": {"phase": phase, "message": message},
            })
        };
        for (status, expected) in [
            (json!({}), None),
            (
                json!({"sync": {"status": "OutOfSync"}}),
                Some("the root is OutOfSync"),
            ),
            (
                at("Running", ""),
                Some("the root is OutOfSync; operation Running"),
            ),
            (
                at("Running", "waits"),
                Some("the root is OutOfSync; operation Running: waits"),
            ),
        ] {
            let live = json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": "linesman", "namespace": "argocd"}, "status": status,
            });
            let root = project::object(Kind::Application, serde_json::from_value(live).unwrap());
            assert_eq!(of_application(&root).as_deref(), expected, "{status}");
        }
    }
}
