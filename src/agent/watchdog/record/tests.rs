use super::*;
use crate::agent::plan::Action;

mod changes;
mod collapse;
mod told;

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
        proven: proven.map(at),
        ..moment(at(seconds), &plan, history, &observed)
    };
    records.update(&moment, || format!("id-{seconds}"))
}

fn moment<'a>(
    now: OffsetDateTime,
    plan: &'a Plan,
    history: &'a History,
    observed: &'a Observed,
) -> Moment<'a> {
    Moment {
        now,
        plan,
        history,
        observed,
        proven: None,
        revision: "main@sha1:1",
        tried: "main@sha1:2",
        applier: "kustomize-controller",
        overdue: &[],
        changing: false,
        waits: None,
        hands_over: false,
    }
}

/// W12: an agent's upgrade brings it to every cluster with Argo CD, and is no fault of theirs.
#[test]
fn what_argo_cd_is_asked_with_is_missed_where_it_was_there() {
    let id = ObjectId::new(Kind::ApplicationSet, "argocd", "linesman-probe");
    let gone = BTreeMap::from([(id.clone(), "uid".to_owned())]);
    for (buried, told) in [(BTreeMap::new(), 0), (gone, 1)] {
        let (mut records, mut history) = adopted();
        let plan = Plan {
            findings: vec![Finding::new(Class::ObjectMissing, &id, "is missing")],
            steps: Vec::new(),
            next_look: at(60),
            exhausted: Vec::new(),
            mode: Mode::Act,
        };
        history.saw(at(0), &plan);
        let observed = Observed {
            buried,
            ..Observed::default()
        };
        let moment = moment(at(0), &plan, &history, &observed);
        let records = records.update(&moment, || "id".to_owned());
        assert_eq!(records.len(), told);
    }
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
fn an_install_is_no_heal() {
    let (mut records, mut history) = (Records::default(), History::default());
    let missing = [(Class::ObjectMissing, deployment())];
    assert_eq!(round(&mut records, &mut history, 0, &missing, None), []);
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
