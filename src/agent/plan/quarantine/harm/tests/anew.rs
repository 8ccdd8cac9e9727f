//! Questions that are asked ever anew, because something else is mended again and again (W17, W18).

use proptest::prelude::*;

use super::*;
use crate::agent::engine::argocd::REFRESH;
use crate::agent::plan::busy::Turn;
use crate::agent::plan::plan;
use crate::agent::plan::probes::ROLLED;
use crate::agent::plan::state::{Child, Lease};

/// How long it may take until the verdict is looked for again.
const LOOK: Duration = Duration::seconds(5);

/// What a commit changes, and for how long that may leave a question without an answer.
fn changes() -> [(EngineKind, ObjectId, Duration); 3] {
    let controller = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    [
        (EngineKind::Flux, controller, UNANSWERED),
        (EngineKind::Flux, binding(), DEAF),
        (EngineKind::Argocd, settings_map(PARAMS), DEAF),
    ]
}

/// A commit changes `id` in a way that may be meant so.
fn change(cluster: &mut Cluster, id: &ObjectId) {
    let by = cluster.install.traits.applier;
    match id.kind {
        Kind::Deployment => {
            let mut spec = cluster.objects[id].fields["spec"].clone();
            spec["template"]["spec"]["containers"][0]["args"] = json!(["--watch-label-selector=a"]);
            written(cluster, id, by, "spec", spec);
        }
        Kind::ConfigMap => written(cluster, id, by, "data", json!({"x": "y"})),
        _ => emptied(cluster, id),
    }
}

/// The root is asked now; nobody answers.
fn ask(cluster: &mut Cluster) {
    cluster.now -= Duration::SECOND;
    asked_in_vain(cluster);
    cluster.now += Duration::SECOND;
    let root = cluster.install.sync.clone();
    if root.kind == Kind::Application {
        let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
        fields["metadata"]["annotations"][REFRESH] = json!("normal");
    }
}

/// Who answers says so, and begins anew.
fn answer(cluster: &mut Cluster) {
    let root = cluster.install.sync.clone();
    let asked = cluster.objects[&root].annotation(REQUESTED_AT);
    let asked = asked.unwrap_or_default().to_owned();
    let now = rfc3339(cluster.now);
    root_says(
        cluster,
        &json!({"lastHandledReconcileAt": asked, "reconciledAt": now}),
    );
}

/// When `id` is called broken first, from its change on. Each of `gaps` ends with another question, and with an answer to the one
/// before where somebody `answers`.
fn named(
    (engine, id): (EngineKind, &ObjectId),
    gaps: impl Iterator<Item = i32>,
    answers: bool,
) -> Option<Duration> {
    let mut cluster = working(engine, true);
    change(&mut cluster, id);
    let changed = cluster.now;
    cluster.now += Duration::SECOND;
    ask(&mut cluster);
    for gap in gaps {
        let next = cluster.now + Duration::seconds(i64::from(gap));
        while cluster.now < next {
            let observed = cluster.observed();
            let (now, install) = (cluster.now, cluster.install.clone());
            cluster.history.noted(now, &install, &observed);
            let plan = cluster.plan();
            let broken = |f: &Finding| f.object == *id && f.class == Class::BadEngineCommit;
            if plan.findings.iter().any(broken) {
                return Some(now - changed);
            }
            cluster.now = next.min(now + LOOK);
        }
        if answers {
            answer(&mut cluster);
        }
        ask(&mut cluster);
    }
    None
}

#[test]
fn a_commit_that_silences_the_engine_is_named_although_it_is_asked_ever_anew() {
    for (engine, id, limit) in changes() {
        let named = named((engine, &id), std::iter::repeat_n(20, 30), false);
        let latest = ROLLED + limit + LOOK * 2;
        assert!(
            named.is_some_and(|after| after > limit && after <= latest),
            "{id}: {named:?}"
        );
    }
}

