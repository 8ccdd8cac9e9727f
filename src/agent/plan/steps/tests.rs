use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::plan::change::{Change, Place};
use crate::agent::plan::state::Saved;
use crate::agent::plan::tests::{Cluster, deployment, desired_of, install_for};

mod altered;
mod stages;

const SOURCES: &str = "gitrepositories.source.toolkit.fluxcd.io";
const SYNCS: &str = "kustomizations.kustomize.toolkit.fluxcd.io";

fn crd(name: &str) -> ObjectId {
    ObjectId::new(Kind::CustomResourceDefinition, "", name)
}

/// What is done against one fault that is a day old.
fn taken(
    cluster: &Cluster,
    class: Class,
    id: &ObjectId,
    evidence: &str,
) -> Vec<(Action, ObjectId)> {
    taken_against(cluster, Finding::new(class, id, evidence))
}

fn taken_against(cluster: &Cluster, finding: Finding) -> Vec<(Action, ObjectId)> {
    let (class, id) = (finding.class, finding.object.clone());
    let mut history = cluster.history.clone();
    let past = history.faults.entry((class, id.clone())).or_default();
    past.since = Some(cluster.now - Duration::days(1));
    let observed = cluster.observed();
    let (taken, _) = steps(
        cluster.now,
        &cluster.install,
        &observed,
        &history,
        &[finding],
    );
    for step in &taken {
        assert_eq!(step.cause, Some((class, id.clone())));
    }
    taken.into_iter().map(|s| (s.action, s.target)).collect()
}

#[test]
fn only_the_engines_finalizers_are_dropped() {
    let mut cluster = Cluster::working();
    let id = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&id).unwrap();
    live.finalizers = ["finalizers.fluxcd.io", "example.org/mine"]
        .map(str::to_owned)
        .into();
    let keep = vec!["example.org/mine".to_owned()];
    let expected = [(Action::Unpin { keep }, id.clone())];
    let unpinned = taken(&cluster, Class::LeftoverFinalizers, &id, "is being deleted");
    assert_eq!(unpinned, expected);
    // What is left then is somebody else's.
    let live = cluster.objects.get_mut(&id).unwrap();
    live.finalizers = vec!["example.org/mine".to_owned()];
    let left = taken(&cluster, Class::LeftoverFinalizers, &id, "is being deleted");
    assert_eq!(left, []);
}

#[test]
fn a_binding_is_only_made_anew_where_another_role_is_bound() {
    let cluster = Cluster::working();
    let id = ObjectId::new(Kind::ClusterRoleBinding, "", "crd-controller-flux-system");
    let uid = cluster.objects[&id].uid.clone();
    for (path, action) in [
        ("/roleRef/name", Action::Recreate { uid }),
        ("/roleReference", Action::Apply),
        ("/subjects", Action::Apply),
    ] {
        // What is said of it decides nothing.
        let text = "beside /subjects and /roleRef/name";
        let finding = Finding::new(Class::RbacAltered, &id, text).at(vec![path.to_owned()]);
        let expected = [(action, id.clone())];
        assert_eq!(taken_against(&cluster, finding), expected, "{path}");
    }
}

#[test]
fn what_people_added_goes_with_the_whole_object_and_what_differs_is_applied() {
    let id = deployment("source-controller");
    for (added, differs, action) in [
        (true, false, Action::Replace),
        (false, true, Action::Apply),
        (true, true, Action::Apply),
        (false, false, Action::Apply),
    ] {
        let mut cluster = Cluster::working();
        let live = cluster.objects.get_mut(&id).unwrap();
        let container = live.fields.pointer_mut("/spec/template/spec/containers/0");
        let container = container.unwrap();
        if added {
            container["env"] = json!([{"name": "HTTPS_PROXY", "value": "example.org"}]);
        }
        if differs {
            container["image"] = json!("bad:0");
        }
        for class in [
            Class::ObjectAltered,
            Class::ReadyButUseless,
            Class::BadImage,
        ] {
            let expected = [(action.clone(), id.clone())];
            let taken = taken(&cluster, class, &id, "");
            assert_eq!(taken, expected, "{class} {added} {differs}");
        }
        let expected = [(Action::Apply, id.clone())];
        let started = taken(&cluster, Class::ScaledToZero, &id, "");
        assert_eq!(started, expected, "what it runs with is seen then");
    }
}

