//! What becomes of what the guard took.

use std::collections::BTreeMap;

use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::engine::GUARD;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::plan::state::Saved;
use crate::agent::plan::tests::{Cluster, Damage, deployment};
use crate::agent::plan::window::{By, End, Window};
use crate::agent::plan::{MAINTENANCE, Plan, plan};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

const RIGHTS: [&str; 2] = [
    "cluster-reconciler-flux-system",
    "crd-controller-flux-system",
];
const SYNCS: &str = "kustomizations.kustomize.toolkit.fluxcd.io";

fn crd() -> ObjectId {
    ObjectId::new(Kind::CustomResourceDefinition, "", SYNCS)
}

/// Its CRD is deleted, and the guard has acted once.
fn dying(change: impl FnOnce(&mut Cluster)) -> Cluster {
    let mut cluster = Cluster::working();
    change(&mut cluster);
    cluster.objects.get_mut(&crd()).unwrap().deleting = Some(cluster.now);
    let plan = cluster.round();
    let taken = ["cut-rights", "cut-rights", "scale-to-zero", "release"];
    assert_eq!(actions(&plan), taken);
    cluster
}

fn actions(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|s| s.action.as_str()).collect()
}

fn managed_by_another(cluster: &mut Cluster) {
    let id = deployment("source-controller");
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("flux-operator");
}

/// What is done from now on until nothing is left of the guard's doing.
fn ends(cluster: &mut Cluster) -> Vec<(String, String)> {
    let before = cluster.steps.len();
    for _ in 0..20 {
        cluster.round();
    }
    let done = cluster.steps.split_off(before);
    let of_guard = done.iter().filter(|(_, s)| s.action != Action::Release);
    let mut named: Vec<(String, String)> = of_guard
        .map(|(_, s)| (s.action.as_str().to_owned(), s.target.name.clone()))
        .collect();
    named.sort();
    named
}

fn given_back() -> Vec<(String, String)> {
    let all = [
        ("create", RIGHTS[0]),
        ("create", RIGHTS[1]),
        ("start", "kustomize-controller"),
    ];
    all.map(|(action, name)| (action.to_owned(), name.to_owned()))
        .into()
}

/// F45, W24: somebody else's engine is left alone, whatever of it dies.
#[test]
fn the_guard_leaves_what_another_manages_alone() {
    for kind in [Kind::CustomResourceDefinition, Kind::Namespace] {
        let mut cluster = Cluster::working();
        managed_by_another(&mut cluster);
        let mut all = cluster.objects.iter_mut();
        let of = |id: &ObjectId| id.kind == kind && (kind == Kind::Namespace || id.name == SYNCS);
        let (_, live) = all.find(|(id, _)| of(id)).unwrap();
        live.deleting = Some(cluster.now);
        let found = cluster.plan();
        assert_eq!((found.mode, actions(&found)), (Mode::ObserveOnly, vec![]));
        let classes: Vec<Class> = found.findings.iter().map(|f| f.class).collect();
        assert!(classes.contains(&Class::ForeignManager), "{classes:?}");
        // Nor where too little is known for anything else.
        let mut observed = cluster.observed();
        observed.scopes.remove(&Kind::Service);
        let found = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        assert_eq!((found.mode, actions(&found)), (Mode::Learning, vec![]));
    }
}

/// Nobody but the agent would give it back, least of all one who does not know of it.
#[test]
fn what_the_guard_took_before_another_managers_mark_came_is_given_back_and_nothing_else_is_done() {
    let mut cluster = dying(|_| {});
    managed_by_another(&mut cluster);
    // Without rights the engine lets nothing go: that goes on to its end, and nothing more is taken.
    cluster.now += Duration::seconds(3);
    let found = cluster.plan();
    assert_eq!(
        (found.mode, actions(&found)),
        (Mode::ObserveOnly, vec!["release"])
    );
    cluster.objects.remove(&crd());
    cluster.damage(&Damage::Image("source-controller"));
    assert_eq!(ends(&mut cluster), given_back());
    assert!(!cluster.objects.contains_key(&crd()), "that is the other's");
    let image = "/spec/template/spec/containers/0/image";
    let live = &cluster.objects[&deployment("source-controller")];
    assert_eq!(live.text(image), "bad:0");
    assert_eq!(
        (cluster.plan().mode, ends(&mut cluster)),
        (Mode::ObserveOnly, vec![])
    );
}

