//! What goes on for a while on a random day, beside what is harmed within its first second. Whoever does it stops in his time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Dice, Harm, content, is_right, name};
use crate::blocked::{BLOCKS, end_pods};
use crate::cascade::{StandsStill, disarmed};
use crate::guard::{BINDING, POLICY};
use crate::support::api::path_of;
use crate::support::seconds;
use crate::support::world::World;

/// Somebody else's finalizer, which is its owner's to take away.
const FOREIGN: &str = "example.com/backup";
/// CRDs of what prunes.
const PRUNING: [&str; 2] = [
    "/kustomizations.kustomize.toolkit.fluxcd.io",
    "/applications.argoproj.io",
];

/// Does what is due at each look; true once there is no more to do.
pub(super) type GoesOn = Box<dyn FnMut(&World) -> bool>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Trouble {
    /// F22: deleted while somebody else's finalizer holds it, which goes after so many seconds.
    Pinned(Value, u64),
    /// Harmed, and so often once more as soon as it is right: within the budget of five an hour, and a deletion has none.
    Rival(Harm, Value, usize),
    /// W11: a CRD, by its path, deleted after the guard policy, or past it.
    Unguarded(String),
    /// W16: that of `BLOCKS` which keeps the engine's Pods away for so many seconds.
    Blocked(usize, u64),
}

impl Trouble {
    /// By the number of the day, so that five in a row have each and a day without, and ten in a row another form of each. Of what
    /// is `whole` on that day.
    pub(super) fn drawn(
        seed: u64,
        whole: &[Value],
        crds: &[String],
        dice: &mut Dice,
    ) -> Option<Self> {
        let turn = usize::try_from(seed / 5 % 6).unwrap();
        let even = turn.is_multiple_of(2);
        match seed % 5 {
            1 => {
                let object = one_of(whole, dice, |object| is_workload(object) == even);
                Some(Self::Pinned(object, 20 + 25 * rolled(dice, 3)))
            }
            2 => Some(Self::rival(whole, dice, even)),
            3 => {
                let pruning = crds.iter().find(|crd| prunes(crd)).filter(|_| !even);
                let any = || &crds[dice.roll(crds.len())];
                Some(Self::Unguarded(pruning.unwrap_or_else(any).clone()))
            }
            // In the order quota, webhook, cordon.
            4 => Some(Self::Blocked(
                turn * 2 % BLOCKS.len(),
                25 + 10 * rolled(dice, 3),
            )),
            _ => None,
        }
    }

    /// One that deletes, or one that writes fields.
    fn rival(whole: &[Value], dice: &mut Dice, deletes: bool) -> Self {
        // Scaled to zero it would be left so for half a minute each time; of Pods that are as old as their account it shows only after most
        // of a minute whether their tokens are good.
        let fits = |harm: &Harm| *harm != Harm::ScaleToZero && (*harm == Harm::Delete) == deletes;
        let harms = |object: &Value| -> Vec<Harm> {
            let all = Harm::fit_for(object).iter().copied();
            all.filter(fits).collect()
        };
        let object = one_of(whole, dice, |object| {
            object["kind"] != "ServiceAccount" && !harms(object).is_empty()
        });
        let harms = harms(&object);
        let harm = harms[dice.roll(harms.len())];
        let times = if deletes {
            2 + dice.roll(3)
        } else {
            1 + dice.roll(2)
        };
        Self::Rival(harm, object, times)
    }

    /// The object of the install that it is about.
    pub(super) fn object(&self) -> Option<&Value> {
        match self {
            Self::Pinned(object, _) | Self::Rival(_, object, _) => Some(object),
            Self::Unguarded(_) | Self::Blocked(..) => None,
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::Pinned(object, held) => {
                let name = name(object);
                format!("{name} deleted, for {held} s held by a foreign finalizer")
            }
            Self::Rival(harm, object, times) => {
                let name = name(object);
                format!("{harm:?} {name}, {times} times more as soon as it is right")
            }
            Self::Unguarded(crd) => {
                let name = crd.rsplit('/').next().unwrap();
                let how = if prunes(crd) {
                    "past the guard policy"
                } else {
                    "the guard policy first"
                };
                format!("CRD {name} deleted, {how}")
            }
            Self::Blocked(which, lasts) => format!("{} for {lasts} s", BLOCKS[*which].what),
        }
    }

