//! What a heal tells the hub before its end, and what it says is to be done.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::plan::MAINTENANCE;
use crate::agent::plan::state::Child;
use crate::agent::plan::tests::Cluster;

/// Found a moment after the heal opened, they come with its next word; its end says which commit is in force.
#[test]
fn events_found_beside_the_mending_are_told_with_the_open_heal() {
    let (mut records, mut history) = adopted();
    let fault = [(Class::ObjectMissing, deployment())];
    let opened = round(&mut records, &mut history, 0, &fault, None);
    assert_eq!(records.unseen(), [(opened[0].id.clone(), deployment())]);
    assert_eq!(records.unseen(), []);
    let event = ObjectEvent {
        reason: "BackOff".to_owned(),
        ..ObjectEvent::default()
    };
    records.witnessed(&opened[0].id, vec![event.clone()]);
    let told = round(&mut records, &mut history, 1, &fault, None);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].scene.events, [event]);
    assert_eq!(round(&mut records, &mut history, 2, &fault, None), []);
    let closed = round(&mut records, &mut history, 9, &[], None);
    assert_eq!(closed[0].scene.revision_after, "main@sha1:1");
}

/// F25: the agent looks for itself a moment after the engine complained; other words of the engine's are no news.
#[test]
fn what_is_learned_of_a_fault_while_it_lasts_is_told_with_its_heal() {
    let (mut records, mut history) = adopted();
    let mut told = |seconds: i64, text: &str| {
        let found = vec![Finding::new(Class::HostKeyMismatch, &deployment(), text)];
        let told = round_of(&mut records, &mut history, seconds, found, None);
        told.into_iter()
            .map(|heal| heal.evidence)
            .collect::<Vec<_>>()
    };
    let words = "key mismatch; known of the host: SHA256:a";
    let both = format!("{words}; it shows the agent SHA256:b");
    assert_eq!(told(0, words), [""; 0], "it is not ripe yet");
    assert_eq!(told(10, words), [words]);
    assert_eq!(told(11, words), [""; 0]);
    assert_eq!(told(12, &both), [both.as_str()]);
    assert_eq!(told(13, &both), [""; 0]);
    assert_eq!(told(14, words), [""; 0], "nothing of it is forgotten");
    assert_eq!(
        told(15, "key is unknown; known of the host: SHA256:a"),
        [""; 0]
    );
}

#[test]
fn a_fault_counts_after_its_debounce_and_is_reported_until_it_is_gone() {
    let (mut records, mut history) = adopted();
    let source = ObjectId::new(Kind::GitRepository, "flux-system", "flux-system");
    let fault = [(Class::GitUnreachable, source)];
    assert_eq!(round(&mut records, &mut history, 0, &fault, None), []);
    let opened = round(&mut records, &mut history, 60, &fault, None);
    assert_eq!(opened[0].result, HealResult::Reported);
    assert_eq!(opened[0].detected_at, rfc3339(at(0)));
    assert!(!opened[0].next.is_empty());
    let closed = round(&mut records, &mut history, 90, &[], None);
    assert_eq!(
        (closed[0].result, closed[0].next.as_str()),
        (HealResult::Reported, "")
    );
}

/// F39, F41: while its source was away a Kustomization whose commit was still refused was told to be over, and the same fault began anew.
#[test]
fn a_fault_of_the_catalog_ends_when_its_object_is_ready_or_came_further() {
    let id = ObjectId::new(Kind::Kustomization, "apps", "shop");
    let missing = "Source artifact not found, retrying in 30s";
    let away = "failed to download archive: connection refused";
    for (class, reason, words, over) in [
        (Class::ApplyFailed, "DependencyNotReady", "x", 0),
        (Class::ApplyFailed, "ArtifactFailed", missing, 0),
        (Class::ApplyFailed, "ArtifactFailed", away, 0),
        (Class::ApplyFailed, "BuildFailed", "x", 0),
        (Class::ApplyFailed, "HealthCheckFailed", "x", 1),
        (Class::ApplyFailed, "", "", 1),
        (Class::BuildFailed, "DependencyNotReady", "x", 0),
        (Class::BuildFailed, "ArtifactFailed", away, 0),
        (Class::BuildFailed, "ReconciliationFailed", "x", 1),
        (Class::DependencyNotReady, "ReconciliationFailed", "x", 1),
    ] {
        let (mut records, mut history) = adopted();
        let fault = [(class, id.clone())];
        round(&mut records, &mut history, 0, &fault, None);
        let opened = round(&mut records, &mut history, 60, &fault, None);
        assert_eq!(opened.len(), 1, "{class}");
        let child = Child {
            trouble: (!reason.is_empty()).then(|| (reason.to_owned(), words.to_owned())),
            ..Child::default()
        };
        let says = Observed {
            children: Arc::new(BTreeMap::from([(id.clone(), child)])),
            ..Observed::default()
        };
        // Where others are broken, what only waits is not named.
        let plan = Plan {
            findings: Vec::new(),
            steps: Vec::new(),
            next_look: at(120),
            exhausted: Vec::new(),
            mode: Mode::Act,
        };
        history.saw(at(90), &plan);
        let mut ended = |seconds, observed: &Observed| {
            let moment = moment(at(seconds), &plan, &history, observed);
            records.update(&moment, || "id".to_owned()).len()
        };
        let case = format!("{class}, then {reason}: {words}");
        assert_eq!(ended(90, &says), over, "{case}");
        assert_eq!(ended(91, &Observed::default()), 1 - over, "{case}: gone");
    }
}

