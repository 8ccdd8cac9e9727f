//! What Flux takes away with a commit that removes the engine, one object after the other.

use super::*;
use crate::agent::plan::state::Past;
use crate::agent::plan::tests::account;

const REMOVES: &str = "main@sha1:2";

/// Flux is in the midst of a commit. The first controller that it pruned was made again, and is gone again.
fn pruned_twice() -> Cluster {
    let mut cluster = owned();
    for (id, wanted) in &mut cluster.install.wanted {
        wanted.git_owned |= id.kind == Kind::ServiceAccount;
    }
    under_way(&mut cluster, REMOVES);
    let first = deployment("source-controller");
    cluster.objects.remove(&first);
    let past = Past {
        attempts: vec![cluster.now - Duration::seconds(5)],
        ..Past::default()
    };
    cluster.history.faults = [((Class::ObjectMissing, first), past)].into();
    cluster
}

/// Fetched and begun, and the one before is what was applied last.
fn under_way(cluster: &mut Cluster, revision: &str) {
    fetched(cluster, revision);
    let root = cluster.install.sync.clone();
    let root = cluster.objects.get_mut(&root).unwrap();
    root.fields["status"]["lastAppliedRevision"] = json!("main@sha1:1");
}

/// Flux is done with the commit, which has just these.
fn done(cluster: &mut Cluster, revision: &str, has: &[&str]) {
    fetched(cluster, revision);
    let entries: Vec<Value> = has.iter().map(|id| json!({"id": id, "v": "v1"})).collect();
    let root = cluster.install.sync.clone();
    let root = cluster.objects.get_mut(&root).unwrap();
    root.fields["status"]["inventory"] = json!({"entries": entries});
}

/// W19: made without a hold, a ServiceAccount is pruned a second time, and each time the controllers lose their tokens.
#[test]
fn what_goes_for_the_first_time_beside_what_goes_again_is_held_at_once() {
    let mut cluster = pruned_twice();
    // None that has a token of an account that went.
    cluster.pods.clear();
    cluster.objects.remove(&account("kustomize-controller"));
    let plan = cluster.plan();
    assert_eq!(
        writes(&plan),
        [("create-held", "kustomize-controller")],
        "a controller waits for the accounts"
    );
    let classes: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
    assert_eq!(classes[..2], [Class::EngineRemovedByCommit; 2]);
    do_all(&mut cluster, &plan);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("create-held", "source-controller")]);
    do_all(&mut cluster, &plan);
    cluster.history.faults.clear();
    cluster.objects.remove(&account("source-controller"));
    let plan = cluster.plan();
    assert_eq!(
        writes(&plan),
        [("create-held", "source-controller")],
        "what is held tells of it"
    );
}

/// W19: Flux prunes accounts and rights after the controllers. A Pod whose account is made anew cannot give up its Lease.
#[test]
fn what_controllers_run_by_is_held_before_flux_gets_there() {
    let mut cluster = pruned_twice();
    // A commit changed this one, so that it has it.
    let upgraded = deployment("kustomize-controller");
    let live = cluster.objects.get_mut(&upgraded).unwrap();
    *live.fields.pointer_mut(IMAGE).unwrap() = json!("x:v2");
    "kustomize-controller".clone_into(&mut live.writer);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("create-held", "source-controller")]);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    cluster.history.faults.clear();
    let plan = cluster.plan();
    let all: Vec<(&str, &ObjectId)> = plan
        .steps
        .iter()
        .map(|s| (s.action.as_str(), &s.target))
        .collect();
    let accounts = ["kustomize-controller", "source-controller"].map(account);
    assert_eq!(
        all,
        accounts.iter().map(|id| ("hold", id)).collect::<Vec<_>>()
    );
    do_all(&mut cluster, &plan);
    assert_eq!(writes(&cluster.plan()), [], "that is all");
    let held = hold(&cluster.objects[&accounts[0]]).unwrap();
    assert_eq!(
        (held.reason.as_str(), held.revision.as_str()),
        (
            "is kept while the engine prunes Deployment flux-system/source-controller with a commit",
            REMOVES
        )
    );
}

