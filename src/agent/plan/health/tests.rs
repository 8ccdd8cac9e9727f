use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::argocd::{PROBED_AT, REDIS, REFRESH};
use crate::agent::gate::policy::Mending;
use crate::agent::plan::probes::probes;
use crate::agent::plan::tests::{self, Cluster, bundle_of, desired_of, start};
use crate::clock::rfc3339;

fn flux(name: &str) -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", name)
}

fn pod(reason: &str) -> Pod {
    Pod {
        waiting: Some((reason.to_owned(), "why".to_owned())),
        image: "image:v1".to_owned(),
        restarts: 3,
        ..Pod::default()
    }
}

fn found(
    cluster: &Cluster,
    observed: &Observed,
    of: impl Fn(&mut Vec<Finding>, &Cluster, &Observed),
) -> Vec<(Class, ObjectId)> {
    let mut found = Vec::new();
    of(&mut found, cluster, observed);
    found.into_iter().map(|f| (f.class, f.object)).collect()
}

fn of_workloads(cluster: &Cluster, observed: &Observed) -> Vec<(Class, ObjectId)> {
    found(cluster, observed, |found, cluster, observed| {
        workloads(cluster.now, &cluster.install, observed, found);
    })
}

fn of_roots(cluster: &Cluster, observed: &Observed) -> Vec<(Class, ObjectId)> {
    found(cluster, observed, |found, cluster, observed| {
        roots(
            cluster.now,
            &cluster.install,
            observed,
            &cluster.history,
            found,
        );
    })
}

#[test]
fn a_workload_works_at_the_generation_that_was_asked_for_with_a_pod_of_it() {
    let live = Cluster::working().objects[&flux("source-controller")].clone();
    for (generation, available, updated, expected) in [
        (live.generation, 1, 1, true),
        (live.generation + 1, 1, 1, true),
        (live.generation - 1, 1, 1, false),
        (live.generation, 0, 1, false),
        (live.generation, 1, 0, false),
    ] {
        let mut live = live.clone();
        live.fields["status"] = json!({
            "observedGeneration": generation, "availableReplicas": available, "updatedReplicas": updated,
        });
        assert_eq!(works(&live), expected, "{generation} {available} {updated}");
    }
}

/// F5, F6, F7, F8, F37
#[test]
fn what_keeps_a_pod_from_running_has_its_class() {
    let ended = |why: &str| Pod {
        ended: Some((137, why.to_owned())),
        ..pod("CrashLoopBackOff")
    };
    let told = |class, text: &str| Some((class, text.to_owned()));
    let image = |reason| told(Class::RegistryDown, &format!("{reason}: why (image:v1)"));
    for (pod, expected) in [
        (pod("ErrImagePull"), image("ErrImagePull")),
        (pod("ImagePullBackOff"), image("ImagePullBackOff")),
        (pod("InvalidImageName"), image("InvalidImageName")),
        (pod("ErrImageNeverPull"), image("ErrImageNeverPull")),
        (
            ended("OOMKilled"),
            told(
                Class::OomKilled,
                "CrashLoopBackOff: why; exit code 137 (OOMKilled), 3 restarts",
            ),
        ),
        (
            ended("Error"),
            told(
                Class::CrashLoop,
                "CrashLoopBackOff: why; exit code 137 (Error), 3 restarts",
            ),
        ),
        (
            pod("CreateContainerConfigError"),
            told(Class::ConfigRefMissing, "CreateContainerConfigError: why"),
        ),
        (
            pod("CreateContainerError"),
            told(Class::ConfigRefMissing, "CreateContainerError: why"),
        ),
        (pod("ContainerCreating"), None),
        (Pod::default(), None),
        (
            Pod {
                unschedulable: Some("no node".to_owned()),
                ..pod("ErrImagePull")
            },
            told(Class::Unschedulable, "no node"),
        ),
    ] {
        assert_eq!(pod_fault(&pod), expected, "{pod:?}");
    }
}

#[test]
fn why_the_api_server_takes_no_pods_has_its_class() {
    let says = |status: &str, message: &str| {
        let mut live = Cluster::working().objects[&flux("source-controller")].clone();
        live.fields["status"] = json!({"conditions": [
            {"type": "ReplicaFailure", "status": status, "message": message},
        ]});
        refused(&live)
    };
    for (message, class) in [
        ("exceeded quota: pods", Class::QuotaBlocks),
        (
            "insufficient quota to match these scopes",
            Class::QuotaBlocks,
        ),
        (
            "violates PodSecurity \"restricted\"",
            Class::PodSecurityBlocks,
        ),
        ("failed calling webhook \"a\"", Class::WebhookBlocks),
        (
            "admission webhook \"a\" denied the request",
            Class::WebhookBlocks,
        ),
        ("serviceaccount not found", Class::NotAvailable),
    ] {
        let expected = Some((class, message.to_owned()));
        assert_eq!(says("True", message), expected);
        assert_eq!(says("False", message), None);
    }
}

