//! CRDs: dying ones, and those whose objects are stored in versions that are gone.

use serde_json::Value;

use super::*;
use crate::agent::engine::GUARD;
use crate::agent::plan::find::Named;
use crate::agent::plan::state::Child;

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

/// As the API server says it of a CRD, passed on by kustomize-controller.
fn refusal(crd: &str, version: &str) -> String {
    format!(
        "CustomResourceDefinition/{crd} dry-run failed (Invalid): CustomResourceDefinition.apiextensions.k8s.io \"{crd}\" is invalid: \
         status.storedVersions[0]: Invalid value: \"{version}\": missing from spec.versions; {version} was previously a storage version, and \
         must remain in spec.versions until a storage migration ensures no data remains persisted in {version}"
    )
}

/// Git owns the CRD, and what is known of it has both versions.
fn gits(storage: &str) -> Cluster {
    let mut cluster = Cluster::working();
    storing(&mut cluster, storage);
    let wanted = cluster.install.wanted.get_mut(&sources()).unwrap();
    let both = json!({"spec": {"versions": [{"name": "v1"}, {"name": "v1beta2"}]}});
    (wanted.expect, wanted.git_owned, wanted.taken) = (Arc::new(both), true, true);
    cluster
}

const NOT_APPLIED: &str = "ReconciliationFailed";

/// The plan where the root, or a sync object below it, says that.
fn told(cluster: &Cluster, said: &str, by_root: bool) -> Plan {
    if by_root {
        let mut observed = cluster.observed();
        let root = Arc::make_mut(observed.objects.get_mut(&cluster.install.sync).unwrap());
        root.fields["status"]["conditions"] = json!([
            {"type": "Ready", "status": "False", "reason": NOT_APPLIED, "message": said}
        ]);
        plan(cluster.now, &cluster.install, &observed, &cluster.history)
    } else {
        told_by(cluster, &[(Kind::Kustomization, NOT_APPLIED, said)])
    }
}

/// The plan where objects of these kinds below the root say that.
fn told_by(cluster: &Cluster, all: &[(Kind, &str, &str)]) -> Plan {
    let mut observed = cluster.observed();
    let children = (0..).zip(all).map(|(n, (kind, reason, said))| {
        let child = Child {
            trouble: Some(((*reason).to_owned(), (*said).to_owned())),
            ..Child::default()
        };
        (ObjectId::new(*kind, "teams", &format!("team-{n}")), child)
    });
    observed.children = Arc::new(children.collect());
    plan(cluster.now, &cluster.install, &observed, &cluster.history)
}

/// F17, W15: an engine that Git upgrades is refused its CRD until the objects are written anew, and only Git knows the versions.
#[test]
fn objects_are_migrated_for_a_crd_of_gits_that_was_refused() {
    let said = refusal(&sources().name, "v1beta2");
    let lost = "stores objects in v1beta2, which the catalog's version of it does not have";
    let to = to_v1();
    for by_root in [true, false] {
        let mut cluster = gits("v1");
        let plan = told(&cluster, &said, by_root);
        assert!(found(&plan).contains(&(Class::CrdStoredVersion, lost)));
        let steps: Vec<&Step> = plan.steps.iter().filter(|s| s.action == to).collect();
        assert_eq!(steps.len(), 1, "{by_root}: {:?}", plan.steps);
        assert_eq!(steps[0].target, sources());
        // What was said is old by then, and says nothing of a version that is not stored any more.
        let live = cluster.objects.get_mut(&sources()).unwrap();
        live.fields["status"]["storedVersions"] = json!(["v1"]);
        assert!(!is_found(&told(&cluster, &said, by_root)), "{by_root}");
    }
}

fn is_found(plan: &Plan) -> bool {
    let mut classes = plan.findings.iter().map(|f| f.class);
    classes.any(|class| class == Class::CrdStoredVersion)
}

/// Where new objects are stored in what Git's CRD lacks, nothing that is written stays; and what is said of another CRD is none of it.
#[test]
fn a_crd_of_gits_is_migrated_to_no_version_that_it_lacks() {
    let lacks_storage = refusal(&sources().name, "v1beta2");
    let anothers = refusal("buckets.source.toolkit.fluxcd.io", "v1beta2");
    for (storage, said, is_told) in [
        ("v1beta2", lacks_storage.as_str(), true),
        ("v1", anothers.as_str(), false),
        ("v1", "must remain in spec.versions", false),
    ] {
        let plan = told(&gits(storage), said, true);
        assert_eq!(is_found(&plan), is_told, "{storage} {said}");
        let migrates = |s: &Step| matches!(s.action, Action::Migrate { .. });
        assert!(!plan.steps.iter().any(migrates), "{storage} {said}");
    }
}

/// As the API server says it of an object that it does not apply, passed on by kustomize-controller.
fn refused_object(kind: &str, version: &str) -> String {
    format!(
        "{kind}/teams/web dry-run failed: request to convert CR to an invalid group/version: source.toolkit.fluxcd.io/{version}"
    )
}

