//! Old and new Pod second by second, in a world in which the hub comes and goes and the clock jumps.

use proptest::prelude::*;

use super::*;

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
