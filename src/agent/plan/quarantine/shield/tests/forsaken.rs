//! What the catalog no longer has, and a person gives back.

use super::*;
use crate::agent::plan::quarantine::{is_forsaken, may_be_ours, unmarked};

/// Labels by which Argo CD may know what it brings; the last one the bundle has, too.
const INSTANCE: &str = "app.kubernetes.io/instance";
const TEAMS: &str = "example.org/app";
const PART_OF: &str = "app.kubernetes.io/part-of";

fn status_of<'a>(cluster: &'a mut Cluster, by: &str) -> &'a mut Value {
    match cluster.objects.get_mut(&application(by)) {
        Some(root) => &mut root.fields["status"],
        None => &mut cluster.applications.get_mut(&application(by)).unwrap()["status"],
    }
}

fn resource(name: &str, status: &str, pruned: bool) -> Value {
    json!({
        "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "argocd", "name": name,
        "status": status, "requiresPruning": pruned,
    })
}

/// The Application has looked at a commit after the bad one, and is done with it; this is what it says of the repo-server.
fn says(cluster: &mut Cluster, by: &str, of_server: Option<Value>) {
    looked_at(cluster, by, "3");
    let redis = resource("argocd-redis", "Synced", false);
    let all: Vec<Value> = of_server.into_iter().chain([redis]).collect();
    let status = status_of(cluster, by);
    status["resources"] = json!(all);
    status["sync"]["status"] = json!("OutOfSync");
}

/// The commit that broke the repo-server was reverted, and Git had none before, or none any more.
fn reverted(by: &str) -> Cluster {
    let mut cluster = held(by);
    says(&mut cluster, by, Some(resource(SERVER, "OutOfSync", true)));
    cluster
}

/// The same, where the last snapshot has it as Git's.
fn removed_and_held(by: &str) -> Cluster {
    let mut cluster = reverted(by);
    let wanted = cluster.install.wanted.get_mut(&server()).unwrap();
    let mut expect = wanted.expect.as_ref().clone();
    let tracked = format!("{by}:apps/Deployment:argocd/{SERVER}");
    expect["metadata"]["annotations"] = json!({TRACKING: tracked});
    wanted.expect = Arc::new(expect);
    cluster
}

fn order(cluster: &mut Cluster) {
    cluster.now += Duration::seconds(1);
    cluster.install.policy.lift_before = Some(cluster.now);
}

fn marks(cluster: &Cluster) -> [Option<&str>; 3] {
    let live = &cluster.objects[&server()];
    [TRACKING, OPTIONS, HELD].map(|name| live.annotation(name))
}

/// Whether Applications and root say what they said before anything was held.
fn assert_as_before(cluster: &Cluster, by: &str) {
    let before = owned(by);
    let spec = |cluster: &Cluster| {
        let live = cluster.applications.get(&application(by));
        live.map(|live| live["spec"].clone())
    };
    assert_eq!(spec(cluster), spec(&before), "{by}");
    assert_eq!(root_ignores(cluster), root_ignores(&before), "{by}");
    let held = holds(&cluster.install, &cluster.observed());
    assert_eq!(held, BTreeMap::new(), "{by}");
}

#[test]
fn what_the_catalog_no_longer_has_is_the_agents_again_by_order() {
    for by in ["linesman", "engine"] {
        let mut cluster = removed_and_held(by);
        assert_eq!(writes(&cluster.plan()), [], "{by}: nobody said so");
        order(&mut cluster);
        let plan = cluster.plan();
        let all = [
            ("reclaim", SERVER),
            ("shield", "engine"),
            ("shield", "linesman"),
        ];
        let expected = all
            .into_iter()
            .filter(|(_, to)| *to != "engine" || by == *to);
        let expected: Vec<(&str, &str)> = expected.collect();
        assert_eq!(writes(&plan), expected, "{by}");
        do_all(&mut cluster, &plan);
        assert_eq!(marks(&cluster), [None; 3], "{by}");
        assert_as_before(&cluster, by);
        assert_eq!(writes(&cluster.plan()), [], "{by}: not looked at since");

        // The last snapshot says so, too; then Argo CD looks.
        cluster.keep_regained();
        says(&mut cluster, by, None);
        assert_eq!(writes(&cluster.plan()), [], "{by}");
        assert!(cluster.objects.remove(&server()).is_some());
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("create", SERVER)], "{by}");
        do_all(&mut cluster, &plan);
        assert_eq!(marks(&cluster), [None; 3], "{by}: as the bundle has it");
    }
}

/// Of the root whose only object of the engine it was, nothing is read any more.
#[test]
fn what_is_the_agents_again_stays_so_where_the_root_lists_nothing_of_the_engine() {
    let mut cluster = removed_and_held("linesman");
    order(&mut cluster);
    let plan = cluster.plan();
    do_all(&mut cluster, &plan);
    status_of(&mut cluster, "linesman")["resources"] = json!([]);
    cluster.keep_regained();
    assert!(!cluster.install.wanted[&server()].git_owned);
}

/// A commit brought it and harmed it at once, so no snapshot has it as Git's; or none is of use for this version.
#[test]
fn what_no_snapshot_has_as_gits_is_the_agents_again_as_well() {
    for taken in [true, false] {
        let mut cluster = reverted("linesman");
        cluster.install.wanted.get_mut(&server()).unwrap().git_owned = !taken;
        cluster.objects.get_mut(&server()).unwrap().marked = taken;
        order(&mut cluster);
        let plan = cluster.plan();
        let expected = [("reclaim", SERVER), ("shield", "linesman")];
        assert_eq!(writes(&plan), expected, "{taken}");
        do_all(&mut cluster, &plan);
        assert_eq!(writes(&cluster.plan()), [], "{taken}: not looked at since");
    }
}

