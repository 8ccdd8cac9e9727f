//! Holds that somebody undoes all the time, or that cannot be kept, beside others.

use serde_json::json;
use time::Duration;

use super::{
    HELD, Hold, OPTIONS, application, do_all, held, hold, ignored, ignored_server,
    live_without_word, looked_at, owned, rfc3339, root_ignores, server, writes,
};
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

/// Only an `ApplicationSet` can be told to leave alone what we write.
#[test]
fn a_hold_that_does_not_stand_is_told_with_what_undoes_it_and_what_to_do_there() {
    let begins =
        "a hold does not stand: it was undone at Application argocd/engine 3 times within an hour";
    let set = ObjectId::new(Kind::ApplicationSet, "argocd", "engines");
    let by_set = ", most likely by ApplicationSet argocd/engines; have it leave that alone: ignoreApplicationDifferences \
                  with /spec/ignoreDifferences and /spec/syncPolicy/syncOptions, preservedFields.annotations with \
                  linesman.dev/holds";
    let parent = application("parent");
    let by_parent = ", most likely by Application argocd/parent";
    for (by, ends) in [
        (None, "; find out who writes there"),
        (Some(parent), by_parent),
        (Some(set), by_set),
    ] {
        let undone = Undone {
            object: application("engine"),
            times: 3,
            by,
        };
        assert_eq!(undone.text(), format!("{begins}{ends}"));
    }
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

/// Redis is held as well, by the same Application, and for longer.
fn with_another(cluster: &mut Cluster) {
    let first = hold(&cluster.objects[&server()]).unwrap();
    let longer = Hold {
        since: rfc3339(cluster.now),
        attempt: 2,
        ..first
    };
    let live = cluster.objects.get_mut(&redis()).unwrap();
    let words = &mut live.fields["metadata"]["annotations"];
    words[HELD] = json!(longer.text());
    words[OPTIONS] = json!("Prune=false");
}

/// W41: a set that takes our word away, and leaves the rest, leaves nobody else to tell what in it is ours.
#[test]
fn an_application_that_loses_its_word_each_time_says_in_the_end_what_it_said_before() {
    let engine = application("engine");
    let before = owned("engine");
    let own = json!({"kind": "Secret", "jsonPointers": ["/data"]});
    for two in [false, true] {
        let mut cluster = held("engine");
        if two {
            with_another(&mut cluster);
        }
        let begun = cluster.now;
        let until = |cluster: &mut Cluster, minutes: i64| {
            while cluster.now - begun < Duration::minutes(minutes) {
                cluster.round_with(live_without_word);
            }
            cluster.applications[&engine]["spec"].clone()
        };
        let both = [ignored(&redis()), ignored_server()];
        let mut all = vec![own.clone()];
        all.extend(both.iter().skip(usize::from(!two)).cloned());
        assert_eq!(until(&mut cluster, 1)["ignoreDifferences"], json!(all));

        looked_at(&mut cluster, "engine", "3");
        let spec = until(&mut cluster, 5);
        let lifted = hold(&cluster.objects[&server()]).unwrap().lifted;
        assert!(lifted.is_some(), "{two}");
        if two {
            assert_eq!(spec["ignoreDifferences"], json!([own, both[0]]));
        }
        let spec = until(&mut cluster, 15);
        assert!(is_given_back(&cluster), "{two}");
        assert_eq!(spec, before.applications[&engine]["spec"], "{two}");
        assert_eq!(root_ignores(&cluster), root_ignores(&before), "{two}");
    }
}
