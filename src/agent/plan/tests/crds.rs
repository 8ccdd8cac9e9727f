//! CRDs: dying ones, and those whose objects are stored in versions that are gone.

use serde_json::Value;

use super::*;
use crate::agent::engine::GUARD;

mod refused;

fn sources() -> ObjectId {
    ObjectId::crd_of(Kind::GitRepository)
}

/// The bundle has v1 only; the live CRD has both, and has stored objects in both.
fn storing(cluster: &mut Cluster, storage: &str) {
    let crd = sources();
    let wanted = cluster.install.wanted.get_mut(&crd).unwrap();
    wanted.expect = Arc::new(json!({"spec": {"versions": [{"name": "v1"}]}}));
    let live = cluster.objects.get_mut(&crd).unwrap();
    let version = |name: &str| json!({"name": name, "storage": name == storage});
    live.fields["spec"] = json!({"versions": [version("v1"), version("v1beta2")]});
    live.fields["status"]["storedVersions"] = json!(["v1beta2", "v1"]);
}

/// All objects are written.
fn to_v1() -> Action {
    Action::Migrate {
        to: "v1".to_owned(),
        named: Vec::new(),
    }
}

fn found(plan: &Plan) -> Vec<(Class, &str)> {
    let all = plan.findings.iter();
    all.map(|f| (f.class, f.evidence.as_str())).collect()
}

const LOST: (Class, &str) = (
    Class::CrdStoredVersion,
    "stores objects in v1beta2, which the bundle does not have",
);

/// F17, W15: applying it would be refused; its objects are written anew first.
#[test]
fn objects_in_a_lost_version_are_migrated_before_the_crd_is_applied() {
    let mut cluster = Cluster::working();
    storing(&mut cluster, "v1");
    let plan = cluster.plan();
    assert_eq!(found(&plan), [LOST]);
    let steps: Vec<(&Action, &ObjectId)> =
        plan.steps.iter().map(|s| (&s.action, &s.target)).collect();
    assert_eq!(steps, [(&to_v1(), &sources())]);
    cluster.round();
    assert_eq!(found(&cluster.plan()), []);
}

/// New objects would go on to be stored in it: that is left to a bundle in between.
#[test]
fn a_crd_that_stores_new_objects_in_a_lost_version_is_left_alone() {
    let mut cluster = Cluster::working();
    storing(&mut cluster, "v1beta2");
    let plan = cluster.plan();
    assert_eq!(found(&plan), [LOST]);
    assert!(plan.steps.iter().all(|s| s.action == Action::Nudge));
}

/// Flux applies the catalog's CRDs itself, and is refused in the same way: that Git owns them hides nothing.
#[test]
fn a_crd_that_stores_a_lost_version_is_seen_although_git_owns_it() {
    for writer in ["kustomize-controller", "kubectl"] {
        let mut cluster = Cluster::working();
        storing(&mut cluster, "v1");
        cluster
            .install
            .wanted
            .get_mut(&sources())
            .unwrap()
            .git_owned = true;
        let live = cluster.objects.get_mut(&sources()).unwrap();
        writer.clone_into(&mut live.writer);
        assert_eq!(found(&cluster.plan()), [LOST], "{writer}");
        // One that is written by Flux and stores nothing that is lost is Flux' business.
        let live = cluster.objects.get_mut(&sources()).unwrap();
        live.fields["status"]["storedVersions"] = json!(["v1"]);
        assert_eq!(
            found(&cluster.plan()),
            Vec::<(Class, &str)>::new(),
            "{writer}"
        );
    }
}

/// What the CRD's status says is read, never trusted to have a shape.
#[test]
fn junk_in_stored_versions_is_nothing_lost() {
    for junk in [json!(null), json!("v1beta2"), json!({}), json!([7])] {
        let mut cluster = Cluster::working();
        storing(&mut cluster, "v1");
        let live = cluster.objects.get_mut(&sources()).unwrap();
        live.fields["status"]["storedVersions"] = Value::clone(&junk);
        assert_eq!(
            found(&cluster.plan()),
            Vec::<(Class, &str)>::new(),
            "{junk}"
        );
    }
}

#[test]
fn a_dying_crd_costs_the_engine_its_rights_first() {
    let mut cluster = Cluster::working();
    let crd = ObjectId::crd_of(Kind::Kustomization);
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let plan = cluster.round();
    let actions: Vec<&str> = plan.steps.iter().map(|s| s.action.as_str()).collect();
    assert_eq!(
        actions,
        ["cut-rights", "cut-rights", "scale-to-zero", "release"]
    );
    cluster.settle(100);
    let back = |kind| {
        cluster
            .steps
            .iter()
            .position(|(_, s)| s.action == Action::Create && s.target.kind == kind)
            .unwrap()
    };
    assert!(back(Kind::CustomResourceDefinition) < back(Kind::ClusterRoleBinding));
}

