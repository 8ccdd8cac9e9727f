use serde_json::json;

use super::*;
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::plan::state::{OwnLook, OwnRead};
use crate::agent::plan::steps::Step;
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{MAINTENANCE, Plan, plan};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

const NO_ROOM: &str =
    "unable to archive artifact to storage: write /data/x.tar.gz: no space left on device";

/// A cluster whose root says this; each round as the watchdog does it.
struct World {
    cluster: Cluster,
    /// Whether kustomize-controller says so.
    unpacking: bool,
    said: String,
    /// Whether the agent itself reads the catalog.
    reads: bool,
}

impl World {
    fn flux(said: &str) -> Self {
        let cluster = Cluster::working();
        let said = said.to_owned();
        Self {
            cluster,
            unpacking: false,
            said,
            reads: true,
        }
    }

    fn root(&self) -> ObjectId {
        let install = &self.cluster.install;
        let root = if self.unpacking {
            &install.sync
        } else {
            &install.source
        };
        root.clone()
    }

    /// The controller answers what it was asked, and says the same again.
    fn answer(&mut self) {
        let (root, now) = (self.root(), rfc3339(self.cluster.now));
        let live = self.cluster.objects.get_mut(&root).unwrap();
        if root.kind == Kind::Application {
            let annotations = live.fields["metadata"]["annotations"].as_object_mut();
            annotations.unwrap().remove(REFRESH);
            live.fields["status"] = json!({
                "reconciledAt": now, "sync": {"status": "Unknown"},
                "conditions": [{"type": "ComparisonError", "message": self.said}],
            });
            return;
        }
        let asked = live.probe().map(|p| rfc3339(p.sent));
        let reason = if self.unpacking {
            "ArtifactFailed"
        } else {
            "ArchiveOperationFailed"
        };
        live.fields["status"] = json!({
            "lastHandledReconcileAt": asked, "artifact": {"revision": "main@sha1:1"},
            "conditions": [{
                "type": "Ready", "status": "False", "reason": reason, "message": self.said,
            }],
        });
    }

    /// The controller of the other root has nothing to say but that it is there.
    fn answer_otherwise(&mut self) {
        let root = self.root();
        let roots: Vec<ObjectId> = self.cluster.install.roots().cloned().collect();
        for id in roots.iter().filter(|id| **id != root) {
            let live = self.cluster.objects.get_mut(id).unwrap();
            let asked = live.probe().map(|p| rfc3339(p.sent));
            live.fields["status"]["lastHandledReconcileAt"] = json!(asked);
        }
    }

    fn plan(&self) -> Plan {
        let mut observed = self.cluster.observed();
        let read = OwnRead {
            since: self.cluster.now,
            last: self.cluster.now,
        };
        if self.reads {
            observed.own_look = OwnLook::Read(read);
        }
        plan(
            self.cluster.now,
            &self.cluster.install,
            &observed,
            &self.cluster.history,
        )
    }

    /// What is done against the fault within so many seconds, and after how many of them.
    fn steps(&mut self, seconds: i64) -> Vec<(i64, Step)> {
        let began = self.cluster.now;
        let mut taken = Vec::new();
        while self.cluster.now - began < Duration::seconds(seconds) {
            self.answer();
            self.answer_otherwise();
            let plan = self.plan();
            let observed = self.cluster.observed();
            self.cluster.history.saw(self.cluster.now, &plan);
            for step in plan.steps {
                let outcome = self.cluster.act(&step);
                self.cluster
                    .history
                    .acted(self.cluster.now, &step, &outcome, &observed);
                if step.cause.is_some() {
                    taken.push(((self.cluster.now - began).whole_seconds(), step));
                }
            }
            self.cluster.now += Duration::seconds(1);
        }
        taken
    }
}

fn named(taken: &[(i64, Step)]) -> Vec<(i64, &'static str, &str)> {
    let named = |(at, step): &(i64, Step)| (*at, step.action.as_str());
    let all = taken.iter();
    all.map(|one| {
        let (at, action) = named(one);
        (at, action, one.1.target.name.as_str())
    })
    .collect()
}

/// F31: asked first; a minute later, with its volume full, it gets another Pod, and after three attempts there is an hour.
#[test]
fn a_full_volume_is_asked_for_once_and_then_given_up_with_its_pod() {
    let mut world = World::flux(NO_ROOM);
    assert_eq!(
        named(&world.steps(3_000)),
        [
            (10, "nudge", "flux-system"),
            (70, "restart", "source-controller"),
            (130, "restart", "source-controller"),
        ]
    );
}

/// W24: asking it changes nothing of it, and its Pod stays until its window is over.
#[test]
fn a_controller_with_a_window_of_its_own_is_only_asked() {
    let mut world = World::flux(NO_ROOM);
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let until = rfc3339(world.cluster.now + Duration::minutes(5));
    let live = world.cluster.objects.get_mut(&id).unwrap();
    live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
    assert_eq!(named(&world.steps(300)), [(10, "nudge", "flux-system")]);
    let taken = world.steps(5);
    assert_eq!(named(&taken), [(0, "restart", "source-controller")]);
}

