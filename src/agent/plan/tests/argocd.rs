//! The same judgement with Argo CD as the engine.

use super::*;
use crate::agent::plan::state::{Child, Saved};

mod asked;
mod given_up;
mod installed;
mod stopped;

const CONTROLLER: &str = "argocd-application-controller";

fn working() -> Cluster {
    Cluster::working_of(EngineKind::Argocd)
}

fn id(kind: Kind, name: &str) -> ObjectId {
    ObjectId::new(kind, "argocd", name)
}

/// As it is kept now.
fn saved(cluster: &Cluster, object: Value) -> Saved {
    Saved::new(object, cluster.now)
}

/// Class, action and target of each step that is no probe.
fn remedies(plan: &Plan) -> Vec<(Class, &str, &str)> {
    let steps = plan.steps.iter().filter_map(|s| {
        let (class, _) = s.cause.as_ref()?;
        Some((*class, s.action.as_str(), s.target.name.as_str()))
    });
    steps.collect()
}

impl Cluster {
    fn says(&mut self, status: &Value) {
        let root = self.install.sync.clone();
        let root = self.objects.get_mut(&root).unwrap();
        let old = root.fields["status"].as_object_mut().unwrap();
        old.extend(status.as_object().unwrap().clone());
    }
}

/// F51, F52, F53, F24, F23: what is gone or changed comes back.
#[test]
fn each_missing_or_changed_object_has_its_class_and_step() {
    for (id, missing, changed) in [
        (
            id(Kind::AppProject, "default"),
            (Class::ProjectMissing, "create"),
            (Class::ProjectMissing, "apply"),
        ),
        (
            id(Kind::Secret, "argocd-redis"),
            (Class::EngineSecretMissing, "write-key"),
            (Class::EngineSecretMissing, "write-key"),
        ),
        (
            id(Kind::Secret, "argocd-secret"),
            (Class::EngineSecretMissing, "write-key"),
            (Class::EngineSecretMissing, "write-key"),
        ),
        (
            id(Kind::Secret, "linesman-catalog"),
            (Class::GitSecretBad, "write-key"),
            (Class::GitSecretBad, "write-key"),
        ),
        (
            id(Kind::ConfigMap, "argocd-ssh-known-hosts-cm"),
            (Class::GitSecretBad, "write-key"),
            (Class::GitSecretBad, "write-key"),
        ),
        (
            id(Kind::ConfigMap, "argocd-cm"),
            (Class::ObjectMissing, "create"),
            (Class::EngineConfigBroken, "apply"),
        ),
        (
            id(Kind::Application, "linesman"),
            (Class::RootDeleted, "create"),
            (Class::SourceAltered, "apply"),
        ),
    ] {
        let mut gone = working();
        gone.objects.remove(&id).unwrap();
        let (class, action) = missing;
        assert_eq!(remedies(&gone.plan()), [(class, action, id.name.as_str())]);
        let mut cluster = working();
        let fields = &mut cluster.objects.get_mut(&id).unwrap().fields;
        for part in ["data", "spec"] {
            if let Some(part) = fields.get_mut(part).and_then(Value::as_object_mut) {
                part.remove("source");
                part.remove("sourceRepos");
                part.retain(|_, value| !value.is_string());
            }
        }
        let (class, action) = changed;
        assert_eq!(
            remedies(&cluster.plan()),
            [(class, action, id.name.as_str())]
        );
    }
}

/// F54: ended at most three times an hour.
#[test]
fn an_operation_that_is_stuck_is_ended() {
    let mut cluster = working();
    let began = rfc3339(cluster.now - Duration::minutes(11));
    cluster.says(&json!({"operationState": {"phase": "Running", "startedAt": began}}));
    let observed = cluster.observed();
    let noted = cluster.now;
    cluster.history.noted(noted, &cluster.install, &observed);
    assert_eq!(remedies(&cluster.plan()), []);
    cluster.now += Duration::minutes(11);
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(6);
    assert_eq!(
        remedies(&cluster.plan()),
        [(Class::OperationStuck, "terminate", "linesman")]
    );
}

