use std::sync::Arc;

use super::*;
use crate::agent::plan::Action;
use crate::agent::plan::tests::{Cluster, desired_of, install_of};
use crate::bundle::Kind;
use crate::wire::api::EngineKind;

pub(super) fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap()
}

pub(super) fn deployment() -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", "source-controller")
}

/// One round of the loop: what is found at `seconds`, with function proven since `proven`.
pub(super) fn round(
    records: &mut Records,
    history: &mut History,
    seconds: i64,
    found: &[(Class, ObjectId)],
    proven: Option<i64>,
) -> Vec<HealRecord> {
    let findings = found
        .iter()
        .map(|(class, id)| Finding::new(*class, id, "is broken"));
    round_of(records, history, seconds, findings.collect(), proven)
}

pub(super) fn round_of(
    records: &mut Records,
    history: &mut History,
    seconds: i64,
    findings: Vec<Finding>,
    proven: Option<i64>,
) -> Vec<HealRecord> {
    let plan = Plan {
        findings,
        steps: Vec::new(),
        next_look: at(seconds + 60),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    history.saw(at(seconds), &plan);
    let observed = Observed::default();
    let moment = Moment {
        now: at(seconds),
        plan: &plan,
        history,
        observed: &observed,
        proven: proven.map(at),
        revision: "main@sha1:1",
        tried: "main@sha1:2",
        applier: "kustomize-controller",
        overdue: &[],
        changing: false,
        waits: None,
        hands_over: false,
    };
    records.update(&moment, || format!("id-{seconds}"))
}

pub(super) fn step(class: Class, id: &ObjectId) -> Step {
    Step {
        action: Action::Create,
        target: id.clone(),
        cause: Some((class, id.clone())),
    }
}

pub(super) fn adopted() -> (Records, History) {
    let history = History {
        adopted: true,
        ..History::default()
    };
    (Records::default(), history)
}

#[test]
fn a_heal_ends_when_a_probe_sent_after_it_is_answered() {
    let (mut records, mut history) = adopted();
    let fault = [(Class::ObjectMissing, deployment())];
    let opened = round(&mut records, &mut history, 0, &fault, Some(-100));
    assert_eq!(opened[0].result, HealResult::Open);
    assert_eq!(opened[0].revision, "main@sha1:1");
    records.acted(at(1), &step(fault[0].0, &fault[0].1), &Outcome::Done);
    assert_eq!(round(&mut records, &mut history, 2, &[], Some(-100)), []);
    let closed = round(&mut records, &mut history, 9, &[], Some(5));
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0].id, opened[0].id);
    assert_eq!(closed[0].result, HealResult::Healed);
    assert_eq!(closed[0].acted_at, Some(rfc3339(at(1))));
    assert_eq!(closed[0].restored_at, Some(rfc3339(at(9))));
    assert_eq!(closed[0].steps[0].outcome, "ok");
}

/// F17: what Flux said of an object was not so, or was not mended: it is looked at again after an hour.
#[test]
fn a_crd_of_which_no_step_mended_anything_is_not_healed() {
    let crd = ObjectId::crd_of(Kind::GitRepository);
    let vain = || Outcome::Failed("nothing was written".to_owned());
    for (class, outcomes, result) in [
        (Class::CrdStoredVersion, vec![vain()], HealResult::Reported),
        (
            Class::CrdStoredVersion,
            vec![vain(), Outcome::Done],
            HealResult::Healed,
        ),
        (Class::CrdStoredVersion, vec![], HealResult::Healed),
        (Class::ObjectAltered, vec![vain()], HealResult::Healed),
    ] {
        let (mut records, mut history) = adopted();
        round(
            &mut records,
            &mut history,
            0,
            &[(class, crd.clone())],
            Some(-100),
        );
        for outcome in &outcomes {
            records.acted(at(1), &step(class, &crd), outcome);
        }
        let closed = round(&mut records, &mut history, 9, &[], Some(5));
        let results: Vec<HealResult> = closed.iter().map(|heal| heal.result).collect();
        assert_eq!(results, [result], "{class} {outcomes:?}");
    }
}

