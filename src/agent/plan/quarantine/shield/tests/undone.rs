//! Holds that somebody undoes all the time, or that cannot be kept, beside others.

use serde_json::json;
use time::Duration;

use super::{HELD, Hold, OPTIONS, application, do_all, held, hold, rfc3339, writes};
use crate::agent::engine::TRACKING;
use crate::agent::plan::quarantine::{Undone, undone};
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Action, Step};
use crate::bundle::{Kind, ObjectId};

const REDIS: &str = "argocd-redis";

fn redis() -> ObjectId {
    ObjectId::new(Kind::Deployment, "argocd", REDIS)
}

/// An `ApplicationSet` made the Application that holds the repo-server back, and has put it back; the root holds another object
/// back, for which it has another commit by now.
fn fought_over() -> Cluster {
    let mut cluster = held("engine");
    let engine = cluster.applications.get_mut(&application("engine"));
    engine.unwrap()["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "engines", "uid": "1",
        "controller": true,
    }]);
    put_back(&mut cluster);
    let other = Hold {
        revision: "0".to_owned(),
        since: rfc3339(cluster.now),
        reason: String::new(),
        attempt: 1,
        lifted: None,
        order: None,
        removal: false,
    };
    let live = cluster.objects.get_mut(&redis()).unwrap();
    live.fields["metadata"]["annotations"] = json!({
        TRACKING: format!("linesman:apps/Deployment:argocd/{REDIS}"),
        HELD: other.text(), OPTIONS: "Prune=false",
    });
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("apply", "linesman")]);
    do_all(&mut cluster, &plan);
    cluster
}

/// As its template has it.
fn put_back(cluster: &mut Cluster) {
    let engine = cluster.applications.get_mut(&application("engine"));
    let engine = engine.unwrap();
    engine["metadata"]["annotations"] = json!({});
    engine["spec"] = json!({
        "ignoreDifferences": [{"kind": "Secret", "jsonPointers": ["/data"]}],
        "syncPolicy": {"automated": {}, "syncOptions": ["CreateNamespace=true"]},
    });
}

fn is_given_back(cluster: &Cluster) -> bool {
    let hold = hold(&cluster.objects[&redis()]);
    hold.is_none_or(|hold| hold.lifted.is_some())
}

/// W41: less than a request a second, and less and less.
#[test]
fn a_hold_that_is_undone_each_time_is_kept_up_ever_less_often_and_told_of() {
    let mut cluster = fought_over();
    let engine = application("engine");
    let begun = cluster.now;
    while cluster.now - begun < Duration::minutes(1) {
        cluster.round_with(put_back);
    }
    let told = |step: &Step| step.target == engine && matches!(step.action, Action::Shield(_));
    let shields = cluster.steps.iter().filter(|(_, step)| told(step)).count();
    assert!((4..=8).contains(&shields), "{:#?}", cluster.steps);
    let given_back = cluster.steps.iter().find(|(_, step)| {
        let lift = matches!(step.action, Action::Lift { .. });
        lift && step.target == redis()
    });
    let (at, _) = given_back.expect("the other hold waits for nothing");
    assert!(*at - begun < Duration::seconds(10), "{at}");

    let set = ObjectId::new(Kind::ApplicationSet, "argocd", "engines");
    let told_of = |cluster: &Cluster, now| {
        let observed = cluster.observed();
        undone(now, &cluster.install, &observed, &cluster.history)
    };
    let all = told_of(&cluster, begun + Duration::seconds(50));
    let expected = Undone {
        object: engine,
        times: shields - 1,
        by: Some(set),
    };
    assert_eq!(all, [expected]);
    let text = all[0].text();
    let begins = "a hold does not stand: it was undone at Application argocd/engine ";
    let by = ", most likely by ApplicationSet argocd/engines; have it leave that alone: ";
    assert!(text.starts_with(begins) && text.contains(by), "{text}");

    // The set leaves it alone by now.
    let again = cluster.now;
    while cluster.now - again < Duration::minutes(15) {
        cluster.round();
    }
    assert_eq!(told_of(&cluster, cluster.now), []);
}

/// What comes to nothing at one Application is no reason to hold back what others bring.
#[test]
fn an_application_that_cannot_be_told_keeps_no_other_hold_from_its_end() {
    let mut cluster = fought_over();
    let engine = application("engine");
    cluster.history.vain.insert(engine, vec![cluster.now]);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("shield", "linesman")]);
    do_all(&mut cluster, &plan);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", REDIS), ("shield", "linesman")]);
    do_all(&mut cluster, &plan);
    assert!(is_given_back(&cluster));
    assert_eq!(writes(&cluster.plan()), []);
    cluster.now += Duration::seconds(3);
    assert_eq!(writes(&cluster.plan()), [("shield", "engine")]);
}
