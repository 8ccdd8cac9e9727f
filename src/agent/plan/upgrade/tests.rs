use proptest::prelude::*;

use super::*;
use crate::agent::plan::window::{By, End};

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

/// Which image is wished is read after the start; until then nothing of an earlier trial is forgotten.
#[test]
fn a_refused_image_is_remembered_until_it_is_known_what_is_wished() {
    let refused = plain(Some(failure(1, Blame::Image, ENDED)));
    let unknown = Lead {
        unknown: true,
        heard: true,
        ..Lead::default()
    };
    let stays = Step::Stay(Stay::Unheard);
    assert_eq!(leads("a", &refused, 0, unknown), stays);
    let unwished = Lead {
        heard: true,
        ..Lead::default()
    };
    assert_eq!(leads("a", &refused, 0, unwished), Step::Forget);
}

/// Whoever waits is told for whom.
#[test]
fn an_image_that_waits_for_the_owner_says_so() {
    let step = Step::Stay(Stay::Paused(OFF));
    let said = condition(&step, &plain(None), "a", (Some("b"), 0));
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
fn a_refused_image_waits_for_another_wish_and_one_that_the_hub_missed_for_the_hub() {
    let bad = plain(Some(failure(1, Blame::Image, SILENT)));
    assert_eq!(leads("a", &bad, 100, lead(true)), Step::Stay(Stay::Failed));
    let other = Lead {
        wished: Some("c"),
        ..lead(true)
    };
    assert_eq!(leads("a", &bad, 100, other), Step::Try("c".to_owned()));
    for wished in [None, Some("a")] {
        let lead = Lead {
            wished,
            ..lead(true)
        };
        assert_eq!(leads("a", &bad, 100, lead), Step::Forget, "{wished:?}");
    }
    let missed = plain(Some(failure(1, Blame::Open, UNHEARD)));
    let after = |heard, seconds| Lead {
        settling: Duration::from_secs(seconds),
        ..lead(heard)
    };
    // The hub hears the old one at once: it was there for the new one, too.
    assert_eq!(
        leads("a", &missed, 100, after(true, 59)),
        Step::Judge(failure(1, Blame::Image, UNHEARD))
    );
    assert_eq!(
        leads("a", &missed, 100, after(false, 59)),
        Step::Stay(Stay::Unheard)
    );
    assert_eq!(
        leads("a", &missed, 100, after(true, 60)),
        Step::Try("b".to_owned())
    );
    // It was away, as the old one saw.
    let away = plain(Some(failure(1, Blame::Hub, "the hub was away")));
    assert_eq!(
        leads("a", &away, 100, after(true, 1)),
        Step::Try("b".to_owned())
    );
    let often = plain(Some(failure(3, Blame::Open, UNHEARD)));
    assert_eq!(
        leads("a", &often, 100, after(true, 60)),
        Step::Stay(Stay::Failed)
    );
}

/// Before, who withdrew an image and gave it anew at once was told of the trial before, and none followed: the agent saw the same
/// wish as before.
#[test]
fn an_image_that_was_withdrawn_and_given_anew_is_tried_anew_although_nobody_saw_it_withdrawn() {
    let refused = |wish, tries| Failed {
        wish,
        ..failure(tries, Blame::Image, SILENT)
    };
    let lead = |wish| Lead { wish, ..lead(true) };
    let bad = plain(Some(refused(2, 1)));
    assert_eq!(leads("a", &bad, 100, lead(2)), Step::Stay(Stay::Failed));
    assert_eq!(leads("a", &bad, 100, lead(4)), Step::Forget);
    assert_eq!(
        leads("a", &plain(None), 100, lead(4)),
        Step::Try("b".to_owned())
    );
    let mut again = Deployed {
        failed: Some(refused(2, 3)),
        ..trial(None)
    };
    again.trial.as_mut().unwrap().wish = 4;
    assert_eq!(waits("a", &again, 0), Step::Return(refused(4, 1)));

    let says = |step: Step, deployed: &Deployed| condition(&step, deployed, "a", (Some("b"), 4));
    for (step, deployed, begins) in [
        (Step::Stay(Stay::Failed), &bad, "b: wish 2: no Pod"),
        (Step::Forget, &bad, "b: wish 4: it begins"),
        (Step::Stay(Stay::OnTrial), &again, "b: wish 4: on trial;"),
        (
            Step::Return(refused(4, 1)),
            &again,
            "b: wish 4: it is taken back",
        ),
        (
            Step::Stay(Stay::Unheard),
            &plain(None),
            "b: wish 4: it waits",
        ),
    ] {
        let said = says(step, deployed);
        assert!(said.text.starts_with(begins), "{said:?}");
    }
    let said = condition(&Step::Stay(Stay::Current), &bad, "b", (Some("b"), 4));
    assert_eq!(said.text, "b: wish 4: the agent runs it");
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

/// What a new image is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Works,
    /// It takes over and is not heard.
    Mute,
    /// It takes over and ends.
    Ends,
    /// It never asks.
    Dead,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "what may be so or not in a world"
)]
/// Two Pods, a Deployment, a Lease, a hub that comes and goes and a wall clock that jumps.
struct World {
    kind: Kind,
    deployed: Deployed,
    second: i64,
    wall: i64,
    hub: bool,
    /// Who leads: the image of its Pod.
    leads: &'static str,
    /// Since when each of old and new sees this trial, and for how long it waits.
    sees: [Option<(i64, Duration)>; 2],
    led_since: i64,
    lent: bool,
    relapsed: bool,
    changes: u32,
    tried_at: i64,
    longest: i64,
    confirmed: bool,
}