const FULL: &str = "write /tmp/x: no space left on device";

/// F24, F25, F26, F27, F30, F31, F32, F38, F39, F40, F41, F42
#[test]
fn what_a_root_of_flux_complains_of_has_its_class() {
    for (reason, message, class) in [
        (
            "GitOperationFailed",
            "knownhosts: key is unknown",
            Some(Class::HostKeyMismatch),
        ),
        (
            "GitOperationFailed",
            "host key verification failed",
            Some(Class::HostKeyMismatch),
        ),
        (
            "GitOperationFailed",
            "permission denied",
            Some(Class::KeyRevoked),
        ),
        (
            "GitOperationFailed",
            "authorization failed",
            Some(Class::KeyRevoked),
        ),
        (
            "GitOperationFailed",
            "i/o timeout",
            Some(Class::GitUnreachable),
        ),
        ("AuthenticationFailed", "", Some(Class::GitSecretBad)),
        ("VerificationError", "", Some(Class::SignatureFailed)),
        ("InvalidCommitSignature", "", Some(Class::SignatureFailed)),
        ("DirectoryCreationFailed", "", Some(Class::ArtifactLost)),
        ("StatOperationFailed", "", Some(Class::ArtifactLost)),
        ("AcquireLockFailed", "", Some(Class::ArtifactLost)),
        ("ArchiveOperationFailed", "", Some(Class::ArtifactLost)),
        ("SymlinkUpdateFailed", "", Some(Class::ArtifactLost)),
        ("GitOperationFailed", FULL, Some(Class::ArtifactLost)),
        (
            "ArtifactFailed",
            "failed to untar: write /tmp/x: no space left on device",
            Some(Class::ArtifactLost),
        ),
        ("BuildFailed", FULL, Some(Class::ArtifactLost)),
        ("ArtifactFailed", "path not found", Some(Class::PathMissing)),
        (
            "ArtifactFailed",
            "stat a: no such file or directory",
            Some(Class::PathMissing),
        ),
        ("ArtifactFailed", "source is not ready", None),
        ("ArtifactFailed", "source not found", None),
        (
            "ArtifactFailed",
            "connection refused",
            Some(Class::ArtifactUnreachable),
        ),
        (
            "BuildFailed",
            "kustomization path not found",
            Some(Class::PathMissing),
        ),
        ("BuildFailed", "", Some(Class::BuildFailed)),
        ("ReconciliationFailed", "", Some(Class::ApplyFailed)),
        ("PruneFailed", "", Some(Class::ApplyFailed)),
        ("InvalidCELExpression", "", Some(Class::ApplyFailed)),
        ("HealthCheckFailed", "", Some(Class::HealthCheckFailed)),
        ("HealthCheckCanceled", "", Some(Class::HealthCheckFailed)),
        ("DependencyNotReady", "", Some(Class::DependencyNotReady)),
        ("Progressing", "", None),
    ] {
        assert_eq!(root_fault(reason, message), class, "{reason}: {message}");
    }
}

/// A StatefulSet never deletes a Pod of a former version that does not become ready.
#[test]
fn a_pod_of_a_former_version_is_only_in_the_way_while_it_is_not_ready() {
    let cluster = Cluster::working_of(EngineKind::Argocd);
    let id = ObjectId::new(Kind::StatefulSet, "argocd", "argocd-application-controller");
    let told = |kind, update: &str, behind: i64, ready, revision: &str| {
        let mut observed = cluster.observed();
        let mut live = observed.objects[&id].as_ref().clone();
        live.fields["status"]["updateRevision"] = json!(update);
        live.fields["status"]["observedGeneration"] = json!(live.generation - behind);
        let pod = Pod {
            app: id.name.clone(),
            ready,
            revision: revision.to_owned(),
            ..Pod::default()
        };
        observed.pods = [("0".to_owned(), Arc::new(pod))].into();
        let id = ObjectId { kind, ..id.clone() };
        superseded::found(&observed, (&id, &live)).map(|f| f.evidence)
    };
    let text = "its Pod of a former version is waited for: 0: is not ready";
    let set = Kind::StatefulSet;
    assert_eq!(told(set, "new", 0, false, "old").as_deref(), Some(text));
    assert_eq!(told(set, "new", -1, false, "old").as_deref(), Some(text));
    assert_eq!(told(Kind::Deployment, "new", 0, false, "old"), None);
    assert_eq!(told(set, "", 0, false, "old"), None);
    assert_eq!(told(set, "new", 1, false, "old"), None);
    assert_eq!(told(set, "new", 0, true, "old"), None);
    assert_eq!(told(set, "new", 0, false, ""), None);
    assert_eq!(told(set, "new", 0, false, "new"), None);
}