/// What an Application remembers alone is no hold of what is the agent's.
#[test]
fn applications_that_were_not_told_of_it_are_told_later() {
    for by in ["linesman", "engine"] {
        let mut cluster = removed_and_held(by);
        order(&mut cluster);
        let plan = cluster.plan();
        cluster.act(&plan.steps[0]);
        for _ in 0..3 {
            let plan = cluster.plan();
            let did = writes(&plan);
            assert!(did.iter().all(|(_, to)| *to != SERVER), "{by}: {did:?}");
            do_all(&mut cluster, &plan);
        }
        assert_eq!(marks(&cluster), [None; 3], "{by}");
        assert_as_before(&cluster, by);
        assert_eq!(writes(&cluster.plan()), [], "{by}");
    }
}

/// Somebody would have it, or may yet apply it once more; the agent would change what it takes back; or nothing tells whose it is.
#[test]
fn what_is_not_surely_left_or_is_another_version_is_not_taken_back() {
    let in_git = |cluster: &mut Cluster| {
        let of_server = resource(SERVER, "OutOfSync", false);
        says(cluster, "engine", Some(of_server));
    };
    let another_has_it = |cluster: &mut Cluster| {
        let mut other = cluster.applications[&application("engine")].clone();
        other["metadata"] = json!({"name": "other", "namespace": "argocd"});
        other["status"]["resources"] = json!([resource(SERVER, "OutOfSync", false)]);
        cluster.applications.insert(application("other"), other);
    };
    let not_looked = |cluster: &mut Cluster| {
        let status = status_of(cluster, "engine");
        status["sync"] = json!({"status": "Unknown", "revision": "main"});
        status["resources"] = json!([resource(SERVER, "Unknown", true)]);
    };
    let another_version = |cluster: &mut Cluster| {
        let live = cluster.objects.get_mut(&server()).unwrap();
        *live.fields.pointer_mut(IMAGE).unwrap() = json!("x:v2");
    };
    let by_label =
        |cluster: &mut Cluster| settings(cluster, "application.resourceTrackingMethod", "label");
    let operates = |cluster: &mut Cluster| {
        let operation = &mut status_of(cluster, "engine")["operationState"];
        operation["phase"] = json!("Running");
        operation["operation"] = json!({"sync": {"revision": "3"}});
    };
    let not_done = |cluster: &mut Cluster| {
        let operation = &mut status_of(cluster, "engine")["operationState"];
        operation["syncResult"]["revision"] = json!("2");
    };
    let root_operates = |cluster: &mut Cluster| {
        status_of(cluster, "linesman")["operationState"]["phase"] = json!("Running");
    };
    let changes: [&dyn Fn(&mut Cluster); 8] = [
        &in_git,
        &another_has_it,
        &not_looked,
        &another_version,
        &by_label,
        &operates,
        &not_done,
        &root_operates,
    ];
    for (case, change) in changes.into_iter().enumerate() {
        let mut cluster = removed_and_held("engine");
        change(&mut cluster);
        order(&mut cluster);
        let plan = cluster.plan();
        let mut writes = writes(&plan).into_iter();
        assert!(writes.all(|(action, _)| action != "reclaim"), "{case}");
        let seen = cluster.observed();
        assert!(!is_forsaken(&cluster.install, &seen, &server()), "{case}");
        let may_be = may_be_ours(&cluster.install, &seen, &server());
        // Only what waits for the end of a commit may yet be the agent's: the last three.
        assert_eq!(may_be, case >= 5, "{case}");
    }
}

/// Applications that are not listed yet, or more than are known, may have it.
#[test]
fn what_an_unknown_application_may_have_is_not_taken_back() {
    let cluster = removed_and_held("engine");
    let forsaken = |seen: &Observed| is_forsaken(&cluster.install, seen, &server());
    let seen = cluster.observed();
    assert!(forsaken(&seen));
    let kinds = || [Kind::Application].into();
    let young = Observed {
        awaited: kinds(),
        ..seen.clone()
    };
    let many = Observed {
        cut: kinds(),
        ..seen
    };
    assert_eq!([&young, &many].map(forsaken), [false; 2]);
}

fn settings(cluster: &mut Cluster, name: &str, value: &str) {
    let config = ObjectId::new(Kind::ConfigMap, "argocd", "argocd-cm");
    let live = cluster.objects.get_mut(&config).unwrap();
    live.fields["data"][name] = json!(value);
}

/// Argo CD may have put a label on as well. What the bundle has itself stays, and so do words of others.
#[test]
fn hold_and_marks_go_in_one_write() {
    for (key, label, labels) in [
        (None, INSTANCE, json!({INSTANCE: null})),
        (Some(TEAMS), TEAMS, json!({TEAMS: null})),
        (Some(PART_OF), PART_OF, json!({})),
    ] {
        let mut cluster = removed_and_held("engine");
        if let Some(key) = key {
            settings(&mut cluster, "application.instanceLabelKey", key);
        }
        let live = cluster.objects.get_mut(&server()).unwrap();
        live.fields["metadata"]["labels"][label] = json!("argocd");
        live.fields["metadata"]["annotations"][OPTIONS] = json!("Replace=true,Prune=false");
        let seen = cluster.observed();
        let expected = json!({"metadata": {
            "labels": labels,
            "annotations": {HELD: null, TRACKING: null, OPTIONS: "Replace=true"},
        }});
        assert_eq!(unmarked(&cluster.install, &seen, &server()), expected);
    }
}
