//! What somebody added to a controller that Git owns: a hold keeps Git's own correction away, and a controller that does not
//! run, or does not answer, corrects nothing.

use serde_json::json;
use time::Duration;

use super::damage::{BREAKS, Damage};
use super::git::Bad;
use super::{Cluster, desired_of, install_of};
use crate::agent::engine::argocd::{PROBED_AT, REFRESH};
use crate::agent::engine::{GIT_OWNER, Install, REQUESTED_AT, TRACKING};
use crate::agent::gate::policy::Mending;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::quarantine;
use crate::agent::plan::steps::Step;
use crate::agent::plan::{Action, Class, Plan};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

const CONTROLLER: &str = "kustomize-controller";

/// With one controller that Git owns, as it was last known good.
fn owned_by_git(engine: EngineKind, id: &ObjectId) -> Cluster {
    let mut good = install_of(engine).wanted[id].expect.as_ref().clone();
    good["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    good["metadata"]["annotations"][TRACKING] = json!("flux-system");
    let snapshot = [(id.clone(), good)].into();
    let owner = Some(Mending::default());
    let install = Install::new(&desired_of(engine), &snapshot, owner);
    Cluster::working_with(install)
}

fn has_added(cluster: &Cluster, id: &ObjectId) -> bool {
    let container = cluster.objects[id]
        .fields
        .pointer("/spec/template/spec/containers/0");
    container.is_some_and(|c| c.get("env").is_some())
}

fn remedies(plan: &Plan) -> Vec<(Class, &str, String)> {
    let steps = plan.steps.iter().filter_map(|step| {
        let (class, _) = step.cause.as_ref()?;
        Some((*class, step.action.as_str(), step.target.name.clone()))
    });
    steps.collect()
}

/// W8, W17, W18: held back from Git, the engine does not take away what people add; so the agent does.
#[test]
fn a_variable_that_stops_a_controller_is_removed_also_where_git_owns_it_and_it_is_held() {
    for held in [true, false] {
        let id = ObjectId::new(Kind::Deployment, "flux-system", CONTROLLER);
        let mut cluster = owned_by_git(EngineKind::Flux, &id);
        if held {
            cluster.commit(CONTROLLER, Bad::Image);
            cluster.settle(100);
        }
        let holds = quarantine::holds(&cluster.install, &cluster.observed());
        assert_eq!(holds.contains_key(&id), held);
        cluster.steps.clear();
        cluster.damage(&Damage::Env(CONTROLLER));
        assert!(has_added(&cluster, &id));
        cluster.settle(100);
        assert!(!has_added(&cluster, &id), "held {held}");
        let heals = cluster.steps.iter().filter(|(_, s)| s.cause.is_some());
        let heals: Vec<_> = heals.map(|(_, s)| (&s.action, &s.target)).collect();
        assert_eq!(heals, [(&Action::Replace, &id)], "held {held}");
        let holds = quarantine::holds(&cluster.install, &cluster.observed());
        assert_eq!(holds.contains_key(&id), held, "it is held as before");
    }
}

/// The next step against what is wrong.
fn next(cluster: &mut Cluster) -> Step {
    for _ in 0..600 {
        let plan = cluster.plan();
        cluster.history.saw(cluster.now, &plan);
        if let Some(step) = plan.steps.into_iter().find(|step| step.cause.is_some()) {
            return step;
        }
        cluster.now += Duration::SECOND;
    }
    panic!("nothing is done");
}

/// W8: ours is a volume's second source, which the API server does not take.
#[test]
fn a_controller_that_is_refused_as_it_is_wanted_is_replaced_and_then_tried_as_before() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", CONTROLLER);
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Image(CONTROLLER));
    let said = "volumes[0].configMap: Forbidden: may not specify more than 1 volume type";
    for action in [Action::Apply, Action::Replace, Action::Apply] {
        let step = next(&mut cluster);
        assert_eq!((&step.action, &step.target), (&action, &id));
        let (refused, observed) = (Outcome::Refused(said.to_owned()), cluster.observed());
        cluster
            .history
            .acted(cluster.now, &step, &refused, &observed);
        cluster.now += Duration::SECOND;
    }
}

/// A probe of Flux' that nobody answered for so long.
fn unanswered(cluster: &mut Cluster, seconds: i64) {
    let (root, sent) = (cluster.install.sync.clone(), rfc3339(cluster.now));
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    if cluster.install.traits.kind == EngineKind::Argocd {
        annotations[PROBED_AT] = json!(sent);
        annotations[REFRESH] = json!("normal");
    } else {
        annotations[REQUESTED_AT] = json!(sent);
    }
    cluster.now += Duration::seconds(seconds);
}

/// F10, F12: a restart mends what hangs, and not what was told to do something else.
#[test]
fn a_controller_that_runs_and_does_not_answer_is_put_back_where_somebody_changed_it() {
    let useless = Class::ReadyButUseless;
    for (engine, owned, writer, added, expected) in [
        (
            EngineKind::Flux,
            false,
            "kubectl",
            true,
            (useless, "replace"),
        ),
        (
            EngineKind::Flux,
            true,
            "kubectl",
            true,
            (useless, "replace"),
        ),
        (EngineKind::Flux, true, "kubectl", false, (useless, "apply")),
        (
            EngineKind::Argocd,
            false,
            "kubectl",
            true,
            (useless, "replace"),
        ),
        (
            EngineKind::Argocd,
            true,
            "kubectl",
            true,
            (useless, "replace"),
        ),
    ] {
        let id = install_of(engine).controller(&install_of(engine).sync);
        let mut cluster = if owned {
            owned_by_git(engine, &id)
        } else {
            Cluster::working_of(engine)
        };
        cluster.now += Duration::hours(1);
        unanswered(&mut cluster, 91);
        let live = cluster.objects.get_mut(&id).unwrap();
        let pointer = "/spec/template/spec/containers/0";
        let container = live.fields.pointer_mut(pointer).unwrap();
        if added {
            container["env"] = json!([{"name": BREAKS, "value": "nowhere"}]);
        } else {
            container["image"] = json!("other:v1");
        }
        writer.clone_into(&mut live.writer);
        let plan = cluster.plan();
        let expected = (expected.0, expected.1, id.name.clone());
        assert_eq!(remedies(&plan), [expected], "{engine:?} {owned} {added}");
    }
}

/// What is as wanted hangs, and so does what Git wrote: that is Git's harm, and has a finding of its own.
#[test]
fn a_controller_that_nobody_changed_is_restarted() {
    let mut cluster = Cluster::working();
    cluster.now += Duration::hours(1);
    unanswered(&mut cluster, 91);
    let restarted = (Class::QueueWedged, "restart", CONTROLLER.to_owned());
    assert_eq!(remedies(&cluster.plan()), [restarted]);
}
