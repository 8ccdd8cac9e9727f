//! Which step follows from what the old Pod and the new one see.

use super::*;
use crate::agent::plan::window::{By, End};
use crate::wire::report::Status;

mod refused;
mod world;

const NOW: &str = "2026-01-01T00:00:00Z";
/// The owner has all left alone.
const OFF: Window = Window {
    end: End::Open,
    by: By::Heal,
};

fn at(seconds: i64) -> OffsetDateTime {
    clock::parse_rfc3339(NOW).unwrap() + time::Duration::seconds(seconds)
}

fn trial(asks: Option<&str>) -> Deployed {
    Deployed {
        image: "b".to_owned(),
        trial: Some(Trial {
            image: "b".to_owned(),
            previous: "a".to_owned(),
            deadline: clock::rfc3339(at(120)),
            asks: asks.map(str::to_owned),
            wish: 0,
        }),
        failed: None,
    }
}

fn plain(failed: Option<Failed>) -> Deployed {
    Deployed {
        image: "a".to_owned(),
        trial: None,
        failed,
    }
}

fn failure(tries: u32, blame: Blame, why: &str) -> Failed {
    Failed {
        image: "b".to_owned(),
        wish: 0,
        tries,
        blame,
        why: why.to_owned(),
    }
}

fn lead(heard: bool) -> Lead<'static> {
    Lead {
        wished: Some("b"),
        heard,
        ..Lead::default()
    }
}

/// `left` in seconds.
fn says(own: &str, deployed: &Deployed, left: u64, turn: Turn<'_>) -> Step {
    decide(&Seen {
        own,
        pod: "pod-b",
        deployed,
        left: Duration::from_secs(left),
        turn,
    })
}

fn leads(own: &str, deployed: &Deployed, left: u64, lead: Lead<'_>) -> Step {
    says(own, deployed, left, Turn::Leads(lead))
}

fn waits(own: &str, deployed: &Deployed, left: u64) -> Step {
    says(own, deployed, left, Turn::Waits { relapsed: false })
}

const SILENT: &str = "no Pod of it was ready to take over in time";
const UNHEARD: &str = "the hub acknowledged no report of it in time";
const ENDED: &str = "it took over and ended before the hub had acknowledged a report of it";

/// Whoever waits is told for whom.
#[test]
fn an_image_that_waits_for_the_owner_says_so() {
    let step = Step::Stay(Stay::Paused(OFF));
    let said = condition(&step, &plain(None), "a", (Some("b"), 0, None));
    let text = "b: it waits while key heal of ConfigMap linesman-policy is off";
    assert_eq!(
        said,
        Said {
            status: Status::False,
            reason: "Waits",
            text: text.to_owned()
        }
    );
}

/// An image that cannot be pulled says so in the first second; whoever waits for the upgrade need not wait two minutes to hear it.
#[test]
fn an_image_on_trial_is_told_with_what_its_pod_says() {
    let said = |evidence| {
        let step = Step::Stay(Stay::OnTrial);
        condition(&step, &trial(None), "a", (Some("b"), 0, evidence)).text
    };
    let plain = "b: on trial; by 2026-01-01T00:02:00.000Z it is heard, or a is back";
    assert_eq!(said(None), plain);
    let pod = "ErrImagePull: no such host";
    assert_eq!(said(Some(pod)), format!("{plain}; its Pod: {pod}"));
}

#[test]
fn an_image_is_tried_where_it_is_wished_and_the_hub_hears_the_one_that_is_there() {
    let now = plain(None);
    let with = |wished, paused, heard| Lead {
        wished,
        paused,
        heard,
        ..Lead::default()
    };
    for (lead, step) in [
        (with(None, None, true), Step::Stay(Stay::Unwished)),
        (with(Some("a"), None, true), Step::Stay(Stay::Current)),
        (
            with(Some("b"), Some(OFF), true),
            Step::Stay(Stay::Paused(OFF)),
        ),
        (with(Some("b"), None, false), Step::Stay(Stay::Unheard)),
        (with(Some("b"), None, true), Step::Try("b".to_owned())),
    ] {
        assert_eq!(leads("a", &now, 100, lead.clone()), step, "{lead:?}");
    }
    // Its Pod is to be replaced, by whatever the Deployment has.
    let other = leads("x", &now, 100, with(Some("b"), None, true));
    assert_eq!(other, Step::Stay(Stay::Rollout));
}

#[test]
fn the_old_one_leads_until_the_new_one_asks_and_the_hub_is_there() {
    let asked = trial(Some("pod-b"));
    let on_trial = Step::Stay(Stay::OnTrial);
    assert_eq!(leads("a", &trial(None), 100, lead(true)), on_trial);
    assert_eq!(
        leads("a", &asked, 100, lead(true)),
        Step::Lend("pod-b".to_owned())
    );
    assert_eq!(
        leads("a", &asked, 100, lead(false)),
        Step::Stay(Stay::Unheard)
    );
    // Too late for a first report.
    assert_eq!(leads("a", &asked, 14, lead(true)), on_trial);
    assert_eq!(waits("a", &asked, 1), on_trial);
    assert_eq!(waits("b", &trial(None), 100), Step::Ask);
    assert_eq!(waits("b", &trial(Some("pod-0")), 100), Step::Ask);
    assert_eq!(waits("b", &asked, 100), on_trial);
}

#[test]
fn the_first_acknowledged_report_ends_the_trial() {
    let acked = Lead {
        acked: true,
        ..lead(true)
    };
    assert_eq!(leads("b", &trial(None), 0, acked), Step::Confirm);
    assert_eq!(
        leads("b", &trial(None), 100, lead(true)),
        Step::Stay(Stay::OnTrial)
    );
}