    pub(super) fn begin(&self, world: &World) -> GoesOn {
        match self {
            Self::Pinned(object, held) => pinned(world, object, seconds(*held)),
            Self::Rival(harm, object, times) => rival(world, *harm, object, *times),
            Self::Unguarded(crd) => unguarded(world, crd),
            Self::Blocked(which, lasts) => blocked(world, *which, seconds(*lasts)),
        }
    }
}

fn rolled(dice: &mut Dice, sides: usize) -> u64 {
    u64::try_from(dice.roll(sides)).unwrap()
}

/// One that is such, or any where none is.
fn one_of(all: &[Value], dice: &mut Dice, is_such: impl Fn(&Value) -> bool) -> Value {
    let such: Vec<&Value> = all.iter().filter(|object| is_such(object)).collect();
    if such.is_empty() {
        return all[dice.roll(all.len())].clone();
    }
    such[dice.roll(such.len())].clone()
}

fn is_workload(object: &Value) -> bool {
    object["kind"] == "Deployment" || object["kind"] == "StatefulSet"
}

fn prunes(crd: &str) -> bool {
    PRUNING.iter().any(|name| crd.ends_with(name))
}

/// It stays until the finalizer's owner lets it go, and nobody does that for him.
fn pinned(world: &World, object: &Value, held: Duration) -> GoesOn {
    let path = path_of(object);
    let by = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    world.api.patch(&path, &by(json!([FOREIGN])));
    assert!(world.api.delete(&path), "{path} was not there");
    let (began, mut holds) = (Instant::now(), true);
    Box::new(move |world| {
        if holds
            && began.elapsed() >= held
            && let Ok(live) = world.api.try_get(&path)
        {
            let meta = live.unwrap_or_default()["metadata"].clone();
            assert!(meta["deletionTimestamp"].is_string(), "{path}: {meta}");
            assert_eq!(meta["finalizers"], json!([FOREIGN]), "{path}: {meta}");
            world.api.patch(&path, &by(Value::Null));
            holds = false;
        }
        !holds
    })
}

fn rival(world: &World, harm: Harm, object: &Value, times: usize) -> GoesOn {
    let path = path_of(object);
    let good = content(&world.api.get(&path).unwrap());
    harm.on(world, object);
    let (object, mut left) = (object.clone(), times);
    Box::new(move |world| {
        if left == 0 {
            return true;
        }
        if is_right(world, &path, &good) {
            harm.on(world, &object);
            left -= 1;
        }
        false
    })
}

/// The agent stands still while the policy goes: else that would be there again before the CRD is deleted. With all that was harmed
/// meanwhile before it, it would lose the race for a CRD of what prunes more often than W11 grants: that one it sees go.
fn unguarded(world: &World, crd: &str) -> GoesOn {
    let uid = world.uid(crd).unwrap();
    if prunes(crd) {
        world.delete_guarded(crd);
    } else {
        let stands_still = StandsStill::begin(world);
        disarmed(world, crd);
        drop(stands_still);
        world.api.try_delete(crd).unwrap();
    }
    let crd = crd.to_owned();
    Box::new(move |world| {
        let another = world.uid(&crd).is_some_and(|new| new != uid);
        let mut policy = [POLICY, BINDING].iter();
        another && policy.all(|path| world.uid(path).is_some())
    })
}

/// What fetches needs another Pod, and so does what else is mended on that day.
fn blocked(world: &World, which: usize, lasts: Duration) -> GoesOn {
    let (put, take) = (BLOCKS[which].put, BLOCKS[which].take);
    put(world);
    end_pods(world);
    let (began, mut stands) = (Instant::now(), true);
    Box::new(move |world| {
        if stands && began.elapsed() >= lasts {
            take(world);
            stands = false;
        }
        !stands
    })
}