/// F1: with the Git host away a heal lasted a minute that was over after two seconds, and said nothing of why.
#[test]
fn a_controller_that_is_there_again_is_on_record_with_what_its_proof_waits_for() {
    let (mut records, mut history) = adopted();
    let fault = [(Class::ObjectMissing, deployment())];
    round(&mut records, &mut history, 0, &fault, None);
    records.acted(at(1), &step(fault[0].0, &fault[0].1), &Outcome::Done);
    let source = ObjectId::new(Kind::GitRepository, "flux-system", "flux-system");
    let away = Finding::new(Class::GitUnreachable, &source, "connection refused");
    let plan = Plan {
        findings: vec![away],
        steps: Vec::new(),
        next_look: at(60),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    let observed = Cluster::working().observed();
    let mut steps = |seconds, proven: Option<i64>| {
        let moment = Moment {
            proven: proven.map(at),
            ..moment(at(seconds), &plan, &history, &observed)
        };
        let told = records.update(&moment, || "id".to_owned());
        let closed = told.into_iter().next().map(|heal| heal.steps);
        closed.unwrap_or_else(|| records.kept()[0].record.steps.clone())
    };
    assert_eq!(steps(2, None).len(), 1);
    assert_eq!(steps(11, None).len(), 1);
    let waits = HealStep {
        action: "waits".to_owned(),
        object: deployment().to_string(),
        at: rfc3339(at(2)),
        outcome: format!(
            "available again; that the engine works is not proven yet: {source} connection refused"
        ),
    };
    for (seconds, proven) in [(12, None), (30, None), (60, Some(50))] {
        assert_eq!(
            steps(seconds, proven)[1..],
            *std::slice::from_ref(&waits),
            "{seconds} s"
        );
    }
}

/// F29: a suspended root is on record, with the next action, until it is resumed.
#[test]
fn a_suspended_root_is_on_record_with_what_to_do() {
    let (mut records, mut history) = adopted();
    let root = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
    let fault = [(Class::SuspendedByHuman, root)];
    let told = round(&mut records, &mut history, 0, &fault, Some(-100));
    assert_eq!(told[0].result, HealResult::Reported);
    assert_eq!(told[0].next, Class::SuspendedByHuman.advice());
    assert!(told[0].next.contains("flux resume"), "{}", told[0].next);
    assert_eq!(round(&mut records, &mut history, 9, &fault, Some(-100)), []);
    let resumed = round(&mut records, &mut history, 20, &[], Some(-100));
    assert_eq!(resumed[0].restored_at, Some(rfc3339(at(20))));
}

/// F19: what the agent has no right to is for whoever gives rights.
#[test]
fn a_heal_whose_write_was_refused_says_who_can_do_what_about_it() {
    let (mut records, mut history) = adopted();
    let fault = [(Class::ObjectMissing, deployment())];
    round(&mut records, &mut history, 0, &fault, None);
    let refused = Outcome::Forbidden("deployments.apps \"x\" is forbidden".to_owned());
    records.acted(at(1), &step(fault[0].0, &fault[0].1), &refused);
    let record = records.kept()[0].record.clone();
    assert_eq!(record.next, NO_RIGHT);
    assert_eq!(
        record.steps[0].outcome,
        "deployments.apps \"x\" is forbidden"
    );
    let told = round(&mut records, &mut history, 2, &fault, None);
    assert_eq!(told, [record], "the hub hears of it before the end");
    records.acted(at(3), &step(fault[0].0, &fault[0].1), &refused);
    assert_eq!(round(&mut records, &mut history, 4, &fault, None), []);
    records.acted(at(5), &step(fault[0].0, &fault[0].1), &Outcome::Done);
    let closed = round(&mut records, &mut history, 9, &[], Some(6));
    assert_eq!(closed[0].next, "", "it is over");
}

/// F29, W24: that a window ended over a fault is told once, before it is mended, with what a person may do.
#[test]
fn the_end_of_a_window_over_a_fault_is_an_alarm() {
    let (mut records, mut history) = adopted();
    let fault = [(Class::ObjectMissing, deployment())];
    round(&mut records, &mut history, 0, &fault, None);
    let plan = Plan {
        findings: vec![Finding::new(fault[0].0, &fault[0].1, "is missing")],
        steps: Vec::new(),
        next_look: at(100),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    let overdue = [(fault[0].clone(), at(60))];
    let mut update = |seconds| {
        let moment = Moment {
            now: at(seconds),
            plan: &plan,
            history: &history,
            observed: &Observed::default(),
            proven: None,
            revision: "",
            tried: "",
            applier: "kustomize-controller",
            overdue: &overdue,
            changing: false,
            waits: None,
            hands_over: false,
        };
        records.update(&moment, || unreachable!("the heal is open"))
    };
    let told = update(61);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].steps[0].action, "alarm");
    assert!(told[0].next.contains("linesman cluster pause"), "{told:?}");
    assert_eq!(update(62), []);
}