/// F17, flux2#5598: with nothing stored in it any more, what field managers say of a version that is gone still keeps an object from
/// being applied. What the engine says of that may be old, so it is no reason for a second try within the hour.
#[test]
fn objects_whose_field_managers_speak_of_a_gone_version_are_written_anew_once_an_hour() {
    let said = refused_object("GitRepository", "v1beta2");
    let told_of = "Flux says of GitRepository/teams/web that it has field managers of v1beta2, which the CRD does not have: \
        server-side apply of it is refused";
    let to = renewing(&["web"]);
    for (taken, by_root) in [(false, true), (false, false), (true, true)] {
        let mut cluster = if taken { gits("v1") } else { bundles("v1") };
        only_today(&mut cluster);
        let plan = told(&cluster, &said, by_root);
        assert!(found(&plan).contains(&(Class::CrdStoredVersion, told_of)));
        let steps: Vec<&Step> = plan.steps.iter().filter(|s| s.action == to).collect();
        assert_eq!(steps.len(), 1, "{taken} {by_root}: {:?}", plan.steps);
        assert_eq!(steps[0].target, sources());
        let key = (Class::CrdStoredVersion, sources());
        let past = cluster.history.faults.entry(key).or_default();
        past.attempts.push(cluster.now);
        assert!(!is_found(&told(&cluster, &said, by_root)));
    }
}

/// Of objects in namespace `teams`, at which the step looks first.
fn renewing(names: &[&str]) -> Action {
    let each = names.iter().map(|name| Named {
        namespace: "teams".to_owned(),
        name: (*name).to_owned(),
        version: "v1beta2".to_owned(),
    });
    Action::Migrate {
        to: "v1".to_owned(),
        named: each.collect(),
    }
}

/// What one says may be old: it hides neither what another one says, nor a difference of the CRD.
#[test]
fn each_object_that_is_not_applied_is_named_and_the_crd_put_back_beside_that() {
    let mut cluster = bundles("v1");
    only_today(&mut cluster);
    let wanted = cluster.install.wanted.get_mut(&sources()).unwrap();
    wanted.expect = Arc::new(json!({"spec": {
        "scope": "Namespaced", "versions": [{"name": "v1"}],
    }}));
    let [web, shop] = ["web", "shop"].map(|name| {
        refused_object("GitRepository", "v1beta2").replace("teams/web", &format!("teams/{name}"))
    });
    let all = [web.as_str(), &shop, &web].map(|said| (Kind::Kustomization, NOT_APPLIED, said));
    let plan = told_by(&cluster, &all);
    let of_it = plan.steps.iter().filter(|s| s.target == sources());
    let actions: Vec<&Action> = of_it.map(|s| &s.action).collect();
    assert_eq!(actions, [&Action::Apply, &renewing(&["web", "shop"])]);
}

/// Anybody may write a chart, a path or a check that fails with these words.
#[test]
fn only_a_kustomization_that_could_not_apply_says_what_field_managers_speak_of() {
    let mut cluster = bundles("v1");
    only_today(&mut cluster);
    let said = refused_object("GitRepository", "v1beta2");
    for (kind, reason, is_told) in [
        (Kind::Kustomization, NOT_APPLIED, true),
        (Kind::Kustomization, "ArtifactFailed", false),
        (Kind::Kustomization, "HealthCheckFailed", false),
        (Kind::HelmRelease, NOT_APPLIED, false),
        (Kind::HelmRelease, "InstallFailed", false),
    ] {
        let plan = told_by(&cluster, &[(kind, reason, said.as_str())]);
        assert_eq!(is_found(&plan), is_told, "{kind} {reason}");
    }
    let path = format!("path not found: stat /tmp/x/{said}: no such file or directory");
    assert!(!is_found(&told(&cluster, &path, false)));
}

#[test]
fn field_managers_of_another_kind_or_of_a_version_that_is_there_are_none_of_a_crds() {
    let mut cluster = bundles("v1");
    only_today(&mut cluster);
    for said in [
        refused_object("Bucket", "v1beta2"),
        refused_object("GitRepository", "v1"),
        refused_object("GitRepository", "v1beta2").replace("source.", "kustomize."),
        "request to convert CR to an invalid group/version: ".to_owned(),
    ] {
        assert!(!is_found(&told(&cluster, &said, true)), "{said}");
    }
    // New objects would be stored in what the bundle lacks.
    let live = cluster.objects.get_mut(&sources()).unwrap();
    live.fields["spec"]["versions"] = json!([{"name": "v2", "storage": true}]);
    let said = refused_object("GitRepository", "v1beta2");
    assert!(!is_found(&told(&cluster, &said, true)));
}

/// The agent owns the CRD.
fn bundles(storage: &str) -> Cluster {
    let mut cluster = Cluster::working();
    storing(&mut cluster, storage);
    cluster
}

/// Nothing is stored in another version than that of today, and the CRD has no other one.
fn only_today(cluster: &mut Cluster) {
    let live = cluster.objects.get_mut(&sources()).unwrap();
    live.fields["spec"] = json!({
        "names": {"kind": "GitRepository"}, "versions": [{"name": "v1", "storage": true}],
    });
    live.fields["status"]["storedVersions"] = json!(["v1"]);
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