/// What another manager has put back is its own.
#[test]
fn what_is_back_already_is_left_as_it_is() {
    let bindings: Vec<_> = {
        let cluster = Cluster::working();
        let ids = RIGHTS.map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
        ids.map(|id| (id.clone(), cluster.objects[&id].clone()))
            .into()
    };
    let mut cluster = dying(|_| {});
    managed_by_another(&mut cluster);
    for (id, mut live) in bindings {
        live.uid = format!("{}-anew", live.uid);
        cluster.objects.insert(id, live);
    }
    let live = cluster.objects.get_mut(&deployment("kustomize-controller"));
    live.unwrap().fields["spec"]["replicas"] = json!(2);
    cluster.objects.remove(&crd());
    assert_eq!(ends(&mut cluster), []);
    assert!(cluster.history.cut.is_empty());
}

/// A window holds back what mends others' doing, and not the end of the agent's own.
#[test]
fn in_a_window_the_engine_gets_back_what_the_guard_took_and_no_more() {
    let until = Cluster::working().now + Duration::hours(1);
    let mut cluster = dying(|cluster| cluster.install.policy.paused_until = Some(until));
    assert_eq!(ends(&mut cluster), given_back());
    let window = Window {
        end: End::At(until),
        by: By::Hub,
    };
    assert_eq!(cluster.plan().mode, Mode::Paused(window));
    assert!(!cluster.objects.contains_key(&crd()), "somebody deleted it");
    assert!(cluster.history.cut.is_empty());
    cluster.now = until;
    cluster.settle(100);
    assert!(cluster.objects.contains_key(&crd()));
}

/// The objects that went with a CRD come back in a window where somebody brings that.
#[test]
fn in_a_window_what_was_let_go_comes_back_with_its_crd() {
    let until = Cluster::working().now + Duration::hours(1);
    let kept = Cluster::working().objects[&crd()].clone();
    let mut cluster = dying(|cluster| cluster.install.policy.paused_until = Some(until));
    let saved = Saved::new(json!({}), cluster.now);
    cluster.history.saved.insert(crd(), vec![saved]);
    cluster.objects.insert(crd(), kept);
    let done = ends(&mut cluster);
    assert!(
        done.contains(&("restore".to_owned(), SYNCS.to_owned())),
        "{done:?}"
    );
    assert!(cluster.history.saved.is_empty());
}

/// A controller with a window of its own.
#[test]
fn a_window_of_one_controller_does_not_keep_it_stopped() {
    let id = deployment("kustomize-controller");
    let mut cluster = dying(|cluster| {
        let until = rfc3339(cluster.now + Duration::hours(1));
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
    });
    for _ in 0..30 {
        cluster.round();
    }
    assert_eq!(cluster.objects[&id].number("/spec/replicas"), 1);
    let started = cluster.steps.iter().filter(|(_, s)| s.target == id);
    let started: Vec<&str> = started.map(|(_, s)| s.action.as_str()).collect();
    assert_eq!(started, ["scale-to-zero", "start"]);
}

/// A list that is refused for good stops all other repairs, and neither the guard nor its end.
#[test]
fn what_the_guard_took_is_given_back_while_another_kind_is_not_known() {
    let mut cluster = dying(|_| {});
    cluster.objects.remove(&crd());
    let planned = |cluster: &Cluster, unknown: Kind| {
        let mut observed = cluster.observed();
        observed.scopes.get_mut(&unknown).unwrap().answered = None;
        let history = &cluster.history;
        let plan = plan(cluster.now, &cluster.install, &observed, history);
        assert_eq!(plan.mode, Mode::Learning);
        actions(&plan).len()
    };
    for (unknown, steps) in [
        (Kind::Service, 3),
        (Kind::Deployment, 2),
        (Kind::ClusterRoleBinding, 1),
        // What may still die is not known.
        (Kind::CustomResourceDefinition, 0),
        (Kind::Namespace, 0),
    ] {
        assert_eq!(planned(&cluster, unknown), steps, "{unknown}");
    }
    let mut observed = cluster.observed();
    observed.scopes.remove(&Kind::Service);
    observed.awaited.insert(Kind::Kustomization);
    let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
    assert_eq!(actions(&plan), [""; 0]);
}

/// Another agent goes on, and knows it by the controller that stands still, or by the record of the heal.
#[test]
fn rights_are_the_guards_where_it_stopped_a_controller_or_is_known_to_have_cut_them() {
    let until = Cluster::working().now + Duration::hours(1);
    let rights = || RIGHTS.map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
    for (stopped, known, back) in [
        (false, false, 0),
        (false, true, 1),
        (true, false, 3),
        (true, true, 3),
    ] {
        let mut cluster = Cluster::working();
        cluster.install.policy.paused_until = Some(until);
        for id in rights() {
            cluster.objects.remove(&id);
        }
        if known {
            let [first, _] = rights();
            cluster.history.cut.insert(first, String::new());
        }
        if stopped {
            let id = deployment("kustomize-controller");
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["spec"]["replicas"] = json!(0);
            GUARD.clone_into(&mut live.writer);
        }
        assert_eq!(ends(&mut cluster).len(), back, "{stopped} {known}");
    }
}

