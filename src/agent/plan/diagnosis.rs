//! A diagnosis on demand: each component of the engine with three questions, whether it exists, works, and was seen
//! at work lately, answered from what is observed. Pure.

use time::{Duration, OffsetDateTime};

use super::{
    Class, Finding, History, Mode, Object, Observed, Plan, children, find, health, outlook, window,
};
use crate::agent::engine::argocd::{KEYRING, KNOWN_HOSTS};
use crate::agent::engine::{Install, is_workload};
use crate::agent::gate::policy::CONFIG_MAP;
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::{Component, Verdict};

mod seen;
mod witnesses;

/// A Lease is renewed every 5 s; one that was not for so long has no leader.
const LED: Duration = Duration::seconds(70);
/// An answer is given this long before its absence says something.
const ANSWERS: Duration = Duration::seconds(90);
const MAX_TEXT: usize = 1000;
/// So many missing objects are named.
const NAMED: usize = 3;
/// Faults of what has no row of its own, at most.
const MAX_OTHERS: usize = 20;

/// What is known at one moment.
pub struct Moment<'a> {
    pub now: OffsetDateTime,
    pub install: &'a Install,
    pub observed: &'a Observed,
    pub history: &'a History,
    pub plan: &'a Plan,
    /// When the newest snapshot was taken.
    pub snapshot: Option<OffsetDateTime>,
}

/// One row a component, in the order of the install's stages.
pub fn components(moment: &Moment<'_>) -> Vec<Component> {
    let install = moment.install;
    let ids: Vec<&ObjectId> = install.wanted.keys().collect();
    let of = |fits: &dyn Fn(&ObjectId) -> bool| -> Vec<&ObjectId> {
        ids.iter().copied().filter(|id| fits(id)).collect()
    };
    let root = |id: &ObjectId| {
        install
            .roots()
            .chain(install.canaries())
            .any(|root| root == id)
    };
    let keys = [KNOWN_HOSTS, KEYRING];
    let key = |id: &ObjectId| *id == install.secret || keys.contains(&id.name.as_str());
    let rights = |id: &ObjectId| {
        matches!(
            id.kind,
            Kind::ServiceAccount
                | Kind::ClusterRole
                | Kind::ClusterRoleBinding
                | Kind::Role
                | Kind::RoleBinding
        )
    };
    let own_row = |id: &ObjectId| {
        root(id)
            || id.kind == Kind::ApplicationSet
            || key(id)
            || rights(id)
            || is_workload(id.kind)
            || id.kind.optional()
            || id.kind.holds_others()
    };
    let crd = |live: &Object| live.is_true("Established");
    let there = |_: &Object| true;
    let mut rows = vec![
        acting(moment),
        group(
            moment,
            "Namespace",
            &of(&|id| id.kind == Kind::Namespace),
            there,
        ),
        group(
            moment,
            "CRDs",
            &of(&|id| id.kind == Kind::CustomResourceDefinition),
            crd,
        ),
        group(moment, "guard policy", &of(&|id| id.kind.optional()), there),
        group(moment, "accounts and rights", &of(&rights), there),
        group(
            moment,
            "Services, policies and settings",
            &of(&|id| !own_row(id)),
            there,
        ),
        group(moment, "catalog key and host keys", &of(&key), there),
    ];
    rows.extend(install.workloads().map(|id| workload(moment, id)));
    rows.extend(install.roots().map(|id| follows(moment, id)));
    rows.extend(install.canaries().map(|id| follows(moment, id)));
    rows.extend(witnesses::rows(moment));
    rows.push(below(moment));
    rows.push(snapshot(moment));
    rows.extend(others(moment));
    rows
}

/// Whether the watchdog mends what is wrong.
fn acting(moment: &Moment<'_>) -> Component {
    let (works, found, fix) = match moment.plan.mode {
        Mode::Act => match window::careful(moment.now, &moment.install.policy) {
            None => (Verdict::Yes, "mends what it can".to_owned(), String::new()),
            Some(_) => (
                Verdict::Yes,
                "only puts back what is missing: condition SafeHealsOnly says why".to_owned(),
                String::new(),
            ),
        },
        Mode::Learning => {
            let mut found = moment.plan.findings.iter();
            match found.find(|f| f.class == Class::ApiUnhealthy) {
                Some(silent) => (Verdict::No, told(silent), silent.class.advice().to_owned()),
                None => (Verdict::Unknown, unread(moment.install), String::new()),
            }
        }
        Mode::Paused(window) => (
            Verdict::No,
            format!("only looks {}, by {}", window.end, window.by),
            window.remedy(&moment.install.cluster),
        ),
        Mode::ObserveOnly => {
            let mut found = moment.plan.findings.iter();
            let foreign = found.find(|f| f.class == Class::ForeignManager);
            let text = foreign.map(told).unwrap_or_default();
            (Verdict::No, text, Class::ForeignManager.advice().to_owned())
        }
    };
    Component {
        works,
        found,
        fix,
        ..row("watchdog")
    }
}

