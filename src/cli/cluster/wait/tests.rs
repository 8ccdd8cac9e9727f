use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::cli::interrupt::Interrupt;
use crate::client::{Renewal, address};
use crate::wire::api::{EngineKind, GitRoute, LineView, ToldGitRoute, ToldStep, Via};

pub(in crate::cli) fn cluster(
    phase: Phase,
    steps: &[(StepName, StepState, &str)],
    conditions: Vec<ToldCondition>,
) -> ToldCluster {
    let steps = steps.iter().map(|(step, state, reason)| ToldStep {
        step: (*step).into(),
        state: (*state).into(),
        reason: (*reason).to_owned(),
        at: "2026-01-01T00:00:00Z".to_owned(),
    });
    ToldCluster {
        name: "eu1".parse().unwrap(),
        id: "i".to_owned(),
        phase: phase.into(),
        engine: EngineKind::Flux.into(),
        engine_version: "2.9.4".to_owned(),
        labels: BTreeMap::new(),
        line: LineView::default(),
        last_seen: None,
        revision: Some("main@sha1:0123456789ab".to_owned()),
        agent_version: None,
        catalog_path: "clusters/eu1".to_owned(),
        git: ToldGitRoute {
            route: GitRoute::Auto.into(),
            via: Via::Direct.into(),
        },
        scope: None,
        access: None,
        created_at: "2026-01-01T00:00:00Z".to_owned(),
        steps: steps.collect(),
        conditions,
        later_conditions: Vec::new(),
        facts: BTreeMap::new(),
        agent_copy: None,
        other_way: None,
        keys: Vec::new(),
        rev: 1,
    }
}

fn says(kind: ConditionType, status: Status, message: &str) -> ToldCondition {
    let since = "2026-01-01T00:00:00Z".to_owned();
    ToldCondition {
        kind: kind.into(),
        status: status.into(),
        reason: "Why".to_owned(),
        message: message.to_owned(),
        since,
    }
}

/// H59
#[test]
fn the_waiting_reason_is_named() {
    let fresh = cluster(Phase::Pending, &[], vec![]);
    let not_yet = "no word from cluster eu1 yet; waiting for its YAML to be applied";
    assert_eq!(
        verdict(&fresh, For::Adopted, None),
        Verdict::NotYet(not_yet.to_owned())
    );
    let git = cluster(
        Phase::Joining,
        &[
            (StepName::Join, StepState::Done, ""),
            (StepName::Git, StepState::Waiting, "auth refused"),
        ],
        vec![],
    );
    assert_eq!(
        verdict(&git, For::Healthy, None),
        Verdict::NotYet("step git is waiting: auth refused".to_owned())
    );
    let limit = Duration::from_mins(5);
    let failure = timed_out(&git.name, Some(&git), (For::Adopted, None), limit);
    assert_eq!(failure.code, Code::Timeout);
    assert_eq!(
        failure.message,
        "5m passed and step git is waiting: auth refused"
    );
}

/// Else a wait says for a moment that it waits for nothing.
#[test]
fn nothing_is_said_of_a_cluster_between_two_steps_before_the_time_is_over() {
    let join = (StepName::Join, StepState::Done, "");
    let git = (StepName::Git, StepState::Waiting, "auth refused");
    let adopted = (StepName::Adopted, StepState::Done, "");
    for (steps, untold) in [
        (vec![], true),
        (vec![join], false),
        (vec![join, git], false),
        (vec![join, adopted], true),
    ] {
        let cluster = cluster(Phase::Joining, &steps, vec![]);
        assert_eq!(is_untold(&cluster), untold, "{steps:?}");
    }
    let between = cluster(Phase::Joining, &[join], vec![]);
    let limit = Duration::from_mins(5);
    let failure = timed_out(&between.name, Some(&between), (For::Adopted, None), limit);
    assert_eq!(
        failure.message,
        "5m passed and step join is done, and the next has not begun"
    );
}