/// F38, F39
#[test]
fn what_a_root_says_twice_is_told_once() {
    let mut cluster = working();
    let said = |kind, message| json!({"type": kind, "message": message});
    let conditions = [
        said("ComparisonError", "yaml: line 3"),
        said("InvalidSpecError", "no kind"),
        said("SyncError", "one sync failed"),
        said("SharedResourceWarning", "only a warning"),
    ];
    cluster.says(&json!({"conditions": conditions}));
    let found = cluster.plan().findings.into_iter();
    let root = id(Kind::Application, "linesman");
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            Finding::new(Class::BuildFailed, &root, "ComparisonError: yaml: line 3"),
            Finding::new(Class::ApplyFailed, &root, "SyncError: one sync failed"),
        ]
    );
}

/// F55, and only the Redis Pod.
#[test]
fn a_redis_that_nobody_reaches_is_restarted_and_the_root_is_left_alone() {
    let mut cluster = working();
    let condition =
        json!({"type": "ComparisonError", "message": "dial tcp 10.96.0.9:6379: i/o timeout"});
    cluster.says(&json!({"conditions": [condition]}));
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(31);
    assert_eq!(
        remedies(&cluster.plan()),
        [(Class::RedisDown, "restart", "argocd-redis")]
    );
}

/// F55: the root is asked for an answer when it is silent, and one that is asked does without Redis; other Applications say it.
#[test]
fn a_redis_of_which_only_other_applications_say_that_nobody_reaches_it_is_restarted() {
    let mut cluster = working();
    let said = "failed to resolve: dial tcp 10.96.0.9:6379: connect: connection refused";
    let child = Child {
        trouble: Some(("ComparisonError".to_owned(), said.to_owned())),
        ..Child::default()
    };
    let web = id(Kind::Application, "web");
    let seen = |cluster: &mut Cluster, up: Duration| {
        let mut observed = cluster.observed();
        let pod = observed.pods.get_mut("argocd-redis").unwrap();
        Arc::make_mut(pod).running = Some(cluster.now - up);
        observed.children = Arc::new([(web.clone(), child.clone())].into());
        let judge =
            |cluster: &Cluster| plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let first = judge(cluster);
        cluster.history.saw(cluster.now, &first);
        cluster.now += Duration::seconds(31);
        judge(cluster)
    };
    let known = seen(&mut cluster, Duration::minutes(3));
    assert_eq!(
        remedies(&known),
        [(Class::RedisDown, "restart", "argocd-redis")]
    );
    let named: Vec<&ObjectId> = known.findings.iter().map(|f| &f.object).collect();
    assert_eq!(named, [&id(Kind::Deployment, "argocd-redis")]);
    // What it says of a Redis that just began is of the one before.
    let mut cluster = working();
    let young = seen(&mut cluster, Duration::minutes(1));
    assert_eq!(young.findings, Vec::new());
}

/// F29: whoever stops the root means it; a path that was changed meanwhile is told apart.
#[test]
fn a_stopped_root_is_reported_and_left_stopped() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    for (pointer, value) in [
        ("/spec/syncPolicy/automated", Value::Null),
        ("/spec/source/targetRevision", json!(commit)),
    ] {
        let mut cluster = working();
        let root = cluster.install.sync.clone();
        let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
        *fields.pointer_mut(pointer).unwrap() = value;
        let plan = cluster.plan();
        let classes: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
        assert_eq!(classes, [Class::SuspendedByHuman], "{pointer}");
        assert_eq!(remedies(&plan), []);
    }
}

/// W34: rights first; the controller is only stopped where an Application's end would take workloads with it.
#[test]
fn a_dying_crd_of_applications_costs_the_controller_its_rights() {
    let mut cluster = working();
    let crd = id(Kind::CustomResourceDefinition, "applications.argoproj.io");
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let actions = |observed: &Observed| -> Vec<&'static str> {
        let plan = plan(cluster.now, &cluster.install, observed, &cluster.history);
        plan.steps.iter().map(|s| s.action.as_str()).collect()
    };
    let mut observed = cluster.observed();
    assert_eq!(actions(&observed), ["cut-rights", "release"]);
    let child = Child {
        prunes: true,
        ..Child::default()
    };
    observed.children = Arc::new([(id(Kind::Application, "web"), child)].into());
    assert_eq!(
        actions(&observed),
        ["cut-rights", "scale-to-zero", "release"]
    );
    cluster.settle(100);
}