#[test]
fn a_dying_source_crd_leaves_the_rights_alone() {
    let mut cluster = Cluster::working();
    let crd = sources();
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let actions: Vec<&str> = cluster
        .round()
        .steps
        .iter()
        .map(|s| s.action.as_str())
        .collect();
    assert_eq!(actions, ["release"]);
    // It may take long; what else breaks is mended meanwhile.
    cluster.damage(&Damage::Image("kustomize-controller"));
    assert!(
        cluster
            .round()
            .steps
            .iter()
            .any(|s| s.action == Action::Apply)
    );
    cluster.settle(100);
}

/// W11: the guard stops controllers as often as a CRD is deleted, and starts each of them again, whatever the budget of
/// other repairs of the same object, and while many clusters fail alike.
#[test]
fn what_the_guard_stopped_is_started_again_however_often() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let mut cluster = Cluster::working();
    for safe_only in [false, true] {
        for episode in 0..12 {
            cluster.now += Duration::minutes(1);
            cluster.install.policy.safe_until =
                safe_only.then_some(cluster.now + Duration::minutes(5));
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["spec"]["replicas"] = json!(0);
            GUARD.clone_into(&mut live.writer);
            let steps = cluster.plan().steps;
            let taken: Vec<_> = steps
                .iter()
                .map(|s| (s.action.as_str(), &s.target))
                .collect();
            assert_eq!(taken, [("apply", &id)], "episode {episode}");
            cluster.settle(6);
        }
    }
}

/// F21, W10: with finalizers that are not the engine's, people have to know of them.
#[test]
fn a_dying_namespace_says_what_it_waits_for() {
    let mut cluster = Cluster::working();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let said = "Some content in the namespace has finalizers remaining: x in 2 resource instances";
    let held = json!({"type": "NamespaceFinalizersRemaining", "status": "True", "message": said});
    let live = cluster.objects.get_mut(&namespace).unwrap();
    live.deleting = Some(cluster.now);
    live.fields["status"] = json!({"conditions": [held]});
    let text = format!("is being deleted: {said}");
    let expected = [(Class::NamespaceTerminating, text.as_str())];
    assert_eq!(found(&cluster.plan()), expected);
}

/// F14: a right that was taken from the agent, or one broken conversion, costs no workload.
#[test]
fn the_guard_acts_while_any_other_kind_is_not_known() {
    let mut cluster = Cluster::working();
    let crd = ObjectId::crd_of(Kind::Kustomization);
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let whole = cluster.plan().steps;
    assert_eq!(whole.len(), 4);
    let kinds: Vec<Kind> = cluster.observed().scopes.into_keys().collect();
    let long_ago = cluster.now - Duration::seconds(91);
    for kind in kinds {
        for (answered, answer) in [
            (None, Answer::Refused),
            (Some(long_ago), Answer::Whole),
            (Some(long_ago), Answer::Refused),
        ] {
            let mut observed = cluster.observed();
            let scope = observed.scopes.get_mut(&kind).unwrap();
            (scope.answered, scope.answer) = (answered, answer);
            let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
            let said = (plan.mode, &plan.steps);
            assert_eq!(said, (Mode::Learning, &whole), "{kind} {answered:?}");
        }
    }
}

/// F45: whose engine it is shows on its controllers.
#[test]
fn the_guard_waits_until_it_could_know_of_another_manager() {
    let mut cluster = Cluster::working();
    let crd = ObjectId::crd_of(Kind::Kustomization);
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    for (adopted, unheard, seconds, acts) in [
        (true, Kind::Deployment, 0, false),
        (true, Kind::Deployment, 90, false),
        (true, Kind::Deployment, 91, true),
        (true, Kind::Kustomization, 0, true),
        (false, Kind::Kustomization, 0, false),
        (false, Kind::Kustomization, 91, true),
    ] {
        cluster.history.adopted = adopted;
        let mut observed = cluster.observed();
        observed.since = Some(cluster.now - Duration::seconds(seconds));
        observed.scopes.remove(&unheard);
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        assert_eq!(plan.mode, Mode::Learning);
        assert_eq!(
            !plan.steps.is_empty(),
            acts,
            "{adopted} {unheard} {seconds}"
        );
    }
}
