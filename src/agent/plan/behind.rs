//! What the catalog brought and is not done with the root's commit yet. For a moment that is no fault, and not well either: what a
//! commit breaks is tried only when the root has applied that.

use time::{Duration, OffsetDateTime};

use super::state::{Child, History, Observed};
use super::{argocd, health};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

mod asked;
mod said;

pub use asked::asks;
pub use said::{compared, is_pending};

/// As long as one that fails has until that counts: what takes its time keeps nobody waiting for longer.
const WAITS: Duration = Duration::seconds(60);
/// An Application that is not told of a commit: its controller looks for that by itself, within so long.
const LOOKS: Duration = argocd::AGAIN;
/// What a commit of the root's changes may be applied so long before the root says that it is at that commit, and by another clock.
const EARLY: Duration = Duration::seconds(30);
/// So long a commit of before is remembered.
const KEPT: Duration = LOOKS;
/// So many commits of before are remembered.
const MAX_FORMER: usize = 8;

/// What the root applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followed {
    /// The last revision; empty = none yet.
    pub revision: String,
    /// Those of before that were left a moment ago, and when: oldest first.
    pub former: Vec<(String, OffsetDateTime)>,
    /// Whether the root was seen before it had applied anything.
    pub blank: bool,
}

impl Followed {
    pub fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        self.former.iter_mut().map(|(_, left)| left)
    }
}

impl History {
    /// Notes what the root has applied, and when it left what was before.
    pub fn saw_revision(&mut self, now: OffsetDateTime, install: &Install, observed: &Observed) {
        let Followed {
            revision,
            former,
            blank,
        } = &mut self.followed;
        former.retain(|(_, left)| now - *left < KEPT);
        let Some(applied) = health::revision(install, observed) else {
            *blank |= revision.is_empty() && is_blank(install, observed);
            return;
        };
        if applied == *revision {
            return;
        }
        let before = std::mem::replace(revision, applied);
        // An agent that has just begun knows of no commit that is new, but for the first one of an adoption.
        if !std::mem::take(blank) && before.is_empty() {
            return;
        }
        if former.len() >= MAX_FORMER {
            former.remove(0);
        }
        former.push((before, now));
    }
}

/// Whether the root is there, and has not applied anything as far as it says.
fn is_blank(install: &Install, observed: &Observed) -> bool {
    let applied = match install.traits.kind {
        EngineKind::Flux => "/status/lastAppliedRevision",
        EngineKind::Argocd => "/status/operationState/phase",
    };
    let root = observed.objects.get(&install.sync);
    root.is_some_and(|root| root.text(applied).is_empty())
}

/// Each that is not done yet with what the root applied, and until when it is waited for. What fails says so itself. In Argo CD what cannot
/// start is Progressing for minutes before that is a failure.
pub fn behind<'a>(
    now: OffsetDateTime,
    observed: &'a Observed,
    history: &'a History,
) -> impl Iterator<Item = (&'a ObjectId, OffsetDateTime)> {
    let Followed {
        revision,
        former,
        blank: _,
    } = &history.followed;
    observed.children.iter().filter_map(move |(id, child)| {
        if child.fate.dying || child.trouble.is_some() {
            return None;
        }
        let limit = limit(id.kind)?;
        // One that is new has tried nothing; one of another source never tried what the root had before.
        let tried = |revision: &str| has_tried(id.kind, child, revision);
        let anew = child.pending || tried("");
        let is_late = !child.suspended && (anew || !tried(revision));
        // What is not up for other reasons, perhaps for ever, was not applied since.
        let rolls = |left: OffsetDateTime| child.rolls.is_some_and(|at| at >= left - EARLY);
        let mut former = former.iter().rev();
        let (_, left) =
            former.find(|(had, left)| is_late && (anew || tried(had)) || rolls(*left))?;
        let until = *left + limit;
        (until > now).then_some((id, until))
    })
}

/// How long one of a kind is waited for. Of others it is not known how far they are.
fn limit(kind: Kind) -> Option<Duration> {
    match kind {
        Kind::Kustomization | Kind::HelmRelease => Some(WAITS),
        Kind::Application => Some(LOOKS),
        _ => None,
    }
}

/// Whether one of a kind tried this revision; by the empty one, whether it tried none yet.
fn has_tried(kind: Kind, child: &Child, revision: &str) -> bool {
    match kind {
        // Of several sources it names one each.
        Kind::Application => child.tried.split(',').any(|one| one == revision),
        // It names the version of its chart, and no commit.
        Kind::HelmRelease => false,
        _ => child.tried == revision,
    }
}

