use std::collections::BTreeSet;

use time::macros::datetime;

use super::*;
use crate::agent::plan::Class;
use crate::agent::plan::tests::Cluster;
use crate::bundle::ObjectId;

fn create() -> Step {
    Step {
        action: Action::Create,
        target: ObjectId::new(Kind::Deployment, "flux-system", "source-controller"),
        cause: None,
    }
}

#[test]
fn two_refusals_in_a_row_give_up_a_source_and_no_other_failure_does() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let refused = || Outcome::Refused("spec.replicas: Invalid value".to_owned());
    let failed = || Outcome::Failed("timed out".to_owned());
    let mut history = History::default();
    let mut given_up = Vec::new();
    let outcomes = [
        (refused(), 0),
        (Outcome::Done, 0),
        (refused(), 0),
        (failed(), 0),
        (refused(), 1),
        (refused(), 1),
        (refused(), 2),
        (refused(), 2),
        (refused(), 3),
        (refused(), 3),
        (refused(), 3),
    ];
    for (outcome, _) in &outcomes {
        history.acted(now, &create(), outcome, &Observed::default());
        given_up.push(history.refused[&create().target].given_up);
    }
    let expected: Vec<usize> = outcomes.iter().map(|(_, n)| *n).collect();
    assert_eq!(given_up, expected);
}

/// Only the same once more is a sign that somebody took it away; and against a fault its budget counts.
#[test]
fn what_keeps_a_hold_is_counted_while_it_is_the_same() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let hold = |note: &str, cause| Step {
        action: Action::Hold {
            note: note.to_owned(),
        },
        cause,
        ..create()
    };
    let target = create().target;
    let fault = Some((Class::BadEngineCommit, target.clone()));
    let mut history = History::default();
    for (step, outcome, kept) in [
        (hold("a", None), Outcome::Done, 1),
        (hold("a", None), Outcome::Done, 2),
        (hold("a", None), Outcome::Unchanged, 2),
        (hold("a", fault), Outcome::Done, 2),
        (create(), Outcome::Done, 2),
        (hold("b", None), Outcome::Done, 1),
        (hold("b", None), Outcome::Done, 2),
    ] {
        history.acted(now, &step, &outcome, &Observed::default());
        let (_, times) = &history.kept[&("hold", target.clone())];
        assert_eq!(times.len(), kept, "{step:?} {outcome:?}");
    }
}

fn hold(target: &ObjectId) -> Step {
    Step {
        action: Action::Hold {
            note: String::new(),
        },
        target: target.clone(),
        cause: None,
    }
}

/// What a look came to in which this was found.
fn looked(mode: Mode, findings: Vec<Finding>) -> Plan {
    Plan {
        findings,
        steps: Vec::new(),
        next_look: datetime!(2026-01-02 03:04:05 UTC),
        exhausted: Vec::new(),
        mode,
    }
}

/// A budget by the hour is for what mends, and for what does not come to it; what only makes ready for that spends none.
#[test]
fn what_counts_as_an_attempt_is_told_from_what_makes_ready_for_one_and_from_what_nobody_answered() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let target = create().target;
    let text = || "x".to_owned();
    let (hourly, spaced) = (Class::BadEngineCommit, Class::EngineRemovedByCommit);
    let holds = || hold(&target).action;
    for (action, class, outcome, attempts, unserved) in [
        (Action::Apply, hourly, Outcome::Done, 1, 0),
        (Action::Apply, hourly, Outcome::Unchanged, 1, 0),
        (Action::Apply, hourly, Outcome::Failed(text()), 1, 0),
        (Action::Apply, hourly, Outcome::Forbidden(text()), 1, 0),
        (Action::Apply, hourly, Outcome::Refused(text()), 1, 0),
        (Action::Apply, hourly, Outcome::Unserved(text()), 0, 1),
        (holds(), hourly, Outcome::Done, 0, 0),
        (holds(), hourly, Outcome::Unchanged, 0, 0),
        (holds(), hourly, Outcome::Failed(text()), 0, 1),
        (holds(), spaced, Outcome::Done, 1, 0),
        (holds(), spaced, Outcome::Failed(text()), 1, 0),
    ] {
        let key = (class, target.clone());
        let step = Step {
            action,
            cause: Some(key.clone()),
            ..create()
        };
        let mut history = History::default();
        history.acted(now, &step, &outcome, &Observed::default());
        let past = &history.faults[&key];
        let counted = (past.attempts.len(), past.unserved.len());
        assert_eq!(counted, (attempts, unserved), "{step:?} {outcome:?}");
    }
}

