//! A version of the engine in Git that no longer has an object of the install, beside a commit that removes the engine.

use super::*;
use crate::agent::engine::flux::HELM;
use crate::agent::engine::{GIT_OWNER_NAMESPACE, Install};
use crate::agent::gate::policy::Mending;
use crate::agent::plan::state::{OwnLook, OwnRead};
use crate::agent::plan::tests::{account, desired_with, flux_with_helm};
use crate::agent::plan::{History, ownership, settled};
use crate::wire::api::EngineKind;

const NEXT: &str = "main@sha1:2";

pub(super) fn policy() -> ObjectId {
    ObjectId::new(Kind::NetworkPolicy, "flux-system", "allow-egress")
}

fn binding() -> ObjectId {
    let name = "cluster-reconciler-flux-system";
    ObjectId::new(Kind::ClusterRoleBinding, "", name)
}

/// With helm-controller, too. All of it that may be Git's is, brought by this Kustomization, as the last snapshot knows.
fn install(by: &ObjectId) -> Install {
    let desired = desired_with(EngineKind::Flux, flux_with_helm());
    let of = |snapshot: &BTreeMap<ObjectId, Value>| {
        Install::new(&desired, snapshot, Some(Mending::default()))
    };
    let plain = of(&BTreeMap::new());
    let gits = plain.wanted.keys().filter(|id| plain.may_be_gits(id));
    let snapshot = gits.map(|id| {
        let mut body = plain.body(id).unwrap();
        body["metadata"]["labels"][GIT_OWNER] = json!(by.name);
        body["metadata"]["labels"][GIT_OWNER_NAMESPACE] = json!(by.namespace);
        (id.clone(), body)
    });
    of(&snapshot.collect())
}

/// A working cluster all of whose engine that brought from Git.
pub(super) fn brought(by: &ObjectId) -> Cluster {
    let mut cluster = Cluster::working_with(install(by));
    for (id, live) in &mut cluster.objects {
        live.marked = cluster.install.wanted[id].git_owned;
    }
    cluster.now += Duration::seconds(30);
    cluster
}

/// The same, brought by the root.
pub(super) fn in_git() -> Cluster {
    let root = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
    let mut cluster = brought(&root);
    says(&mut cluster, &[]);
    cluster
}

/// The root is done with what it tried last, and lists all but these.
pub(super) fn says(cluster: &mut Cluster, without: &[ObjectId]) {
    let of_git = cluster.install.wanted.iter().filter(|(_, w)| w.git_owned);
    let listed = of_git.filter(|(id, _)| !without.contains(id));
    let entries: Vec<Value> = listed.map(|(id, _)| json!({"id": entry(id)})).collect();
    let root = cluster.install.sync.clone();
    let root = cluster.objects.get_mut(&root).unwrap();
    root.fields["status"]["inventory"] = json!({"entries": entries});
}

pub(super) fn entry(id: &ObjectId) -> String {
    let (group, _, _) = id.kind.resource();
    format!("{}_{}_{group}_{}", id.namespace, id.name, id.kind)
}

fn gone(cluster: &mut Cluster, all: &[ObjectId]) {
    for id in all {
        assert!(cluster.objects.remove(id).is_some(), "{id}");
    }
}

/// A commit without these, which Flux has applied.
fn drops(cluster: &mut Cluster, all: &[ObjectId]) {
    gone(cluster, all);
    fetched(cluster, NEXT);
    says(cluster, all);
}

/// What is called by which class, and what is done to what.
type Told<'a> = (Vec<(Class, &'a str)>, Vec<(&'a str, &'a str)>);

fn told(plan: &Plan) -> Told<'_> {
    let all = plan.findings.iter();
    let all = all.map(|f| (f.class, f.object.name.as_str()));
    (all.collect(), writes(plan))
}

/// W22: nobody writes to what is Git's, and the engine is what Git says it is.
#[test]
fn what_a_version_does_without_is_let_go() {
    let helm = [deployment(HELM), account(HELM)];
    for dropped in [vec![policy()], helm.to_vec()] {
        let mut cluster = in_git();
        assert_eq!(told(&cluster.plan()), (vec![], vec![]));
        drops(&mut cluster, &dropped);
        assert_eq!(told(&cluster.plan()), (vec![], vec![]), "{dropped:?}");
        cluster.objects.remove(&deployment("source-controller"));
        let made = [("create", "source-controller")];
        assert_eq!(writes(&cluster.plan()), made, "no other heal waits for it");
    }
}

