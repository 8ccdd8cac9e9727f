use std::collections::BTreeSet;

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::*;
use crate::agent::engine::REQUESTED_AT;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::plan::fault::Class;
use crate::agent::plan::pace;
use crate::agent::plan::quarantine::shield::Shield;
use crate::agent::plan::tests::{Bad, Cluster, Fails};
use crate::bundle::Kind;
use crate::clock::rfc3339;

/// Takes all objects of these kinds away.
fn without(cluster: &mut Cluster, kinds: &[Kind]) -> BTreeMap<ObjectId, Object> {
    let all = std::mem::take(&mut cluster.objects);
    let (gone, left) = all
        .into_iter()
        .partition(|(id, _)| kinds.contains(&id.kind));
    cluster.objects = left;
    gone
}

fn done(cluster: &Cluster) -> Vec<(&str, &str)> {
    let steps = cluster.steps.iter();
    let writes = steps.filter(|(_, step)| !step.action.asks());
    writes
        .map(|(_, step)| (step.action.as_str(), step.target.name.as_str()))
        .collect()
}

/// W5, W6: to look again before each step costs no round.
#[test]
fn all_that_is_missing_is_back_after_one_pass() {
    let mut cluster = Cluster::working();
    let kinds = [
        Kind::ClusterRole,
        Kind::ClusterRoleBinding,
        Kind::Service,
        Kind::NetworkPolicy,
    ];
    let gone: BTreeSet<ObjectId> = without(&mut cluster, &kinds).into_keys().collect();
    assert!(gone.len() >= 5, "{gone:?}");
    cluster.round();
    let made = cluster.steps.iter();
    let made = made.filter(|(_, step)| step.action == Action::Create);
    let made: BTreeSet<ObjectId> = made.map(|(_, step)| step.target.clone()).collect();
    assert_eq!(made, gone);
}

/// W22: what somebody made again in the meantime, Git's next version of it maybe, is not written over.
#[test]
fn what_came_back_meanwhile_is_left_alone() {
    let mut cluster = Cluster::working();
    let mut gone = without(&mut cluster, &[Kind::Service, Kind::NetworkPolicy]);
    let planned = cluster.plan().steps;
    let (first, last) = (&planned[0].target, &planned[1].target);
    let mut theirs = gone.remove(last).unwrap();
    theirs.fields["spec"] = json!({"of": "another version"});
    "theirs".clone_into(&mut theirs.uid);
    cluster.install.wanted.get_mut(last).unwrap().git_owned = true;
    cluster.round_with(|cluster| drop(cluster.objects.insert(last.clone(), theirs.clone())));
    assert_eq!(done(&cluster), [("create", first.name.as_str())]);
    assert_eq!(cluster.objects[last], theirs);
}

/// W24
#[test]
fn a_window_that_begins_meanwhile_ends_the_pass() {
    let mut cluster = Cluster::working();
    without(&mut cluster, &[Kind::Service, Kind::NetworkPolicy]);
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let until = rfc3339(cluster.now + Duration::HOUR);
    cluster.round_with(|cluster| {
        let live = cluster.objects.get_mut(&namespace).unwrap();
        live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
    });
    assert_eq!(done(&cluster).len(), 1, "{:?}", done(&cluster));
    cluster.round();
    assert_eq!(done(&cluster).len(), 1, "{:?}", done(&cluster));
}

/// W12: a controller that answers while something else is mended is not restarted for what it did not say before.
#[test]
fn a_controller_that_answers_meanwhile_is_not_restarted() {
    for answers in [false, true] {
        let mut cluster = Cluster::working();
        without(&mut cluster, &[Kind::NetworkPolicy]);
        let sync = cluster.install.sync.clone();
        let asked = rfc3339(cluster.now);
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
        cluster.now += Duration::minutes(2);
        let planned = cluster.plan().steps;
        let planned: Vec<&str> = planned.iter().map(|s| s.action.as_str()).collect();
        assert_eq!(planned, ["create", "restart"]);
        cluster.round_with(|cluster| {
            if answers {
                let root = cluster.objects.get_mut(&sync).unwrap();
                root.fields["status"]["lastHandledReconcileAt"] = json!(asked);
            }
        });
        let restarted = ("restart", "kustomize-controller");
        assert_eq!(done(&cluster).contains(&restarted), !answers);
    }
}