/// When the last of them is not waited for any more; none = there is none.
pub(super) fn until(
    now: OffsetDateTime,
    observed: &Observed,
    history: &History,
) -> Option<OffsetDateTime> {
    behind(now, observed, history).map(|(_, until)| until).max()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::agent::plan::tests::Cluster;

    const OLD: &str = "main@sha1:1";
    const NEW: &str = "main@sha1:2";

    fn id(name: &str) -> ObjectId {
        ObjectId::new(Kind::Kustomization, "apps", name)
    }

    /// A cluster whose root applies a commit, with children that tried these revisions.
    fn pushed(tried: &[(&str, &str)]) -> (Cluster, Observed) {
        let mut cluster = Cluster::working();
        cluster.history.followed = Followed {
            revision: OLD.to_owned(),
            ..Followed::default()
        };
        for root in [cluster.install.source.clone(), cluster.install.sync.clone()] {
            let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
            for field in ["lastAppliedRevision", "lastAttemptedRevision"] {
                status[field] = NEW.into();
            }
            status["artifact"]["revision"] = NEW.into();
        }
        let mut observed = cluster.observed();
        let children = tried.iter().map(|(name, tried)| {
            let tried = (*tried).to_owned();
            let child = Child {
                tried,
                ..Child::default()
            };
            (id(name), child)
        });
        observed.children = Arc::new(children.collect());
        let (now, install) = (cluster.now, cluster.install.clone());
        cluster.history.saw_revision(now, &install, &observed);
        (cluster, observed)
    }

    #[test]
    fn what_has_not_come_to_the_roots_commit_is_waited_for_a_minute() {
        let (cluster, observed) = pushed(&[
            ("late", OLD),
            ("new", ""),
            ("of another source", "v1@sha1:7"),
            ("there", NEW),
        ]);
        let until = cluster.now + WAITS;
        let waited = |after: i64| {
            let now = cluster.now + Duration::seconds(after);
            let all = behind(now, &observed, &cluster.history);
            all.map(|(id, until)| (id.clone(), until))
                .collect::<Vec<_>>()
        };
        let both = ["late", "new"].map(|name| (id(name), until));
        assert_eq!(waited(0), both);
        assert_eq!(waited(59), both);
        assert_eq!(waited(60), [], "it takes its time, say");
    }

    /// What the root has just applied may be of another kind, or be done by others.
    #[test]
    fn applications_and_releases_are_waited_for_as_well() {
        let (cluster, mut observed) = pushed(&[]);
        let (app, release) = (Kind::Application, Kind::HelmRelease);
        let [one_late, all_there] = [OLD, NEW].map(|commit| format!("1.2.3,{commit}"));
        let mut children = BTreeMap::new();
        for (kind, name, tried, pending) in [
            (app, "late", OLD, false),
            (app, "one of its sources is late", one_late.as_str(), false),
            (app, "new", "", false),
            (app, "at work", NEW, true),
            (app, "there", NEW, false),
            (
                app,
                "all of its sources are there",
                all_there.as_str(),
                false,
            ),
            (app, "of another source", "7", false),
            (release, "at work", "", true),
            (release, "done", "", false),
            (Kind::Kustomization, "has another spec", NEW, true),
            (Kind::ApplicationSet, "of any source", "", false),
        ] {
            let tried = tried.to_owned();
            let child = Child {
                tried,
                pending,
                ..Child::default()
            };
            children.insert(ObjectId::new(kind, "apps", name), child);
        }
        observed.children = Arc::new(children);
        let waited = |after: i64| {
            let now = cluster.now + Duration::seconds(after);
            let all = behind(now, &observed, &cluster.history);
            all.map(|(id, until)| (id.clone(), until))
                .collect::<BTreeMap<_, _>>()
        };
        let of = |kind: Kind, name: &str, limit: Duration| {
            let id = ObjectId::new(kind, "apps", name);
            (id, cluster.now + limit)
        };
        let apps = ["late", "one of its sources is late", "new", "at work"];
        let apps = apps.map(|name| of(app, name, LOOKS));
        let short = [
            of(release, "at work", WAITS),
            of(Kind::Kustomization, "has another spec", WAITS),
        ];
        let all: BTreeMap<_, _> = apps.iter().chain(&short).cloned().collect();
        assert_eq!(waited(0), all);
        assert_eq!(waited(60), BTreeMap::from(apps));
        assert_eq!(waited(LOOKS.whole_seconds()), BTreeMap::new());
    }

    /// Some are Progressing for ever, such as an Ingress without an address.
    #[test]
    fn an_application_that_is_progressing_since_a_commit_is_waited_for_as_well() {
        let (cluster, mut observed) = pushed(&[]);
        let id = ObjectId::new(Kind::Application, "apps", "shop");
        let early = -EARLY.whole_seconds();
        for (what, tried, suspended, rolls, is_waited_for) in [
            ("it was applied", NEW, false, Some(5), true),
            ("before the root said so", NEW, false, Some(early), true),
            ("of another source", "1.2.3", false, Some(5), true),
            ("it is pinned to a commit", "7", true, Some(5), true),
            ("nothing of it", NEW, false, Some(early - 1), false),
            ("all is up", NEW, false, None, false),
        ] {
            let rolls = rolls.map(|after| cluster.now + Duration::seconds(after));
            let child = Child {
                tried: tried.to_owned(),
                suspended,
                rolls,
                ..Child::default()
            };
            observed.children = Arc::new([(id.clone(), child)].into());
            let waited = |after: Duration| {
                let all = behind(cluster.now + after, &observed, &cluster.history);
                all.map(|(id, until)| (id.clone(), until))
                    .collect::<Vec<_>>()
            };
            let waits = is_waited_for.then(|| (id.clone(), cluster.now + LOOKS));
            let waits: Vec<_> = waits.into_iter().collect();
            assert_eq!(waited(Duration::ZERO), waits, "{what}");
            assert_eq!(waited(LOOKS - Duration::SECOND), waits, "{what}");
            assert_eq!(waited(LOOKS), [], "{what}");
        }
    }

    /// Of an adoption: nothing of what it brings has been tried then.
    #[test]
    fn what_the_first_revision_brings_is_waited_for_by_who_saw_the_root_before_it() {
        let (mut cluster, mut observed) = pushed(&[("new", ""), ("there before", OLD)]);
        let (now, install) = (cluster.now, cluster.install.clone());
        let applies = observed.objects[&install.sync].clone();
        cluster.history.followed = Followed::default();
        for revision in ["", NEW] {
            let mut root = applies.as_ref().clone();
            root.fields["status"]["lastAppliedRevision"] = revision.into();
            observed
                .objects
                .insert(install.sync.clone(), Arc::new(root));
            cluster.history.saw_revision(now, &install, &observed);
            let mut all = behind(now, &observed, &cluster.history);
            let first = all.next().map(|(id, until)| (id.clone(), until));
            let expected = (!revision.is_empty()).then(|| (id("new"), now + WAITS));
            assert_eq!((first, all.next()), (expected, None));
        }
    }

    #[test]
    fn an_agent_that_has_just_begun_and_a_root_that_stays_wait_for_nothing() {
        let (mut cluster, observed) = pushed(&[("late", OLD), ("never tried", "")]);
        let (now, install) = (cluster.now, cluster.install.clone());
        cluster.history.followed = Followed::default();
        for after in [0, 1, 600] {
            let now = now + Duration::seconds(after);
            cluster.history.saw_revision(now, &install, &observed);
            assert_eq!(until(now, &observed, &cluster.history), None);
        }
        assert_eq!(cluster.history.followed.revision, NEW);
    }

    /// What fails is a finding; what goes will try nothing any more, nor does what is suspended, whatever the root applies.
    #[test]
    fn what_says_why_and_what_tries_nothing_is_not_waited_for_here() {
        let (cluster, mut observed) = pushed(&[
            ("broken", OLD),
            ("dying", OLD),
            ("suspended", OLD),
            ("suspended from the first", ""),
        ]);
        let children = Arc::make_mut(&mut observed.children);
        let why = ("BuildFailed".to_owned(), "no such file".to_owned());
        children.get_mut(&id("broken")).unwrap().trouble = Some(why);
        children.get_mut(&id("dying")).unwrap().fate.dying = true;
        for name in ["suspended", "suspended from the first"] {
            children.get_mut(&id(name)).unwrap().suspended = true;
        }
        assert_eq!(until(cluster.now, &observed, &cluster.history), None);
    }

    /// Else the next look may be a minute after that.
    #[test]
    fn the_end_of_the_wait_is_looked_at() {
        let (cluster, observed) = pushed(&[("late", OLD)]);
        let (now, end) = (cluster.now + Duration::seconds(30), cluster.now + WAITS);
        let look = |history: &History| {
            crate::agent::plan::plan(now, &cluster.install, &observed, history).next_look
        };
        let idle = History {
            followed: Followed::default(),
            ..cluster.history.clone()
        };
        assert!(look(&idle) > end);
        assert_eq!(look(&cluster.history), end);
    }

    #[test]
    fn only_the_last_commits_are_remembered_and_those_for_a_while() {
        let (mut cluster, mut observed) = pushed(&[("late", OLD)]);
        let (now, install) = (cluster.now, cluster.install.clone());
        for n in 3..20 {
            for root in [&install.source, &install.sync] {
                let mut live = observed.objects[root].as_ref().clone();
                let revision = format!("main@sha1:{n}");
                live.fields["status"]["lastAppliedRevision"] = revision.clone().into();
                live.fields["status"]["artifact"]["revision"] = revision.into();
                observed.objects.insert(root.clone(), Arc::new(live));
            }
            cluster.history.saw_revision(now, &install, &observed);
        }
        let former = |history: &History| history.followed.former.len();
        assert_eq!(former(&cluster.history), MAX_FORMER);
        let later = now + KEPT;
        cluster.history.saw_revision(later, &install, &observed);
        assert_eq!(former(&cluster.history), 0);
    }
}
