//! W19 where a Kustomization below the root brings the engine: what is pruned is its, and so is what says so.

use super::dropped::{brought, entry, policy};
use super::*;
use crate::agent::engine::GIT_OWNER_NAMESPACE;
use crate::agent::plan::burst::Fate;
use crate::agent::plan::find::FRESH;
use crate::agent::plan::state::{Child, Past};
use crate::agent::plan::{plan, project};

const NEXT: &str = "main@sha1:2";

fn engine() -> ObjectId {
    ObjectId::new(Kind::Kustomization, "infra", "engine")
}

/// What it says of itself.
struct Below {
    tried: &'static str,
    applied: &'static str,
    /// Of its inventory.
    without: Vec<ObjectId>,
    ready: Value,
    dies: bool,
}

impl Below {
    fn done(revision: &'static str, without: &[ObjectId]) -> Self {
        Self {
            tried: revision,
            applied: revision,
            without: without.to_vec(),
            ready: json!({"type": "Ready", "status": "True"}),
            dies: false,
        }
    }

    fn at_work() -> Self {
        Self {
            tried: NEXT,
            ready: json!({"type": "Ready", "status": "Unknown"}),
            ..Self::done("main@sha1:1", &[])
        }
    }
}

/// A working cluster all of whose engine it brought; the root is done with the next commit.
fn owned_below() -> Cluster {
    let mut cluster = brought(&engine());
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let labels = &mut cluster.objects.get_mut(&namespace).unwrap().fields["metadata"]["labels"];
    labels[GIT_OWNER] = json!(engine().name);
    labels[GIT_OWNER_NAMESPACE] = json!(engine().namespace);
    fetched(&mut cluster, NEXT);
    let root = cluster.install.sync.clone();
    let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
    status["inventory"] = json!({"entries": [
        {"id": "infra_engine_kustomize.toolkit.fluxcd.io_Kustomization", "v": "v1"},
    ]});
    cluster
}

fn seen(cluster: &Cluster, below: &Below) -> Observed {
    let brought = |id: &ObjectId, gits: bool| gits || id.kind == Kind::Namespace;
    let listed = cluster.install.wanted.iter();
    let listed = listed.filter(|(id, w)| brought(id, w.git_owned) && !below.without.contains(id));
    let entries: Vec<Value> = listed.map(|(id, _)| json!({"id": entry(id)})).collect();
    let mut live = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {
            "name": engine().name, "namespace": engine().namespace, "generation": 1,
            "labels": {GIT_OWNER: "flux-system", GIT_OWNER_NAMESPACE: "flux-system"},
            "finalizers": ["finalizers.fluxcd.io"],
        },
        "spec": {"interval": "10m", "prune": true},
        "status": {
            "observedGeneration": 1, "inventory": {"entries": entries}, "conditions": [below.ready],
            "lastAttemptedRevision": below.tried, "lastAppliedRevision": below.applied,
        },
    });
    if below.dies {
        live["metadata"]["deletionTimestamp"] = json!(rfc3339(cluster.now));
    }
    let live = serde_json::from_value(live).unwrap();
    let kind = Kind::Kustomization;
    let child = Child {
        fate: Fate::of("flux-system", kind, &live),
        brings: project::brings(kind, &live),
        ..project::child("flux-system", kind, &live).unwrap_or_default()
    };
    Observed {
        children: Arc::new([(engine(), child)].into()),
        ..cluster.observed()
    }
}

fn planned(cluster: &Cluster, below: &Below) -> Plan {
    let seen = seen(cluster, below);
    plan(cluster.now, &cluster.install, &seen, &cluster.history)
}

#[test]
fn what_left_its_inventory_is_made_again_held_and_given_back() {
    let mut cluster = owned_below();
    assert_eq!(writes(&planned(&cluster, &Below::done(NEXT, &[]))), []);
    let id = deployment("source-controller");
    cluster.objects.remove(&id);
    let name = "source-controller";
    let by_hand = planned(&cluster, &Below::done(NEXT, &[]));
    assert_eq!(writes(&by_hand), [("create", name)]);
    let removed = Below::done(NEXT, std::slice::from_ref(&id));
    let plan = planned(&cluster, &removed);
    let found: Vec<_> = plan
        .findings
        .iter()
        .map(|f| (f.class, f.commit.as_str()))
        .collect();
    assert_eq!(found, [(Class::EngineRemovedByCommit, NEXT)]);
    assert_eq!(writes(&plan), [("create-held", name)]);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    assert_eq!(writes(&planned(&cluster, &removed)), []);

    // The root has the next commit, and what it brings not yet.
    fetched(&mut cluster, "main@sha1:3");
    assert_eq!(writes(&planned(&cluster, &removed)), []);
    let back = Below::done("main@sha1:3", &[]);
    let plan = planned(&cluster, &back);
    assert_eq!(writes(&plan), [("lift", name)]);
    assert_eq!(plan.steps[1].target, engine(), "who brings it is asked");
}