/// W17: applied without its hold it would be broken again by the engine, five times in an hour, and then left so.
#[test]
fn what_could_not_be_held_is_not_mended_and_that_spends_no_budget() {
    for unserved in [false, true] {
        let mut cluster = Cluster::working();
        let id = cluster.commit("source-controller", Bad::Replicas);
        cluster.fails = Fails::of(u64::MAX, unserved);
        let began = cluster.now;
        while cluster.now - began < Duration::minutes(5) {
            cluster.round();
        }
        let (holds, others): (Vec<_>, Vec<_>) = done(&cluster)
            .into_iter()
            .partition(|step| *step == ("hold", "source-controller"));
        assert_eq!(others, []);
        assert!((30..=45).contains(&holds.len()), "{}", holds.len());
        let past = &cluster.history.faults[&(Class::BadEngineCommit, id.clone())];
        assert_eq!((past.attempts.len(), past.spent), (0, false));
        cluster.fails = Fails::default();
        cluster.steps.clear();
        cluster.settle(100);
        let name = "source-controller";
        assert_eq!(done(&cluster), [("hold", name), ("apply", name)]);
    }
}

#[test]
fn what_somebody_changes_after_the_hold_is_looked_at_anew() {
    let fields: [(&str, Value); 2] = [
        ("/spec/replicas", json!(2)),
        (
            "/metadata/annotations",
            json!({MAINTENANCE: "2099-01-01T00:00:00Z"}),
        ),
    ];
    for (pointer, value) in fields {
        let mut cluster = Cluster::working();
        let id = cluster.commit("source-controller", Bad::Replicas);
        cluster.history.saw(cluster.now, &cluster.plan());
        cluster.now += Duration::seconds(11);
        let mut once = true;
        cluster.round_with(|cluster| {
            let live = cluster.objects.get_mut(&id).unwrap();
            if std::mem::take(&mut once) {
                *live.fields.pointer_mut(pointer).unwrap() = value.clone();
            }
        });
        assert_eq!(done(&cluster), [("hold", "source-controller")], "{pointer}");
    }
}

/// What its controller says of an object meanwhile is no change of it.
#[test]
fn a_new_status_is_no_change() {
    let mut cluster = Cluster::working();
    let id = cluster.commit("source-controller", Bad::Replicas);
    cluster.history.saw(cluster.now, &cluster.plan());
    cluster.now += Duration::seconds(11);
    cluster.round_with(|cluster| {
        let live = cluster.objects.get_mut(&id).unwrap();
        live.version += 1;
        live.fields["status"]["replicas"] = json!(7);
    });
    let name = "source-controller";
    assert_eq!(done(&cluster), [("hold", name), ("apply", name)]);
}

/// Nothing else spaces what is against no fault.
#[test]
fn a_word_that_cannot_be_taken_away_is_tried_ever_less_often() {
    let mut cluster = Cluster::working();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let live = cluster.objects.get_mut(&namespace).unwrap();
    live.fields["metadata"]["annotations"][ALLOW_DELETE] = json!("for ever");
    cluster.fails = Fails::of(u64::MAX, false);
    let began = cluster.now;
    while cluster.now - began < Duration::minutes(5) {
        cluster.round();
    }
    let tries = done(&cluster);
    assert!(
        tries.iter().all(|(action, _)| *action == "lock"),
        "{tries:?}"
    );
    assert!((30..=45).contains(&tries.len()), "{}", tries.len());
    let times = &cluster.history.vain[&namespace];
    assert!(pace::again(times, cluster.now).unwrap() <= cluster.now + Duration::seconds(30));
    cluster.fails = Fails::default();
    cluster.settle(20);
    assert_eq!(cluster.objects[&namespace].annotation(ALLOW_DELETE), None);
    assert_eq!(cluster.history.vain, BTreeMap::new());
}

