//! One heal: how its record begins, what of other faults belongs to it, and when it is over.

use time::{Duration, OffsetDateTime};

use super::acts::Acts;
use super::{MAX_STEPS, Moment};
use crate::agent::engine::is_workload;
use crate::agent::plan::fault::Budget;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::{
    Class, Finding, Key, children, find, health, outlook, quarantine, retry, scene,
};
use crate::bundle::Kind;
use crate::clock::rfc3339;
use crate::heal;
use crate::wire::report::{HealRecord, HealResult, HealStep};

const MAX_EVIDENCE: usize = 4096;
/// The entry that says that a maintenance window ended over a fault.
pub(in crate::agent::watchdog) const ALARM: &str = "alarm";
/// The entry that says that a controller is there again, and what the proof waits for that the engine works.
pub(in crate::agent::watchdog) const WAITS: &str = "waits";
/// A proof that comes by then needs no word.
const SOON: Duration = Duration::seconds(10);
const MAX_AWAITED: usize = 256;

#[derive(Debug)]
pub(super) struct Open {
    pub(super) record: HealRecord,
    pub(super) last_step: Option<OffsetDateTime>,
    pub(super) acts: Acts,
    /// Since when its controller is there again, while its function is not proven.
    pub(super) works: Option<OffsetDateTime>,
    pub(super) exhausted: bool,
    /// What a person has to do is another thing than was told.
    pub(super) untold: bool,
}

pub(super) fn opened(moment: &Moment<'_>, finding: &Finding, id: String) -> Open {
    let key = (finding.class, finding.object.clone());
    let since = moment
        .history
        .faults
        .get(&key)
        .and_then(|past| past.since)
        .unwrap_or(moment.now);
    let live = moment.observed.objects.get(&finding.object);
    let reported = finding.reported || finding.class.budget() == Budget::Report;
    let mut open = Open {
        record: HealRecord {
            id,
            class: finding.class.as_str().to_owned(),
            number: finding.class.about().number,
            meaning: finding.class.about().seen.to_owned(),
            object: finding.object.to_string(),
            evidence: evidence(finding),
            writer: finding.writer.clone(),
            revision: moment.revision.to_owned(),
            commit: commit(moment, finding).to_owned(),
            steps: Vec::new(),
            fault_at: finding.fault_at.map(rfc3339),
            detected_at: rfc3339(since),
            acted_at: None,
            restored_at: None,
            result: if reported {
                HealResult::Reported
            } else {
                HealResult::Open
            },
            next: finding.advice().to_owned(),
            scene: scene::of(live.map(AsRef::as_ref)),
        },
        last_step: None,
        acts: Acts::default(),
        works: None,
        exhausted: false,
        untold: false,
    };
    rests(&key, &mut open.record, moment);
    open
}

fn evidence(finding: &Finding) -> String {
    finding.evidence.chars().take(MAX_EVIDENCE).collect()
}

/// Whether more is known of a fault than is on record: what was added to the words. Other words are of another moment.
pub(super) fn learned(record: &mut HealRecord, finding: &Finding) -> bool {
    let now = evidence(finding);
    let more = now.len() > record.evidence.len() && now.starts_with(&record.evidence);
    if more {
        record.evidence = now;
    }
    more
}

/// Says of what is mended else until when it waits for the window on its object, and no longer than it does. What a person has to do
/// about it stays. Whether it is another word than was told.
pub(super) fn rests(key: &Key, record: &mut HealRecord, moment: &Moment<'_>) -> bool {
    let free = record.next.is_empty() || outlook::is_resting(&record.next);
    if record.result != HealResult::Open || !free {
        return false;
    }
    let mut found = moment.plan.findings.iter();
    // No window of one object holds the guard back.
    let held = found.find(|f| f.class == key.0 && f.object == key.1 && !find::dies(f));
    let known = (moment.observed, moment.plan.mode);
    let said = held.and_then(|f| outlook::resting(moment.now, known, &[&f.object]));
    let said = said.unwrap_or_default();
    let another = record.next != said;
    record.next = said;
    another
}

/// Puts the end of a window on record, once.
pub(super) fn alarmed(
    open: &mut Open,
    end: OffsetDateTime,
    now: OffsetDateTime,
) -> Option<HealRecord> {
    let since = rfc3339(end);
    let steps = &mut open.record.steps;
    if steps.iter().any(|s| s.action == ALARM && s.at >= since) || steps.len() >= MAX_STEPS {
        return None;
    }
    steps.push(HealStep {
        action: ALARM.to_owned(),
        object: open.record.object.clone(),
        at: rfc3339(now),
        outcome: format!("the maintenance window ended at {since} with this fault there"),
    });
    if open.record.next.is_empty() {
        "if somebody is still at work there, open another window: 'linesman cluster pause'"
            .clone_into(&mut open.record.next);
    }
    // All of it is told with that.
    open.untold = false;
    Some(open.record.clone())
}

