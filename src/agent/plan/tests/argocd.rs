//! The same judgement with Argo CD as the engine.

use super::*;
use crate::agent::engine::argocd::SKIP;
use crate::agent::gate::policy::Mending;
use crate::agent::plan::state::Child;

mod given_up;

const CONTROLLER: &str = "argocd-application-controller";

fn working() -> Cluster {
    Cluster::working_of(EngineKind::Argocd)
}

fn id(kind: Kind, name: &str) -> ObjectId {
    ObjectId::new(kind, "argocd", name)
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

#[test]
fn what_pods_read_is_there_before_them_and_the_project_before_the_root() {
    let mut cluster = Cluster::empty_of(EngineKind::Argocd);
    cluster.settle(100);
    let order: Vec<&ObjectId> = cluster
        .steps
        .iter()
        .filter(|(_, s)| matches!(s.action, Action::Create | Action::WriteSecret))
        .map(|(_, s)| &s.target)
        .collect();
    let first = |kind| order.iter().position(|o| o.kind == kind).unwrap();
    let last = |kind| order.iter().rposition(|o| o.kind == kind).unwrap();
    assert_eq!(first(Kind::Namespace), 0);
    let pods = first(Kind::Deployment).min(first(Kind::StatefulSet));
    for kind in [
        Kind::Role,
        Kind::RoleBinding,
        Kind::ConfigMap,
        Kind::Secret,
        Kind::ClusterRoleBinding,
    ] {
        assert!(last(kind) < pods, "{kind}: {order:?}");
    }
    assert!(
        last(Kind::AppProject) < first(Kind::Application),
        "{order:?}"
    );
    let took = cluster.steps.last().unwrap().0 - start();
    assert!(took < Duration::seconds(30), "{took}");
}

/// F51, F52, F53, F24: what is gone or changed comes back.
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

/// What people set beside our keys is theirs; a heal of ours leaves it alone.
#[test]
fn settings_that_people_add_are_no_drift() {
    let mut cluster = working();
    let config = id(Kind::ConfigMap, "argocd-cm");
    let data = &mut cluster.objects.get_mut(&config).unwrap().fields["data"];
    data["url"] = json!("https://argocd.example.org");
    assert_eq!(cluster.plan().findings, Vec::new());
    let keys = cluster.install.keys_of(&config).unwrap();
    let ours: Vec<&String> = keys["data"].as_object().unwrap().keys().collect();
    assert_eq!(
        ours,
        [
            "resource.customizations.health.argoproj.io_Application",
            "timeout.reconciliation"
        ]
    );
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

/// F12, W39: no answer for 90 s although the Pod is ready.
#[test]
fn a_controller_that_does_not_answer_is_restarted_and_one_that_was_not_asked_is_not() {
    let mut cluster = working();
    cluster.now += Duration::hours(1);
    assert_eq!(remedies(&cluster.plan()), []);
    let root = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(asked);
    annotations[REFRESH] = json!("normal");
    cluster.now += Duration::seconds(90);
    assert_eq!(remedies(&cluster.plan()), []);
    cluster.now += Duration::seconds(1);
    assert_eq!(
        remedies(&cluster.plan()),
        [(Class::QueueWedged, "restart", CONTROLLER)]
    );
    // Who stops the root stops its answers, too.
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[SKIP] = json!("true");
    assert_eq!(remedies(&cluster.plan()), []);
}

/// F12: `argocd app get --refresh`, or a webhook, long after our own probe was answered.
#[test]
fn a_refresh_that_somebody_else_asks_for_is_no_controller_that_hangs() {
    let mut cluster = working();
    let root = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    cluster.now += Duration::seconds(1);
    cluster.says(&json!({"reconciledAt": rfc3339(cluster.now)}));
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(asked);
    annotations[REFRESH] = json!("normal");
    cluster.now += Duration::seconds(130);
    assert_eq!(remedies(&cluster.plan()), []);
    // Had it been at work, it would have looked by itself meanwhile.
    cluster.now += Duration::seconds(11);
    assert_eq!(
        remedies(&cluster.plan()),
        [(Class::QueueWedged, "restart", CONTROLLER)]
    );
}

/// W2: what the kubelet brings a moment later is asked for until it is there, for two minutes.
#[test]
fn host_keys_that_were_just_written_are_asked_for_until_they_are_read() {
    let mut cluster = working();
    let root = cluster.install.sync.clone();
    let nudged = |cluster: &Cluster| {
        let plan = cluster.plan();
        plan.steps.iter().any(|s| s.action == Action::Nudge)
    };
    cluster.history.host_keys = Some(cluster.now);
    assert!(!nudged(&cluster), "its probe is answered");
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(rfc3339(cluster.now));
    annotations[REFRESH] = json!("normal");
    for (later, asked) in [(4, false), (1, true), (80, true), (35, false)] {
        cluster.now += Duration::seconds(later);
        assert_eq!(nudged(&cluster), asked, "{later} s later");
    }
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(rfc3339(cluster.now));
    annotations.as_object_mut().unwrap().remove(REFRESH);
    let doubt = json!({"type": "ComparisonError", "message": "knownhosts: key is unknown"});
    cluster.says(&json!({"conditions": [doubt], "reconciledAt": rfc3339(cluster.now)}));
    cluster.now += Duration::seconds(5);
    assert!(!nudged(&cluster), "nothing says that this will be over");
    cluster.history.host_keys = Some(cluster.now);
    assert!(nudged(&cluster));
}

/// A controller that should have looked by itself and has not is asked before the next probe is due.
#[test]
fn a_stale_root_is_asked_at_once() {
    let mut cluster = working();
    cluster.install.policy.probe_every = Duration::hours(1);
    cluster.says(&json!({"reconciledAt": rfc3339(cluster.now)}));
    for (silent, asked) in [(140, false), (141, true)] {
        let mut later = cluster.observed();
        let now = cluster.now + Duration::seconds(silent);
        for scope in later.scopes.values_mut() {
            scope.answered = Some(now);
        }
        let plan = plan(now, &cluster.install, &later, &cluster.history);
        let nudges = plan.steps.iter().filter(|s| s.action == Action::Nudge);
        assert_eq!(nudges.count() == 1, asked, "{silent} s");
    }
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
    assert_eq!(cluster.history.saved[&crd], [keepsake.as_ref().clone()]);
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
        let expected = (Class::PodSuperseded, "restart", CONTROLLER);
        assert_eq!(
            remedies(&plan).contains(&expected),
            restarted,
            "{revision} {ready}"
        );
    }
}

/// F45: unlike Flux', its install says nothing of whose it is.
#[test]
fn an_argo_cd_that_was_there_before_is_only_observed() {
    let mut cluster = working();
    cluster.history.adopted = false;
    let server = id(Kind::Deployment, "argocd-repo-server");
    let live = cluster.objects.get_mut(&server).unwrap();
    live.ours = false;
    "kubectl".clone_into(&mut live.writer);
    let plan = cluster.plan();
    assert_eq!((plan.mode, plan.steps), (Mode::ObserveOnly, Vec::new()));
    cluster.history.adopted = true;
    assert_eq!(cluster.plan().mode, Mode::Act);
}

/// Asked before its repo-server was up, the controller would look again only after a minute.
#[test]
fn a_root_that_stumbled_over_argo_cds_own_parts_is_asked_again_soon() {
    let mut cluster = working();
    let refused = "rpc error: code = Unavailable desc = connection error: dial tcp 10.96.0.7:8081";
    for (message, asked) in [
        (refused, true),
        ("failed to list refs: no such host", false),
    ] {
        let condition = json!({"type": "ComparisonError", "message": message});
        let now = rfc3339(cluster.now);
        cluster.says(&json!({"conditions": [condition], "reconciledAt": now}));
        cluster.now += Duration::seconds(6);
        let nudge = cluster
            .plan()
            .steps
            .iter()
            .any(|s| s.action == Action::Nudge);
        assert_eq!(nudge, asked, "{message}");
    }
}

/// W7: how many Pods there are is left to people, as the manifest does; that there are none is not.
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

/// Argo CD itself would leave it so for a minute or two.
#[test]
fn applications_that_were_looked_at_before_their_project_was_known_are_asked_again() {
    let mut cluster = working();
    let trouble = |text: &str| Child {
        trouble: Some(("InvalidSpecError".to_owned(), text.to_owned())),
        ..Child::default()
    };
    let missing = "Application referencing project default which does not exist";
    let mut observed = cluster.observed();
    observed.children = Arc::new(BTreeMap::from([
        (id(Kind::Application, "web"), trouble(missing)),
        (id(Kind::Application, "other"), trouble("no destination")),
    ]));
    let asked = |cluster: &Cluster| -> Vec<String> {
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let nudges = plan.steps.iter().filter(|s| s.action == Action::Nudge);
        nudges.map(|s| s.target.name.clone()).collect()
    };
    assert_eq!(asked(&cluster), ["web"]);
    cluster
        .history
        .nudged
        .insert(id(Kind::Application, "web"), cluster.now);
    assert_eq!(asked(&cluster), Vec::<String>::new());
}

/// F24: a catalog that brings Argo CD's manifest brings the manifest's host keys, and a snapshot has what was live then.
#[test]
fn a_snapshot_makes_nobody_elses_host_keys_known_good() {
    let known = id(Kind::ConfigMap, "argocd-ssh-known-hosts-cm");
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": known.name, "namespace": "argocd",
            "annotations": {"argocd.argoproj.io/tracking-id": "engine:/ConfigMap:argocd/argocd-ssh-known-hosts-cm"},
        },
        "data": {"ssh_known_hosts": "elsewhere.test ssh-ed25519 AAAA"},
    });
    let snapshot = BTreeMap::from([(known.clone(), theirs)]);
    let install = Install::new(
        &desired_of(EngineKind::Argocd),
        &snapshot,
        Some(Mending::default()),
    );
    let usual = install_of(EngineKind::Argocd);
    assert!(!install.wanted[&known].git_owned);
    assert_eq!(install.body(&known), usual.body(&known));
    assert_eq!(install.wanted[&known].expect, usual.wanted[&known].expect);
}

