//! What a root said last of the catalog, while it tries again. As each try begins a root of Flux' says that it is neither ready nor not
//! (`MarkUnknown` in kustomize-controller's reconciler), and the root Application that its operation runs: a fault that is still there
//! would be over for that moment, and begin anew with its debounce, at each try, which is once a minute. It is there, and for that moment
//! nothing is done about it.
//!
//! That ends when the root says that all is well, or something else; when the try has come further than where the fault shows itself;
//! and when it takes longer than a try can: a controller that is at an end ends none, and is a fault of its own.
//!
//! What shows itself before a fault does, such as a source that is away for a moment, says nothing of whether that one is over.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::find::known;
use super::health::said;
use super::state::{History, Object, Observed};
use super::{Finding, Key, argocd, busy, children};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// A try that goes on for so long has come further than the one before, unless it says how far it has come.
const TRY: Duration = Duration::minutes(1);
/// The same of one that began as a health check was canceled, by a commit or by a question. It is over before its fault counts: what is
/// slow to become healthy is no fault for that.
const CANCELED: Duration = Duration::seconds(50);
/// An operation that has been tried again so often has failed for longer than a fault has to be there: it was waited for 10, 20, 40 and
/// 60 s (argo-cd, `NextRetryAt`, with the root's `retry`).
const OFTEN: i64 = 4;

/// What a root complained of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    class: Class,
    text: String,
    /// Whether it was there for as long as it has to be.
    counts: bool,
    /// The try that it was seen to begin since; none = it says so.
    tries: Option<Try>,
}

/// A try of a root's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Try {
    /// As [`mark`] tells it from others.
    mark: String,
    /// When it was seen first.
    since: OffsetDateTime,
}

impl Complaint {
    /// What an agent before this one had on record of a root that may be trying again now. How long that try has gone on is not known:
    /// it has all of its time from when it is seen.
    pub fn on_record(class: Class, text: &str) -> Self {
        Self {
            class,
            text: text.to_owned(),
            counts: true,
            tries: None,
        }
    }

    pub(super) fn time(&mut self) -> Option<&mut OffsetDateTime> {
        self.tries.as_mut().map(|one| &mut one.since)
    }

    /// The same while its root tries; none = that has come further by now, or takes too long. When the root was last seen to say so is no
    /// matter: where nothing happens it is looked at once a minute, and that is the pause between two tries.
    fn tried(self, now: OffsetDateTime, (id, live): (&ObjectId, &Object)) -> Option<Self> {
        let mark = mark(id.kind, live);
        let limit = self.limit(id.kind, live);
        let same = self.tries.filter(|one| one.mark == mark);
        let since = same.map_or(now, |one| one.since);
        (now - since < limit).then_some(Self {
            tries: Some(Try { mark, since }),
            ..self
        })
    }

    /// How long a try may go on before this is over, as far as it has come.
    fn limit(&self, kind: Kind, live: &Object) -> Duration {
        match kind {
            Kind::Kustomization => self.limit_of_kustomization(live),
            Kind::Application => self.limit_of_application(live),
            _ => TRY,
        }
    }

    /// While a Kustomization has not come further, its try may take as long as its timeouts allow; what it brought is looked at last.
    fn limit_of_kustomization(&self, live: &Object) -> Duration {
        if is_canceled(&self.text) {
            return CANCELED;
        }
        let (shows, stage) = (Stage::shows(self.class), Stage::of(live));
        if shows == Some(Stage::Checks) || stage.is_some() && stage <= shows {
            busy::longest_try(&live.fields).map_or(TRY, |long| long.max(TRY))
        } else if stage.is_some() {
            Duration::ZERO
        } else {
            TRY
        }
    }

    /// An operation that says nothing anew may be about to fail as before. One that waits for what it applied has often come further,
    /// but where its waves, or its hooks, are waited for it comes to that with each try.
    fn limit_of_application(&self, live: &Object) -> Duration {
        let lasts = if argocd::has_just_begun(live, &self.text) {
            argocd::STUCK
        } else if self.counts || argocd::tries(live) >= OFTEN {
            TRY
        } else {
            Duration::ZERO
        };
        if self.class == Class::ApplyFailed {
            lasts
        } else {
            Duration::ZERO
        }
    }
}

/// How far a try of a Kustomization has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Fetches,
    Builds,
    Applies,
    Checks,
}

/// With which its condition Reconciling begins (kustomize-controller, `kustomization_controller.go`).
const WORDS: [(&str, Stage); 4] = [
    ("Fetching manifests", Stage::Fetches),
    ("Building manifests", Stage::Builds),
    ("Detecting drift", Stage::Applies),
    ("Running health checks", Stage::Checks),
];

impl Stage {
    /// None = it does not say, or in other words.
    fn of(live: &Object) -> Option<Self> {
        let (status, reason, message) = live.condition("Reconciling")?;
        let says = status == "True" && reason == "Progressing";
        let known = WORDS.iter().find(|(words, _)| message.starts_with(words));
        known.filter(|_| says).map(|(_, stage)| *stage)
    }

    /// The one at which a fault shows itself; none = before all of them.
    fn shows(class: Class) -> Option<Self> {
        match class {
            Class::HealthCheckFailed => Some(Self::Checks),
            Class::ApplyFailed => Some(Self::Applies),
            Class::DependencyNotReady => None,
            Class::ArtifactUnreachable | Class::GitUnreachable => Some(Self::Fetches),
            _ => Some(Self::Builds),
        }
    }
}

