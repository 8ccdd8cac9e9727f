//! What proves that an engine works, and who has to be up for it.

use serde_json::Value;

use super::*;
use crate::agent::plan::probes::probes;
use crate::agent::plan::tests::{self, desired_with, install_for, start};

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
            &deployment("source-controller"),
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
            let mut all = objects.clone();
            for name in [beside, needed] {
                if !all.contains(&(Kind::Deployment, name)) {
                    all.extend([Kind::ServiceAccount, Kind::Deployment].map(|kind| (kind, name)));
                }
            }
            let install = install_for(&desired_with(engine, all));
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
