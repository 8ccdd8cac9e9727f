//! Applications between the root and the one that holds something back.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use time::Duration;

use super::super::{HOLDS, Owner, RESPECT, SERVER_SIDE, Shield, chain};
use super::{
    SERVER, after_a_while, application, bad_commit, do_all, held, live_without_word, looked_at,
    owned, root_ignores, works_again, writes,
};
use crate::agent::engine::TRACKING;
use crate::agent::plan::tests::Cluster;
use crate::bundle::Kind;

fn brought_by(by: &str, name: &str) -> Value {
    json!({TRACKING: format!("{by}:argoproj.io/Application:argocd/{name}")})
}

fn engine(cluster: &mut Cluster) -> &mut Value {
    let engine = cluster.applications.get_mut(&application("engine"));
    engine.unwrap()
}

/// The root brings `platform`, which brings `engine`, which brings Argo CD itself.
fn three_levels() -> Cluster {
    let mut cluster = owned("engine");
    let platform = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": "platform", "namespace": "argocd", "resourceVersion": "8",
            "annotations": brought_by("linesman", "platform"),
        },
        "spec": {"syncPolicy": {"automated": {"selfHeal": true}}},
    });
    let id = application("platform");
    cluster.applications.insert(id, platform);
    looked_at(&mut cluster, "platform", "1");
    engine(&mut cluster)["metadata"]["annotations"] = brought_by("platform", "engine");
    cluster
}

fn left_alone(name: &str) -> Value {
    json!({
        "group": "argoproj.io", "kind": "Application", "namespace": "argocd", "name": name,
        "jsonPointers": ["/spec/ignoreDifferences", "/spec/syncPolicy/syncOptions"],
    })
}

/// W17, W18: what the root does not bring it cannot leave alone.
#[test]
fn what_brings_the_application_that_holds_lets_it_and_so_on_up_to_the_root() {
    let mut cluster = three_levels();
    let platform = application("platform");
    let before = (root_ignores(&cluster), cluster.applications.clone());
    bad_commit(&mut cluster, "engine", "2");
    let plan = after_a_while(&mut cluster);
    let told = [
        ("shield", "linesman"),
        ("shield", "platform"),
        ("shield", "engine"),
        ("hold", SERVER),
        ("apply", SERVER),
    ];
    assert_eq!(writes(&plan), told, "from the root down");
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    cluster.history.faults.clear();
    let spec = json!({
        "ignoreDifferences": [left_alone("engine")],
        "syncPolicy": {
            "automated": {"selfHeal": true}, "syncOptions": ["RespectIgnoreDifferences=true"],
        },
    });
    assert_eq!(cluster.applications[&platform]["spec"], spec);
    let of_root = [before.0.clone(), vec![left_alone("platform")]].concat();
    assert_eq!(root_ignores(&cluster), of_root);
    let plan = cluster.plan();
    assert_eq!((writes(&plan), plan.findings.as_slice()), (vec![], &[][..]));

    // Somebody puts it back.
    let live = cluster.applications.get_mut(&platform).unwrap();
    live["spec"] = before.1[&platform]["spec"].clone();
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("shield", "platform")]);
    do_all(&mut cluster, &plan);
    assert_eq!(cluster.applications[&platform]["spec"], spec);
    assert_eq!(writes(&cluster.plan()), []);

    looked_at(&mut cluster, "engine", "3");
    let plan = cluster.plan();
    let given_back = [
        ("lift", SERVER),
        ("shield", "engine"),
        ("shield", "platform"),
        ("shield", "linesman"),
    ];
    assert_eq!(writes(&plan), given_back, "from the object up");
    do_all(&mut cluster, &plan);
    assert_eq!(root_ignores(&cluster), before.0);
    for (id, was) in &before.1 {
        let live = &cluster.applications[id];
        assert_eq!(live["spec"], was["spec"], "{id}");
        let words = &live["metadata"]["annotations"];
        assert_eq!(*words, was["metadata"]["annotations"], "{id}");
    }
    assert_eq!(writes(&cluster.plan()), []);
}

#[test]
fn a_chain_of_applications_has_an_end() {
    let chained = |cluster: &Cluster| {
        let (observed, from) = (cluster.observed(), application("engine"));
        let all = chain(&cluster.install, &observed, &from).into_iter();
        all.map(|id| id.name.clone()).collect::<Vec<String>>()
    };
    let by = |by: &str| {
        let mut cluster = three_levels();
        engine(&mut cluster)["metadata"]["annotations"] = brought_by(by, "engine");
        cluster
    };
    assert_eq!(chained(&by("platform")), ["platform", "linesman"]);
    assert_eq!(chained(&by("linesman")), ["linesman"]);
    assert_eq!(chained(&by("engine")), ["engine"], "it brings itself");

    let mut round = by("platform");
    let live = round.applications.get_mut(&application("platform"));
    live.unwrap()["metadata"]["annotations"] = brought_by("engine", "platform");
    assert_eq!(chained(&round), ["platform", "engine"]);

    let mut made = by("platform");
    engine(&mut made)["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "engines", "uid": "1",
        "controller": true,
    }]);
    assert_eq!(chained(&made), [""; 0], "a set is told nothing");

    let mut others = by("team_platform");
    others.covered = Some(BTreeSet::new());
    assert_eq!(chained(&others), [""; 0], "not the agent's");
    others.covered = Some(["team".to_owned()].into());
    let up = ["platform", "linesman"];
    assert_eq!(chained(&others), up, "it is not known who brings that");

    let mut deep = by("level-1");
    for level in 1..=20 {
        let (name, above) = (format!("level-{level}"), format!("level-{}", level + 1));
        let mut live = deep.applications[&application("platform")].clone();
        live["metadata"]["name"] = json!(name);
        live["metadata"]["annotations"] = brought_by(&above, &name);
        deep.applications.insert(application(&name), live);
    }
    let levels: Vec<String> = (1..=16).map(|level| format!("level-{level}")).collect();
    assert_eq!(chained(&deep), levels, "more than any catalog has");
}