/// W7: the heal would stay open until the clock, set back by two hours, has caught up with its last step.
#[test]
fn a_clock_that_is_set_back_does_not_keep_a_heal_open() {
    let (mut records, mut history) = adopted();
    let fault = [(Class::ObjectMissing, deployment())];
    round(&mut records, &mut history, 0, &fault, Some(-100));
    records.acted(at(1), &step(fault[0].0, &fault[0].1), &Outcome::Done);
    let back = -7_200;
    let now = at(back);
    let ahead = crate::agent::plan::setback::cap(records.times(), now);
    assert_eq!(ahead, time::Duration::seconds(7_201));
    let before = Some(back - 1);
    assert_eq!(round(&mut records, &mut history, back, &[], before), []);
    let closed = round(&mut records, &mut history, back + 9, &[], Some(back + 5));
    let results: Vec<HealResult> = closed.iter().map(|heal| heal.result).collect();
    assert_eq!(results, [HealResult::Healed]);
}

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

/// W25: what is not seen while the API server is not well may be there all the same.
#[test]
fn a_heal_does_not_end_while_nothing_is_judged() {
    let (mut records, mut history) = adopted();
    let fault = [(Class::RegistryDown, deployment())];
    round(&mut records, &mut history, 0, &fault, None);
    assert_eq!(round(&mut records, &mut history, 30, &fault, None).len(), 1);
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let unwell = Finding::new(Class::ApiUnhealthy, &namespace, "5xx");
    let other = Finding::new(Class::ScaledToZero, &deployment(), "differs");
    let plan = Plan {
        findings: vec![unwell, other],
        steps: Vec::new(),
        next_look: at(100),
        exhausted: Vec::new(),
        mode: Mode::Learning,
    };
    let observed = Observed::default();
    let mut blind = |seconds| {
        history.saw(at(seconds), &plan);
        let moment = Moment {
            now: at(seconds),
            plan: &plan,
            history: &history,
            observed: &observed,
            proven: Some(at(seconds)),
            revision: "",
            tried: "",
            applier: "kustomize-controller",
            overdue: &[],
            changing: false,
            waits: None,
            hands_over: false,
        };
        let told = records.update(&moment, || "id".to_owned());
        told.into_iter().map(|heal| heal.class).collect::<Vec<_>>()
    };
    assert_eq!(blind(40), [""; 0]);
    assert_eq!(blind(100), ["ApiUnhealthy"]);
    let over = round(&mut records, &mut history, 110, &[], Some(105));
    let over: Vec<_> = over.iter().map(|heal| heal.class.as_str()).collect();
    assert_eq!(over, ["RegistryDown", "ApiUnhealthy"]);
}

#[test]
fn what_went_with_the_namespace_is_one_heal() {
    let (mut records, mut history) = adopted();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let dying = [(Class::NamespaceTerminating, namespace)];
    assert_eq!(round(&mut records, &mut history, 0, &dying, None).len(), 1);
    let missing = [(Class::ObjectMissing, deployment())];
    assert_eq!(round(&mut records, &mut history, 20, &missing, None), []);
    records.acted(
        at(21),
        &step(Class::ObjectMissing, &deployment()),
        &Outcome::Done,
    );
    let closed = round(&mut records, &mut history, 40, &[], Some(30));
    assert_eq!(closed[0].class, "NamespaceTerminating");
    assert_eq!(closed[0].steps.len(), 1);
}