/// Puts on record, once, since when a controller that was mended is available, where its heal is open for longer: the proof that the engine
/// works hangs on others, too. It is told with what comes next.
pub(super) fn waits(key: &Key, open: &mut Open, moment: &Moment<'_>) {
    let live = moment.observed.objects.get(&key.1);
    let works = is_workload(key.1.kind) && live.is_some_and(|live| health::works(live));
    let mut found = moment.plan.findings.iter();
    let broken = found.any(|f| f.object == key.1);
    let mends = open.last_step.is_some() && open.record.result == HealResult::Open;
    if !works || broken || !mends || is_over(key, open, moment) {
        open.works = None;
        return;
    }
    let since = *open.works.get_or_insert(moment.now);
    let steps = &mut open.record.steps;
    let told = steps.iter().any(|step| step.action == WAITS);
    if told || moment.now - since < SOON || steps.len() >= MAX_STEPS {
        return;
    }
    steps.push(HealStep {
        action: WAITS.to_owned(),
        object: key.1.to_string(),
        at: rfc3339(since),
        outcome: format!(
            "available again; that the engine works is not proven yet: {}",
            awaited(moment)
        ),
    });
}

/// What keeps the engine from proving that it works.
fn awaited(moment: &Moment<'_>) -> String {
    let mut found = moment.plan.findings.iter();
    let of_engine = |f: &&Finding| !f.class.is_beside() && !children::is_child(moment.observed, f);
    match found.find(of_engine) {
        Some(f) => quarantine::cut(&format!("{} {}", f.object, f.evidence), MAX_AWAITED),
        None => "no root has answered since".to_owned(),
    }
}

pub(super) fn is_collapse(class: Class) -> bool {
    matches!(
        class,
        Class::NamespaceTerminating
            | Class::NamespaceMissing
            | Class::CrdTerminating
            | Class::CrdMissing
            | Class::SyncObjectsDeleted
    )
}

/// Whether a fault may come of this collapse: of a Namespace's end everything, of a CRD's what it takes along, and what the
/// cascade guard takes from the engine meanwhile.
pub(super) fn comes_of(collapse: &Key, key: &Key) -> bool {
    let (class, kind) = (key.0, key.1.kind);
    match collapse.1.kind {
        Kind::CustomResourceDefinition => {
            let guarded = matches!(
                kind,
                Kind::CustomResourceDefinition | Kind::ClusterRoleBinding | Kind::RoleBinding
            );
            !kind.installable() || guarded || class == Class::ObjectAltered
        }
        Kind::Namespace
        | Kind::ClusterRole
        | Kind::ServiceAccount
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ResourceQuota
        | Kind::ConfigMap
        | Kind::Service
        | Kind::NetworkPolicy
        | Kind::Secret
        | Kind::Deployment
        | Kind::StatefulSet
        | Kind::GitRepository
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::Kustomization
        | Kind::HelmRelease
        | Kind::AppProject
        | Kind::Application
        | Kind::ApplicationSet
        | Kind::Receiver
        | Kind::ImageRepository
        | Kind::ImageUpdateAutomation
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => true,
    }
}

/// A heal ends when its fault is gone, and not only hidden, and, where something was done, a probe sent after that was answered.
pub(super) fn is_over(key: &Key, open: &Open, moment: &Moment<'_>) -> bool {
    let there = moment
        .plan
        .findings
        .iter()
        .any(|f| f.class == key.0 && f.object == key.1);
    // A collapse is over when nothing is missing any more, not when the last old object is gone.
    let rebuilding = is_collapse(key.0)
        && moment
            .plan
            .findings
            .iter()
            .filter(|f| comes_of(key, &(f.class, f.object.clone())))
            .any(|f| f.class.debounce().is_zero());
    let hidden = || retry::is_hidden(moment.observed, &moment.plan.findings, key);
    if there || rebuilding || hidden() {
        return false;
    }
    match open.last_step {
        Some(at) => moment.proven.is_some_and(|proven| proven >= at),
        None => !is_collapse(key.0) || moment.proven.is_some(),
    }
}

pub(super) fn closed(class: Class, mut record: HealRecord, moment: &Moment<'_>) -> HealRecord {
    record.restored_at = Some(rfc3339(moment.now));
    moment.revision.clone_into(&mut record.scene.revision_after);
    match record.result {
        HealResult::Open if came_to_nothing(class, &record.steps) => {
            record.result = HealResult::Reported;
        }
        HealResult::Open => record.result = HealResult::Healed,
        HealResult::Reported | HealResult::Healed | HealResult::Failed => {}
    }
    // Where it went by itself, nothing of ours is left.
    let untouched = !record.steps.iter().any(|step| step.outcome == "ok");
    let next = match class {
        Class::UndecodableObject if untouched => "",
        _ => class.afterwards(),
    };
    next.clone_into(&mut record.next);
    record
}

/// What Flux says of an object is looked at once an hour, whatever comes of that: that it is not found any more does not say that
/// anything was mended.
fn came_to_nothing(class: Class, steps: &[HealStep]) -> bool {
    let good = [Outcome::Done, Outcome::Unchanged];
    let worked = |step: &HealStep| good.iter().any(|one| one.as_str() == step.outcome);
    let mut acts = steps.iter().filter(|step| heal::acts(step)).peekable();
    class == Class::CrdStoredVersion && acts.peek().is_some() && !acts.any(worked)
}

/// The catalog revision that brought what is wrong, where it came from Git.
fn commit<'a>(moment: &Moment<'a>, finding: &'a Finding) -> &'a str {
    let from_git = finding.class.of_catalog() || finding.writer == moment.applier;
    match finding.commit.as_str() {
        "" if from_git => moment.tried,
        known => known,
    }
}