/// What its Kustomization broke stays held when that goes, for no commit of it comes. Somebody's order is obeyed all the same, as soon
/// as it is known that nothing is left that would prune it.
#[test]
fn what_is_held_of_one_that_has_gone_is_given_back_by_order() {
    let mut cluster = owned_below();
    let id = deployment("source-controller");
    let hold = Hold {
        revision: NEXT.to_owned(),
        since: rfc3339(cluster.now),
        reason: "is scaled to 0 by Git".to_owned(),
        attempt: 1,
        lifted: None,
        order: None,
        removal: false,
    };
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["metadata"]["annotations"] = json!({HELD: hold.text(), RECONCILE: "disabled"});
    cluster.now += Duration::hours(1);
    let planned = |cluster: &Cluster, awaited: bool| {
        let mut seen = cluster.observed();
        seen.awaited.extend(awaited.then_some(Kind::Kustomization));
        let steps = plan(cluster.now, &cluster.install, &seen, &cluster.history).steps;
        let of_it = |s: &Step| s.action != Action::Nudge || s.target == engine();
        let of_it = steps.into_iter().filter(of_it).map(|s| s.target);
        of_it.collect::<Vec<_>>()
    };
    let nothing: [ObjectId; 0] = [];
    assert_eq!(planned(&cluster, false), nothing);
    cluster.install.policy.lift_before = Some(cluster.now);
    assert_eq!(planned(&cluster, true), nothing);
    assert_eq!(planned(&cluster, false), [id]);
}

/// Flux prunes itself in the midst of the commit, and begins anew when it is back. The root is done by then.
#[test]
fn what_goes_again_while_it_is_at_work_or_dies_is_held() {
    let id = deployment("source-controller");
    let mut cluster = owned_below();
    cluster.objects.remove(&id);
    let missing = (Class::ObjectMissing, id);
    let name = "source-controller";
    assert_eq!(
        writes(&planned(&cluster, &Below::at_work())),
        [("create", name)]
    );
    let past = Past {
        attempts: vec![cluster.now - Duration::seconds(5)],
        ..Past::default()
    };
    cluster.history.faults = [(missing, past)].into();
    let done = Below::done(NEXT, &[]);
    assert_eq!(writes(&planned(&cluster, &done)), [("create", name)]);
    let plan = planned(&cluster, &Below::at_work());
    assert_eq!(writes(&plan), [("create-held", name)]);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    cluster.history.faults.clear();
    let ahead = planned(&cluster, &Below::at_work());
    let ahead: Vec<&str> = writes(&ahead).iter().map(|(did, _)| *did).collect();
    assert!(
        ahead.len() > 1 && ahead.iter().all(|did| *did == "hold"),
        "{ahead:?}"
    );
}

