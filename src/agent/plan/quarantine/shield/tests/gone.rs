//! Objects that are deleted, or no longer in Git, while they are held.

use std::sync::Arc;

use serde_json::json;
use time::Duration;

use super::super::TRACKING;
use super::{
    IMAGE, SERVER, application, do_all, held, looked_at, owned, server, works_again, writes,
};
use crate::agent::plan::quarantine::hold;
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{self, Class, MAINTENANCE, Mode, Object, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;

/// W38: an object that loses its word with its life keeps its hold, and what Argo CD made of it meanwhile is undone.
#[test]
fn a_held_object_that_is_deleted_comes_back_as_last_known_good_and_held() {
    for by in ["linesman", "engine"] {
        let mut cluster = held(by);
        let bad = {
            let mut bad = cluster.objects[&server()].clone();
            *bad.fields.pointer_mut(IMAGE).unwrap() = json!("bad:0");
            "argocd-controller".clone_into(&mut bad.writer);
            bad
        };
        let gone = cluster.objects.remove(&server()).unwrap();
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("create-held", SERVER)]);
        do_all(&mut cluster, &plan);
        let was = &gone.fields["metadata"]["annotations"];
        let tracked = was[TRACKING].clone();
        let live = cluster.objects.get_mut(&server()).unwrap();
        let annotations = &mut live.fields["metadata"]["annotations"];
        // Our snapshot of it, which these clusters have none of, says whose it is.
        annotations[TRACKING] = tracked.clone();
        assert_eq!(annotations, was, "held from its first moment on: {by}");
        works_again(&mut cluster);
        assert_eq!(writes(&cluster.plan()), [], "{by}");

        // Argo CD was faster: its version is live, and says nothing of a hold.
        let mut raced = bad;
        raced.fields["metadata"]["annotations"] = json!({TRACKING: tracked});
        cluster.objects.insert(server(), raced);
        assert_eq!(
            writes(&cluster.plan()),
            [("hold", SERVER), ("apply", SERVER)],
            "{by}"
        );
    }
}

/// W21: an agent that has just begun hears of the install's objects before it hears of the Applications.
#[test]
fn before_the_applications_are_listed_a_held_object_is_not_made_anew() {
    let mut cluster = held("engine");
    cluster.objects.remove(&server());
    let begun = cluster.now;
    let mut young = Observed {
        since: Some(begun),
        awaited: [Kind::Application, Kind::AppProject].into(),
        children: Arc::default(),
        ..cluster.observed()
    };
    let planned = |observed: &Observed, cluster: &Cluster| {
        plan::plan(cluster.now, &cluster.install, observed, &cluster.history)
    };
    let plan = planned(&young, &cluster);
    let nothing = (Mode::Learning, vec![], vec![]);
    assert_eq!((plan.mode, plan.findings.clone(), plan.steps), nothing);

    let crd = "applications.argoproj.io";
    let crd = ObjectId::new(Kind::CustomResourceDefinition, "", crd);
    let mut dying = young.clone();
    let mut live = dying.objects[&crd].as_ref().clone();
    live.deleting = Some(begun);
    dying.objects.insert(crd.clone(), Arc::new(live));
    let plan = planned(&dying, &cluster);
    let all = ["cut-rights", "release"];
    let steps: Vec<&str> = plan.steps.iter().map(|s| s.action.as_str()).collect();
    assert_eq!(steps, all, "what would be pruned does not wait");

    // It lists everything but them.
    cluster.now += Duration::seconds(91);
    young.scopes = cluster.observed().scopes;
    let plan = planned(&young, &cluster);
    let said: Vec<_> = plan.findings.iter().map(|f| f.evidence.clone()).collect();
    let since = rfc3339(begun);
    let text = format!("the API server has not answered since {since}, asked for applications");
    assert_eq!(
        (plan.mode, plan.steps, said),
        (Mode::Learning, vec![], vec![text])
    );

    young = Observed {
        awaited: [Kind::AppProject].into(),
        ..cluster.observed()
    };
    assert_eq!(
        writes(&planned(&young, &cluster)),
        [("create-held", SERVER)]
    );
}

/// W38: its hold says since when and why, and how often before: being deleted changes nothing of that.
#[test]
fn a_held_object_that_is_not_in_git_and_deleted_keeps_its_hold() {
    let mut cluster = held("engine");
    let was = cluster.objects.remove(&server()).unwrap();
    looked_at(&mut cluster, "engine", "3");
    let live = cluster.applications.get_mut(&application("engine"));
    live.unwrap()["status"]["resources"] = json!([{
        "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "argocd",
        "name": SERVER, "status": "OutOfSync", "requiresPruning": true,
    }]);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("create-held", SERVER)]);
    do_all(&mut cluster, &plan);
    let of = |object: &Object| hold(object);
    assert_eq!(of(&cluster.objects[&server()]), of(&was));
}

