//! What is wrong with the catalog before a change of the engine begins. No version mends that, so it is not the new one's fault; what
//! comes up with the new one is: it may not build what the old one could, or refuse what that applied.

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::engine::Install;
use crate::agent::plan::{Class, Finding, History, Object, Observed, argocd, health};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// More objects are not told apart.
const MOST: usize = 16;
/// Bytes of one object's place: a kind, a namespace (RFC 1123 label) and a name (RFC 1123 subdomain) at their longest.
const LONGEST: usize = 400;
/// Characters of a reason; the engines' are words.
const REASON: usize = 64;
/// Characters of a commit: Flux' `sha256:` and the digest are 71.
const COMMIT: usize = 80;

/// Faults of the catalog that the roots had before a change began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ailing(pub BTreeMap<ObjectId, BTreeSet<Ail>>);

/// One of them, without what its words have of the moment: commits, times, directories.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ail {
    pub class: Class,
    /// As the engine has it: `ReconciliationFailed`, `ComparisonError`.
    pub reason: String,
    /// The objects that it names, as Flux writes them: `Kind/namespace/name` or `Kind/name`. None = too many to be told apart.
    pub objects: Option<BTreeSet<String>>,
    /// The commit that the root spoke of, where the words name no object or too many: said of another commit they may mean another fault.
    /// Empty = the root does not say, or there is no need of it.
    pub commit: String,
}

impl Ail {
    /// `commit` is the one that the root speaks of.
    fn of(finding: &Finding, commit: &str) -> Self {
        let (reason, message) = parts(finding);
        let objects = named(message);
        let few = objects.len() <= MOST;
        let told = few && !objects.is_empty();
        let commit = if told { "" } else { commit };
        Self {
            class: finding.class,
            reason: reason.chars().take(REASON).collect(),
            objects: few.then(|| objects.into_iter().map(str::to_owned).collect()),
            commit: commit.chars().take(COMMIT).collect(),
        }
    }

    /// Whether the objects that it names tell it from others.
    fn is_named(&self) -> bool {
        self.objects.as_ref().is_some_and(|all| !all.is_empty())
    }

    /// Whether the other one, of which the root speaks at `commit`, says no more than this one did.
    fn covers(&self, other: &Self, commit: &str) -> bool {
        let alike = self.class == other.class && self.reason == other.reason;
        let of_it = || self.commit.chars().eq(commit.chars().take(COMMIT));
        let none_new = match (&self.objects, &other.objects) {
            (Some(known), Some(new)) if self.is_named() && other.is_named() => new.is_subset(known),
            // Of so many there are fewer now.
            (None, Some(_)) if other.is_named() => of_it(),
            (known, new) => known == new && of_it(),
        };
        alike && none_new
    }
}

impl Ailing {
    pub fn knows(&self, observed: &Observed, finding: &Finding) -> bool {
        let root = observed.objects.get(&finding.object);
        self.has(finding, root.map_or("", |root| commit(root, finding)))
    }

    fn has(&self, finding: &Finding, commit: &str) -> bool {
        let known = self.0.get(&finding.object);
        let known = known.filter(|_| finding.class.of_catalog());
        known.is_some_and(|all| {
            let said = Ail::of(finding, commit);
            all.iter().any(|ail| ail.covers(&said, commit))
        })
    }
}

impl History {
    /// While no change is under way: notes what of the catalog's faults each root has, as the version that is in force says at the end
    /// of a look. What a root said before the last write may be the word of another one.
    pub fn saw_catalog(&mut self, install: &Install, observed: &Observed, findings: &[Finding]) {
        let Ailing(mut known) = std::mem::take(&mut self.ailing);
        known.retain(|id, _| install.roots().any(|root| root == id));
        for id in install.roots() {
            let Some(live) = observed.objects.get(id) else {
                continue;
            };
            if !health::has_ended(install, self, live) {
                continue;
            }
            let said: Vec<&Finding> = findings.iter().filter(|f| f.object == *id).collect();
            let of_catalog = said.iter().filter(|f| f.class.of_catalog());
            let of_catalog = of_catalog.map(|f| Ail::of(f, commit(live, f)));
            let of_catalog: BTreeSet<Ail> = of_catalog.collect();
            if said.is_empty() {
                known.remove(id);
            } else if !of_catalog.is_empty() {
                known.insert(id.clone(), of_catalog);
            }
        }
        self.ailing = Ailing(known);
    }

    /// While a change is under way: of a root that is well again nothing stays known that no object tells from a fault to come.
    pub fn saw_recovery(&mut self, install: &Install, observed: &Observed, findings: &[Finding]) {
        for (id, all) in &mut self.ailing.0 {
            let live = observed.objects.get(id);
            let mut said = findings.iter().filter(|f| f.object == *id);
            let fails = said.any(|f| f.class.of_catalog());
            if !fails && live.is_some_and(|live| is_well(install, live)) {
                all.retain(Ail::is_named);
            }
        }
        self.ailing.0.retain(|_, all| !all.is_empty());
    }
}

/// Whether a root says that all of the catalog is well. That it complains of nothing may be a moment between two looks.
fn is_well(install: &Install, root: &Object) -> bool {
    match install.traits.kind {
        EngineKind::Flux => root.is_true("Ready"),
        EngineKind::Argocd => {
            let runs = root.text("/status/operationState/phase") == "Running";
            argocd::tried(root) && !runs
        }
    }
}

/// A fault's reason, and what else is said of it.
fn parts(finding: &Finding) -> (&str, &str) {
    let text = finding.evidence.as_str();
    text.split_once(": ").unwrap_or((text, ""))
}

/// The commit that a root speaks of when it says so; empty where it names none. Of a source it is the last one that was fetched, which a
/// refused one leaves as it is.
fn commit<'a>(root: &'a Object, finding: &Finding) -> &'a str {
    let (reason, _) = parts(finding);
    let of_operation = reason.starts_with("operation ") || reason == "SyncError";
    let at = match finding.object.kind {
        Kind::Kustomization => "/status/lastAttemptedRevision",
        Kind::Application if of_operation => "/status/operationState/syncResult/revision",
        Kind::Application => "/status/sync/revision",
        _ => "/status/artifact/revision",
    };
    let revision = match root.text(at) {
        // An operation that tries again has no result yet.
        "" if of_operation => root.text("/status/sync/revision"),
        revision => revision,
    };
    // Flux writes `branch@sha1:…`.
    let commit = revision.rsplit_once('@').map(|(_, commit)| commit);
    commit.unwrap_or(revision)
}

fn named(message: &str) -> BTreeSet<&str> {
    let parts = |c: char| c.is_whitespace() || "[](),;'\"`".contains(c);
    let words = message.split(parts);
    let words = words.map(|word| word.trim_end_matches([':', '.']));
    words.filter(|word| is_object(word)).collect()
}

fn is_object(word: &str) -> bool {
    let Some((kind, place)) = word.split_once('/') else {
        return false;
    };
    let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.chars().all(|c| c.is_ascii_alphanumeric());
    let is_name = |part: &str| {
        let mut all = part.chars();
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
        !part.is_empty() && all.all(fits)
    };
    is_kind
        && word.len() <= LONGEST
        && place.split('/').count() <= 2
        && place.split('/').all(is_name)
}

#[cfg(test)]
mod tests;