/// A person may delete something in that moment: nothing says that the commit has it no more.
#[test]
fn what_the_commit_still_has_is_given_back_when_flux_is_done_with_it() {
    let mut cluster = pruned_twice();
    let by_hand = account("kustomize-controller");
    cluster.objects.remove(&by_hand);
    for _ in 0..3 {
        let plan = cluster.plan();
        do_all(&mut cluster, &plan);
        works(&mut cluster);
        cluster.history.faults.clear();
    }
    let first = deployment("source-controller");
    let ahead = account("source-controller");
    for id in [&by_hand, &first, &ahead] {
        assert!(is_held(&cluster, id), "{id}");
    }
    assert_eq!(writes(&cluster.plan()), [], "Flux is not done yet");
    let has = ["kustomize-controller", "source-controller"];
    let has = has.map(|name| format!("flux-system_{name}__ServiceAccount"));
    done(&mut cluster, REMOVES, &[&has[0], &has[1]]);
    for id in [&by_hand, &ahead] {
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("lift", id.name.as_str())]);
        assert_eq!(plan.steps[0].target, *id);
        do_all(&mut cluster, &plan);
    }
    assert!(is_held(&cluster, &first));
    assert_eq!(writes(&cluster.plan()), Vec::new());
}

/// W5: beside a commit that takes nothing away, and after one that did, what somebody deletes is made again as ever.
#[test]
fn what_is_deleted_beside_another_commit_is_not_held() {
    let gone = account("kustomize-controller");
    for begun in [None, Some("main@sha1:3")] {
        let mut cluster = pruned_twice();
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("create-held", "source-controller")]);
        do_all(&mut cluster, &plan);
        cluster.history.faults.clear();
        works(&mut cluster);
        match begun {
            Some(another) => under_way(&mut cluster, another),
            None => done(&mut cluster, REMOVES, &["_default_apps_Deployment"]),
        }
        cluster.objects.remove(&gone);
        let made = [("create", "kustomize-controller")];
        assert_eq!(writes(&cluster.plan()), made, "{begun:?}");
    }
}

/// W22: Flux takes the install over. That it is Ready is there before what it applied and lists: nothing is missing from that list.
#[test]
fn what_is_taken_over_is_not_missed_in_the_list_of_before() {
    let mut cluster = Cluster::working();
    let space = ObjectId::new(Kind::Namespace, "", "flux-system");
    let now = cluster.now;
    let live = cluster.objects.get_mut(&space).unwrap();
    live.fields["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    live.written = Some(now - Duration::seconds(2));
    done(&mut cluster, "main@sha1:1", &["_hello__Namespace"]);
    under_way(&mut cluster, "main@sha1:2");
    let root = cluster.install.sync.clone();
    let root = cluster.objects.get_mut(&root).unwrap();
    root.fields["status"]["conditions"] = json!([{
        "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded",
        "lastTransitionTime": rfc3339(now - Duration::seconds(1)),
    }]);
    let is_removed = |cluster: &Cluster| removed(&cluster.install, &cluster.observed(), &space);
    assert!(!is_removed(&cluster));
    assert_eq!(writes(&cluster.plan()), Vec::new());
    // Done with it, it would list what it has.
    done(&mut cluster, "main@sha1:2", &["_hello__Namespace"]);
    assert!(is_removed(&cluster));
    done(
        &mut cluster,
        "main@sha1:2",
        &["_hello__Namespace", "_flux-system__Namespace"],
    );
    assert!(!is_removed(&cluster));
    assert_eq!(writes(&cluster.plan()), Vec::new());
}

/// W5: anybody may write Flux' label; of what Git never had, no list says that it has it no more.
#[test]
fn what_is_not_gits_is_not_missed_in_a_list_for_the_label_that_it_wears() {
    let mut cluster = owned();
    let (of_git, ours) = (
        deployment("source-controller"),
        account("source-controller"),
    );
    done(&mut cluster, "main@sha1:1", &["_hello__Namespace"]);
    for id in [&of_git, &ours] {
        let live = cluster.objects.get_mut(id).unwrap();
        live.fields["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    }
    let seen = cluster.observed();
    let gone = [&of_git, &ours].map(|id| removed(&cluster.install, &seen, id));
    assert_eq!(gone, [true, false]);
}