/// A Pod of before may be the one that was asked first.
#[test]
fn a_question_from_before_the_change_is_no_question_about_it() {
    for (engine, id, limit) in changes() {
        let mut cluster = working(engine, true);
        ask(&mut cluster);
        let observed = cluster.observed();
        let (now, install) = (cluster.now, cluster.install.clone());
        cluster.history.noted(now, &install, &observed);
        cluster.now += Duration::minutes(2);
        change(&mut cluster, &id);
        cluster.now += ROLLED;
        ask(&mut cluster);
        for (after, broken) in [(Duration::ZERO, false), (limit + Duration::SECOND, true)] {
            cluster.now += after;
            let (now, observed) = (cluster.now, cluster.observed());
            cluster.history.noted(now, &install, &observed);
            let plan = cluster.plan();
            let found = plan.findings.iter();
            let named = found.filter(|f| f.object == id && f.class == Class::BadEngineCommit);
            assert_eq!(named.count() == 1, broken, "{id} {after}");
        }
    }
}

/// W22: with each of its workers at a Kustomization that takes its time, the new version has none left for the root.
#[test]
fn an_upgrade_that_is_at_work_is_not_called_off_for_its_silence() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    for (at_work, broken) in [(4, false), (3, true), (0, true)] {
        let mut cluster = working(EngineKind::Flux, true);
        change(&mut cluster, &id);
        let began = cluster.now;
        cluster.now += ROLLED;
        ask(&mut cluster);
        let child = Child {
            turn: Some(Turn {
                began,
                ends: began + Duration::minutes(10),
            }),
            ..Child::default()
        };
        let app = |n| ObjectId::new(Kind::Kustomization, "apps", &format!("app-{n}"));
        let children: std::collections::BTreeMap<ObjectId, Child> =
            (0..at_work).map(|n| (app(n), child.clone())).collect();
        let mut named = false;
        for _ in 0..20 {
            let mut observed = cluster.observed();
            observed.children = Arc::new(children.clone());
            let (now, install) = (cluster.now, cluster.install.clone());
            cluster.history.noted(now, &install, &observed);
            let plan = plan(now, &install, &observed, &cluster.history);
            let harm = |f: &Finding| f.object == id && f.class == Class::BadEngineCommit;
            named |= plan.findings.iter().any(harm);
            cluster.now += LOOK;
        }
        assert_eq!(named, broken, "{at_work}");
    }
}

/// When a commit's version of `id` is called broken, from its change on: so many seconds after that the root `said` that it is in health
/// checks, and the Pod that leads `runs`, and leads, since then. Whether its selector selects the root, the root's `label` says.
fn in_checks(id: &ObjectId, (runs, said): (i64, i64), label: &str) -> Option<Duration> {
    const NAME: &str = "kustomize-controller";
    let mut cluster = working(EngineKind::Flux, true);
    change(&mut cluster, id);
    let root = cluster.install.sync.clone();
    cluster.objects.get_mut(&root).unwrap().fields["metadata"]["labels"] = json!({(label): ""});
    let changed = cluster.now;
    let after = |seconds: i64| changed + Duration::seconds(seconds);
    cluster.pods.get_mut(NAME).unwrap().running = Some(after(runs));
    let message = "Running health checks for revision main@sha1:1 with a timeout of 5m0s";
    let conditions = json!([
        {"type": "Ready", "status": "Unknown", "reason": "Progressing"},
        {
            "type": "Reconciling", "status": "True", "reason": "Progressing", "message": message,
            "lastTransitionTime": rfc3339(after(said)),
        },
    ]);
    root_says(&mut cluster, &json!({"conditions": conditions}));
    cluster.now += ROLLED;
    ask(&mut cluster);
    for _ in 0..120 {
        let mut observed = cluster.observed();
        let (now, install) = (cluster.now, cluster.install.clone());
        let lease = Lease {
            uid: "lease".to_owned(),
            holder: NAME.to_owned(),
            acquired: Some(after(runs)),
            renewed: now,
            seen: now,
        };
        let controller = install.controller(&install.sync);
        let name = observed.lease_name(&controller);
        observed.leases.insert(name, lease);
        cluster.history.noted(now, &install, &observed);
        let plan = plan(now, &install, &observed, &cluster.history);
        let broken = |f: &Finding| f.object == *id && f.class == Class::BadEngineCommit;
        if plan.findings.iter().any(broken) {
            return Some(now - changed);
        }
        cluster.now += LOOK;
    }
    None
}