/// H50: whoever sees the end of its time first.
#[test]
fn an_image_that_is_silent_goes_back() {
    let silent = Step::Return(failure(1, Blame::Image, SILENT));
    let unheard = Step::Return(failure(1, Blame::Open, UNHEARD));
    for (asks, step) in [(None, silent), (Some("pod-b"), unheard)] {
        let now = trial(asks);
        for own in ["a", "b"] {
            assert_eq!(waits(own, &now, 0), step, "{own} waits");
        }
        assert_eq!(leads("b", &now, 0, lead(false)), step);
    }
    let asked = trial(Some("pod-b"));
    let away = failure(1, Blame::Hub, "the hub was away");
    assert_eq!(leads("a", &asked, 0, lead(false)), Step::Return(away));
    let late = failure(1, Blame::Image, "its Pod was ready too late");
    assert_eq!(leads("a", &asked, 0, lead(true)), Step::Return(late));
    let again = Deployed {
        failed: Some(failure(1, Blame::Open, UNHEARD)),
        ..trial(None)
    };
    assert_eq!(
        waits("a", &again, 0),
        Step::Return(failure(2, Blame::Image, SILENT))
    );
}

#[test]
fn one_that_took_over_and_ended_goes_back_at_once() {
    let now = trial(Some("pod-b"));
    let ended = Step::Return(failure(1, Blame::Image, ENDED));
    let relapsed = Turn::Waits { relapsed: true };
    assert_eq!(says("b", &now, 100, relapsed), ended);
    let again = Lead {
        lending: Lending::Done,
        ..lead(true)
    };
    assert_eq!(leads("a", &now, 100, again), ended);
}

/// H50: it never led, so that nothing is known against it.
#[test]
fn one_that_could_not_be_given_the_lease_gets_it_later_and_is_not_to_blame() {
    let now = trial(Some("pod-b"));
    let kept = |heard| Lead {
        lending: Lending::Failed,
        ..lead(heard)
    };
    let lend = Step::Lend("pod-b".to_owned());
    assert_eq!(leads("a", &now, 100, kept(true)), lend);
    let why = "the Lease could not be given to its Pod";
    let back = failure(1, Blame::Hub, why);
    assert!(!back.is_final());
    for heard in [true, false] {
        let step = Step::Return(back.clone());
        assert_eq!(leads("a", &now, 0, kept(heard)), step, "{heard}");
    }
    assert_eq!(
        leads("a", &plain(Some(back)), 100, lead(true)),
        Step::Try("b".to_owned())
    );
}

#[test]
fn what_somebody_sets_by_hand_is_no_trial() {
    let by_hand = Deployed {
        image: "c".to_owned(),
        ..trial(Some("pod-b"))
    };
    assert_eq!(leads("c", &by_hand, 0, lead(true)), Step::Forget);
    assert_eq!(waits("a", &by_hand, 0), Step::Stay(Stay::Rollout));
    // Its Pod goes; until then it does nothing. By hand, the same image may well come back.
    let back = plain(Some(failure(1, Blame::Image, SILENT)));
    assert_eq!(waits("b", &back, 0), Step::Yield);
    assert_eq!(leads("b", &back, 0, lead(true)), Step::Yield);
    let by_hand = Deployed {
        image: "b".to_owned(),
        ..back
    };
    assert_eq!(leads("b", &by_hand, 0, lead(true)), Step::Forget);
}

#[test]
fn the_annotations_are_read_and_half_of_them_is_nothing() {
    let pairs = [
        (PREVIOUS, "a"),
        (TRIED, "b"),
        (DEADLINE, "2026-01-01T00:02:00.000Z"),
        (ASKS, "pod-b"),
        (WISH, "7"),
        (
            FAILED,
            r#"{"image":"b","tries":1,"blame":"open","why":"so"}"#,
        ),
    ];
    let all: BTreeMap<String, String> = pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let read = Deployed::read("b", &all);
    let failed = Some(failure(1, Blame::Open, "so"));
    let mut wanted = Deployed {
        failed,
        ..trial(Some("pod-b"))
    };
    wanted.trial.as_mut().unwrap().wish = 7;
    assert_eq!(read, wanted);
    for key in [PREVIOUS, TRIED, DEADLINE] {
        let mut some = all.clone();
        some.insert(key.to_owned(), String::new());
        assert_eq!(Deployed::read("b", &some).trial, None, "{key}");
    }
    let mut garbled = all;
    garbled.insert(FAILED.to_owned(), "{".to_owned());
    assert_eq!(Deployed::read("b", &garbled).failed, None);
}

#[test]
fn a_wall_clock_that_is_wrong_makes_nobody_wait_longer() {
    let now = trial(None).trial.unwrap();
    let seconds = |part, at| patience(part, &now, at).as_secs();
    assert_eq!(seconds(Part::Old, at(0)), 100);
    assert_eq!(seconds(Part::Old, at(30)), 70);
    assert_eq!(seconds(Part::Old, at(101)), 0);
    assert_eq!(seconds(Part::Old, at(-86_400)), 100);
    assert_eq!(seconds(Part::Old, at(86_400)), 0);
    // The deadline is of another node's clock.
    assert_eq!(seconds(Part::New, at(86_400)), 100);
    let garbled = Trial {
        deadline: "soon".to_owned(),
        ..now
    };
    assert_eq!(patience(Part::Old, &garbled, at(0)).as_secs(), 100);
}
