//! What the catalog brought and has not come to the root's commit yet. For a moment that is no fault, and not well either: what a
//! commit breaks is tried only when the root has applied that.

use time::{Duration, OffsetDateTime};

use super::health;
use super::state::{History, Observed};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// As long as one that fails has until that counts: what takes its time keeps nobody waiting for longer.
const WAITS: Duration = Duration::seconds(60);
/// So many commits of before are remembered.
const MAX_FORMER: usize = 8;

/// What the root applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followed {
    /// The last revision; empty = none yet.
    pub revision: String,
    /// Those of before that were left a moment ago, and when: oldest first.
    pub former: Vec<(String, OffsetDateTime)>,
}

impl Followed {
    pub fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        self.former.iter_mut().map(|(_, left)| left)
    }
}

impl History {
    /// Notes what the root has applied, and when it left what was before.
    pub fn saw_revision(&mut self, now: OffsetDateTime, install: &Install, observed: &Observed) {
        let Followed { revision, former } = &mut self.followed;
        former.retain(|(_, left)| now - *left < WAITS);
        let Some(applied) = health::revision(install, observed) else {
            return;
        };
        if applied == *revision {
            return;
        }
        let before = std::mem::replace(revision, applied);
        // An agent that has just begun knows of no commit that is new.
        if before.is_empty() {
            return;
        }
        if former.len() >= MAX_FORMER {
            former.remove(0);
        }
        former.push((before, now));
    }
}

/// Each that has not tried yet what the root applied, and until when it is waited for. What fails says so itself.
pub fn behind<'a>(
    now: OffsetDateTime,
    observed: &'a Observed,
    history: &'a History,
) -> impl Iterator<Item = (&'a ObjectId, OffsetDateTime)> {
    let Followed { revision, former } = &history.followed;
    observed.children.iter().filter_map(move |(id, child)| {
        // Of others it is not known what they tried.
        let tries = !child.fate.dying && !child.suspended;
        let follows = id.kind == Kind::Kustomization && tries;
        if !follows || child.trouble.is_some() || child.tried == *revision {
            return None;
        }
        // One that is new has tried nothing; one of another source never tried what the root had before.
        let mut former = former.iter().rev();
        let (_, left) = former.find(|(had, _)| child.tried.is_empty() || *had == child.tried)?;
        let until = *left + WAITS;
        (until > now).then_some((id, until))
    })
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
    use std::sync::Arc;

    use super::*;
    use crate::agent::plan::state::Child;
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
            former: Vec::new(),
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
    fn only_the_last_commits_are_remembered_and_those_for_a_minute() {
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
        let later = now + WAITS;
        cluster.history.saw_revision(later, &install, &observed);
        assert_eq!(former(&cluster.history), 0);
    }
}
