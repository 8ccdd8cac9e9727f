//! Workloads and their Pods.

use std::sync::Arc;

use super::*;

fn pod(reason: &str) -> Pod {
    Pod {
        waiting: Some((reason.to_owned(), "why".to_owned())),
        image: "image:v1".to_owned(),
        restarts: 3,
        ..Pod::default()
    }
}

fn of_workloads(cluster: &Cluster, observed: &Observed) -> Vec<(Class, ObjectId)> {
    found(cluster, observed, |found, cluster, observed| {
        workloads(cluster.now, &cluster.install, observed, found);
    })
}

#[test]
fn a_workload_works_at_the_generation_that_was_asked_for_with_a_pod_of_it() {
    let live = Cluster::working().objects[&deployment("source-controller")].clone();
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
        let mut live = Cluster::working().objects[&deployment("source-controller")].clone();
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
fn that_a_workloads_own_pods_may_not_be_known_is_told_where_none_is() {
    let id = deployment("source-controller");
    let plain = "is not available";
    let more = "is not available; its namespace has more Pods than are looked at, and none of those is its own";
    for (own, cut, expected) in [
        (true, false, plain),
        (true, true, plain),
        (false, false, plain),
        (false, true, more),
    ] {
        let mut cluster = Cluster::working();
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["status"]["availableReplicas"] = json!(0);
        let mut observed = cluster.observed();
        observed.pods.retain(|_, pod| own || pod.app != id.name);
        observed.pods_cut = cut;
        let mut found = Vec::new();
        workloads(cluster.now, &cluster.install, &observed, &mut found);
        let expected = Finding::new(Class::NotAvailable, &id, expected);
        assert_eq!(found, [expected], "{own} {cut}");
    }
}

#[test]
fn a_workload_that_does_not_come_up_is_told_once_with_what_is_known_of_it() {
    let id = deployment("source-controller");
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
    let mut found = vec![Finding::new(Class::BadImage, &deployment("another"), "")];
    workloads(cluster.now, &cluster.install, &observed, &mut found);
    assert_eq!(found.len(), 2, "that another one is bad says nothing");
    cluster.objects.get_mut(&id).unwrap().deleting = Some(cluster.now);
    assert_eq!(of_workloads(&cluster, &cluster.observed()), []);
}