/// W38: given back, it would be pruned.
#[test]
fn a_held_object_that_is_no_longer_in_git_stays_held() {
    let mut cluster = held("engine");
    looked_at(&mut cluster, "engine", "3");
    let live = cluster
        .applications
        .get_mut(&application("engine"))
        .unwrap();
    let resource = |name: &str, pruned: bool| json!({"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "argocd", "name": name, "status": "OutOfSync", "requiresPruning": pruned});
    let redis = resource("argocd-redis", false);
    live["status"]["resources"] = json!([resource(SERVER, true), redis]);
    assert_eq!(writes(&cluster.plan()), []);
    let live = cluster
        .applications
        .get_mut(&application("engine"))
        .unwrap();
    // It was deleted and made again since Argo CD looked.
    live["status"]["resources"] = json!([redis]);
    assert_eq!(writes(&cluster.plan()), []);
    let live = cluster
        .applications
        .get_mut(&application("engine"))
        .unwrap();
    live["status"]["resources"] = json!([resource(SERVER, false)]);
    assert_eq!(
        writes(&cluster.plan()),
        [
            ("lift", SERVER),
            ("shield", "engine"),
            ("shield", "linesman")
        ]
    );
}

/// W19: Argo CD prunes what a commit removed, itself included.
#[test]
fn what_a_commit_removed_is_held_and_made_again() {
    let mut cluster = owned("engine");
    let resource = json!({
        "group": "apps", "kind": "Deployment", "namespace": "argocd", "name": SERVER, "status": "OutOfSync",
        "requiresPruning": true,
    });
    let live = cluster
        .applications
        .get_mut(&application("engine"))
        .unwrap();
    live["status"]["resources"] = json!([resource]);
    let mut unread = cluster.applications.clone();
    let live = unread.get_mut(&application("engine")).unwrap();
    live["status"]["resources"][0]["status"] = json!("Unknown");
    let read = std::mem::replace(&mut cluster.applications, unread);
    assert_eq!(writes(&cluster.plan()), [], "the catalog cannot be read");
    cluster.applications = read;
    let plan = cluster.plan();
    let classes: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
    assert_eq!(classes, [Class::EngineRemovedByCommit]);
    let shields = [("shield", "linesman"), ("shield", "engine")];
    assert_eq!(
        writes(&plan),
        [&[("hold", SERVER)][..], &shields[..]].concat()
    );
    cluster.history.saw(cluster.now, &plan);
    do_all(&mut cluster, &plan);
    assert_eq!(writes(&cluster.plan()), []);

    // Argo CD was faster.
    let mut pruned = owned("engine");
    pruned.history = cluster.history.clone();
    pruned.objects.remove(&server());
    let mut wanted = pruned.install.wanted[&server()].clone();
    let mut expect = wanted.expect.as_ref().clone();
    expect["metadata"]["annotations"] = json!({TRACKING: "engine:apps/Deployment:argocd/x"});
    wanted.expect = Arc::new(expect);
    pruned.install.wanted.insert(server(), wanted);
    let plan = pruned.plan();
    assert_eq!(
        writes(&plan),
        [&[("create-held", SERVER)][..], &shields[..]].concat()
    );
    pruned.history.faults.clear();
    assert_eq!(
        writes(&pruned.plan()),
        [("create", SERVER)],
        "a person's deletion"
    );
}

/// W20: it is called by the commit that removed it, which Argo CD has seen and not applied yet, not by the one before.
#[test]
fn what_would_be_pruned_is_told_by_the_commit_that_removed_it() {
    let mut cluster = owned("engine");
    let engine = application("engine");
    let live = cluster.applications.get_mut(&engine).unwrap();
    live["status"] = json!({
        "sync": {"status": "OutOfSync", "revision": "after"},
        "operationState": {"phase": "Succeeded", "syncResult": {"revision": "before"}},
        "resources": [{
            "group": "apps", "kind": "Deployment", "namespace": "argocd", "name": SERVER,
            "status": "OutOfSync", "requiresPruning": true,
        }],
    });
    let told = |cluster: &Cluster| {
        let all = cluster.plan().findings;
        let all = all.into_iter().map(|f| (f.class, f.commit));
        all.collect::<Vec<_>>()
    };
    let removed = |by: &str| vec![(Class::EngineRemovedByCommit, by.to_owned())];
    assert_eq!(told(&cluster), removed("after"));
    let live = cluster.applications.get_mut(&engine).unwrap();
    live["status"]["sync"]["revision"] = json!("");
    assert_eq!(told(&cluster), removed("before"));
}

/// W19, W24: what would be pruned keeps itself from that; the Application that somebody is at work on is told when they are done.
#[test]
fn a_root_with_a_window_of_its_own_is_not_told_of_what_a_commit_removed() {
    let ((mut cluster, policy), server) = (with_policy("linesman"), server());
    let both = [&server, &policy].map(|id| (id, "OutOfSync", true));
    lists(&mut cluster, "linesman", &both);
    let shields = |cluster: &Cluster| {
        let plan = cluster.plan();
        let all = writes(&plan).into_iter();
        let (shields, holds): (Vec<_>, Vec<_>) = all.partition(|(did, _)| *did == "shield");
        (shields.len(), holds.len())
    };
    assert_eq!(shields(&cluster), (1, 2));
    let end = cluster.now + Duration::seconds(20);
    let root = cluster.objects.get_mut(&application("linesman")).unwrap();
    root.fields["metadata"]["annotations"][MAINTENANCE] = json!(rfc3339(end));
    assert_eq!(shields(&cluster), (0, 2));
    cluster.now = end;
    assert_eq!(shields(&cluster), (1, 2));
}

/// The network policy of Redis, which the Application brought as well.
fn with_policy(by: &str) -> (Cluster, ObjectId) {
    let mut cluster = owned(by);
    let policy = "argocd-redis-network-policy";
    let policy = ObjectId::new(Kind::NetworkPolicy, "argocd", policy);
    let tracked = format!(
        "{by}:networking.k8s.io/NetworkPolicy:argocd/{}",
        policy.name
    );
    let wanted = cluster.install.wanted.get_mut(&policy).unwrap();
    let mut expect = wanted.expect.as_ref().clone();
    let live = cluster.objects.get_mut(&policy).unwrap();
    for fields in [&mut expect, &mut live.fields] {
        fields["metadata"]["annotations"] = json!({TRACKING: tracked});
    }
    (wanted.expect, wanted.git_owned) = (Arc::new(expect), true);
    (cluster, policy)
}

/// The Application has looked at the next commit, and lists these: whether Git has them, and whether they would be pruned.
fn lists(cluster: &mut Cluster, by: &str, all: &[(&ObjectId, &str, bool)]) {
    looked_at(cluster, by, "2");
    let resource = |(id, status, pruned): &(&ObjectId, &str, bool)| {
        let (group, _, _) = id.kind.resource();
        json!({
            "group": group, "kind": id.kind.as_str(), "namespace": "argocd", "name": id.name,
            "status": status, "requiresPruning": pruned,
        })
    };
    let resources: Vec<serde_json::Value> = all.iter().map(resource).collect();
    let status = match cluster.objects.get_mut(&application(by)) {
        Some(root) => &mut root.fields["status"],
        None => &mut cluster.applications.get_mut(&application(by)).unwrap()["status"],
    };
    status["resources"] = json!(resources);
}

/// W22: a version of Argo CD that does without an object is followed, before Argo CD prunes that and afterwards.
#[test]
fn what_a_version_does_without_is_let_go() {
    let server = server();
    let there = (&server, "Synced", false);
    for by in ["linesman", "engine"] {
        let (mut cluster, policy) = with_policy(by);
        let told = |cluster: &Cluster| {
            let plan = cluster.plan();
            let did = writes(&plan).into_iter();
            let did: Vec<String> = did.map(|(did, to)| format!("{did} {to}")).collect();
            (did, plan.findings)
        };
        let nothing = (vec![], vec![]);
        lists(&mut cluster, by, &[there, (&policy, "OutOfSync", true)]);
        assert_eq!(told(&cluster), nothing, "{by}: is there");
        let live = cluster.objects.remove(&policy).unwrap();
        assert_eq!(told(&cluster), nothing, "{by}: went");
        lists(&mut cluster, by, &[there]);
        assert_eq!(told(&cluster), nothing, "{by}: is gone");
        lists(&mut cluster, by, &[there, (&policy, "OutOfSync", false)]);
        let (did, _) = told(&cluster);
        let made = [format!("create {}", policy.name)];
        assert_eq!(did, made, "{by}: a person's deletion");

        // With what the root needs it is the engine that was removed.
        cluster.objects.insert(policy.clone(), live);
        let both = [&server, &policy].map(|id| (id, "OutOfSync", true));
        lists(&mut cluster, by, &both);
        let (_, found) = told(&cluster);
        let held: Vec<&ObjectId> = found.iter().map(|f| &f.object).collect();
        assert_eq!(held, [&policy, &server], "{by}");
    }
}

/// W5, W22: an Application in another namespace than Argo CD's lists the engine's objects all the same.
#[test]
fn what_an_application_elsewhere_lists_of_the_engine_is_read() {
    let server = server();
    let there = (&server, "Synced", false);
    for in_git in [true, false] {
        let (mut cluster, policy) = with_policy("engine");
        let missing = in_git.then_some((&policy, "OutOfSync", false));
        let all: Vec<_> = [there].into_iter().chain(missing).collect();
        lists(&mut cluster, "engine", &all);
        let elsewhere = ObjectId::new(Kind::Application, "team", "engine");
        let mut live = cluster.applications.remove(&application("engine")).unwrap();
        live["metadata"]["namespace"] = json!("team");
        cluster.applications.insert(elsewhere, live);
        let wanted = cluster.install.wanted.get_mut(&policy).unwrap();
        let mut expect = wanted.expect.as_ref().clone();
        let tracked = "team_engine:networking.k8s.io/NetworkPolicy:argocd/x";
        expect["metadata"]["annotations"] = json!({TRACKING: tracked});
        wanted.expect = Arc::new(expect);
        cluster.objects.remove(&policy);
        let plan = cluster.plan();
        let expected = in_git.then_some(("create", policy.name.as_str()));
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(writes(&plan), expected, "{in_git}");
    }
}
