//! When nothing is written, and what is held back: maintenance windows.

use time::{Duration, OffsetDateTime};

use super::fault::Key;
use super::find::{self, Finding, dies};
use super::quarantine::shield;
use super::state::{History, Object, Observed};
use super::{Class, Mode};
use crate::agent::engine::Install;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;

/// The annotation that opens a maintenance window, RFC 3339: on the engine's Namespace for all of it, on one object
/// for that object.
pub const MAINTENANCE: &str = "linesman.dev/maintenance-until";
/// A word that reaches further ahead counts for nothing: what is forgotten ends by itself.
pub const LONGEST: Duration = Duration::hours(24);
/// No hub makes an agent hold back for longer at once.
const SAFE: Duration = Duration::hours(1);
/// The end of a window is told of for so long.
const TOLD: Duration = Duration::hours(1);

pub(super) fn mode(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    findings: &[Finding],
) -> Mode {
    let mut kinds = install.wanted.keys().map(|id| id.kind);
    if !kinds.all(|kind| find::known(now, observed, kind)) {
        return Mode::Learning;
    }
    // What is about to be pruned does not wait for that: nothing is made anew before it is saved.
    let saving = findings.iter().any(|f| find::prunes(install, f));
    if shield::unread(observed) && !saving {
        return Mode::Learning;
    }
    if findings.iter().any(|f| f.class == Class::ForeignManager) {
        return Mode::ObserveOnly;
    }
    if observed.gate.is_shut() {
        return Mode::Learning;
    }
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let here = observed.objects.get(&namespace);
    let here = here.and_then(|live| until(now, live, MAINTENANCE));
    let hub = install.policy.paused_until;
    let hub = hub.filter(|until| counts(now, *until));
    here.max(hub).map_or(Mode::Act, Mode::Paused)
}

/// Until when only what is missing is put back, by the hub's wish. One that reaches further than [`SAFE`] counts for nothing.
pub fn safe_until(now: OffsetDateTime, install: &Install) -> Option<OffsetDateTime> {
    let until = install.policy.safe_until?;
    (until > now && until - now <= SAFE).then_some(until)
}

/// Whether a finding is about an object with a window of its own. A guarded deletion is never held back.
pub(super) fn held(now: OffsetDateTime, observed: &Observed, finding: &Finding) -> bool {
    let live = observed.objects.get(&finding.object);
    !dies(finding) && live.is_some_and(|live| until(now, live, MAINTENANCE).is_some())
}

/// Whether all that is being deleted was allowed to be.
pub(super) fn allowed_to_die(
    now: OffsetDateTime,
    observed: &Observed,
    findings: &[Finding],
) -> bool {
    findings.iter().filter(|f| dies(f)).all(|f| {
        let live = observed.objects.get(&f.object);
        live.is_some_and(|live| until(now, live, ALLOW_DELETE).is_some())
    })
}

/// The time that an annotation gives, if that is ahead and near enough.
pub(super) fn until(
    now: OffsetDateTime,
    live: &Object,
    annotation: &str,
) -> Option<OffsetDateTime> {
    let until = parse_rfc3339(live.annotation(annotation)?)?;
    counts(now, until).then_some(until)
}