/// One that begins while the hub restarts waits as one does that began a moment before.
#[test]
fn the_first_call_is_as_patient_as_those_behind_it() {
    let late = |cause: Cause| {
        let error = Error::Unreachable {
            operation: "show cluster eu1".to_owned(),
            hub: "https://hub".to_owned(),
            cause,
        };
        error.is_passing() && may_come(&error)
    };
    for (cause, is) in [
        (Cause::Refused("connection refused".to_owned()), true),
        (Cause::Lost("reset".to_owned()), true),
        (Cause::Timeout, true),
        (Cause::Dns("no such name".to_owned()), false),
        (Cause::Proxy("407".to_owned()), false),
        (Cause::UntrustedIssuer, false),
        (Cause::Certificate("expired".to_owned()), false),
    ] {
        assert_eq!(late(cause.clone()), is, "{cause:?}");
    }
}

#[test]
fn adopted_and_healthy_are_different_goals() {
    let done = [(StepName::Adopted, StepState::Done, "")];
    let sick = cluster(
        Phase::Degraded,
        &done,
        vec![says(ConditionType::Synced, Status::False, "no fetch")],
    );
    assert_eq!(verdict(&sick, For::Adopted, None), Verdict::There);
    let why = "cluster eu1 is Degraded: Synced is False (no fetch)";
    assert_eq!(
        verdict(&sick, For::Healthy, None),
        Verdict::NotYet(why.to_owned())
    );
    let unguarded = cluster(
        Phase::Degraded,
        &done,
        vec![
            says(ConditionType::Synced, Status::True, ""),
            says(ConditionType::SnapshotFresh, Status::False, "none yet"),
            says(ConditionType::EngineInstalled, Status::False, "1 of 30"),
            says(ConditionType::Guarded, Status::False, "it is missing"),
        ],
    );
    let why = "cluster eu1 is Degraded: Guarded is False (it is missing)";
    assert_eq!(
        verdict(&unguarded, For::Healthy, None),
        Verdict::NotYet(why.to_owned())
    );
    let well = cluster(Phase::Healthy, &done, vec![]);
    assert_eq!(verdict(&well, For::Healthy, None), Verdict::There);
    let children = |status, why| {
        let said = vec![says(ConditionType::ChildrenReady, status, why)];
        cluster(Phase::Healthy, &done, said)
    };
    let ready = children(Status::True, "");
    assert_eq!(verdict(&ready, For::Healthy, None), Verdict::There);
    // A push that breaks something is no fault for a minute.
    let pushed = children(Status::Unknown, "web: BuildFailed");
    assert_eq!(verdict(&pushed, For::Adopted, None), Verdict::There);
    let why = "cluster eu1 is Healthy, and what the catalog brought is not known to be Ready yet: web: BuildFailed";
    assert_eq!(
        verdict(&pushed, For::Healthy, None),
        Verdict::NotYet(why.to_owned())
    );
    assert_eq!(
        there(&sick, For::Adopted, 12.34),
        "cluster eu1 is adopted at main@01234567 (12.3 s)"
    );
}

#[test]
fn a_conflict_ends_the_wait() {
    for (reason, next) in [
        (
            "TokenRedeemed",
            "make new YAML and apply it: linesman cluster readopt eu1 --file adopt.yaml",
        ),
        // Its YAML was applied in another cluster: new YAML would be, too, and voids the one that is to be applied again.
        (
            "KeyKnown",
            "see what the condition says: linesman cluster show eu1",
        ),
        // New YAML needs a word more, if it is the answer at all.
        (
            "IncarnationChanged",
            "see what the condition says: linesman cluster show eu1",
        ),
    ] {
        let mut conflict = says(ConditionType::JoinConflict, Status::True, "key SHA256:x");
        reason.clone_into(&mut conflict.reason);
        let refused = cluster(Phase::Conflict, &[], vec![conflict]);
        let text = "cluster eu1 cannot join: key SHA256:x";
        let failure = Failure::new(Code::Conflict, text, next);
        let found = verdict(&refused, For::Adopted, None);
        assert_eq!(found, Verdict::Never(failure), "{reason}");
    }
}