/// At the adoption the first snapshot may come before it has applied anything.
#[test]
fn what_no_snapshot_knows_as_gits_is_held_as_well() {
    let mut cluster = owned_below();
    for wanted in cluster.install.wanted.values_mut() {
        let mut expect = wanted.expect.as_ref().clone();
        let labels = expect.pointer_mut("/metadata/labels");
        if let Some(labels) = labels.and_then(Value::as_object_mut) {
            labels.retain(|name, _| !name.starts_with("kustomize.toolkit.fluxcd.io/"));
        }
        (wanted.expect, wanted.git_owned) = (Arc::new(expect), false);
    }
    let id = deployment("source-controller");
    let name = "source-controller";
    cluster.objects.remove(&id);
    let at_work = |cluster: &Cluster| {
        let mut seen = seen(cluster, &Below::at_work());
        let child = Arc::make_mut(&mut seen.children)
            .get_mut(&engine())
            .unwrap();
        let entries = [json!({"id": entry(&deployment("source-controller"))})];
        let said = json!({
            "inventory": {"entries": entries}, "lastAttemptedRevision": NEXT, "lastAppliedRevision": "main@sha1:1",
        });
        child.brings = Some(Arc::new(Brings::of(&said)));
        let plan = plan(cluster.now, &cluster.install, &seen, &cluster.history);
        let steps = writes(&plan).into_iter();
        steps
            .map(|(did, to)| format!("{did} {to}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(at_work(&cluster), [format!("create {name}")]);
    let past = Past {
        attempts: vec![cluster.now - Duration::seconds(5)],
        ..Past::default()
    };
    cluster.history.faults = [((Class::ObjectMissing, id), past)].into();
    assert_eq!(at_work(&cluster), [format!("create-held {name}")]);
}

/// Its end takes all that it brought. That is held before it gets there, where there is time for it.
#[test]
fn what_would_go_with_it_is_held_at_once() {
    let mut cluster = owned_below();
    let dies = Below {
        dies: true,
        ..Below::done(NEXT, &[])
    };
    let gone = deployment("source-controller");
    cluster.objects.remove(&gone);
    for _ in 0..3 {
        let plan = planned(&cluster, &dies);
        do_all(&mut cluster, &plan);
        works(&mut cluster);
    }
    let gits = cluster.install.wanted.iter().filter(|(_, w)| w.git_owned);
    let free: Vec<&ObjectId> = gits
        .map(|(id, _)| id)
        .filter(|id| !is_held(&cluster, id))
        .collect();
    assert_eq!(free, [] as [&ObjectId; 0]);
    assert!(cluster.objects.contains_key(&gone));
    // It is gone: what is held stays so until something in Git brings it.
    fetched(&mut cluster, "main@sha1:3");
    assert_eq!(writes(&cluster.plan()), []);
    // What went last is looked for when it is gone.
    cluster.objects.remove(&gone);
    let name = "source-controller";
    assert_eq!(writes(&cluster.plan()), [("create-held", name)]);
    let mut unknown = cluster.observed();
    unknown.awaited.insert(Kind::Kustomization);
    let plan = plan(cluster.now, &cluster.install, &unknown, &cluster.history);
    assert_eq!(writes(&plan), [("create", name)]);
}

/// What the guard policy keeps is held, too.
#[test]
fn what_it_is_refused_to_prune_is_held() {
    let cluster = owned_below();
    let text = "delete failed, errors: Namespace/flux-system delete failed: forbidden";
    let below = Below {
        ready: json!({"type": "Ready", "status": "False", "reason": "PruneFailed", "message": text}),
        ..Below::at_work()
    };
    assert_eq!(
        writes(&planned(&cluster, &below)),
        [("hold", "flux-system")]
    );
}

/// W22: a version that does without something, also while it is at work.
#[test]
fn what_its_version_does_without_is_let_go() {
    let mut cluster = owned_below();
    cluster.objects.remove(&policy());
    for below in [Below::at_work(), Below::done(NEXT, &[policy()])] {
        let plan = planned(&cluster, &below);
        assert_eq!((writes(&plan), &plan.findings[..]), (vec![], &[][..]));
    }
    let still = planned(&cluster, &Below::done(NEXT, &[]));
    assert_eq!(writes(&still), [("create", "allow-egress")]);
    // Another agent begins, and does not hear of what brings it.
    let made = vec![("create", "allow-egress")];
    for (ago, expected) in [(FRESH, vec![]), (FRESH + Duration::SECOND, made)] {
        let mut young = cluster.observed();
        young.awaited.insert(Kind::Kustomization);
        young.since = Some(cluster.now - ago);
        let plan = plan(cluster.now, &cluster.install, &young, &cluster.history);
        assert_eq!(writes(&plan), expected, "{ago}");
    }
}

/// W5: what else of the catalog is applied has nothing to do with the engine, and nothing of that is held for it.
#[test]
fn only_one_that_brings_something_of_the_engine_is_at_work_on_it() {
    let cluster = owned_below();
    let all: Vec<ObjectId> = cluster.install.wanted.keys().cloned().collect();
    let others = all.iter().filter(|id| **id != policy());
    for (without, at_work) in [(others.cloned().collect(), true), (all.clone(), false)] {
        let below = Below {
            without,
            ..Below::at_work()
        };
        let seen = seen(&cluster, &below);
        assert_eq!(is_at_work(&cluster.install, &seen), at_work);
    }
}

/// W19: for a moment two may have it in their lists, as it is moved from one to the other.
#[test]
fn an_object_is_of_the_one_that_its_labels_name_where_that_lists_it() {
    let cluster = owned_below();
    let (sync, id) = (&cluster.install.sync, policy());
    let other = ObjectId::new(Kind::Kustomization, "apps", "engine");
    let says = |lists: bool| {
        let entries = lists.then(|| json!({"id": entry(&id)}));
        let entries: Vec<Value> = entries.into_iter().collect();
        json!({"entries": entries})
    };
    let child = |lists: bool| Child {
        brings: Some(Arc::new(Brings::of(&json!({"inventory": says(lists)})))),
        ..Child::default()
    };
    for (of_named, of_other, of_root, by, listed) in [
        (true, true, true, &engine(), Some(&other)),
        (true, false, true, &engine(), Some(&engine())),
        (false, true, true, &other, Some(&other)),
        (false, false, true, sync, Some(sync)),
        (false, false, false, &engine(), None),
    ] {
        let mut seen = cluster.observed();
        let children = [
            (engine(), child(of_named)),
            (other.clone(), child(of_other)),
        ];
        seen.children = Arc::new(children.into());
        let root = Arc::make_mut(seen.objects.get_mut(sync).unwrap());
        root.fields["status"]["inventory"] = says(of_root);
        let install = &cluster.install;
        let said = (owner(install, &seen, &id), lister(install, &seen, &id));
        let expected = (by.clone(), listed.cloned());
        assert_eq!(said, expected, "{of_named} {of_other} {of_root}");
    }
}