#[test]
fn only_a_pod_that_stays_speaks_for_its_workload() {
    let names = |pods: Vec<(&str, bool)>| {
        let pods = pods.into_iter().enumerate().map(|(n, (app, deleting))| {
            let pod = Pod {
                uid: n.to_string(),
                app: app.to_owned(),
                deleting,
                ..Pod::default()
            };
            (n.to_string(), Arc::new(pod))
        });
        let observed = Observed {
            pods: pods.collect(),
            ..Observed::default()
        };
        let found = pods_of(&observed, "a");
        found.map(|pod| pod.uid.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(vec![("a", false), ("b", false), ("a", true)]), ["0"]);
}

#[test]
fn a_workload_that_does_not_come_up_is_told_once_with_what_is_known_of_it() {
    let id = flux("source-controller");
    let mut cluster = Cluster::working();
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["status"]["availableReplicas"] = json!(0);
    let observed = cluster.observed();
    let down = [(Class::NotAvailable, id.clone())];
    assert_eq!(of_workloads(&cluster, &observed), down);
    // What was found already says enough, but for who stopped it.
    for (before, expected) in [
        (Class::BadImage, vec![Class::BadImage]),
        (
            Class::SuspendedByHuman,
            vec![Class::SuspendedByHuman, Class::NotAvailable],
        ),
    ] {
        let mut found = vec![Finding::new(before, &id, "")];
        workloads(cluster.now, &cluster.install, &observed, &mut found);
        let classes: Vec<Class> = found.iter().map(|f| f.class).collect();
        assert_eq!(classes, expected);
    }
    let mut found = vec![Finding::new(Class::BadImage, &flux("another"), "")];
    workloads(cluster.now, &cluster.install, &observed, &mut found);
    assert_eq!(found.len(), 2, "that another one is bad says nothing");
    cluster.objects.get_mut(&id).unwrap().deleting = Some(cluster.now);
    assert_eq!(of_workloads(&cluster, &cluster.observed()), []);
}

#[test]
fn the_revision_is_known_when_source_and_sync_agree_on_it() {
    let mut cluster = Cluster::working();
    let of = |cluster: &Cluster| revision(&cluster.install, &cluster.observed());
    assert_eq!(of(&cluster).as_deref(), Some("main@sha1:1"));
    let (source, sync) = (cluster.install.source.clone(), cluster.install.sync.clone());
    cluster.objects.get_mut(&sync).unwrap().fields["status"]["lastAppliedRevision"] =
        json!("main@sha1:0");
    assert_eq!(of(&cluster), None);
    for (id, pointer) in [
        (&source, "/artifact/revision"),
        (&sync, "/lastAppliedRevision"),
    ] {
        let fields = &mut cluster.objects.get_mut(id).unwrap().fields["status"];
        *fields.pointer_mut(pointer).unwrap() = json!("");
    }
    assert_eq!(of(&cluster), None);
}

/// Function is proven by an answer of both to a question, while all is up.
#[test]
fn function_is_proven_by_the_older_of_two_answers() {
    let working = Cluster::working();
    let (source, sync) = (working.install.source.clone(), working.install.sync.clone());
    let sent = |id: &ObjectId| working.objects[id].probe().unwrap().sent;
    let proven = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = Cluster::working();
        change(&mut cluster);
        proven_since(&cluster.install, &cluster.observed())
    };
    assert_eq!(proven(&|_| ()), Some(sent(&source).min(sent(&sync))));
    let status = |id: &ObjectId, field: &'static str, value: Value| {
        let id = id.clone();
        move |cluster: &mut Cluster| {
            cluster.objects.get_mut(&id).unwrap().fields["status"][field] = value.clone();
        }
    };
    let not_ready = json!([{"type": "Ready", "status": "False"}]);
    assert_eq!(proven(&status(&source, "conditions", not_ready)), None);
    assert_eq!(
        proven(&status(&source, "artifact", json!({"revision": "2"}))),
        None
    );
    assert_eq!(
        proven(&status(&source, "lastHandledReconcileAt", json!(""))),
        None
    );
    assert_eq!(
        proven(&status(&sync, "lastHandledReconcileAt", json!(""))),
        None
    );
    assert_eq!(
        proven(&status(
            &flux("source-controller"),
            "availableReplicas",
            json!(0)
        )),
        None
    );
    let nothing = |cluster: &mut Cluster| {
        status(&source, "artifact", json!({"revision": ""}))(cluster);
        status(&sync, "lastAttemptedRevision", json!(""))(cluster);
    };
    assert_eq!(proven(&nothing), None);
    for id in [&source, &sync] {
        let dies = |cluster: &mut Cluster| {
            cluster.objects.get_mut(id).unwrap().deleting = Some(start());
        };
        assert_eq!(proven(&dies), None, "{id}");
    }
}

