use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::plan::tests::{Cluster, start};
use crate::agent::plan::{health, plan};
use crate::wire::api::EngineKind;

const CONTROLLER: &str = "argocd-application-controller";
const SECOND: Duration = Duration::SECOND;

/// What the API server says of the Pods of a controller, as its kind tells it.
fn barring(id: &ObjectId, said: &str) -> (Cluster, Observed) {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    let live = cluster.objects.get_mut(id).unwrap();
    live.fields["status"] = json!({"observedGeneration": live.generation, "replicas": 0});
    if id.kind == Kind::Deployment {
        live.fields["status"]["conditions"] = json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": said,
        }]);
    }
    cluster.pods.retain(|_, pod| pod.app != id.name);
    let mut observed = cluster.observed();
    if id.kind == Kind::StatefulSet {
        let denial = Denial::new(cluster.now, &id.name, said);
        observed.denied.insert(id.clone(), denial);
    }
    (cluster, observed)
}

fn kinds() -> [ObjectId; 2] {
    let of = |kind, name| ObjectId::new(kind, "argocd", name);
    [
        of(Kind::StatefulSet, CONTROLLER),
        of(Kind::Deployment, "argocd-repo-server"),
    ]
}

/// F34, F35, F36, W16: whichever kind of controller it is.
#[test]
fn what_keeps_pods_away_has_its_class_for_each_kind_of_controller() {
    for id in kinds() {
        for (said, class) in [
            (
                "pods \"x\" is forbidden: exceeded quota: none",
                Class::QuotaBlocks,
            ),
            (
                "pods \"x\" is forbidden: insufficient quota to match these scopes",
                Class::QuotaBlocks,
            ),
            (
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
                Class::PodSecurityBlocks,
            ),
            (
                "Internal error occurred: failed calling webhook \"a.test\"",
                Class::WebhookBlocks,
            ),
            (
                "admission webhook \"a.test\" denied the request: no",
                Class::WebhookBlocks,
            ),
        ] {
            let (cluster, observed) = barring(&id, said);
            let mut found = Vec::new();
            health::workloads(cluster.now, &cluster.install, &observed, &mut found);
            let told: Vec<_> = found
                .iter()
                .map(|f| (f.class, &f.object, f.evidence.as_str()))
                .collect();
            assert_eq!(told, [(class, &id, said)], "{id}: {said}");
        }
    }
}

/// What says nothing of who is in the way, or is of another time, is no more than that it is not available.
#[test]
fn an_answer_counts_while_it_is_new_and_there_is_no_pod() {
    let [id, _] = kinds();
    let quota = "pods is forbidden: exceeded quota: none";
    let told = |said: &str, seconds: i32, pod: bool| {
        let (mut cluster, mut observed) = barring(&id, said);
        cluster.now += SECOND * seconds;
        if pod {
            let pod = crate::agent::plan::Pod {
                app: id.name.clone(),
                ..Default::default()
            };
            observed.pods.insert("a".to_owned(), Arc::new(pod));
        }
        let live = observed.objects[&id].clone();
        barred(cluster.now, &observed, (&id, &live)).map(|(class, _)| class)
    };
    assert_eq!(told(quota, 0, false), Some(Class::QuotaBlocks));
    assert_eq!(told(quota, 59, false), Some(Class::QuotaBlocks));
    assert_eq!(told(quota, 60, false), None);
    assert_eq!(told(quota, 0, true), None);
    let own = "pods is forbidden: User \"x\" cannot create resource \"pods\"";
    assert_eq!(told(own, 0, false), None);
}

/// The same words are the same fault, whatever name the API server made up.
#[test]
fn the_name_that_was_made_up_is_no_part_of_the_answer() {
    let quota = |name: &str| format!("pods \"{name}\" is forbidden: exceeded quota: none");
    for (said, kept) in [
        (quota("web-x7k2p"), quota("web-")),
        (quota("other-x7k2p"), quota("other-x7k2p")),
        (
            "failed calling webhook \"a\"".to_owned(),
            "failed calling webhook \"a\"".to_owned(),
        ),
        ("cut off \"web-x7".to_owned(), "cut off \"web-".to_owned()),
    ] {
        let denial = Denial::new(start(), "web", &said);
        assert_eq!((denial.said, denial.at), (kept, start()));
    }
}

/// W17: a commit with which no Pod is taken is held and undone, whichever kind of controller it is.
#[test]
fn a_commit_whose_pods_are_refused_is_held_for_each_kind_of_controller() {
    for id in kinds() {
        let said = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"";
        let (mut cluster, mut observed) = barring(&id, said);
        let mut live = observed.objects[&id].as_ref().clone();
        live.fields["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
        cluster.install.traits.applier.clone_into(&mut live.writer);
        live.written = Some(cluster.now);
        observed.objects.insert(id.clone(), Arc::new(live));
        cluster.install.wanted.get_mut(&id).unwrap().git_owned = true;
        let judged =
            |cluster: &Cluster| plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let first = judged(&cluster);
        cluster.history.saw(cluster.now, &first);
        cluster.now += first.findings[0].class.debounce();
        let plan = judged(&cluster);
        let said: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
        assert_eq!(said, [(Class::BadEngineCommit, &id)]);
        let writes: Vec<_> = plan.steps.iter().map(|s| s.action.as_str()).collect();
        assert!(
            writes.contains(&"hold") && writes.contains(&"replace"),
            "{writes:?}"
        );
    }
}