/// W24: a colleague's window on the object alone keeps it from being mended, and whoever looked at the heal read that it was.
#[test]
fn a_fault_that_waits_for_the_window_on_its_object_says_so_as_long_as_it_does() {
    let (mut records, mut history) = adopted();
    let key = (Class::ObjectAltered, deployment());
    let plan = Plan {
        findings: vec![Finding::new(key.0, &key.1, "differs")],
        steps: Vec::new(),
        next_look: at(100),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    let mut told = |seconds, until: Option<i64>, overdue: &[(Key, OffsetDateTime)]| {
        let mut observed = Cluster::working().observed();
        if let Some(until) = until {
            let live = observed.objects.get_mut(&key.1).unwrap();
            let live = Arc::make_mut(live);
            live.fields["metadata"]["annotations"][MAINTENANCE] = json!(rfc3339(at(until)));
        }
        history.saw(at(seconds), &plan);
        let moment = Moment {
            now: at(seconds),
            plan: &plan,
            history: &history,
            observed: &observed,
            proven: None,
            revision: "",
            tried: "",
            applier: "kustomize-controller",
            overdue,
            changing: false,
            waits: None,
            hands_over: false,
        };
        let told = records.update(&moment, || "id".to_owned());
        told.into_iter().map(|heal| heal.next).collect::<Vec<_>>()
    };
    let waits = |until: i64| {
        format!(
            "it is not mended until {}, by annotation linesman.dev/maintenance-until on {}; end it: take that annotation off",
            rfc3339(at(until)),
            deployment()
        )
    };
    assert_eq!(told(0, Some(600), &[]), [waits(600)]);
    assert_eq!(told(1, Some(600), &[]), [""; 0]);
    assert_eq!(told(2, Some(900), &[]), [waits(900)]);
    assert_eq!(told(3, None, &[]), [""], "somebody ended it");
    assert_eq!(told(4, None, &[]), [""; 0]);
    assert_eq!(told(5, Some(900), &[]), [waits(900)]);
    // It ends by itself, and that is told once.
    let overdue = [(key.clone(), at(900))];
    let alarm = "if somebody is still at work there, open another window: 'linesman cluster pause'";
    assert_eq!(told(900, Some(900), &overdue), [alarm]);
    assert_eq!(told(901, Some(900), &overdue), [""; 0]);
    // From then on that stays to be done.
    assert_eq!(told(902, Some(1800), &overdue), [""; 0]);
}

/// F31: what a spent budget leaves to do is what the class advises, where nobody writes what is at fault.
#[test]
fn a_spent_budget_sends_nobody_after_a_writer_that_is_not_there() {
    let trial = "; the next trial is in an hour";
    let writer = "the fault comes back again and again: find who writes it";
    for (class, why) in [
        (Class::ArtifactLost, Class::ArtifactLost.advice()),
        (Class::ObjectAltered, writer),
        (Class::ScaledToZero, writer),
    ] {
        assert_eq!(exhausted(class), format!("{why}{trial}"));
    }
    assert!(!Class::ArtifactLost.advice().is_empty());
}