/// W44: an agent that begins when the guard has let an Application go, which somebody else's finalizer holds on, sees it without
/// the engine's own. What is on record of it is whole, and comes back alone; another one by its name is another one.
#[test]
fn an_application_that_was_let_go_comes_back_with_its_finalizer() {
    let mut cluster = working();
    let crd = id(Kind::CustomResourceDefinition, "applications.argoproj.io");
    let seen = |path: &str| json!({"metadata": {"name": "by-hand"}, "spec": {"path": path}});
    let mut whole = seen("by-hand");
    whole["metadata"]["finalizers"] = json!(["resources-finalizer.argocd.argoproj.io"]);
    cluster
        .history
        .saved
        .insert(crd.clone(), vec![saved(&cluster, whole.clone())]);
    let mut observed = cluster.observed();
    observed.objects.remove(&crd);
    for (path, more) in [("by-hand", false), ("elsewhere", true)] {
        let lost = (cluster.now, Arc::new(seen(path)));
        observed.lost = Arc::new([(id(Kind::Application, "by-hand"), lost)].into());
        let news = cluster
            .history
            .mourn(cluster.now, &cluster.install, &observed);
        assert_eq!(news.contains(&crd), more, "{path}");
    }
    let both = [whole, seen("elsewhere")].map(|object| saved(&cluster, object));
    assert_eq!(cluster.history.saved[&crd], both);
}

/// What vanished with its CRD, without a finalizer that would have held it, is brought back when the CRD serves.
#[test]
fn applications_that_git_does_not_know_come_back_with_their_crd() {
    let mut cluster = working();
    let crd = id(Kind::CustomResourceDefinition, "applications.argoproj.io");
    let keepsake = Arc::new(json!({"kind": "Application", "metadata": {"name": "by-hand"}}));
    let lost = (cluster.now, Arc::clone(&keepsake));
    let mut observed = cluster.observed();
    observed.lost = Arc::new([(id(Kind::Application, "by-hand"), lost)].into());
    // Deleted by a person, with the CRD in place, it is that person's business.
    cluster
        .history
        .mourn(cluster.now, &cluster.install, &observed);
    assert_eq!(cluster.history.saved, BTreeMap::new());
    let dead = observed.objects.remove(&crd).unwrap();
    for _ in 0..2 {
        cluster
            .history
            .mourn(cluster.now, &cluster.install, &observed);
    }
    let kept = saved(&cluster, keepsake.as_ref().clone());
    assert_eq!(cluster.history.saved[&crd], [kept]);
    observed.objects.insert(crd.clone(), dead);
    let back = plan(cluster.now, &cluster.install, &observed, &cluster.history);
    assert_eq!(
        remedies(&back),
        [(Class::CrdTerminating, "restore", crd.name.as_str())]
    );
}

/// A StatefulSet that waits for a broken Pod of a former version would do so for ever.
#[test]
fn a_pod_of_a_former_version_that_is_waited_for_is_deleted() {
    let mut cluster = working();
    let controller = id(Kind::StatefulSet, CONTROLLER);
    let live = cluster.objects.get_mut(&controller).unwrap();
    live.fields["status"]["updateRevision"] = json!("good");
    live.fields["status"]["updatedReplicas"] = json!(0);
    for (revision, ready, restarted) in [
        ("bad", false, true),
        ("bad", true, false),
        ("good", false, false),
    ] {
        let mut observed = cluster.observed();
        let pod = Pod {
            app: CONTROLLER.to_owned(),
            created: Some(cluster.now),
            revision: revision.to_owned(),
            ready,
            ..Pod::default()
        };
        observed.pods.insert(CONTROLLER.to_owned(), Arc::new(pod));
        let before = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let mut history = cluster.history.clone();
        history.saw(cluster.now, &before);
        let later = cluster.now + Duration::seconds(6);
        let plan = plan(later, &cluster.install, &observed, &history);
        let expected = (Class::PodSuperseded, "drop-superseded", CONTROLLER);
        assert_eq!(
            remedies(&plan).contains(&expected),
            restarted,
            "{revision} {ready}"
        );
    }
}

/// F3, W7: how many Pods there are is left to people, as the manifest does; that there are none is not.
#[test]
fn a_workload_without_a_number_in_the_manifest_is_only_mended_at_zero() {
    let name = "argocd-repo-server";
    for (replicas, mended) in [(3, false), (0, true)] {
        let mut cluster = working();
        cluster.alter(name, "/spec/replicas", json!(replicas));
        let plan = cluster.plan();
        cluster.history.saw(cluster.now, &plan);
        cluster.now += Duration::seconds(31);
        let expected = [(Class::ScaledToZero, "apply", name)];
        let expected: &[_] = if mended { &expected } else { &[] };
        assert_eq!(remedies(&cluster.plan()), expected, "{replicas}");
    }
}