/// W18, W22: where a root's health checks take minutes, the new version answers nobody until they are over, and no later. What the version
/// before it was at when it ended is no word of one that never looked.
#[test]
fn an_upgrade_whose_root_is_in_health_checks_is_not_called_off_for_its_silence() {
    let controller = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let role = ObjectId::new(Kind::ClusterRole, "", "crd-controller-flux-system");
    let checks = |said: i64| Duration::seconds(said + 330);
    for (id, at, label, owed) in [
        (&controller, (3, 10), "a", checks(10)),
        (&controller, (3, 3), "a", checks(3)),
        (&controller, (3, 1), "a", ROLLED + UNANSWERED),
        // It is the word of the one before it, which led beside it: this one hears of no root.
        (&controller, (3, 10), "b", ROLLED + UNANSWERED),
        (&role, (-100, 1), "b", checks(1)),
        // A controller that has no rights any more waits in vain.
        (&binding(), (-100, 1), "b", ROLLED + DEAF),
    ] {
        let named = in_checks(id, at, label);
        let within = owed..=owed + LOOK * 2;
        assert!(
            named.is_some_and(|took| within.contains(&took)),
            "{id} {at:?} {label}: {named:?}"
        );
    }
}

/// What else a commit may do to an object, and whether controllers have less by it.
#[test]
fn only_what_takes_something_from_a_controller_is_not_waited_for() {
    let policy = ObjectId::new(Kind::NetworkPolicy, "flux-system", "allow-egress");
    let subject =
        |name: &str| json!({"kind": "ServiceAccount", "namespace": "flux-system", "name": name});
    let (own, other) = (subject("kustomize-controller"), subject("other"));
    let role = json!({"kind": "ClusterRole", "name": "cluster-admin"});
    let bound = |subjects: Value| json!({"subjects": subjects, "roleRef": role});
    let before = bound(json!([own, other]));
    let open = json!({"spec": {"egress": [{}]}, "metadata": {"labels": {"version": "1"}}});
    let cut = json!({"spec": {"egress": []}, "metadata": {"labels": {"version": "1"}}});
    let labelled = json!({"spec": {"egress": [{}]}, "metadata": {"labels": {"version": "2"}}});
    for (id, before, now, expected) in [
        (binding(), &before, Some(&before), false),
        (
            binding(),
            &before,
            Some(&bound(json!([subject("new"), other, own]))),
            false,
        ),
        (binding(), &before, Some(&bound(json!([other]))), true),
        (binding(), &before, Some(&bound(Value::Null)), true),
        (
            binding(),
            &before,
            Some(
                &json!({"subjects": [own, other], "roleRef": {"kind": "ClusterRole", "name": "view"}}),
            ),
            true,
        ),
        (binding(), &before, None, true),
        (policy.clone(), &open, Some(&labelled), false),
        (policy.clone(), &open, Some(&cut), true),
        (policy, &open, None, true),
    ] {
        let mut cluster = working(EngineKind::Flux, true);
        let wanted = cluster.install.wanted.get_mut(&id).unwrap();
        wanted.expect = Arc::new(before.clone());
        let mut observed = cluster.observed();
        match now {
            Some(now) => {
                let mut live = observed.objects[&id].as_ref().clone();
                live.fields = now.clone();
                observed.objects.insert(id.clone(), Arc::new(live));
            }
            None => drop(observed.objects.remove(&id)),
        }
        assert_eq!(
            takes(&cluster.install, &observed, &id),
            expected,
            "{id} {now:?}"
        );
    }
}

/// With the Git host away a fetch takes its whole time, whatever a commit changed.
#[test]
fn a_source_that_cannot_reach_its_host_is_not_named_for_its_silence() {
    let controller = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    for (message, broken) in [("dial tcp: i/o timeout", false), ("", true)] {
        let mut cluster = working(EngineKind::Flux, true);
        let source = cluster.install.source.clone();
        let mut spec = cluster.objects[&controller].fields["spec"].clone();
        spec["template"]["spec"]["containers"][0]["args"] = json!(["--storage-adv-addr=x"]);
        let by = cluster.install.traits.applier;
        written(&mut cluster, &controller, by, "spec", spec);
        cluster.now += Duration::SECOND;
        let asked = rfc3339(cluster.now);
        let said = json!([{"type": "Ready", "status": "Unknown", "message": message}]);
        let fields = &mut cluster.objects.get_mut(&source).unwrap().fields;
        fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
        fields["status"]["conditions"] = said;
        let mut named = false;
        for _ in 0..20 {
            let (now, observed) = (cluster.now, cluster.observed());
            let install = cluster.install.clone();
            cluster.history.noted(now, &install, &observed);
            let mut found = cluster.plan().findings.into_iter();
            named |= found.any(|f| f.object == controller && f.class == Class::BadEngineCommit);
            cluster.now += LOOK;
        }
        assert_eq!(named, broken, "{message}");
    }
}

