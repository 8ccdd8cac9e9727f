//! Which Applications are asked to look for what the root has come to: by itself, Argo CD looks for a commit at each in its turn, which
//! takes a minute or two.

use time::{Duration, OffsetDateTime};

use super::{Followed, has_tried};
use crate::agent::engine::Install;
use crate::agent::plan::health;
use crate::agent::plan::state::{History, Observed};
use crate::agent::plan::steps::{Action, Step};
use crate::bundle::{Kind, ObjectId};

/// So many are asked within [`PAUSE`]: for each of them, Argo CD asks the Git host.
const MOST: usize = 32;
const PAUSE: Duration = Duration::seconds(5);

/// Asks each that is still at what the root has just left, once; and when the next of them are, where there are more.
pub fn asks(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> (Vec<Step>, Option<OffsetDateTime>) {
    let asked = history.nudged.iter().filter(|(id, at)| {
        let just = now - **at < PAUSE;
        just && observed.children.contains_key(*id)
    });
    let room = if health::can_answer(install, observed) {
        MOST.saturating_sub(asked.count())
    } else {
        0
    };
    let mut due = outrun(observed, history).filter(|(id, came)| {
        let asked = history.nudged.get(*id);
        asked.is_none_or(|at| at < came)
    });
    let steps = due.by_ref().take(room).map(|(id, _)| Step {
        action: Action::Nudge,
        target: id.clone(),
        cause: None,
    });
    let steps = steps.collect();
    (steps, due.next().map(|_| now + PAUSE))
}

/// Applications that were last compared with what the root has left a moment ago, and when it came to what it is at now: the commit may
/// mend what failed with the one before, too. One that is new, at work or has another source is looked at without being asked.
fn outrun<'a>(
    observed: &'a Observed,
    history: &'a History,
) -> impl Iterator<Item = (&'a ObjectId, OffsetDateTime)> {
    let Followed {
        revision,
        former,
        blank: _,
    } = &history.followed;
    let came = former.last().map(|(_, left)| *left);
    observed.children.iter().filter_map(move |(id, child)| {
        let rests = child.fate.dying || child.suspended || child.pending;
        if id.kind != Kind::Application || rests {
            return None;
        }
        let tried = |revision: &str| has_tried(id.kind, child, revision);
        let mut left = former.iter().filter(|(had, _)| !had.is_empty());
        let is_late = !tried(revision) && left.any(|(had, _)| tried(had));
        came.filter(|_| is_late).map(|came| (id, came))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::plan::burst::Fate;
    use crate::agent::plan::history::Outcome;
    use crate::agent::plan::plan;
    use crate::agent::plan::state::Child;
    use crate::agent::plan::tests::Cluster;
    use crate::wire::api::EngineKind;

    const SECOND: Duration = Duration::SECOND;

    /// A working Argo CD whose root came to the commit 2 a minute ago, and to 3 ten seconds ago.
    fn pushed() -> Cluster {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let left = |had: &str, ago: i32| (had.to_owned(), cluster.now - SECOND * ago);
        cluster.history.followed = Followed {
            revision: "3".to_owned(),
            former: vec![left("", 90), left("1", 60), left("2", 10)],
            blank: false,
        };
        cluster
    }

    fn id(kind: Kind, name: &str) -> ObjectId {
        ObjectId::new(kind, "argocd", name)
    }

    fn at(tried: &str) -> Child {
        Child {
            tried: tried.to_owned(),
            ..Child::default()
        }
    }

    fn with(cluster: &Cluster, all: impl IntoIterator<Item = (ObjectId, Child)>) -> Observed {
        Observed {
            children: Arc::new(all.into_iter().collect()),
            ..cluster.observed()
        }
    }

    fn asked(cluster: &Cluster, seen: &Observed) -> (Vec<ObjectId>, Option<OffsetDateTime>) {
        let (steps, next) = asks(cluster.now, &cluster.install, seen, &cluster.history);
        let targets = steps.into_iter().map(|step| {
            assert_eq!((step.action, step.cause), (Action::Nudge, None));
            step.target
        });
        (targets.collect(), next)
    }

    #[test]
    fn an_application_that_the_root_has_outrun_is_asked_once_of_each_commit() {
        let (app, set) = (Kind::Application, Kind::ApplicationSet);
        let why = ("SyncError".to_owned(), "denied".to_owned());
        let broken = Child {
            trouble: Some(why),
            ..at("2")
        };
        let works = Child {
            pending: true,
            ..at("2")
        };
        let stands = Child {
            suspended: true,
            ..at("2")
        };
        let goes = Child {
            fate: Fate {
                dying: true,
                ..Fate::default()
            },
            ..at("2")
        };
        for (what, kind, child, nudged, due) in [
            ("it is one behind", app, at("2"), None, true),
            ("it is two behind", app, at("1"), None, true),
            ("one of its sources is", app, at("1.2.3,2"), None, true),
            ("the commit may mend it", app, broken, None, true),
            ("it is there", app, at("3"), None, false),
            ("another source", app, at("7"), None, false),
            ("it is new", app, at(""), None, false),
            ("it is at work", app, works, None, false),
            ("it stands still", app, stands, None, false),
            ("it goes", app, goes, None, false),
            ("it makes others", set, at("2"), None, false),
            ("asked of the one before", app, at("2"), Some(11), true),
            ("asked of this one", app, at("2"), Some(9), false),
        ] {
            let mut cluster = pushed();
            let id = id(kind, "shop");
            if let Some(ago) = nudged {
                let at = cluster.now - SECOND * ago;
                cluster.history.nudged.insert(id.clone(), at);
            }
            let seen = with(&cluster, [(id.clone(), child)]);
            let expected = if due { vec![id] } else { vec![] };
            assert_eq!(asked(&cluster, &seen), (expected, None), "{what}");
        }
    }

    #[test]
    fn of_many_that_the_root_has_outrun_some_are_asked_at_a_time() {
        let mut cluster = pushed();
        let ids: Vec<ObjectId> = (0..40)
            .map(|n| id(Kind::Application, &format!("app-{n:02}")))
            .collect();
        let seen = with(&cluster, ids.iter().map(|id| (id.clone(), at("2"))));
        let (first, rest) = ids.split_at(MOST);
        let mut round = |later: Duration| {
            cluster.now += later;
            let (targets, next) = asked(&cluster, &seen);
            for target in &targets {
                let step = Step {
                    action: Action::Nudge,
                    target: target.clone(),
                    cause: None,
                };
                let history = &mut cluster.history;
                history.acted(cluster.now, &step, &Outcome::Done, &seen);
            }
            (targets, next.map(|at| at - cluster.now))
        };
        let none = Vec::<ObjectId>::new;
        assert_eq!(round(Duration::ZERO), (first.to_vec(), Some(PAUSE)));
        assert_eq!(round(PAUSE - SECOND), (none(), Some(PAUSE)));
        assert_eq!(round(SECOND), (rest.to_vec(), None));
        assert_eq!(round(PAUSE), (none(), None));
    }

    #[test]
    fn nobody_is_asked_in_a_window_or_while_argo_cd_cannot_answer() {
        let id = id(Kind::Application, "shop");
        let asks = |cluster: &Cluster| {
            let seen = with(cluster, [(id.clone(), at("2"))]);
            let plan = plan(cluster.now, &cluster.install, &seen, &cluster.history);
            plan.steps.iter().any(|step| step.target == id)
        };
        let mut cluster = pushed();
        assert!(asks(&cluster));
        cluster.install.policy.paused_until = Some(cluster.now + Duration::HOUR);
        assert!(!asks(&cluster));
        let mut cluster = pushed();
        cluster.pods.clear();
        let seen = with(&cluster, [(id.clone(), at("2"))]);
        let later = Some(cluster.now + PAUSE);
        assert_eq!(asked(&cluster, &seen), (Vec::new(), later));
    }
}