/// Faults that were there when their maintenance window ended by itself, and when it did. From then on they are
/// mended, whether or not somebody is still at work.
pub fn overdue(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> Vec<(Key, OffsetDateTime)> {
    let over = |end: &OffsetDateTime| *end <= now && now - *end < TOLD;
    let ended = |id: &ObjectId| {
        let live = observed.objects.get(id)?;
        parse_rfc3339(live.annotation(MAINTENANCE)?).filter(over)
    };
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let whole = ended(&namespace).max(install.policy.paused_until.filter(over));
    let overdue = findings.iter().filter_map(|f| {
        let end = ended(&f.object).max(whole)?;
        let key = (f.class, f.object.clone());
        let since = history.faults.get(&key)?.since?;
        (since < end).then_some((key, end))
    });
    overdue.collect()
}

pub(super) fn counts(now: OffsetDateTime, until: OffsetDateTime) -> bool {
    until > now && until - now <= LONGEST
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::agent::plan::tests::{Cluster, Damage};
    use crate::agent::plan::{Action, Plan};
    use crate::clock::rfc3339;

    fn annotate(cluster: &mut Cluster, id: &ObjectId, name: &str, until: OffsetDateTime) {
        let object = cluster.objects.get_mut(id).unwrap();
        object.fields["metadata"]["annotations"][name] = json!(rfc3339(until));
    }

    fn actions(plan: &Plan) -> Vec<(&str, &str)> {
        let named = plan
            .steps
            .iter()
            .filter(|s| s.action != Action::Nudge)
            .map(|s| (s.action.as_str(), s.target.name.as_str()));
        named.collect()
    }

    #[test]
    fn a_window_on_one_object_holds_back_that_object_alone() {
        let mut cluster = Cluster::working();
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        let end = cluster.now + Duration::hours(1);
        cluster.damage(&Damage::Image("source-controller"));
        cluster.damage(&Damage::Image("kustomize-controller"));
        annotate(&mut cluster, &id, MAINTENANCE, end);
        let plan = cluster.plan();
        assert_eq!(plan.mode, Mode::Act);
        assert_eq!(actions(&plan), [("apply", "kustomize-controller")]);
        assert_eq!(plan.findings.len(), 2, "{:?}", plan.findings);
        cluster.now = end;
        assert_eq!(
            actions(&cluster.plan()),
            [
                ("apply", "kustomize-controller"),
                ("apply", "source-controller")
            ]
        );
    }

    /// W26: what is missing comes back, what was changed stays as it is, until the hub's wish is over.
    #[test]
    fn while_many_clusters_fail_alike_only_what_is_missing_is_put_back() {
        let mut cluster = Cluster::working();
        cluster.damage(&Damage::Image("source-controller"));
        let gone = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
        cluster.objects.remove(&gone);
        let all = [
            ("create", "kustomize-controller"),
            ("apply", "source-controller"),
        ];
        let end = cluster.now + Duration::minutes(10);
        cluster.install.policy.safe_until = Some(end);
        let plan = cluster.plan();
        assert_eq!((plan.mode, actions(&plan)), (Mode::Act, all[..1].to_vec()));
        assert_eq!(plan.findings.len(), 2, "{:?}", plan.findings);
        cluster.now = end;
        let plan = cluster.plan();
        let both: BTreeSet<_> = actions(&plan).into_iter().collect();
        assert_eq!(both, all.into());
        // A hub cannot keep an agent from its work for longer.
        cluster.install.policy.safe_until = Some(end + Duration::minutes(61));
        assert_eq!(actions(&cluster.plan()).len(), 2);
    }

    #[test]
    fn the_hub_opens_a_window_and_one_of_more_than_a_day_counts_for_nothing() {
        let mut cluster = Cluster::working();
        cluster.damage(&Damage::Image("source-controller"));
        for (ahead, paused) in [
            (Duration::hours(24), true),
            (Duration::seconds(1), true),
            (Duration::hours(25), false),
            (Duration::seconds(-1), false),
        ] {
            let until = cluster.now + ahead;
            cluster.install.policy.paused_until = Some(until);
            let plan = cluster.plan();
            let expected = if paused {
                Mode::Paused(until)
            } else {
                Mode::Act
            };
            assert_eq!((plan.mode, plan.steps.is_empty()), (expected, paused));
        }
    }

    /// W24: untouched to the end of the window, then an alarm.
    #[test]
    fn a_fault_that_outlasts_its_window_is_overdue_and_one_that_came_later_is_not() {
        let mut cluster = Cluster::working();
        let names = |cluster: &Cluster, plan: &Plan| -> Vec<String> {
            let observed = cluster.observed();
            let history = &cluster.history;
            let found = &plan.findings;
            let all = overdue(cluster.now, &cluster.install, &observed, history, found);
            all.into_iter().map(|((_, id), _)| id.name).collect()
        };
        let end = cluster.now + Duration::hours(1);
        cluster.install.policy.paused_until = Some(end);
        cluster.damage(&Damage::Image("source-controller"));
        let plan = cluster.plan();
        cluster.history.saw(cluster.now, &plan);
        assert_eq!(names(&cluster, &plan), [""; 0], "the window is open");
        cluster.now = end;
        cluster.damage(&Damage::Image("kustomize-controller"));
        let plan = cluster.plan();
        cluster.history.saw(cluster.now, &plan);
        assert_eq!(plan.mode, Mode::Act);
        assert_eq!(names(&cluster, &plan), ["source-controller"]);
        assert_eq!(actions(&plan).len(), 2, "both are mended");
        cluster.now = end + TOLD;
        assert_eq!(names(&cluster, &plan), [""; 0], "it is an old story");
        cluster.now = end;
        cluster.install.policy.paused_until = None;
        assert_eq!(names(&cluster, &plan), [""; 0], "somebody ended it");
        let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
        annotate(&mut cluster, &id, MAINTENANCE, end);
        let plan = cluster.plan();
        assert_eq!(
            names(&cluster, &plan),
            ["source-controller"],
            "its own window"
        );
    }

    #[test]
    fn the_guard_works_in_a_window_unless_the_deletion_was_allowed() {
        let mut cluster = Cluster::working();
        let crd = "kustomizations.kustomize.toolkit.fluxcd.io";
        let crd = ObjectId::new(Kind::CustomResourceDefinition, "", crd);
        let end = cluster.now + Duration::hours(1);
        cluster.install.policy.paused_until = Some(end);
        cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
        let plan = cluster.plan();
        let kinds: Vec<&str> = actions(&plan).iter().map(|(a, _)| *a).collect();
        assert_eq!(
            kinds,
            ["cut-rights", "cut-rights", "scale-to-zero", "release"]
        );
        annotate(&mut cluster, &crd, ALLOW_DELETE, end);
        assert_eq!(actions(&cluster.plan()), Vec::new());
        cluster.install.policy.paused_until = None;
        assert_eq!(actions(&cluster.plan()).len(), 4);
    }

    /// A word counts from before its end, and for so far ahead.
    #[test]
    fn a_word_counts_until_its_end_and_within_its_reach() {
        let mut cluster = Cluster::working();
        let now = cluster.now;
        let second = Duration::SECOND;
        let mut safe = |ahead| {
            cluster.install.policy.safe_until = Some(now + ahead);
            safe_until(now, &cluster.install).is_some()
        };
        assert_eq!(
            [Duration::ZERO, second, SAFE, SAFE + second].map(&mut safe),
            [false, true, true, false]
        );
        let far = |ahead| counts(now, now + ahead);
        assert_eq!(
            [Duration::ZERO, second, LONGEST, LONGEST + second].map(far),
            [false, true, true, false]
        );
    }

    /// A deletion is held back by nobody, and allowed only where each of them is.
    #[test]
    fn a_window_of_an_object_holds_its_faults_but_not_its_deletion() {
        let mut cluster = Cluster::working();
        let crds = ["gitrepositories.source", "kustomizations.kustomize"].map(|name| {
            let name = format!("{name}.toolkit.fluxcd.io");
            ObjectId::new(Kind::CustomResourceDefinition, "", &name)
        });
        let end = cluster.now + Duration::HOUR;
        annotate(&mut cluster, &crds[0], MAINTENANCE, end);
        annotate(&mut cluster, &crds[0], ALLOW_DELETE, end);
        let observed = cluster.observed();
        let of = |class, id: &ObjectId| Finding::new(class, id, "");
        let held = |class, id| held(cluster.now, &observed, &of(class, id));
        assert!(held(Class::ObjectAltered, &crds[0]));
        assert!(!held(Class::ObjectAltered, &crds[1]));
        assert!(!held(Class::CrdTerminating, &crds[0]));
        let allowed = |all: &[Finding]| allowed_to_die(cluster.now, &observed, all);
        let dying = crds.each_ref().map(|id| of(Class::CrdTerminating, id));
        assert!(allowed(&dying[..1]) && !allowed(&dying));
        // What does not die has nothing to be allowed.
        assert!(allowed(&[dying[0].clone(), of(Class::BadImage, &crds[1])]));
    }
}