/// Who allowed it has the engine go as he wants.
#[test]
fn what_was_allowed_to_die_costs_the_engine_nothing() {
    let until = Cluster::working().now + Duration::hours(1);
    let mut cluster = Cluster::working();
    cluster.install.policy.paused_until = Some(until);
    let live = cluster.objects.get_mut(&crd()).unwrap();
    live.fields["metadata"]["annotations"][ALLOW_DELETE] = json!(rfc3339(until));
    live.deleting = Some(cluster.now);
    assert_eq!(ends(&mut cluster), []);
}

/// What another one has replaced gets nothing back, and nothing is to wait for that.
#[test]
fn rights_of_an_engine_that_is_no_more_are_forgotten() {
    let mut cluster = Cluster::working();
    let [first, other] = [RIGHTS[0], "argocd-application-controller"]
        .map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
    cluster.objects.remove(&first);
    for id in [&first, &other] {
        cluster.history.cut.insert(id.clone(), String::new());
    }
    let observed = cluster.observed();
    cluster.history.saw_rights(&cluster.install, &observed);
    assert_eq!(cluster.history.cut, [(first, String::new())].into());
}

/// W44: a watch may be behind, and a binding that goes gives nothing: forgotten too early, nobody gives the right back.
#[test]
fn a_right_is_back_when_another_binding_is_there_to_stay() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::ClusterRoleBinding, "", RIGHTS[0]);
    for (uid, deleting, back) in [
        ("new", false, true),
        ("new", true, false),
        ("old", false, false),
        ("old", true, false),
    ] {
        let live = cluster.objects.get_mut(&id).unwrap();
        uid.clone_into(&mut live.uid);
        live.deleting = deleting.then_some(cluster.now);
        cluster.history.cut = [(id.clone(), "old".to_owned())].into();
        let observed = cluster.observed();
        cluster.history.saw_rights(&cluster.install, &observed);
        let cut = (!back).then(|| (id.clone(), "old".to_owned())).into_iter();
        let cut: BTreeMap<ObjectId, String> = cut.collect();
        assert_eq!(cluster.history.cut, cut, "{uid} {deleting}");
    }
}

/// W5: all else of the engine is back at once, be its name that of a right.
#[test]
fn only_what_the_engine_prunes_by_waits_for_a_list() {
    let of_flux = [
        "ClusterRoleBinding cluster-reconciler-flux-system",
        "ClusterRoleBinding crd-controller-flux-system",
        "Deployment flux-system/kustomize-controller",
    ];
    let of_argocd = [
        "ClusterRoleBinding argocd-application-controller",
        "StatefulSet argocd/argocd-application-controller",
    ];
    for (kind, awaited, all) in [
        (EngineKind::Flux, Kind::Kustomization, &of_flux[..]),
        (EngineKind::Argocd, Kind::Application, &of_argocd[..]),
    ] {
        let mut cluster = Cluster::working_of(kind);
        cluster.objects.clear();
        let mut observed = cluster.observed();
        observed.awaited.insert(awaited);
        let waiting = |history: &History| -> Vec<String> {
            let wanted = cluster.install.wanted.keys();
            let waits =
                |id: &&ObjectId| waits(cluster.now, &cluster.install, &observed, history, id);
            wanted.filter(waits).map(ToString::to_string).collect()
        };
        let mut history = cluster.history.clone();
        // Of a controller nothing says then that the guard stopped it.
        assert_eq!(waiting(&history), all[..all.len() - 1]);
        let right = cluster.install.traits.rights[0];
        let cut = ObjectId::new(Kind::ClusterRoleBinding, "", right);
        history.cut.insert(cut, String::new());
        assert_eq!(waiting(&history), *all);
    }
}

/// The agent is woken then, and once.
#[test]
fn a_list_is_waited_for_just_as_long_as_it_is_not_late() {
    let cluster = Cluster::working();
    let mut observed = cluster.observed();
    observed.awaited.insert(Kind::Kustomization);
    let over = FRESH + Duration::MILLISECOND;
    for (ago, left) in [
        (Duration::ZERO, Some(over)),
        (FRESH, Some(Duration::MILLISECOND)),
        (over, None),
    ] {
        observed.since = Some(cluster.now - ago);
        let until = waits_until(cluster.now, &cluster.install, &observed);
        assert_eq!(until.map(|at| at - cluster.now), left, "{ago}");
        assert_eq!(is_late(cluster.now, &observed), left.is_none(), "{ago}");
    }
}