/// Each line: what came to nothing, what was to follow, whether it does.
#[test]
#[expect(clippy::too_many_lines, reason = "a row for each case")]
fn what_rests_on_a_step_that_came_to_nothing_is_left_out() {
    let deployment = |name| ObjectId::new(Kind::Deployment, "argocd", name);
    let (one, other) = (deployment("one"), deployment("other"));
    let root = ObjectId::new(Kind::Application, "argocd", "root");
    let (key, another) = (
        Some((Class::BadEngineCommit, one.clone())),
        Some((Class::BadEngineCommit, other.clone())),
    );
    let shield = || Action::Shield(Shield::default());
    let note = String::new;
    let hold = || Action::Hold { note: note() };
    let remade = || Action::CreateHeld { note: note() };
    let lift = || Action::Lift { note: note() };
    let step = |action, target: &ObjectId, cause: &Option<Key>| Step {
        action,
        target: target.clone(),
        cause: cause.clone(),
    };
    for (vain, follows, left_out) in [
        (
            step(hold(), &one, &key),
            step(Action::Apply, &one, &key),
            true,
        ),
        (
            step(hold(), &one, &key),
            step(Action::Apply, &other, &another),
            false,
        ),
        // Its Application keeps both all the same.
        (step(hold(), &one, &key), step(shield(), &root, &key), false),
        (
            step(Action::Create, &one, &None),
            step(Action::Nudge, &one, &None),
            true,
        ),
        (step(shield(), &root, &key), step(hold(), &one, &key), true),
        (
            step(shield(), &root, &key),
            step(Action::Apply, &one, &key),
            true,
        ),
        (
            step(shield(), &root, &key),
            step(remade(), &one, &key),
            false,
        ),
        (
            step(shield(), &root, &key),
            step(shield(), &one, &key),
            true,
        ),
        (
            step(shield(), &root, &key),
            step(hold(), &other, &another),
            false,
        ),
        (
            step(shield(), &root, &None),
            step(hold(), &one, &None),
            false,
        ),
        (
            step(lift(), &one, &None),
            step(shield(), &root, &None),
            true,
        ),
        (
            step(lift(), &one, &None),
            step(Action::Nudge, &root, &None),
            true,
        ),
        (
            step(Action::Reclaim, &one, &None),
            step(shield(), &root, &None),
            true,
        ),
        (
            step(lift(), &one, &None),
            step(hold(), &other, &None),
            false,
        ),
        (
            step(Action::Nudge, &one, &None),
            step(Action::Nudge, &other, &None),
            false,
        ),
    ] {
        assert_eq!(rests_on(&follows, &vain), left_out, "{vain:?} {follows:?}");
    }
}

/// What was left out takes along what rests on it.
#[test]
fn one_failure_reaches_all_that_rests_on_it() {
    let cluster = Cluster::working_of(crate::wire::api::EngineKind::Argocd);
    let id = |name| ObjectId::new(Kind::Deployment, "argocd", name);
    let key = |name| Some((Class::BadEngineCommit, id(name)));
    let root = cluster.install.sync.clone();
    let of = |name| {
        let shield = Action::Shield(Shield::default());
        [(shield, root.clone()), (Action::Apply, id(name))].map(|(action, target)| Step {
            action,
            target,
            cause: key(name),
        })
    };
    let steps: Vec<Step> = ["argocd-redis", "argocd-repo-server"]
        .into_iter()
        .flat_map(of)
        .collect();
    let plan = Plan {
        steps: steps.clone(),
        ..cluster.plan()
    };
    let observed = cluster.observed();
    let mut pass = Pass::new(&plan, &observed);
    assert_eq!(
        pass.next(&steps[0], &observed, || plan.clone()),
        Some(steps[0].clone())
    );
    pass.acted(&steps[0], &Outcome::Failed(String::new()), &observed);
    for step in &steps[1..] {
        assert_eq!(
            pass.next(step, &observed, || plan.clone()),
            None,
            "{step:?}"
        );
    }
}

