//! What the engine says that the API server refuses: a CRD that lacks a version in which objects are stored, or an object
//! whose field managers speak of a version that is gone.

use super::*;
use crate::agent::plan::find::Named;
use crate::agent::plan::state::Child;

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
