//! What an Application is told of its holds, and told again.

use super::*;

/// W34: an Application that was made anew knows nothing of a hold; the object does.
#[test]
fn an_application_that_lost_its_word_is_told_again() {
    let mut cluster = held("engine");
    let live = cluster
        .applications
        .get_mut(&application("engine"))
        .unwrap();
    live["spec"]["ignoreDifferences"] = json!([]);
    assert_eq!(
        writes(&cluster.plan()),
        [("shield", "engine")],
        "the word without the deed"
    );
    live_without_word(&mut cluster);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("shield", "engine")]);
    do_all(&mut cluster, &plan);
    let said = said(
        &cluster.install,
        &cluster.observed(),
        &application("engine"),
    )
    .unwrap();
    assert!(said.in_force && said.held.contains_key(&server()));
    let root = cluster.objects.get_mut(&application("linesman")).unwrap();
    root.fields["spec"]["ignoreDifferences"] = json!([]);
    assert_eq!(writes(&cluster.plan()), [("apply", "linesman")]);
}

/// W19: without this word the next commit that removes it would have it pruned.
#[test]
fn an_object_that_lost_the_wish_not_to_be_pruned_is_told_again() {
    let mut cluster = held("engine");
    let live = cluster.objects.get_mut(&server()).unwrap();
    assert_eq!(live.annotation(OPTIONS), Some("Prune=false"));
    live.fields["metadata"]["annotations"][OPTIONS] = json!("Replace=true");
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("hold", SERVER)]);
    do_all(&mut cluster, &plan);
    let both = "Replace=true,Prune=false";
    let live = &cluster.objects[&server()];
    assert_eq!(live.annotation(OPTIONS), Some(both));
    assert_eq!(writes(&cluster.plan()), []);
}

/// W18: an operation that began before the hold is tried again with the options that it began with.
#[test]
fn an_operation_that_runs_is_told_of_the_hold_too() {
    let hold = Hold {
        revision: "2".to_owned(),
        since: String::new(),
        reason: String::new(),
        attempt: 1,
        lifted: None,
        order: None,
        removal: false,
    };
    let holding = Shield {
        held: [(server(), hold)].into(),
        ..Shield::default()
    };
    let told = |shield: &Shield, phase: &str, sync: Value| {
        let live =
            json!({"status": {"operationState": {"phase": phase, "operation": {"sync": sync}}}});
        let patch = shield.patch(&live, None);
        let options = patch.pointer("/status/operationState/operation/sync/syncOptions");
        options.cloned()
    };
    let with = |options: Value| json!({"revision": "2", "syncOptions": options});
    for (shield, phase, sync, expected) in [
        (
            &holding,
            "Running",
            json!({"revision": "2"}),
            Some(json!([RESPECT])),
        ),
        (
            &holding,
            "Running",
            with(json!(["X=true"])),
            Some(json!(["X=true", RESPECT])),
        ),
        (&holding, "Running", with(json!([RESPECT])), None),
        (&holding, "Running", Value::Null, None),
        (&holding, "Failed", json!({"revision": "2"}), None),
        (
            &Shield::default(),
            "Running",
            json!({"revision": "2"}),
            None,
        ),
    ] {
        let said = told(shield, phase, sync.clone());
        assert_eq!(said, expected, "{phase} {sync}");
    }
}

/// W20: of a wait whose beginning was ahead of the clock, and begins now, the Application is told as well.
#[test]
fn an_application_says_what_its_object_says_of_a_wait_that_begins_anew() {
    let mut cluster = held("engine");
    let live = cluster.objects.get_mut(&server()).unwrap();
    let again = Hold {
        attempt: 2,
        ..hold(live).unwrap()
    };
    live.fields["metadata"]["annotations"][HELD] = json!(again.text());
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("shield", "engine")]);
    do_all(&mut cluster, &plan);
    cluster.now -= Duration::days(1);
    cluster.history.set_back(cluster.now);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("shield", "engine"), ("hold", SERVER)]);
    do_all(&mut cluster, &plan);
    let anew = Hold {
        since: rfc3339(cluster.now),
        ..again
    };
    assert_eq!(hold(&cluster.objects[&server()]), Some(anew.clone()));
    let said = said(
        &cluster.install,
        &cluster.observed(),
        &application("engine"),
    );
    let expected = BTreeMap::from([(server(), anew)]);
    assert_eq!(said.unwrap().held, expected);
    assert_eq!(writes(&cluster.plan()), [], "once");
}