/// What an agent that has just begun does not know yet.
fn unread(install: &Install) -> String {
    if install.policy.owner.is_none() {
        return format!("has not read ConfigMap {CONFIG_MAP} yet");
    }
    "looks at the cluster for the first time".to_owned()
}

/// Objects that share a row.
fn group(
    moment: &Moment<'_>,
    name: &str,
    ids: &[&ObjectId],
    good: impl Fn(&Object) -> bool,
) -> Component {
    let live = |id: &&&ObjectId| moment.observed.objects.get(**id).map(AsRef::as_ref);
    let missing: Vec<&ObjectId> = ids
        .iter()
        .filter(|id| live(id).is_none())
        .copied()
        .collect();
    let unknown = |id: &&ObjectId| !find::known(moment.now, moment.observed, id.kind);
    let exists = match missing.first() {
        None => Verdict::Yes,
        Some(_) if missing.iter().any(unknown) => Verdict::Unknown,
        Some(_) => Verdict::No,
    };
    let bad = ids.iter().find(|id| live(id).is_some_and(|l| !good(l)));
    let bad = bad.copied();
    let finding = ripe(moment).find(|f| ids.contains(&&f.object) && !missing.contains(&&f.object));
    let works = match (finding.is_some() || bad.is_some(), exists) {
        (true, _) => Verdict::No,
        (false, Verdict::Yes) => Verdict::Yes,
        (false, _) => Verdict::Unknown,
    };
    let found = if let Some(finding) = finding {
        told(finding)
    } else if let Some(id) = bad {
        format!("{id} is not ready to serve")
    } else if missing.is_empty() {
        match ids {
            [one] => one.to_string(),
            all => format!("{} objects", all.len()),
        }
    } else {
        absent(&missing, ids.len())
    };
    let missing = exists == Verdict::No;
    let wrong = missing || works == Verdict::No;
    let fix = match finding {
        None if wrong => unnamed(moment, ids, bad.as_slice(), missing),
        finding => fix(moment, finding, wrong),
    };
    Component {
        exists,
        works,
        found: short(&found),
        fix,
        ..row(name)
    }
}

fn absent(missing: &[&ObjectId], all: usize) -> String {
    let named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(ToString::to_string)
        .collect();
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!(
        "{} of {all} missing: {}{more}",
        missing.len(),
        named.join(", ")
    )
}

fn workload(moment: &Moment<'_>, id: &ObjectId) -> Component {
    let mut row = group(moment, &id.to_string(), &[id], health::works);
    let lease = moment.observed.lease(id);
    // One that was given back is nobody's.
    let led = lease.filter(|lease| !lease.holder.is_empty());
    row.fresh = match (lease, led) {
        (None, _) => seen::at_work(moment, id),
        (Some(_), None) => Verdict::None,
        (Some(_), Some(led)) => yes(led.seen - led.renewed < LED),
    };
    if row.ok() {
        row.found = led.map_or_else(
            || "available".to_owned(),
            |lease| format!("available; {} leads", lease.holder),
        );
    } else if row.fresh == Verdict::No && row.fix.is_empty() {
        let lease = led.map(|l| rfc3339(l.renewed)).unwrap_or_default();
        row.found = format!("its Lease was renewed last at {lease}");
        row.fix = mended(moment, &[id], false);
    }
    row
}

/// A root object or a canary: what it follows, and whether its controller answered when it was asked last.
fn follows(moment: &Moment<'_>, id: &ObjectId) -> Component {
    let mut row = group(moment, &id.to_string(), &[id], |_| true);
    let live = moment.observed.objects.get(id);
    let probe = live.and_then(|l| l.probe());
    row.fresh = seen::answers(moment, id);
    let asked = match probe {
        None => "was not asked yet".to_owned(),
        Some(p) if p.answered => format!("answered the question of {}", rfc3339(p.sent)),
        Some(p) => format!("has not answered the question of {}", rfc3339(p.sent)),
    };
    if row.exists == Verdict::Yes && row.works == Verdict::Yes {
        let follows = moment.install.roots().any(|root| root == id);
        let revision = health::revision(moment.install, moment.observed).filter(|_| follows);
        let at = revision.map(|r| format!("at {r}; ")).unwrap_or_default();
        row.found = at + &asked;
    }
    if row.fresh == Verdict::No && row.fix.is_empty() {
        row.fix = answered(moment, id);
    }
    row
}