impl World {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            deployed: plain(None),
            second: 0,
            wall: 0,
            hub: true,
            leads: "a",
            sees: [None, None],
            led_since: 0,
            lent: false,
            relapsed: false,
            changes: 0,
            tried_at: 0,
            longest: 0,
            confirmed: false,
        }
    }

    fn look(&mut self, own: &'static str) {
        let index = usize::from(own == "b");
        let now = at(self.second + self.wall);
        let left = match self.deployed.part(own) {
            None => {
                self.sees[index] = None;
                Duration::ZERO
            }
            Some((part, trial)) => {
                let (since, all) = *self.sees[index]
                    .get_or_insert_with(|| (self.second, patience(part, trial, now)));
                let gone = u64::try_from(self.second - since).unwrap();
                all.saturating_sub(Duration::from_secs(gone))
            }
        };
        let since = Duration::from_secs(u64::try_from(self.second - self.led_since).unwrap());
        let turn = if self.leads == own {
            let speaks = own == "a" || self.kind == Kind::Works;
            Turn::Leads(Lead {
                acked: self.hub && speaks && since.as_secs() >= 2,
                lending: if self.lent {
                    Lending::Done
                } else {
                    Lending::NotYet
                },
                settling: since,
                ..lead(self.hub && speaks)
            })
        } else {
            let relapsed = own == "b" && self.relapsed;
            Turn::Waits { relapsed }
        };
        let deployed = self.deployed.clone();
        let seen = Seen {
            own,
            pod: "pod-b",
            deployed: &deployed,
            left,
            turn,
        };
        self.act(own, decide(&seen), now);
    }

    fn act(&mut self, own: &'static str, step: Step, now: OffsetDateTime) {
        match step {
            Step::Stay(_) => {}
            Step::Try(image) => {
                let deadline = clock::rfc3339(now + WITHIN);
                let previous = std::mem::replace(&mut self.deployed.image, image.clone());
                self.deployed.trial = Some(Trial {
                    image,
                    previous,
                    deadline,
                    asks: None,
                    wish: 0,
                });
                (self.changes, self.tried_at) = (self.changes + 1, self.second);
                (self.lent, self.relapsed) = (false, false);
            }
            Step::Ask => self.deployed.trial.as_mut().unwrap().asks = Some("pod-b".to_owned()),
            Step::Lend(_) => {
                (self.leads, self.lent, self.led_since) = ("b", true, self.second);
                if self.kind == Kind::Ends {
                    // Its container starts again.
                    (self.leads, self.relapsed) = ("", true);
                }
            }
            Step::Confirm => {
                self.deployed.trial = None;
                self.deployed.failed = None;
                self.confirmed = true;
            }
            Step::Return(failed) => {
                let trial = self.deployed.trial.take().unwrap();
                self.deployed.image = trial.previous;
                self.deployed.failed = Some(failed);
                self.changes += 1;
                self.longest = self.longest.max(self.second - self.tried_at);
                if self.leads == "b" || self.leads.is_empty() {
                    (self.leads, self.led_since) = ("a", self.second);
                }
            }
            Step::Judge(failed) => self.deployed.failed = Some(failed),
            Step::Yield => assert_eq!(own, "b"),
            Step::Forget => panic!("nothing is stale here"),
        }
    }

    /// One second; a new Pod is there for as long as the Deployment has its image.
    fn tick(&mut self, flip: bool, jump: i64) {
        self.hub ^= flip;
        self.wall += jump;
        self.second += 1;
        if !self.confirmed {
            self.look("a");
        }
        if self.deployed.image == "b" && self.kind != Kind::Dead {
            self.look("b");
        }
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Works),
        Just(Kind::Mute),
        Just(Kind::Ends),
        Just(Kind::Dead)
    ]
}

proptest! {
    #[test]
    fn two_images_never_take_turns_and_no_trial_is_longer_than_its_time(
        kind in kinds(),
        days in prop::collection::vec((prop::bool::weighted(0.01), prop_oneof![
            30 => Just(0_i64),
            1 => -90_000_i64..90_000,
        ]), 1500),
    ) {
        let mut world = World::new(kind);
        for (flip, jump) in days {
            world.tick(flip, jump);
        }
        prop_assert!(world.changes <= 2 * TRIES, "{} changes", world.changes);
        // Who gave the Deployment the image looks at it again a second later, and counts from then on.
        prop_assert!(world.longest <= 101, "{} s", world.longest);
        prop_assert!(!world.confirmed || kind == Kind::Works);
        if world.confirmed {
            prop_assert_eq!(world.deployed.image, "b");
        }
    }

    #[test]
    fn with_the_hub_there_one_trial_decides(kind in kinds()) {
        let mut world = World::new(kind);
        for _ in 0..600 {
            world.tick(false, 0);
        }
        let works = kind == Kind::Works;
        prop_assert_eq!(world.confirmed, works);
        prop_assert_eq!(world.changes, if works { 1 } else { 2 });
        prop_assert_eq!(&world.deployed.image, if works { "b" } else { "a" });
        prop_assert!(works || world.deployed.failed.is_some_and(|f| f.blame == Blame::Image));
    }
}