/// A hold of it says nothing of where the object is taken from.
#[test]
fn only_the_whole_object_tells_whether_its_source_is_taken() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let target = create().target;
    let refused = || Outcome::Refused("spec.replicas: Invalid value".to_owned());
    let mut history = History::default();
    for (step, outcome, failures) in [
        (create(), refused(), 1),
        (hold(&target), Outcome::Done, 1),
        (hold(&target), refused(), 1),
        (create(), Outcome::Done, 0),
        (create(), refused(), 1),
    ] {
        history.acted(now, &step, &outcome, &Observed::default());
        let known = history.refused[&target];
        assert_eq!((known.failures, known.given_up), (failures, 0), "{step:?}");
    }
    // An object of another install is another one.
    history.changed();
    assert_eq!(history.refused[&target].failures, 0);
}

/// F2: an account that was there goes on, and with it the tokens of its Pods.
#[test]
fn tokens_are_void_where_an_account_was_made_that_was_not_there() {
    let name = "source-controller";
    let account = ObjectId::new(Kind::ServiceAccount, "flux-system", name);
    let service = ObjectId::new(Kind::Service, "flux-system", name);
    let cluster = Cluster::working();
    let uids: BTreeSet<String> = [cluster.pods[name].uid.clone()].into();
    for (target, was_there, is_void) in [
        (&account, false, true),
        (&account, true, false),
        (&service, false, false),
    ] {
        let mut observed = cluster.observed();
        if !was_there {
            observed.objects.remove(target);
        }
        let step = Step {
            target: target.clone(),
            ..create()
        };
        let mut history = History::default();
        history.acted(cluster.now, &step, &Outcome::Done, &observed);
        let void: Vec<(&ObjectId, &BTreeSet<String>)> = history.voided.iter().collect();
        let expected: &[_] = if is_void { &[(&account, &uids)] } else { &[] };
        assert_eq!(void, expected, "{target} {was_there}");
    }
}

/// F8: what admission puts back at once is not replaced again before somebody changes the object.
#[test]
fn what_is_as_before_when_it_was_replaced_is_settled() {
    let mut cluster = Cluster::working();
    for (action, settles) in [
        (Action::Replace, true),
        (Action::Apply, true),
        (Action::DropFailed, false),
    ] {
        let step = Step { action, ..create() };
        let observed = cluster.observed();
        let history = &mut cluster.history;
        history.settled.clear();
        history.acted(cluster.now, &step, &Outcome::Unchanged, &observed);
        let mark = observed.objects[&step.target].mark();
        let expected = settles.then_some(&mark);
        assert_eq!(history.settled.get(&step.target), expected, "{step:?}");
    }
}

/// F2: a Pod that was made while its account gave no tokens is without one for as long as it is there.
#[test]
fn pods_that_do_not_work_may_be_without_a_token_where_their_account_gave_none() {
    let name = "source-controller";
    let account = ObjectId::new(Kind::ServiceAccount, "flux-system", name);
    for ready in [true, false] {
        let mut cluster = Cluster::working();
        let pod = cluster.pods.get_mut(name).unwrap();
        pod.ready = ready;
        let uids: BTreeSet<String> = [pod.uid.clone()].into();
        let step = Step {
            action: Action::Replace,
            target: account.clone(),
            ..create()
        };
        let (mut history, observed) = (History::default(), cluster.observed());
        history.acted(cluster.now, &step, &Outcome::Done, &observed);
        let void = history.voided.remove(&account).unwrap_or_default();
        let expected = if ready { BTreeSet::new() } else { uids };
        assert_eq!(void, expected, "{ready}");
    }
}

/// That another object has the same fault, or this one another, says nothing of it.
#[test]
fn a_fault_is_over_when_nobody_finds_it_any_more() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let id = create().target;
    let other = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let key = (Class::BadImage, id.clone());
    let found = |class, id: &ObjectId| Finding::new(class, id, "");
    let others = || vec![found(Class::BadImage, &other), found(Class::CrashLoop, &id)];
    let mut history = History::default();
    history.saw(now, &looked(Mode::Act, vec![found(Class::BadImage, &id)]));
    let past = history.faults.get_mut(&key).unwrap();
    assert_eq!(past.since, Some(now));
    past.attempts.push(now);
    history.saw(now, &looked(Mode::Act, others()));
    assert_eq!(history.faults[&key].since, None);
}