/// W22, W5: Flux prunes before it says that it did. What somebody deletes meanwhile comes back when it is done.
#[test]
fn what_goes_while_flux_is_at_a_commit_is_not_made_before_that_is_done() {
    for (in_git_still, expected) in [(false, vec![]), (true, vec![("create", "allow-egress")])] {
        let mut cluster = in_git();
        fetched(&mut cluster, NEXT);
        let root = cluster.install.sync.clone();
        let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
        status["lastAppliedRevision"] = json!("main@sha1:1");
        status["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
        gone(&mut cluster, &[policy()]);
        assert_eq!(told(&cluster.plan()), (vec![], vec![]), "it is at work");
        fetched(&mut cluster, NEXT);
        let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
        status["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        if !in_git_still {
            says(&mut cluster, &[policy()]);
        }
        assert_eq!(writes(&cluster.plan()), expected);
    }
}

/// A commit that fails before anything is pruned takes nothing away.
#[test]
fn what_goes_beside_a_commit_that_fails_is_made_again() {
    let mut cluster = in_git();
    fetched(&mut cluster, NEXT);
    let root = cluster.install.sync.clone();
    let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
    status["lastAppliedRevision"] = json!("main@sha1:1");
    let ready = json!({"type": "Ready", "status": "False", "reason": "ReconciliationFailed"});
    status["conditions"] = json!([ready]);
    gone(&mut cluster, &[policy()]);
    assert_eq!(writes(&cluster.plan()), [("create", "allow-egress")]);
}

/// W18, W19: without what its roots need there is no engine, and all that such a commit removed is kept.
#[test]
fn what_the_roots_need_is_held_and_what_went_with_it() {
    for needed in [
        binding(),
        account("kustomize-controller"),
        ObjectId::new(Kind::Service, "flux-system", "source-controller"),
        deployment("source-controller"),
    ] {
        let mut cluster = in_git();
        cluster.pods.clear();
        let all = [needed.clone(), policy()];
        drops(&mut cluster, &all);
        let mut made: Vec<String> = Vec::new();
        for _ in 0..3 {
            let plan = cluster.plan();
            made.extend(writes(&plan).iter().map(|(did, to)| format!("{did} {to}")));
            do_all(&mut cluster, &plan);
            works(&mut cluster);
        }
        made.sort();
        made.dedup();
        let mut expected = [
            "create-held allow-egress".to_owned(),
            format!("create-held {}", needed.name),
        ];
        expected.sort();
        assert_eq!(made, expected);
        assert!(all.iter().all(|id| is_held(&cluster, id)), "{needed}");
    }
}

/// F44: what shows that the engine cannot do without it.
#[test]
fn what_the_engine_turns_out_to_need_is_held() {
    let mut cluster = in_git();
    drops(&mut cluster, &[policy()]);
    let since = cluster.now;
    let read = |last| OwnLook::Read(OwnRead { since, last });
    let planned = |cluster: &mut Cluster, own_look: OwnLook| {
        let seen = Observed {
            own_look,
            ..cluster.observed()
        };
        cluster.history.noted(cluster.now, &cluster.install, &seen);
        let (now, install) = (cluster.now, &cluster.install);
        crate::agent::plan::plan(now, install, &seen, &cluster.history)
    };
    assert_eq!(writes(&planned(&mut cluster, read(since))), []);
    cluster.now += Duration::seconds(10);
    let now = cluster.now;
    let source = cluster.install.source.clone();
    let status = &mut cluster.objects.get_mut(&source).unwrap().fields["status"];
    status["conditions"] = json!([{
        "type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": "dial tcp: i/o timeout",
        "lastTransitionTime": rfc3339(now),
    }]);
    let away = planned(&mut cluster, OwnLook::Failed);
    assert_eq!(writes(&away), [], "nobody reaches the Git host");
    let before = planned(&mut cluster, read(since));
    assert_eq!(writes(&before), [], "nobody has looked since");
    let plan = planned(&mut cluster, read(now));
    assert_eq!(writes(&plan), [("create-held", "allow-egress")]);
    let all = plan.findings.iter();
    let all: Vec<Class> = all
        .filter(|f| f.object == policy())
        .map(|f| f.class)
        .collect();
    assert_eq!(all, [Class::EngineRemovedByCommit]);
    do_all(&mut cluster, &plan);
    assert!(is_held(&cluster, &policy()));
}

/// The next snapshot has it no more, and says so: what is not there is no fault from then on, until Git has it again.
#[test]
fn the_next_snapshot_knows_what_the_engine_does_without() {
    let mut cluster = in_git();
    drops(&mut cluster, &[policy()]);
    works(&mut cluster);
    let seen = cluster.observed();
    cluster.history.noted(cluster.now, &cluster.install, &seen);
    let due = |cluster: &Cluster| {
        let (seen, plan) = (cluster.observed(), cluster.plan());
        let (now, history) = (cluster.now, &cluster.history);
        let install = ownership::in_force(now, &cluster.install, &seen, history);
        let due = settled::is_due(now, (&install, &seen), history, &plan, None);
        let dropped = install.dropped.iter().cloned().collect::<Vec<_>>();
        (due, dropped, install.wanted.contains_key(&policy()))
    };
    assert_eq!(due(&cluster), (false, vec![policy()], false), "just now");
    cluster.now += Duration::minutes(11);
    let now = rfc3339(cluster.now);
    for root in [cluster.install.source.clone(), cluster.install.sync.clone()] {
        let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
        fields["metadata"]["annotations"][REQUESTED_AT] = json!(now);
        fields["status"]["lastHandledReconcileAt"] = json!(now);
    }
    assert_eq!(due(&cluster), (true, vec![policy()], false));

    // Of the snapshot that is taken then nothing is left that says that it was Git's.
    let wanted = cluster.install.wanted.get_mut(&policy()).unwrap();
    let mut expect = wanted.expect.as_ref().clone();
    expect["metadata"]["labels"].take();
    (wanted.expect, wanted.git_owned) = (Arc::new(expect), false);
    assert_eq!(writes(&cluster.plan()), [("create", "allow-egress")]);
    cluster.install.dropped = [policy()].into();
    assert_eq!(told(&cluster.plan()), (vec![], vec![]));
    cluster.history = History {
        adopted: true,
        ..History::default()
    };
    assert_eq!(told(&cluster.plan()), (vec![], vec![]), "a new agent");

    // Git has it again.
    let mut live = in_git().objects.remove(&policy()).unwrap();
    live.written = Some(cluster.now);
    cluster.objects.insert(policy(), live);
    let gits = |cluster: &mut Cluster, is: bool| {
        cluster.install.wanted.get_mut(&policy()).unwrap().git_owned = is;
    };
    gits(&mut cluster, true);
    says(&mut cluster, &[]);
    gits(&mut cluster, false);
    let (_, dropped, wanted) = due(&cluster);
    assert_eq!((dropped, wanted), (vec![], true));
}