/// The same is the same action, on the same object, against the same fault.
#[test]
fn a_step_that_the_plan_of_this_moment_has_no_more_is_left_out() {
    let cluster = Cluster::working();
    let observed = cluster.observed();
    let id = |name| ObjectId::new(Kind::Deployment, "flux-system", name);
    let step = |action, name, class| Step {
        action,
        target: id(name),
        cause: Some((class, id("a"))),
    };
    let begun = step(Action::Create, "b", Class::ObjectMissing);
    let planned = step(Action::Apply, "a", Class::BadImage);
    for (other, goes_on) in [
        (planned.clone(), true),
        (step(Action::Replace, "a", Class::BadImage), false),
        (step(Action::Apply, "b", Class::BadImage), false),
        (step(Action::Apply, "a", Class::ScaledToZero), false),
    ] {
        let of = |steps: Vec<Step>| Plan {
            steps,
            ..cluster.plan()
        };
        let mut pass = Pass::new(&of(vec![begun.clone(), planned.clone()]), &observed);
        pass.acted(&begun, &Outcome::Done, &observed);
        let next = pass.next(&planned, &observed, || of(vec![other.clone()]));
        assert_eq!(next, goes_on.then(|| planned.clone()), "{other:?}");
    }
}

#[test]
fn an_object_is_as_it_was_while_it_is_the_same_one_and_nobody_wants_it_otherwise() {
    type Case<'a> = (&'a str, fn(&mut Object), bool);
    let cases: [Case<'_>; 7] = [
        ("nothing", |_| {}, true),
        ("its version", |live| live.version += 1, true),
        (
            "what it says of itself",
            |live| live.fields["status"] = json!({}),
            true,
        ),
        (
            "it is another one",
            |live| "other".clone_into(&mut live.uid),
            false,
        ),
        (
            "it goes",
            |live| live.deleting = Some(OffsetDateTime::UNIX_EPOCH),
            false,
        ),
        (
            "what is wanted",
            |live| live.fields["spec"]["path"] = json!("./elsewhere"),
            false,
        ),
        (
            "a window",
            |live| live.fields["metadata"]["annotations"][MAINTENANCE] = json!("x"),
            false,
        ),
    ];
    let cluster = Cluster::working();
    let before = Arc::new(cluster.objects[&cluster.install.sync].clone());
    for (what, change, expected) in cases {
        let mut now = before.as_ref().clone();
        change(&mut now);
        assert_eq!(is_as(&before, &Arc::new(now)), expected, "{what}");
    }
}

/// The guard waits for no second look, and what reads its object itself, or changes nothing of it, needs none.
#[test]
fn the_guard_and_what_looks_itself_go_on_whatever_changed() {
    let cluster = Cluster::working();
    let (source, sync) = (&cluster.install.source, &cluster.install.sync);
    let observed = cluster.observed();
    let mut changed = observed.clone();
    let mut live = changed.objects[sync].as_ref().clone();
    live.fields["spec"]["path"] = json!("./elsewhere");
    changed.objects.insert(sync.clone(), Arc::new(live));
    let step = |action, target: &ObjectId| Step {
        action,
        target: target.clone(),
        cause: None,
    };
    for (action, goes_on) in [
        (Action::ScaleToZero, true),
        (Action::Release, true),
        (Action::Nudge, true),
        (Action::Shield(Shield::default()), true),
        (Action::Settle, false),
    ] {
        let plan = Plan {
            steps: vec![step(Action::Nudge, source), step(action, sync)],
            ..cluster.plan()
        };
        let mut pass = Pass::new(&plan, &observed);
        pass.acted(&plan.steps[0], &Outcome::Done, &observed);
        let next = pass.next(&plan.steps[1], &changed, || cluster.plan());
        assert_eq!(next.is_some(), goes_on, "{:?}", plan.steps[1]);
    }
}