/// What the catalog brought.
fn below(moment: &Moment<'_>) -> Component {
    let (_, troubled) = children::count(moment.observed);
    let total = children::told(moment.observed);
    let finding = ripe(moment).find(|f| children::is_child(moment.observed, f));
    let found = match finding {
        Some(f) => format!("{troubled} of {total} not Ready: {}", told(f)),
        None => format!("{total} sync objects below the root"),
    };
    Component {
        works: yes(finding.is_none()),
        found: short(&found),
        fix: fix(moment, finding, finding.is_some()),
        ..row("what the catalog brought")
    }
}

fn snapshot(moment: &Moment<'_>) -> Component {
    let found = match moment.snapshot {
        Some(at) => format!("last known good of {}", rfc3339(at)),
        None => "none yet: it is taken when the engine has proved that it works".to_owned(),
    };
    let missing = moment.snapshot.is_none();
    let cluster = &moment.install.cluster;
    let fix = format!("see what the adoption waits for: linesman cluster show {cluster}");
    Component {
        exists: yes(!missing),
        found,
        fix: if missing { fix } else { String::new() },
        ..row("snapshot")
    }
}

/// Faults of what has no row of its own, such as a clock.
fn others(moment: &Moment<'_>) -> impl Iterator<Item = Component> {
    let owned = |f: &&Finding| {
        moment.install.wanted.contains_key(&f.object)
            || children::is_child(moment.observed, f)
            || f.class == Class::ForeignManager
            || witnesses::shows(moment, f)
    };
    let others = ripe(moment).filter(move |f| !owned(f));
    others.take(MAX_OTHERS).map(|f| Component {
        works: Verdict::No,
        found: told(f),
        fix: fix(moment, Some(f), true),
        ..row(&f.object.to_string())
    })
}

/// Findings that are old enough to count.
fn ripe<'a>(moment: &'a Moment<'a>) -> impl Iterator<Item = &'a Finding> {
    let all = moment.plan.findings.iter();
    all.filter(move |f| outlook::counts_at(moment.now, moment.history, f) <= moment.now)
}

fn told(finding: &Finding) -> String {
    let number = match finding.class.about().number {
        0 => String::new(),
        n => format!("F{n} "),
    };
    short(&format!("{number}{}: {}", finding.class, finding.evidence))
}

/// The next action: what the class says, else that it is being mended.
fn fix(moment: &Moment<'_>, finding: Option<&Finding>, wrong: bool) -> String {
    match finding {
        _ if !wrong => String::new(),
        Some(f) if !f.class.advice().is_empty() => f.class.advice().to_owned(),
        Some(f) if f.class == Class::QueueWedged => answered(moment, &f.object),
        // No window of one object holds the guard back.
        Some(f) if !find::dies(f) => mended(moment, &[&f.object], false),
        _ => mended(moment, &[], false),
    }
}

/// The same of what its controller does not answer for: that is restarted.
fn answered(moment: &Moment<'_>, id: &ObjectId) -> String {
    mended(moment, &[id, &moment.install.controller(id)], false)
}

/// That it is being mended, or what keeps it from that.
fn mended(moment: &Moment<'_>, of: &[&ObjectId], missing: bool) -> String {
    kept(moment, of, missing).unwrap_or_else(|| {
        let cluster = &moment.install.cluster;
        format!("it is being mended; see: linesman heal list {cluster}")
    })
}

fn kept(moment: &Moment<'_>, of: &[&ObjectId], missing: bool) -> Option<String> {
    let known = (moment.observed, moment.plan.mode);
    outlook::held_back(moment.now, moment.install, known, (of, missing))
}

/// The next action for objects with no fault that counts, of which `bad` are not as they have to be: no heal tells of one that is too
/// young.
fn unnamed(moment: &Moment<'_>, ids: &[&ObjectId], bad: &[&ObjectId], missing: bool) -> String {
    if let Some(kept) = kept(moment, bad, missing) {
        return kept;
    }
    let found = moment.plan.findings.iter();
    let of_these = found.filter(|f| ids.contains(&&f.object));
    let times = of_these.map(|f| (outlook::counts_at(moment.now, moment.history, f), f));
    match times.min_by_key(|(at, _)| *at) {
        Some((at, finding)) if at > moment.now => outlook::awaited(finding, at),
        _ => mended(moment, bad, missing),
    }
}

fn row(name: &str) -> Component {
    Component {
        name: name.to_owned(),
        exists: Verdict::None,
        works: Verdict::None,
        fresh: Verdict::None,
        found: String::new(),
        fix: String::new(),
    }
}

fn yes(is: bool) -> Verdict {
    if is { Verdict::Yes } else { Verdict::No }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