/// Settings that people gave are put back as they were known; where ours differ, ours are applied.
#[test]
fn settings_are_reset_only_where_ours_are_as_they_have_to_be() {
    let id = ObjectId::new(Kind::ConfigMap, "argocd", "argocd-cm");
    for (known, differs, action) in [
        (true, false, Action::Reset),
        (true, true, Action::Apply),
        (false, false, Action::Apply),
        (false, true, Action::Apply),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let wanted = cluster.install.wanted.get_mut(&id).unwrap();
        wanted.known = known.then(|| Arc::new(json!({"theirs": "1"})));
        wanted.expect = Arc::new(json!({"data": {"ours": "1"}}));
        let ours = if differs { "2" } else { "1" };
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["data"] = json!({"ours": ours, "theirs": "2"});
        let expected = [(action, id.clone())];
        let taken = taken(&cluster, Class::EngineConfigBroken, &id, "");
        assert_eq!(taken, expected, "{known} {differs}");
    }
}

#[test]
fn a_secret_is_written_only_where_it_is_ours() {
    let cluster = Cluster::working();
    let ours = cluster.install.secret.clone();
    let theirs = ObjectId::new(Kind::Secret, "flux-system", "theirs");
    assert_eq!(
        taken(&cluster, Class::GitSecretBad, &ours, ""),
        [(Action::WriteSecret, ours.clone())]
    );
    assert_eq!(taken(&cluster, Class::GitSecretBad, &theirs, ""), []);
    let cluster = Cluster::working_of(EngineKind::Argocd);
    let root = cluster.install.sync.clone();
    assert_eq!(taken(&cluster, Class::EngineSecretMissing, &root, ""), []);
}

/// F21, W10: what has gone, or goes already, is not asked for again.
#[test]
fn a_dying_namespace_costs_rights_and_controllers_once_and_frees_the_crds_that_are_there() {
    let mut cluster = Cluster::working();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let rights = [
        "cluster-reconciler-flux-system",
        "crd-controller-flux-system",
    ]
    .map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
    let cut = |cluster: &Cluster, id: &ObjectId| {
        let uid = cluster.objects[id].uid.clone();
        (Action::CutRights { uid }, id.clone())
    };
    let stopped = (Action::ScaleToZero, deployment("kustomize-controller"));
    let release = |name| (Action::Release, crd(name));
    let now = |cluster: &Cluster| taken(cluster, Class::NamespaceTerminating, &namespace, "");
    assert_eq!(
        now(&cluster),
        [
            cut(&cluster, &rights[0]),
            cut(&cluster, &rights[1]),
            stopped.clone(),
            release(SOURCES),
            release(SYNCS),
        ]
    );
    cluster.objects.get_mut(&rights[0]).unwrap().deleting = Some(cluster.now);
    let live = cluster.objects.get_mut(&stopped.1).unwrap();
    live.fields["spec"]["replicas"] = json!(0);
    cluster.objects.remove(&crd(SOURCES));
    assert_eq!(now(&cluster), [cut(&cluster, &rights[1]), release(SYNCS)]);
    let live = cluster.objects.get_mut(&stopped.1).unwrap();
    live.fields["spec"]["replicas"] = json!(1);
    live.deleting = Some(cluster.now);
    assert_eq!(now(&cluster), [cut(&cluster, &rights[1]), release(SYNCS)]);
}

/// W10: a part of the engine that it has no more leaves its CRD, and people's objects that nobody frees.
#[test]
fn objects_of_a_part_that_has_gone_are_let_go_with_the_namespace() {
    const RELEASES: &str = "helmreleases.helm.toolkit.fluxcd.io";
    const POLICIES: &str = "imagepolicies.image.toolkit.fluxcd.io";
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let mut cluster = Cluster::working();
    let left = cluster.objects[&crd(SOURCES)].clone();
    let released = |cluster: &Cluster| {
        let taken = taken(cluster, Class::NamespaceTerminating, &namespace, "");
        let released = taken.into_iter().filter(|(a, _)| *a == Action::Release);
        released.map(|(_, id)| id).collect::<Vec<_>>()
    };
    assert_eq!(released(&cluster), [crd(SOURCES), crd(SYNCS)]);
    cluster.objects.insert(crd(RELEASES), left.clone());
    assert_eq!(
        released(&cluster),
        [crd(SOURCES), crd(RELEASES), crd(SYNCS)]
    );
    // Of a change under way it is also known what is of no kind that the agent knows.
    cluster.objects.insert(crd(POLICIES), left);
    assert_eq!(released(&cluster).len(), 3);
    let mut desired = desired_of(EngineKind::Flux);
    let form = desired.install.form.clone();
    desired.install.change = Some(Change {
        from: form.clone(),
        to: form,
        number: 7,
        since: "2026-01-02T03:00:00Z".to_owned(),
        within: 300,
        both: false,
        objects: vec![Place::of(&crd(POLICIES))],
        failed: None,
        ending: None,
    });
    cluster.install = install_for(&desired);
    assert_eq!(
        released(&cluster),
        [crd(SOURCES), crd(RELEASES), crd(POLICIES), crd(SYNCS),]
    );
}