/// What was spent counts until the fault has been away for an hour, and longer where it cannot be seen whether it is there.
#[test]
fn a_spent_budget_is_forgotten_only_where_it_can_be_seen_that_the_fault_is_over() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let key = (Class::BadImage, create().target);
    let short = Duration::HOUR - Duration::NANOSECOND;
    for (mode, spent, age, known) in [
        (Mode::Act, true, short, true),
        (Mode::Act, true, Duration::HOUR, false),
        (Mode::Act, false, Duration::ZERO, false),
        (Mode::Learning, true, Duration::HOUR, true),
        (Mode::Learning, false, Duration::ZERO, false),
    ] {
        let mut history = History::default();
        let past = history.faults.entry(key.clone()).or_default();
        (past.since, past.spent) = (Some(now), spent);
        for at in [now, now + age] {
            history.saw(at, &looked(mode, Vec::new()));
        }
        let is_known = history.faults.contains_key(&key);
        assert_eq!(is_known, known, "{mode:?} {spent} {age}");
    }
}

/// An hour after the last attempt a fault that is gone in just that moment would have all of its budget anew.
#[test]
fn a_fault_that_is_away_for_a_moment_keeps_its_spent_budget() {
    let began = datetime!(2026-01-02 03:04:05 UTC);
    let id = create().target;
    let key = (Class::BadImage, id.clone());
    let at = |minutes| began + Duration::minutes(minutes);
    let mut history = History::default();
    let past = history.faults.entry(key.clone()).or_default();
    (past.attempts, past.spent) = (vec![began], true);
    // Minutes, whether it is found then, and whether what was spent counts.
    for (minutes, is_there, counts) in [
        (1, true, true),
        (61, false, true),
        (62, true, true),
        (63, false, true),
        (122, false, true),
        (123, false, false),
    ] {
        let found = is_there.then(|| Finding::new(Class::BadImage, &id, ""));
        history.saw(at(minutes), &looked(Mode::Act, Vec::from_iter(found)));
        let spent = history.faults.get(&key).is_some_and(|past| past.spent);
        assert_eq!(spent, counts, "{minutes}");
    }
}

#[test]
fn what_is_an_hour_old_is_forgotten() {
    let began = datetime!(2026-01-02 03:04:05 UTC);
    let hour = Duration::HOUR;
    let (id, observed) = (create().target, Observed::default());
    let other = ObjectId::new(Kind::Service, "flux-system", "other");
    let fault = (Class::ObjectMissing, id.clone());
    let asks = |target: &ObjectId| Step {
        action: Action::Nudge,
        ..hold(target)
    };
    for (age, known) in [(hour - Duration::NANOSECOND, true), (hour, false)] {
        let mut history = History::default();
        let against = Step {
            cause: Some(fault.clone()),
            ..create()
        };
        for step in [against, hold(&id), asks(&id)] {
            history.acted(began, &step, &Outcome::Done, &observed);
        }
        let failed = Outcome::Failed("x".to_owned());
        history.acted(began, &create(), &failed, &observed);
        let now = began + age;
        history.saw(now, &looked(Mode::Act, Vec::new()));
        for step in [hold(&other), asks(&other)] {
            history.acted(now, &step, &Outcome::Done, &observed);
        }
        let all = [
            history.faults.contains_key(&fault),
            history.kept.contains_key(&("hold", id.clone())),
            history.nudged.contains_key(&id),
            history.vain.contains_key(&id),
        ];
        assert_eq!(all, [known; 4], "{age}");
    }
}

/// What was tried with the install of before says nothing of the one that took its place; what the catalog brings is as it was.
#[test]
fn another_install_begins_with_a_clean_record() {
    let now = datetime!(2026-01-02 03:04:05 UTC);
    let (id, account) = (
        create().target,
        ObjectId::new(Kind::ServiceAccount, "flux-system", "source-controller"),
    );
    let brought = ObjectId::new(Kind::Kustomization, "apps", "shop");
    let mut history = History::default();
    for id in [&id, &brought] {
        let past = history.faults.entry((Class::ApplyFailed, id.clone()));
        past.or_default().since = Some(now);
    }
    history.settled.insert(id, (String::new(), 1, 0));
    history.voided.insert(account, BTreeSet::new());
    history.changed();
    let faults: Vec<&ObjectId> = history.faults.keys().map(|(_, id)| id).collect();
    assert_eq!(faults, [&brought]);
    assert!(history.settled.is_empty() && history.voided.is_empty());
}

#[test]
fn what_a_step_came_to_is_told_by_the_word_for_it_or_by_the_error() {
    let text = || "x".to_owned();
    for (outcome, said, is_vain) in [
        (Outcome::Done, "ok", false),
        (Outcome::Unchanged, "nothing to change", false),
        (Outcome::Failed(text()), "x", true),
        (Outcome::Unserved(text()), "x", true),
        (Outcome::Forbidden(text()), "x", true),
        (Outcome::Refused(text()), "x", true),
    ] {
        assert_eq!((outcome.as_str(), outcome.is_vain()), (said, is_vain));
    }
}