/// A question to a controller that is up, and since when.
fn asked(engine: EngineKind, seconds: i64) -> Cluster {
    let mut cluster = Cluster::working_of(engine);
    let sync = cluster.install.sync.clone();
    let sent = rfc3339(cluster.now);
    let live = cluster.objects.get_mut(&sync).unwrap();
    match engine {
        EngineKind::Flux => live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(sent),
        EngineKind::Argocd => {
            live.fields["metadata"]["annotations"][PROBED_AT] = json!(sent);
            live.fields["metadata"]["annotations"][REFRESH] = json!("normal");
        }
    }
    cluster.now += Duration::seconds(seconds);
    cluster
}

#[test]
fn a_question_without_an_answer_is_a_wedged_queue_after_its_time() {
    for (seconds, progress, wedged) in [
        (90, false, false),
        (91, false, true),
        (91, true, false),
        (330, true, false),
        (331, true, true),
    ] {
        let mut cluster = asked(EngineKind::Flux, seconds);
        let sync = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&sync).unwrap();
        let status = if progress { "True" } else { "False" };
        live.fields["status"]["conditions"] = json!([{"type": "Reconciling", "status": status}]);
        let expected: &[_] = if wedged {
            &[(Class::QueueWedged, sync)]
        } else {
            &[]
        };
        let found = of_roots(&cluster, &cluster.observed());
        assert_eq!(found, expected, "{seconds} {progress}");
    }
}

/// Its time runs from when it could answer: when it was asked, when its Pod runs, when nothing blinded it.
#[test]
fn a_controller_has_the_whole_time_from_when_it_could_answer() {
    let silent = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = asked(EngineKind::Flux, 91);
        change(&mut cluster);
        !of_roots(&cluster, &cluster.observed()).is_empty()
    };
    let app = "kustomize-controller";
    assert!(silent(&|_| ()));
    assert!(!silent(&|cluster| {
        let young = Some(cluster.now - Duration::seconds(90));
        cluster.pods.get_mut(app).unwrap().running = young;
    }));
    assert!(!silent(&|cluster| {
        let pod = cluster.pods.get_mut(app).unwrap();
        (pod.running, pod.created) = (None, Some(cluster.now - Duration::seconds(90)));
    }));
    assert!(!silent(&|cluster| {
        cluster.history.blinded = Some(cluster.now - Duration::seconds(90));
    }));
    assert!(!silent(&|cluster| {
        let live = cluster.objects.get_mut(&flux(app)).unwrap();
        live.fields["status"]["availableReplicas"] = json!(0);
    }));
    assert!(!silent(&|cluster| {
        let sync = cluster.install.sync.clone();
        cluster.objects.get_mut(&sync).unwrap().deleting = Some(cluster.now);
    }));
    // Flux answers for what is suspended, too.
    assert!(silent(&|cluster| {
        let sync = cluster.install.sync.clone();
        cluster.objects.get_mut(&sync).unwrap().fields["spec"]["suspend"] = json!(true);
    }));
    assert!(!silent(&|cluster| {
        let sync = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.fields["metadata"]["annotations"][SKIP] = json!("true");
    }));
}

