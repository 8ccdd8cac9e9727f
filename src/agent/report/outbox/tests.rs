use super::*;
use crate::wire::report::{Scene, Status, StepState};

fn heal(id: &str, result: HealResult) -> HealRecord {
    HealRecord {
        id: id.to_owned(),
        class: "ObjectMissing".to_owned(),
        number: 1,
        meaning: String::new(),
        object: String::new(),
        evidence: String::new(),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: None,
        detected_at: String::new(),
        acted_at: None,
        restored_at: None,
        result,
        next: String::new(),
        scene: Scene::default(),
    }
}

fn outbox() -> Outbox {
    Outbox::new(AgentBuild::default(), Vec::new())
}

fn ack(ids: &[&str]) -> ReportAck {
    ReportAck {
        heals: ids.iter().map(|id| (*id).to_owned()).collect(),
        assignment_revision: 1,
    }
}

/// H49: the history arrives once and in order.
#[test]
fn heals_wait_in_order_until_the_hub_has_them() {
    let mut outbox = outbox();
    for id in ["a", "b"] {
        assert!(outbox.add(News::Heal(Box::new(heal(id, HealResult::Healed)))));
    }
    let parcel = outbox.next();
    let sent: Vec<_> = parcel.report.heals.iter().map(|h| h.id.as_str()).collect();
    assert_eq!(sent, ["a", "b"]);
    assert!(outbox.settle(&parcel, &ack(&["a"])));
    assert_eq!(outbox.heals(), [heal("b", HealResult::Healed)]);
    assert!(outbox.settle(&parcel, &ack(&["b"])));
    assert!(outbox.is_clean());
}

/// H51: an older hub does not know how these ended.
#[test]
fn heals_that_an_older_hub_does_not_know_hold_up_no_others() {
    let mut outbox = outbox();
    let ids: Vec<String> = (0..HEALS_A_REPORT + 5).map(|n| n.to_string()).collect();
    for id in &ids {
        outbox.add(News::Heal(Box::new(heal(id, HealResult::Failed))));
    }
    let sent = |outbox: &Outbox| -> Vec<String> {
        let told = outbox.next().report.heals;
        told.into_iter().map(|h| h.id).collect()
    };
    let parcel = outbox.next();
    outbox.settle(&parcel, &ack(&[]));
    assert_eq!(sent(&outbox), ids[HEALS_A_REPORT..]);
    let parcel = outbox.next();
    outbox.settle(&parcel, &ack(&["50", "51", "52", "53", "54"]));
    assert!(outbox.is_clean(), "nothing is sent over and over");
    assert_eq!(outbox.heals().len(), HEALS_A_REPORT);

    outbox.add(News::Heal(Box::new(heal("7", HealResult::Healed))));
    assert_eq!(sent(&outbox), ["7"], "what changed may be read now");
    outbox.offer_again();
    assert_eq!(sent(&outbox), ids[..HEALS_A_REPORT], "a while later");
    let parcel = outbox.next();
    outbox.settle(&parcel, &ack(&[]));
    assert!(outbox.is_clean());
    outbox.resend();
    assert_eq!(
        sent(&outbox),
        ids[..HEALS_A_REPORT],
        "another line, another hub"
    );
}

/// What the hub has as open and is not named here, nobody will tell the end of.
#[test]
fn the_open_heals_are_named_once_those_of_before_are_known() {
    let mut outbox = Outbox::new(
        AgentBuild::default(),
        vec![heal("unsent", HealResult::Open)],
    );
    let told = |outbox: &Outbox| outbox.next().report.open_heals;
    outbox.add(News::Heal(Box::new(heal("new", HealResult::Open))));
    assert_eq!(told(&outbox), None);
    outbox.add(News::GoesOn(vec!["old".to_owned()]));
    let ids = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect());
    assert_eq!(told(&outbox), ids(&["new", "old", "unsent"]));
    for id in ["old", "new"] {
        outbox.add(News::Heal(Box::new(heal(id, HealResult::Failed))));
    }
    // Their end is not at the hub yet.
    assert_eq!(told(&outbox), ids(&["new", "old", "unsent"]));
    let parcel = outbox.next();
    outbox.settle(&parcel, &ack(&["new", "old", "unsent"]));
    assert_eq!(told(&outbox), None);
    outbox.resend();
    assert_eq!(told(&outbox), ids(&[]));
}

#[test]
fn a_heal_that_closes_while_its_report_travels_goes_up_again() {
    let mut outbox = outbox();
    outbox.add(News::Heal(Box::new(heal("a", HealResult::Open))));
    let parcel = outbox.next();
    outbox.add(News::Heal(Box::new(heal("a", HealResult::Healed))));
    assert!(!outbox.settle(&parcel, &ack(&["a"])));
    assert_eq!(outbox.heals(), [heal("a", HealResult::Healed)]);
}

#[test]
fn open_heals_outlast_closed_ones_and_losses_are_counted() {
    let mut outbox = outbox();
    outbox.add(News::Heal(Box::new(heal("open", HealResult::Open))));
    for n in 0..MAX_HEALS {
        outbox.add(News::Heal(Box::new(heal(
            &n.to_string(),
            HealResult::Healed,
        ))));
    }
    assert_eq!((outbox.heals().len(), outbox.dropped()), (MAX_HEALS, 1));
    assert_eq!(outbox.heals()[0].id, "open");
    assert_eq!(outbox.heals()[1].id, "1");
}