/// Whether it cannot be known if a fault of the catalog's is over: what its object says instead shows itself before that fault does; or
/// is not over, and others are named. One that is Ready, suspended or gone says nothing. A root Application says all that is wrong at once.
pub fn is_hidden(observed: &Observed, findings: &[Finding], (class, id): &Key) -> bool {
    let shows = Stage::shows(*class);
    let hides = |other: Class| {
        let fetches = matches!(other, Class::ArtifactUnreachable | Class::GitUnreachable);
        (fetches || other.of_catalog()) && Stage::shows(other) < shows
    };
    let one_by_one = id.kind != Kind::Application;
    let found = findings
        .iter()
        .any(|f| one_by_one && f.object == *id && hides(f.class));
    let says = children::says(observed, id);
    let unnamed = || says == Some(*class) && children::are_many(observed, findings);
    class.of_catalog() && (found || says.is_some_and(hides) || unnamed())
}

/// How long a Kustomization may say nothing anew while it is applied, or what it brought is waited for: for each it has its own timeout.
pub(super) fn waits(kind: Kind, live: &Object) -> Option<Duration> {
    let is_long = kind == Kind::Kustomization && Stage::of(live) >= Some(Stage::Applies);
    busy::longest_stage(&live.fields).filter(|_| is_long)
}

impl History {
    /// Notes what each root says is wrong with the catalog, until it says something else, or a try has come further.
    pub(super) fn saw_complaints(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) {
        let mut former = std::mem::take(&mut self.complaints);
        for id in install.roots() {
            let former = former.remove(id);
            let complaint = match observed.objects.get(id) {
                Some(live) => self.complaint(now, (id, live), former),
                // An agent that has just begun has not seen it yet.
                None => former.filter(|_| !known(now, observed, id.kind)),
            };
            if let Some(complaint) = complaint {
                self.complaints.insert(id.clone(), complaint);
            }
        }
    }

    fn complaint(
        &self,
        now: OffsetDateTime,
        (id, live): (&ObjectId, &Object),
        former: Option<Complaint>,
    ) -> Option<Complaint> {
        let Some((class, text)) = says(id.kind, live) else {
            let waits = lacks_source(id.kind, live);
            let mut former = former.filter(|_| waits || tries(id.kind, live))?;
            former.counts |= self.counts(now, id, former.class);
            if waits {
                former.tries = None;
                return Some(former);
            }
            return former.tried(now, (id, live));
        };
        // That the next try came first says nothing of what the one before was about.
        let lasting =
            former.filter(|f| f.class == class && is_canceled(&text) && !is_canceled(&f.text));
        let text = lasting.map_or(text, |former| former.text);
        let counts = self.counts(now, id, class);
        Some(Complaint {
            class,
            text,
            counts,
            tries: None,
        })
    }

    fn counts(&self, now: OffsetDateTime, id: &ObjectId, class: Class) -> bool {
        let past = self.faults.get(&(class, id.clone()));
        let since = past.and_then(|past| past.since);
        since.is_some_and(|since| now - since >= class.debounce())
    }

    /// What a root that tries again, or waits for its source, complained of before it did.
    pub(super) fn complained(&self, id: &ObjectId, live: &Object) -> Option<(Class, String)> {
        let stands = tries(id.kind, live) || lacks_source(id.kind, live);
        let complaint = self.complaints.get(id).filter(|_| stands)?;
        Some((complaint.class, complaint.text.clone()))
    }
}

/// What a root says of the catalog that it does not say while it tries again. An Application goes on saying all but why it could not apply.
fn says(kind: Kind, live: &Object) -> Option<(Class, String)> {
    if kind == Kind::Application {
        let mut all = argocd::faults(live).chain(argocd::retried(live));
        return all.find(|(class, _)| *class == Class::ApplyFailed);
    }
    said(live).filter(|(class, _)| class.of_catalog())
}

fn tries(kind: Kind, live: &Object) -> bool {
    let is_at_it = if kind == Kind::Application {
        argocd::is_trying(live)
    } else {
        let ready = live.condition("Ready");
        ready.is_some_and(|(status, _, _)| status == "Unknown")
    };
    is_at_it && live.deleting.is_none()
}

/// Whether a Kustomization does not get at what it is to build: it has not come to where a fault shows itself.
fn lacks_source(kind: Kind, live: &Object) -> bool {
    let ready = live.condition("Ready");
    let lacks =
        ready.is_some_and(|(status, reason, _)| status == "False" && reason == "ArtifactFailed");
    kind == Kind::Kustomization && lacks && live.deleting.is_none()
}

/// What tells a try from the one before, also where its end was not seen. A controller that ends in the midst of one and begins it anew
/// does not change it, so that one which does that for ever is not waited for.
fn mark(kind: Kind, live: &Object) -> String {
    if kind == Kind::Application {
        return argocd::attempt(live);
    }
    let conditions = live.fields.pointer("/status/conditions");
    let mut all = conditions.and_then(Value::as_array).into_iter().flatten();
    let text = |c: &Value, name: &str| c.get(name).and_then(Value::as_str).map(str::to_owned);
    let ready = all.find(|c| text(c, "type").as_deref() == Some("Ready"));
    let began = ready.and_then(|c| text(c, "lastTransitionTime"));
    began.unwrap_or_default()
}

/// Whether a health check came to no end because the next try began.
fn is_canceled(text: &str) -> bool {
    text.starts_with("HealthCheckCanceled")
}

#[cfg(test)]
mod tests;