/// What was tried a quarter of an hour ago was tried against another fault: it is asked again before its Pod goes.
#[test]
fn a_volume_that_is_full_again_is_asked_for_first() {
    let mut world = World::flux(NO_ROOM);
    world.answer();
    let (root, now) = (world.root(), world.cluster.now);
    let mut observed = world.cluster.observed();
    let (since, last) = (now, now);
    observed.own_look = OwnLook::Read(OwnRead { since, last });
    let finding = Finding::new(Class::ArtifactLost, &root, NO_ROOM);
    for (ago, expected) in [(EPISODE - Duration::SECOND, "restart"), (EPISODE, "nudge")] {
        let past = Past {
            attempts: vec![now - ago],
            ..Past::default()
        };
        let taken = against(now, &world.cluster.install, &observed, &finding, &past);
        let actions = taken.iter().map(|(action, _)| action.as_str());
        assert_eq!(actions.collect::<Vec<_>>(), [expected], "{ago}");
    }
}

/// F31: another Pod would not make a link that is refused for another reason.
#[test]
fn a_controller_that_cannot_store_for_another_reason_is_only_asked() {
    let mut world = World::flux("failed to update latest URL symlink: permission denied");
    let taken = world.steps(600);
    assert_eq!(
        named(&taken),
        [
            (10, "nudge", "flux-system"),
            (70, "nudge", "flux-system"),
            (130, "nudge", "flux-system")
        ]
    );
}

/// F31 under F26 and F27: what is in the volume is the only copy.
#[test]
fn the_only_copy_of_what_was_fetched_is_never_given_up() {
    let mut world = World::flux(NO_ROOM);
    world.reads = false;
    assert_eq!(named(&world.steps(600)), [(10, "nudge", "flux-system")]);
    world.reads = true;
    let taken = world.steps(5);
    assert_eq!(named(&taken), [(0, "restart", "source-controller")]);
}

/// F31: kustomize-controller's volume has nothing that source-controller does not have: it goes with Git away, too.
#[test]
fn what_was_unpacked_is_given_up_whether_git_is_there_or_not() {
    let mut world = World::flux("failed to untar artifact: write /tmp/x: no space left on device");
    world.unpacking = true;
    world.reads = false;
    assert_eq!(
        named(&world.steps(100)),
        [
            (10, "nudge", "flux-system"),
            (70, "restart", "kustomize-controller"),
        ]
    );
}

/// While the question has no answer, what the controller said is of before it.
#[test]
fn a_controller_that_has_not_answered_yet_keeps_its_pod() {
    let mut world = World::flux(NO_ROOM);
    let root = world.root();
    world.steps(20);
    let live = world.cluster.objects.get_mut(&root).unwrap();
    live.fields["status"]["lastHandledReconcileAt"] = json!("before");
    world.cluster.now += Duration::seconds(60);
    let plan = world.plan();
    assert_eq!(plan.findings[0].class, Class::ArtifactLost);
    assert_eq!(plan.steps, []);
}

/// F31 of Argo CD: the repo-server's disk; not where it says that it cannot fetch, either.
#[test]
fn a_full_repo_server_gets_another_pod() {
    for (more, expected) in [
        (
            "",
            &[
                (10, "nudge", "linesman"),
                (70, "restart", "argocd-repo-server"),
            ][..],
        ),
        ("key", &[(10, "nudge", "linesman")][..]),
    ] {
        let mut world =
            World::flux("failed to generate manifest: mkdir /tmp/x: no space left on device");
        world.cluster = Cluster::working_of(EngineKind::Argocd);
        let (root, asked) = (world.root(), rfc3339(world.cluster.now));
        let live = world.cluster.objects.get_mut(&root).unwrap();
        live.fields["metadata"]["annotations"][PROBED_AT] = json!(asked);
        let taken = if more.is_empty() {
            world.steps(120)
        } else {
            world.steps(20)
        };
        if !more.is_empty() {
            let live = world.cluster.objects.get_mut(&root).unwrap();
            let also = json!({"type": "ComparisonError", "message": "ssh: unable to authenticate"});
            live.fields["status"]["conditions"]
                .as_array_mut()
                .unwrap()
                .push(also);
            world.cluster.now += Duration::seconds(60);
            assert_eq!(
                world
                    .plan()
                    .steps
                    .iter()
                    .filter(|s| s.cause.is_some())
                    .count(),
                0
            );
        }
        let names: Vec<_> = named(&taken)
            .into_iter()
            .map(|(at, action, name)| {
                (
                    at,
                    action,
                    if name == root.name { "linesman" } else { name },
                )
            })
            .collect();
        assert_eq!(names, expected, "{more}");
    }
}