/// W22: a look that was asked for is an answer, by whatever clock; a question that was taken without one is none.
#[test]
fn a_commit_is_not_blamed_for_the_clock_of_the_controller_that_looks() {
    let id = settings_map(PARAMS);
    for (looks, broken) in [(true, false), (false, true)] {
        let mut cluster = working(EngineKind::Argocd, true);
        change(&mut cluster, &id);
        cluster.now += ROLLED;
        ask(&mut cluster);
        if looks {
            let behind = rfc3339(cluster.now - Duration::seconds(3));
            root_says(&mut cluster, &json!({"reconciledAt": behind}));
        }
        let root = cluster.install.sync.clone();
        let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
        fields["metadata"]["annotations"][REFRESH] = Value::Null;
        cluster.now += DEAF + Duration::SECOND;
        let (now, observed) = (cluster.now, cluster.observed());
        let install = cluster.install.clone();
        cluster.history.noted(now, &install, &observed);
        let found = cluster.plan().findings.into_iter();
        let named = found.filter(|f| f.object == id && f.class == Class::BadEngineCommit);
        assert_eq!(named.count() == 1, broken, "{looks}");
    }
}

/// W18: where each question is taken and no look comes of any, nobody hangs, and the commit is named as soon as where nobody takes them.
#[test]
fn a_commit_by_which_argo_cd_looks_at_nothing_is_named_although_it_is_asked_ever_anew() {
    let id = settings_map(PARAMS);
    let mut cluster = working(EngineKind::Argocd, true);
    change(&mut cluster, &id);
    let changed = cluster.now;
    cluster.now += Duration::SECOND;
    let root = cluster.install.sync.clone();
    let (mut named, mut hangs) = (None, false);
    for round in 0..40 {
        if round % 2 == 0 {
            ask(&mut cluster);
        } else {
            let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
            fields["metadata"]["annotations"][REFRESH] = Value::Null;
        }
        let (now, observed) = (cluster.now, cluster.observed());
        let install = cluster.install.clone();
        cluster.history.noted(now, &install, &observed);
        let plan = cluster.plan();
        let broken = |f: &Finding| f.object == id && f.class == Class::BadEngineCommit;
        if plan.findings.iter().any(broken) {
            named.get_or_insert(now - changed);
        }
        let mut all = plan.findings.iter();
        hangs |= all.any(|f| f.class == Class::QueueWedged);
        cluster.now += LOOK;
    }
    let within = DEAF..=ROLLED + DEAF + LOOK * 2;
    assert!(named.is_some_and(|at| within.contains(&at)), "{named:?}");
    assert!(!hangs);
}

/// What somebody else asks for, long after our question has its answer, is no question of ours.
#[test]
fn a_refresh_of_somebody_elses_does_not_count_against_a_commit() {
    let mut cluster = working(EngineKind::Argocd, true);
    let id = settings_map(PARAMS);
    change(&mut cluster, &id);
    cluster.now += ROLLED;
    ask(&mut cluster);
    cluster.now += Duration::seconds(3);
    answer(&mut cluster);
    // Asked 60 s later, and waits for its turn behind others.
    cluster.now += Duration::seconds(60);
    let (now, observed) = (cluster.now, cluster.observed());
    let install = cluster.install.clone();
    cluster.history.noted(now, &install, &observed);
    let mut found = cluster.plan().findings.into_iter();
    assert!(!found.any(|f| f.object == id));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_meanwhile_it_is_named_in_time(gaps in prop::collection::vec(1_i32..90, 1..20)) {
        for (engine, id, limit) in changes() {
            let ever = gaps.iter().copied().cycle().take(200);
            let named = named((engine, &id), ever, false);
            // Asked while the Pod of before was there, and then not for long.
            let latest = ROLLED + limit + LOOK * 2;
            prop_assert!(named.is_some_and(|after| after <= latest), "{id}: {named:?}");
        }
    }

    #[test]
    fn who_answers_in_time_is_not_named(gaps in prop::collection::vec(1_i32..30, 1..16)) {
        for (engine, id, _) in changes() {
            let named = named((engine, &id), gaps.iter().copied(), true);
            prop_assert_eq!(named, None, "{}", id);
        }
    }
}