/// The adoption of before was told as the new one's, and so was a refusal that the new YAML is to end.
#[test]
fn what_was_so_before_says_nothing_of_the_new_yaml() {
    let done = [(StepName::Adopted, StepState::Done, "")];
    let refused = |by: &str| {
        let message = format!("key SHA256:x from 192.0.2.1:1 redeemed it; key {by} tried it");
        let conflict = says(ConditionType::JoinConflict, Status::True, &message);
        cluster(Phase::Conflict, &done, vec![conflict])
    };
    let well = cluster(Phase::Healthy, &done, vec![]);
    let twice = refused("SHA256:y from 192.0.2.2:40001");
    let judged = |told: &ToldCluster, goal, before: &ToldCluster| {
        let before = Before::of(before);
        match verdict(told, goal, Some(&before)) {
            Verdict::There => "there",
            Verdict::NotYet(why) if why.contains("its new YAML to be applied") => "not yet",
            Verdict::NotYet(_) => "another wait",
            Verdict::Never(_) => "never",
        }
    };
    for goal in [For::Adopted, For::Healthy] {
        assert_eq!(judged(&well, goal, &well), "not yet");
        assert_eq!(judged(&twice, goal, &twice), "not yet");
        let again = refused("SHA256:y from 192.0.2.2:40002");
        assert_eq!(judged(&again, goal, &twice), "not yet");
        let other = refused("SHA256:z from 192.0.2.2:40001");
        assert_eq!(judged(&other, goal, &twice), "never");
        assert_eq!(judged(&twice, goal, &well), "never");
        for (told, verdict) in [(&well, "there"), (&twice, "never")] {
            let mut joined = told.clone();
            joined.rev += 1;
            assert_eq!(judged(&joined, goal, &twice), verdict);
        }
    }
    let before = Before::of(&well);
    let goal = (For::Adopted, Some(&before));
    let failure = timed_out(&well.name, Some(&well), goal, Duration::from_mins(5));
    assert_eq!(
        failure.message,
        "5m passed and cluster eu1 has not joined anew yet; waiting for its new YAML to be applied"
    );
    assert!(failure.next.starts_with("apply the YAML"), "{failure:?}");
}

#[test]
fn the_mark_is_read_as_it_was_printed() {
    let well = cluster(Phase::Healthy, &[], vec![]);
    let conflict = says(ConditionType::JoinConflict, Status::True, "token used");
    let refused = cluster(Phase::Conflict, &[], vec![conflict]);
    for cluster in [well, refused] {
        let before = Before::of(&cluster);
        assert_eq!(Before::parse(&before.to_string()), Ok(before));
    }
    for wrong in ["", "-", "eu1", "-12ab"] {
        assert!(Before::parse(wrong).is_err(), "{wrong}");
    }
}

/// H31: a refresh token is good once: where the end of the time cut its renewal in the middle, the session was over.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_being_renewed_at_the_end_of_the_time_is_kept() {
    const LIMIT: Duration = Duration::from_secs(2);
    // Another test may have been first.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let kept = Arc::new(AtomicBool::new(false));
    let keeps = kept.clone();
    let renewal = Renewal::new(move || {
        let keeps = keeps.clone();
        async move {
            let renews = async {
                tokio::time::sleep(2 * LIMIT).await;
                keeps.store(true, Ordering::Relaxed);
            };
            interrupt::to_its_end(interrupt::own().as_ref(), renews).await;
            Err(Error::Tls("no call is made behind that".to_owned()))
        }
    });
    let client = Client::new(address("hub").unwrap(), None, None).unwrap();
    let client = client.renewing(renewal);
    let name = "eu1".parse().unwrap();
    let waits = until(&client, &name, (For::Adopted, None), LIMIT);
    let error = Interrupt::default().ends(waits).await.unwrap_err();
    let failure: &Failure = error.downcast_ref().unwrap();
    let kept = kept.load(Ordering::Relaxed);
    assert_eq!((failure.code, kept), (Code::Timeout, true), "{failure:?}");
}