#[test]
fn an_install_is_no_heal() {
    let (mut records, mut history) = (Records::default(), History::default());
    let missing = [(Class::ObjectMissing, deployment())];
    assert_eq!(round(&mut records, &mut history, 0, &missing, None), []);
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

#[test]
fn open_heals_are_bounded() {
    let (mut records, mut history) = adopted();
    let many: Vec<(Class, ObjectId)> = (0..200)
        .map(|n| {
            (
                Class::ObjectMissing,
                ObjectId::new(Kind::Service, "flux-system", &n.to_string()),
            )
        })
        .collect();
    assert_eq!(
        round(&mut records, &mut history, 0, &many, None).len(),
        MAX_OPEN
    );
    for _ in 0..200 {
        records.acted(
            at(1),
            &step(many[0].0, &many[0].1),
            &Outcome::Failed("x".to_owned()),
        );
    }
    let closed = round(&mut records, &mut history, 9, &[], Some(5));
    assert_eq!(closed.iter().map(|r| r.steps.len()).max(), Some(1));
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

/// What one engine leaves of the roots and of what both have is nobody's fault when the other one comes back.
#[test]
fn what_a_hand_over_gives_back_is_no_heal() {
    let root = ObjectId::new(Kind::Application, "argocd", "linesman");
    let guard = ObjectId::new(Kind::ValidatingAdmissionPolicy, "", "linesman-guard");
    let found = [
        Finding::new(Class::SourceAltered, &root, "does not prune"),
        Finding::new(Class::ObjectAltered, &guard, "is the other engine's"),
        Finding::new(Class::GitUnreachable, &root, "no answer"),
    ];
    let plan = Plan {
        findings: found.to_vec(),
        steps: Vec::new(),
        next_look: at(60),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    let told = |changing, hands_over| {
        let (mut records, mut history) = adopted();
        history.saw(at(0), &plan);
        let moment = Moment {
            now: at(3600),
            plan: &plan,
            history: &history,
            observed: &Observed::default(),
            proven: None,
            revision: "",
            tried: "",
            applier: "argocd-controller",
            overdue: &[],
            changing,
            waits: None,
            hands_over,
        };
        let told = records.update(&moment, || "id".to_owned());
        told.into_iter().map(|h| h.class).collect::<Vec<_>>()
    };
    let all = ["SourceAltered", "ObjectAltered", "GitUnreachable"];
    assert_eq!(told(true, true), ["GitUnreachable"]);
    // Another version of the same engine changes neither; and after its time it is a fault.
    assert_eq!(told(true, false), all);
    assert_eq!(told(false, true), all);
}

/// W24: the window on one object may keep a change waiting for a day. What else breaks meanwhile is on record; what is not yet as the
/// change wants it is not, unless it does not work, or somebody altered it.
#[test]
fn a_fault_beside_what_a_change_waits_for_is_a_heal() {
    let of = |name: &str| ObjectId::new(Kind::Deployment, "flux-system", name);
    let key = ObjectId::new(Kind::Secret, "flux-system", "flux-system");
    let service = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    let [former, down] = ["source-controller", "kustomize-controller"].map(of);
    let found = [
        Finding::new(Class::ObjectMissing, &of("gone"), "is missing"),
        Finding::new(Class::BadImage, &former, "differs"),
        Finding::new(Class::BadImage, &down, "differs"),
        Finding::new(Class::ObjectAltered, &service, "differs"),
        Finding::new(Class::GitSecretBad, &key, "is missing"),
    ];
    let mut observed = Cluster::working().observed();
    let altered = observed.objects.get_mut(&service).unwrap();
    Arc::make_mut(altered).fields["spec"] = serde_json::json!({});
    let mut desired = desired_of(EngineKind::Flux);
    desired.install.form.registry = Some("mirror.lan".to_owned());
    let install = Install::new(&desired, &BTreeMap::new(), None);
    let plan = Plan {
        findings: found.to_vec(),
        steps: Vec::new(),
        next_look: at(60),
        exhausted: Vec::new(),
        mode: Mode::Act,
    };
    let told = |changing, waits| {
        let (mut records, mut history) = adopted();
        history.saw(at(0), &plan);
        history.down.insert(down.clone(), at(0));
        history.changes_from(&install_of(EngineKind::Flux));
        let moment = Moment {
            now: at(3600),
            plan: &plan,
            history: &history,
            observed: &observed,
            proven: None,
            revision: "",
            tried: "",
            applier: "kustomize-controller",
            overdue: &[],
            changing,
            waits,
            hands_over: false,
        };
        let told = records.update(&moment, || "id".to_owned());
        let told = told.into_iter().map(|heal| heal.object);
        told.collect::<Vec<_>>()
    };
    let all = [of("gone"), former.clone(), down.clone(), service, key];
    let mut all = all.map(|id| id.to_string()).to_vec();
    assert_eq!(told(true, None), [""; 0]);
    assert_eq!(told(false, Some(&install)), all);
    all.retain(|object| *object != former.to_string());
    assert_eq!(told(true, Some(&install)), all);
}

/// W24, W28: a Deployment that is deleted while a CRD's heal is open has nothing to do with it.
#[test]
fn a_fault_beside_an_open_collapse_has_a_record_of_its_own() {
    let (mut records, mut history) = adopted();
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "gitrepositories.source.toolkit.fluxcd.io",
    );
    let crd = (Class::CrdMissing, crd);
    let root = ObjectId::new(Kind::GitRepository, "flux-system", "flux-system");
    let root = (Class::RootDeleted, root);
    let rights = ObjectId::new(Kind::ClusterRoleBinding, "", "cluster-reconciler");
    let rights = (Class::ObjectMissing, rights);
    let gone = (Class::ObjectMissing, deployment());

    let found = [crd.clone(), root.clone(), rights];
    let opened = round(&mut records, &mut history, 0, &found, None);
    let classes: Vec<_> = opened.iter().map(|h| h.class.as_str()).collect();
    assert_eq!(classes, ["CrdMissing"]);
    records.acted(at(1), &step(crd.0, &crd.1), &Outcome::Done);

    let found = [root, gone.clone()];
    let opened = round(&mut records, &mut history, 2, &found, None);
    let classes: Vec<_> = opened.iter().map(|h| h.class.as_str()).collect();
    assert_eq!(classes, ["ObjectMissing"]);

    // What is left of the CRD's fault is nothing, whatever became of the Deployment.
    let told = round(&mut records, &mut history, 9, &[gone], Some(5));
    let ended: Vec<_> = told.iter().map(|h| (h.class.as_str(), h.result)).collect();
    assert_eq!(ended, [("CrdMissing", HealResult::Healed)]);
}

#[test]
fn what_goes_with_the_namespace_has_no_record_of_its_own() {
    let (mut records, mut history) = adopted();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let found = [
        (Class::NamespaceMissing, namespace),
        (Class::ObjectMissing, deployment()),
    ];
    let opened = round(&mut records, &mut history, 0, &found[..1], None);
    assert_eq!(opened.len(), 1);
    assert_eq!(round(&mut records, &mut history, 1, &found, None), []);
}

/// engines.md, cascade guard, step 6: what a collapse cost is known only when the engine has made it again.
#[test]
fn what_the_engine_made_again_after_a_collapse_is_told_with_its_heal() {
    let (mut records, mut history) = adopted();
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    );
    let fault = [
        (Class::CrdTerminating, crd),
        (Class::ObjectMissing, deployment()),
    ];
    round(&mut records, &mut history, 0, &fault, None);
    assert_eq!(records.due(), None);
    let ended = round(&mut records, &mut history, 20, &[], Some(15));
    let ended = ended
        .iter()
        .find(|heal| heal.class == "CrdTerminating")
        .unwrap();
    let remade = |count: u32| Remade {
        count,
        objects: (0..count).map(|n| format!("ConfigMap shop/{n}")).collect(),
    };
    let look = Some((ended.id.clone(), at(0)));
    assert_eq!(
        (records.due(), records.aftermath(at(29))),
        (Some(at(30)), None)
    );
    assert_eq!(
        (records.aftermath(at(30)), records.aftermath(at(30))),
        (look.clone(), None)
    );
    assert_eq!(records.remade(&ended.id, remade(0)), None);
    // The second look finds some, the last no others.
    assert_eq!(records.aftermath(at(80)), look);
    let told = records.remade(&ended.id, remade(2)).unwrap();
    let mut expected = ended.clone();
    expected.scene.remade = remade(2);
    assert_eq!(told, expected);
    let kept = records.kept();
    let kept: Vec<&HealRecord> = kept
        .iter()
        .map(|k| &k.record)
        .filter(|r| r.id == ended.id)
        .collect();
    assert_eq!(kept, [&expected], "an agent after this one tells it, too");
    assert_eq!(records.aftermath(at(300)), look);
    assert_eq!(
        (records.remade(&ended.id, remade(2)), records.due()),
        (None, None)
    );
    assert_eq!(
        records.remade(&ended.id, remade(3)),
        None,
        "it is looked after no more"
    );
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