/// W34: what is gone for a moment is left alone when it is back.
#[test]
fn an_application_that_is_made_anew_is_found_left_alone() {
    let mut cluster = three_levels();
    bad_commit(&mut cluster, "engine", "2");
    let plan = after_a_while(&mut cluster);
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    cluster.history.faults.clear();
    cluster.applications.remove(&application("engine"));
    let steps = cluster.plan().steps.into_iter();
    let told = steps.filter(|s| s.target.kind == Kind::Application && !s.action.asks());
    assert_eq!(told.collect::<Vec<_>>(), []);
}

/// With both options Argo CD before 3.4.5 tells nothing new of the Applications below.
#[test]
fn a_parent_that_applies_on_the_servers_side_gets_no_further_option() {
    let options = json!([SERVER_SIDE]);
    let live = json!({"spec": {"syncPolicy": {"syncOptions": options}}});
    let shield = Shield {
        below: [application("engine")].into(),
        ..Shield::default()
    };
    let patch = shield.patch(&live, None);
    assert_eq!(
        patch["spec"],
        json!({"ignoreDifferences": [left_alone("engine")]})
    );
    let spec = json!({
        "ignoreDifferences": [left_alone("engine")], "syncPolicy": {"syncOptions": options},
    });
    let word = patch.pointer("/metadata/annotations");
    let word = word.and_then(|all| all.get(HOLDS)?.as_str());
    let said = Owner::of("argocd", word, &spec, &Value::Null);
    assert_eq!((said.below, said.in_force), (shield.below, true));
}

/// An `ApplicationSet` takes annotations away that it did not put there.
#[test]
fn an_application_that_lost_its_word_alone_says_in_the_end_what_it_said_before() {
    let mut cluster = held("engine");
    let before = owned("engine").applications;
    let spec = engine(&mut cluster)["spec"].clone();
    for _ in 0..2 {
        live_without_word(&mut cluster);
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("shield", "engine")]);
        do_all(&mut cluster, &plan);
        assert_eq!(engine(&mut cluster)["spec"], spec);
    }
    looked_at(&mut cluster, "engine", "3");
    let plan = cluster.plan();
    do_all(&mut cluster, &plan);
    let before = &before[&application("engine")];
    assert_eq!(engine(&mut cluster)["spec"], before["spec"]);
}

fn platform_without_word(cluster: &mut Cluster) {
    let platform = cluster.applications.get_mut(&application("platform"));
    let words = platform.unwrap()["metadata"]["annotations"].as_object_mut();
    words.unwrap().remove(HOLDS);
}

/// W41: what lets others hold is given back as well.
#[test]
fn a_parent_that_loses_its_word_each_time_says_in_the_end_what_it_said_before() {
    let mut cluster = three_levels();
    let before = cluster.applications.clone();
    bad_commit(&mut cluster, "engine", "2");
    let plan = after_a_while(&mut cluster);
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    cluster.history.faults.clear();
    platform_without_word(&mut cluster);
    for commit in ["2", "3"] {
        looked_at(&mut cluster, "engine", commit);
        let begun = cluster.now;
        while cluster.now - begun < Duration::minutes(1) {
            cluster.round_with(platform_without_word);
        }
        let ignores = &cluster.applications[&application("platform")]["spec"]["ignoreDifferences"];
        let held = commit == "2";
        assert_eq!(*ignores == json!([left_alone("engine")]), held, "{commit}");
    }
    for (id, was) in &before {
        assert_eq!(cluster.applications[id]["spec"], was["spec"], "{id}");
    }
}

/// What was there before, where our word is lost: nothing of ours, and all else.
#[test]
fn what_is_ours_in_a_spec_without_our_word_is_told_from_the_rest() {
    let engine = || BTreeSet::from([application("engine")]);
    let lets = Shield {
        below: engine(),
        ..Shield::default()
    };
    let ended = Shield::default().after(&lets);
    assert_eq!((&ended.below, &ended.ended), (&BTreeSet::new(), &engine()));
    let own = json!({"kind": "Secret", "jsonPointers": ["/data"]});
    let ours = left_alone("engine");
    for (differences, options, expected) in [
        (
            json!([own, ours]),
            json!(["X=true", RESPECT]),
            (json!([own]), json!(["X=true"])),
        ),
        (json!([ours]), json!([RESPECT]), (Value::Null, Value::Null)),
        (
            json!([own]),
            json!([RESPECT]),
            (json!([own]), json!([RESPECT])),
        ),
        (
            json!([ours]),
            json!([SERVER_SIDE, RESPECT]),
            (Value::Null, json!([SERVER_SIDE, RESPECT])),
        ),
        (Value::Null, Value::Null, (Value::Null, Value::Null)),
    ] {
        let spec =
            json!({"ignoreDifferences": differences, "syncPolicy": {"syncOptions": options}});
        for shield in [&lets, &ended] {
            let former = shield.before(&spec);
            let said = (former.ignore_differences, former.sync_options);
            assert_eq!(said, expected, "{spec}");
        }
    }
}