/// W32: all of an install that is elsewhere is elsewhere, and finds itself there.
#[test]
fn an_install_in_another_namespace_has_nothing_in_the_usual_one() {
    let mut desired = desired_of(EngineKind::Argocd);
    let bundle = desired.install.bundle.as_ref().clone();
    desired.install.bundle = Arc::new(bundle.within("gitops"));
    let install = Install::new(&desired, &BTreeMap::new(), Some(Mending::default()));
    let usual = install_of(EngineKind::Argocd);
    let there = |id: &ObjectId| {
        let of_cluster = id.namespace.is_empty();
        let own = id.kind == Kind::Namespace;
        let namespace = if of_cluster { "" } else { "gitops" };
        ObjectId::new(id.kind, namespace, if own { "gitops" } else { &id.name })
    };
    let moved: Vec<ObjectId> = usual.wanted.keys().map(there).collect();
    let all: Vec<ObjectId> = install.wanted.keys().cloned().collect();
    let sorted = |mut ids: Vec<ObjectId>| {
        ids.sort();
        ids
    };
    assert_eq!(sorted(all), sorted(moved));
    for id in install.wanted.keys() {
        let body = install.body(id).unwrap();
        let text = body.to_string();
        assert!(!text.contains(r#""namespace":"argocd""#), "{id}: {text}");
        assert_eq!(crate::agent::engine::place(&body).as_ref(), Some(id));
    }
    let roots = [&install.source, &install.sync, &install.secret];
    assert!(roots.iter().all(|id| id.namespace == "gitops"));
    assert_eq!(install.namespace, "gitops");
}