/// F29: what a suspended root said before it was suspended is old; that it owes an answer is not.
#[test]
fn a_suspended_root_is_asked_and_its_old_words_are_not_heard() {
    let said = |suspended: bool, answered: bool| {
        let mut cluster = Cluster::working();
        let roots = [cluster.install.source.clone(), cluster.install.sync.clone()];
        let at = rfc3339(cluster.now);
        for id in &roots {
            let live = cluster.objects.get_mut(id).unwrap();
            live.fields["spec"]["suspend"] = json!(suspended);
            live.fields["metadata"]["annotations"][REQUESTED_AT] = json!(at);
            if answered {
                live.fields["status"]["lastHandledReconcileAt"] = json!(at);
            }
            live.fields["status"]["conditions"] = json!([
                {"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "bad"},
            ]);
        }
        cluster.now += Duration::seconds(91);
        let found = of_roots(&cluster, &cluster.observed());
        let class = |id: &ObjectId| {
            let of = found.iter().filter(|(_, object)| object == id);
            of.map(|(class, _)| *class).collect::<Vec<_>>()
        };
        [class(&roots[0]), class(&roots[1])]
    };
    let both = |classes: &[Class]| [classes.to_vec(), classes.to_vec()];
    assert_eq!(
        [
            said(false, true),
            said(false, false),
            said(true, true),
            said(true, false),
        ],
        [
            both(&[Class::BuildFailed]),
            both(&[Class::BuildFailed, Class::QueueWedged]),
            both(&[]),
            both(&[Class::QueueWedged]),
        ]
    );
}

/// Argo CD's controller has no liveness probe: it counts as up while it runs.
#[test]
fn an_argo_cd_answers_while_its_controller_runs_and_the_others_are_up() {
    let controller = ObjectId::new(Kind::StatefulSet, "argocd", "argocd-application-controller");
    let server = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
    let answers = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        change(&mut cluster);
        can_answer(&cluster.install, &cluster.observed())
    };
    let down = |id: ObjectId| {
        move |cluster: &mut Cluster| {
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["status"]["availableReplicas"] = json!(0);
        }
    };
    assert!(answers(&|_| ()));
    assert!(answers(&down(controller.clone())));
    assert!(!answers(&down(server)));
    assert!(!answers(&|cluster| {
        cluster.pods.get_mut(&controller.name).unwrap().running = None;
    }));
}

/// F12, W12: a part that nobody needs for an answer may be down for days, and a controller of the roots hang meanwhile.
#[test]
fn the_roots_are_asked_however_long_another_part_is_down() {
    for (engine, objects, beside, needed) in [
        (
            EngineKind::Flux,
            tests::flux(),
            "image-automation-controller",
            "notification-controller",
        ),
        (
            EngineKind::Argocd,
            tests::argocd(),
            "argocd-dex-server",
            "argocd-redis",
        ),
    ] {
        for (name, asked) in [(beside, true), (needed, false)] {
            let mut desired = desired_of(engine);
            let mut all = objects.clone();
            for name in [beside, needed] {
                if !all.contains(&(Kind::Deployment, name)) {
                    all.extend([Kind::ServiceAccount, Kind::Deployment].map(|kind| (kind, name)));
                }
            }
            desired.install.bundle = Arc::new(bundle_of(engine, all));
            let install = Install::new(&desired, &BTreeMap::new(), Some(Mending::default()));
            let mut cluster = Cluster::working_with(install);
            let id = ObjectId::new(Kind::Deployment, &cluster.install.namespace, name);
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["status"]["availableReplicas"] = json!(0);
            cluster.now += Duration::hours(1);
            let observed = cluster.observed();
            let (steps, _) = probes(cluster.now, &cluster.install, &observed, &cluster.history);
            let targets: Vec<ObjectId> = steps.into_iter().map(|step| step.target).collect();
            let source = cluster.install.source.clone();
            let expected = asked.then_some(source).into_iter().collect::<Vec<_>>();
            assert_eq!(targets, expected, "{name}");
            // W42: that the catalog is read is known all the same.
            let known = [answered_since, proven_since]
                .map(|since| since(&cluster.install, &observed).is_some());
            assert_eq!(known, [true, false], "{name}");
        }
    }
}

#[test]
fn trouble_with_redis_is_told_of_redis_and_all_else_of_the_root() {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    let sync = cluster.install.sync.clone();
    let redis = ObjectId::new(Kind::Deployment, "argocd", REDIS);
    let condition = |message: &str| json!({"type": "ComparisonError", "message": message});
    cluster.objects.get_mut(&sync).unwrap().fields["status"]["conditions"] = json!([
        condition("dial tcp 10.0.0.1:6379: i/o timeout"),
        condition("app path does not exist"),
        condition("app path does not exist"),
    ]);
    assert_eq!(
        of_roots(&cluster, &cluster.observed()),
        [
            (Class::RedisDown, redis),
            (Class::PathMissing, sync.clone()),
        ]
    );
    // That another object has the same fault says nothing of this one.
    let mut found = vec![Finding::new(Class::PathMissing, &flux("another"), "")];
    let observed = cluster.observed();
    roots(
        cluster.now,
        &cluster.install,
        &observed,
        &cluster.history,
        &mut found,
    );
    assert_eq!(found.len(), 3);
}