/// The hub was away since before what nobody mends began: it is still there when the hub is back.
#[test]
fn what_was_reported_and_goes_on_outlasts_what_is_over() {
    let mut outbox = outbox();
    outbox.add(News::Heal(Box::new(heal("goes on", HealResult::Reported))));
    let over = HealRecord {
        restored_at: Some("2026-01-01T00:00:00Z".to_owned()),
        ..heal("over", HealResult::Reported)
    };
    outbox.add(News::Heal(Box::new(over)));
    outbox.add(News::Heal(Box::new(heal("failed", HealResult::Failed))));
    for n in 0..MAX_HEALS {
        let healed = heal(&n.to_string(), HealResult::Healed);
        outbox.add(News::Heal(Box::new(healed)));
    }
    assert_eq!((outbox.heals().len(), outbox.dropped()), (MAX_HEALS, 3));
    let first = outbox.heals().iter().take(2);
    let first: Vec<_> = first.map(|h| h.id.as_str()).collect();
    assert_eq!(first, ["goes on", "1"]);
}

#[test]
fn state_is_sent_whole_when_it_changed_and_not_otherwise() {
    let mut outbox = outbox();
    let step = |reason: &str, at: &str| {
        News::Step(StepReport {
            step: StepName::Git,
            state: StepState::Waiting,
            reason: reason.to_owned(),
            at: at.to_owned(),
        })
    };
    outbox.add(step("auth", "1"));
    let parcel = outbox.next();
    assert_eq!(parcel.report.steps.len(), 1);
    outbox.settle(&parcel, &ack(&[]));
    outbox.add(step("auth", "2"));
    assert!(
        outbox.is_clean(),
        "the same state at another time is no news"
    );
    assert_eq!(outbox.next().report, Report::default());
    outbox.resend();
    assert_eq!(outbox.next().report.steps, parcel.report.steps);
}

#[test]
fn a_condition_keeps_its_time_while_its_status_stays() {
    let mut outbox = outbox();
    let condition = |status, message: &str, since: &str| Condition {
        kind: ConditionType::Synced,
        status,
        reason: "R".to_owned(),
        message: message.to_owned(),
        since: since.to_owned(),
    };
    outbox.add(News::Condition(condition(Status::True, "one", "1")));
    outbox.add(News::Condition(condition(Status::True, "two", "2")));
    let expected = vec![condition(Status::True, "two", "1")];
    assert_eq!(outbox.next().report.conditions, Some(expected));
}

/// Two look at it and one answer is told, whoever spoke last.
#[test]
fn whether_git_is_reached_is_one_answer_from_two() {
    let told = |status, reason: &str| Condition {
        kind: ConditionType::GitReachable,
        status,
        reason: reason.to_owned(),
        message: String::new(),
        since: "1".to_owned(),
    };
    let read = told(Status::True, "Read");
    let not_read = told(Status::False, "NotRead");
    let no_route = told(Status::False, NO_ROUTE);
    let fetched = told(Status::True, "Fetched");
    let refused = told(Status::False, "KeyRevoked");
    for (own, engine, one) in [
        (Some(&read), None, &read),
        (Some(&not_read), None, &not_read),
        (Some(&no_route), None, &no_route),
        (None, Some(&fetched), &fetched),
        (Some(&read), Some(&fetched), &fetched),
        (Some(&not_read), Some(&fetched), &fetched),
        (Some(&read), Some(&refused), &refused),
        (Some(&not_read), Some(&refused), &refused),
        (Some(&no_route), Some(&refused), &no_route),
        (Some(&no_route), Some(&fetched), &no_route),
    ] {
        let own = own.map(|c| News::OwnGit(c.clone()));
        let engine = engine.map(|c| News::Condition(c.clone()));
        let news: Vec<News> = own.into_iter().chain(engine).collect();
        let mut turned = news.clone();
        turned.reverse();
        for order in [news, turned] {
            let mut outbox = outbox();
            for news in order.clone() {
                outbox.add(news);
            }
            let told = outbox.next().report.conditions;
            assert_eq!(told, Some(vec![one.clone()]), "{order:?}");
        }
    }
}

/// W25: what a former process left goes up first, also where it is read late; and what is open is not told before that.
#[test]
fn nothing_goes_up_before_what_a_former_process_left() {
    let mut outbox = Outbox::without_former(AgentBuild::default());
    outbox.add(News::Heal(Box::new(heal("b", HealResult::Healed))));
    outbox.add(News::GoesOn(Vec::new()));
    let parcel = outbox.next();
    assert_eq!(
        (parcel.report.heals.len(), &parcel.report.open_heals),
        (0, &None)
    );
    outbox.settle(&parcel, &ReportAck::default());
    assert!(outbox.is_clean());
    let former = vec![heal("a", HealResult::Healed), heal("b", HealResult::Open)];
    outbox.recall(former, Vec::new());
    let parcel = outbox.next();
    let told = [heal("a", HealResult::Healed), heal("b", HealResult::Healed)];
    assert_eq!(parcel.report.heals, told);
    assert!(parcel.report.open_heals.is_some());
}