/// W11.
#[test]
fn what_died_with_its_crd_comes_back_when_that_serves_again_and_not_before_its_time() {
    let mut cluster = Cluster::working();
    let id = crd(SOURCES);
    let saved = Saved::new(json!({}), cluster.now);
    cluster.history.saved.insert(id.clone(), vec![saved]);
    let restores = |cluster: &Cluster| {
        let observed = cluster.observed();
        let (steps, _) = steps(
            cluster.now,
            &cluster.install,
            &observed,
            &cluster.history,
            &[],
        );
        steps
    };
    let step = Step {
        action: Action::Restore,
        target: id.clone(),
        cause: Some((Class::CrdTerminating, id.clone())),
    };
    assert_eq!(restores(&cluster), std::slice::from_ref(&step));
    for (seconds, due) in [(-1, true), (0, true), (1, false)] {
        let at = cluster.now + Duration::seconds(seconds);
        cluster.history.restore_after.insert(id.clone(), at);
        let expected: &[Step] = if due {
            std::slice::from_ref(&step)
        } else {
            &[]
        };
        assert_eq!(restores(&cluster), expected, "{seconds}");
    }
    cluster.history.restore_after.clear();
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["status"] = json!({"conditions": [{"type": "Established", "status": "False"}]});
    assert_eq!(restores(&cluster), []);
}

#[test]
fn a_fault_whose_budget_is_spent_is_an_open_circuit() {
    let id = deployment("source-controller");
    let findings = [Class::BadImage, Class::CrashLoop].map(|class| Finding::new(class, &id, ""));
    let mut history = History::default();
    let key = (Class::BadImage, id);
    history.faults.entry(key.clone()).or_default().spent = true;
    assert_eq!(open_circuits(&history, &findings), [key]);
    history.faults.clear();
    assert_eq!(open_circuits(&history, &findings), []);
}

/// The first of those that wait says when to look again.
#[test]
fn what_has_to_wait_is_looked_at_when_the_first_of_it_is_due() {
    let cluster = Cluster::working();
    let seen = |name: &str, ago: i64| {
        let finding = Finding::new(Class::ScaledToZero, &deployment(name), "");
        (finding, cluster.now - Duration::seconds(ago))
    };
    let all = [
        seen("source-controller", 10),
        seen("kustomize-controller", 20),
    ];
    let mut history = cluster.history.clone();
    for (finding, since) in &all {
        let key = (finding.class, finding.object.clone());
        history.faults.entry(key).or_default().since = Some(*since);
    }
    let findings = all.map(|(finding, _)| finding);
    let observed = cluster.observed();
    let planned = steps(
        cluster.now,
        &cluster.install,
        &observed,
        &history,
        &findings,
    );
    let debounce = Class::ScaledToZero.debounce();
    let due = cluster.now - Duration::seconds(20) + debounce;
    assert_eq!(planned, (Vec::new(), Some(due)));
}

#[test]
fn two_faults_with_the_same_remedy_are_mended_once() {
    let cluster = Cluster::working();
    let id = deployment("source-controller");
    let mut history = cluster.history.clone();
    let findings = [Class::BadImage, Class::ReadyButUseless].map(|class| {
        let past = history.faults.entry((class, id.clone())).or_default();
        past.since = Some(cluster.now - Duration::days(1));
        Finding::new(class, &id, "")
    });
    let observed = cluster.observed();
    let (steps, _) = steps(
        cluster.now,
        &cluster.install,
        &observed,
        &history,
        &findings,
    );
    let once = Step {
        action: Action::Apply,
        target: id.clone(),
        cause: Some((Class::BadImage, id)),
    };
    assert_eq!(steps, [once]);
}

/// Starting it again is the guard's own work, whatever else stopped it before.
#[test]
fn only_what_the_guard_itself_scaled_to_zero_counts_as_stopped_by_it() {
    let id = deployment("source-controller");
    for (writer, replicas, stopped) in [(GUARD, 0, true), (GUARD, 1, false), ("kubectl", 0, false)]
    {
        let mut cluster = Cluster::working();
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["spec"]["replicas"] = json!(replicas);
        writer.clone_into(&mut live.writer);
        let service = ObjectId::new(Kind::Service, "flux-system", "source-controller");
        let mut observed = cluster.observed();
        let other = observed.objects[&id].clone();
        observed.objects.insert(service.clone(), other);
        let said = [&id, &service].map(|id| guarded_down(&observed, id));
        assert_eq!(said, [stopped, false], "{writer} {replicas}");
    }
}
