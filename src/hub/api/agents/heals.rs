//! What is stored of a heal: which ids are taken, and how much of a record. Pure.

use serde::Serialize;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::bounds::{MAX_TEXT, MAX_VALUE, shorten};
use crate::heal::{AGENT_LOST, DUPLICATE_AGENT};
use crate::wire::report::{HealRecord, Scene};

/// How far ahead of the hub's clock an id may be. Agents make ids by their node's clock, and lists go by the id: one of
/// the far future would be the newest of the fleet for good.
const AHEAD: Duration = Duration::DAY;
/// One record, as it is stored. Without its scene and its steps one has 28 KiB at most.
const MAX_RECORD: usize = 32 << 10;
/// What the evidence of a record that was larger ends with.
const CUT: &str = "\n(the hub cut this record, which had more than 32 KiB)";
/// An agent puts 40 on record.
const MAX_STEPS: usize = 200;
/// Conditions and Events of one heal, of each.
const MAX_SCENE: usize = 16;
const MAX_REMADE: usize = 64;
const MAX_LOG: usize = 40;
const MAX_ACTION: usize = 100;
const MAX_TIME: usize = 40;

/// Why a heal is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Of its id.
    Id,
    /// Of the time in its id.
    Ahead,
    /// Of its class.
    Class,
}

impl Refusal {
    /// In the metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Ahead => "ahead",
            Self::Class => "class",
        }
    }

    /// For people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Id => "the id is no UUIDv7 as agents write it",
            Self::Ahead => {
                "the id is of more than a day from now: where the agent is honest, its node's clock is ahead; set it"
            }
            Self::Class => "of faults of this class the hub alone tells",
        }
    }
}

/// Why this heal is not taken; `None` = it is.
pub(super) fn refusal(heal: &HealRecord, now: OffsetDateTime) -> Option<Refusal> {
    // The hub ends these itself, and judges by those that are open.
    if [AGENT_LOST, DUPLICATE_AGENT].contains(&heal.class.as_str()) {
        return Some(Refusal::Class);
    }
    of_id(&heal.id, now)
}

fn of_id(id: &str, now: OffsetDateTime) -> Option<Refusal> {
    let parsed = Uuid::try_parse(id).ok();
    // Written in another way, it would be another heal, at another place in lists.
    let usual = |parsed: &Uuid| parsed.get_version_num() == 7 && parsed.to_string() == id;
    let Some(parsed) = parsed.filter(usual) else {
        return Some(Refusal::Id);
    };
    // The first 48 bits are Unix milliseconds.
    let made = i128::try_from(parsed.as_u128() >> 80).unwrap_or(i128::MAX);
    let latest = now.saturating_add(AHEAD).unix_timestamp_nanos() / 1_000_000;
    (made > latest).then_some(Refusal::Ahead)
}

/// A heal within what one may have, whatever its agent says.
pub(super) fn bounded(mut heal: HealRecord) -> HealRecord {
    heal.steps.truncate(MAX_STEPS);
    for text in [
        &mut heal.class,
        &mut heal.meaning,
        &mut heal.object,
        &mut heal.writer,
        &mut heal.revision,
        &mut heal.commit,
        &mut heal.next,
    ] {
        shorten(text, MAX_TEXT);
    }
    shorten(&mut heal.evidence, MAX_VALUE);
    shorten(&mut heal.detected_at, MAX_TIME);
    let times = [
        &mut heal.fault_at,
        &mut heal.acted_at,
        &mut heal.restored_at,
    ];
    for time in times.into_iter().flatten() {
        shorten(time, MAX_TIME);
    }
    bound_scene(&mut heal.scene);
    for step in &mut heal.steps {
        shorten(&mut step.action, MAX_ACTION);
        shorten(&mut step.object, MAX_TEXT);
        shorten(&mut step.at, MAX_TIME);
        shorten(&mut step.outcome, MAX_TEXT);
    }
    fit(&mut heal);
    heal
}

fn bound_scene(scene: &mut Scene) {
    shorten(&mut scene.uid, MAX_TEXT);
    shorten(&mut scene.revision_after, MAX_TEXT);
    scene.conditions.truncate(MAX_SCENE);
    scene.events.truncate(MAX_SCENE);
    scene.log.truncate(MAX_LOG);
    scene.remade.objects.truncate(MAX_REMADE);
    let conditions = scene.conditions.iter_mut();
    let said = conditions.flat_map(|c| {
        [
            &mut c.kind,
            &mut c.status,
            &mut c.reason,
            &mut c.message,
            &mut c.since,
        ]
    });
    let events = scene.events.iter_mut();
    let seen = events.flat_map(|e| {
        [
            &mut e.at,
            &mut e.kind,
            &mut e.object,
            &mut e.reason,
            &mut e.message,
        ]
    });
    let lists = [&mut scene.remade.objects, &mut scene.log];
    let lines = lists.into_iter().flatten();
    for text in said.chain(seen).chain(lines) {
        shorten(text, MAX_TEXT);
    }
}

/// Leaves out what a reader misses least, as far as it has to be: what was around the fault, then steps in the middle. The
/// first ones say what was tried, the last ones what came of it.
fn fit(heal: &mut HealRecord) {
    if size(heal) <= MAX_RECORD {
        return;
    }
    shorten(&mut heal.evidence, MAX_VALUE - CUT.len());
    heal.evidence.push_str(CUT);
    let parts: [fn(&mut Scene); 4] = [
        |scene| scene.log.clear(),
        |scene| scene.events.clear(),
        |scene| scene.conditions.clear(),
        |scene| scene.remade.objects.clear(),
    ];
    for leave_out in parts {
        if size(heal) > MAX_RECORD {
            leave_out(&mut heal.scene);
        }
    }
    let mut beyond = size(heal).saturating_sub(MAX_RECORD);
    while beyond > 0 && !heal.steps.is_empty() {
        let gone = heal.steps.remove(heal.steps.len() / 2);
        beyond = beyond.saturating_sub(size(&gone));
    }
}

/// Bytes in JSON, as which it is stored and sent.
fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::wire::report::{HealResult, HealStep, ObjectCondition, ObjectEvent, Remade};

    fn step(action: &str, outcome: &str) -> HealStep {
        HealStep {
            action: action.to_owned(),
            object: "Deployment a/b".to_owned(),
            at: "2026-01-01T00:00:01.000Z".to_owned(),
            outcome: outcome.to_owned(),
        }
    }

    fn heal(steps: Vec<HealStep>) -> HealRecord {
        HealRecord {
            id: "019b0000-0000-7000-8000-000000000001".to_owned(),
            class: "ObjectMissing".to_owned(),
            number: 1,
            meaning: "an object is gone".to_owned(),
            object: "Deployment a/b".to_owned(),
            evidence: "deleted\n\tby somebody".to_owned(),
            writer: "kubectl".to_owned(),
            revision: "main@sha1:1".to_owned(),
            commit: String::new(),
            steps,
            fault_at: Some("2026-01-01T00:00:00.000Z".to_owned()),
            detected_at: "2026-01-01T00:00:00.200Z".to_owned(),
            acted_at: Some("2026-01-01T00:00:00.300Z".to_owned()),
            restored_at: None,
            result: HealResult::Open,
            next: String::new(),
            scene: Scene::default(),
        }
    }

    /// As much of everything as an agent could say, in bytes that JSON writes as two.
    fn greedy() -> HealRecord {
        let much = || "\"".repeat(9_000);
        let condition = ObjectCondition {
            kind: much(),
            status: much(),
            reason: much(),
            message: much(),
            since: much(),
        };
        let event = ObjectEvent {
            at: much(),
            kind: much(),
            object: much(),
            reason: much(),
            message: much(),
            count: u32::MAX,
        };
        let step = HealStep {
            action: much(),
            object: much(),
            at: much(),
            outcome: much(),
        };
        HealRecord {
            class: much(),
            meaning: much(),
            object: much(),
            evidence: much(),
            writer: much(),
            revision: much(),
            commit: much(),
            fault_at: Some(much()),
            detected_at: much(),
            acted_at: Some(much()),
            restored_at: Some(much()),
            next: much(),
            scene: Scene {
                uid: much(),
                conditions: vec![condition; 20],
                events: vec![event; 20],
                log: vec![much(); 50],
                revision_after: much(),
                remade: Remade {
                    count: u32::MAX,
                    objects: vec![much(); 80],
                },
            },
            ..heal(vec![step; 250])
        }
    }

    #[test]
    fn what_an_honest_agent_says_is_stored_as_it_is() {
        let mut said = heal(vec![step("create", "ok"); 40]);
        said.scene.log = vec!["a line of a log".to_owned(); 40];
        assert_eq!(bounded(said.clone()), said);
    }

    #[test]
    fn no_text_of_an_agent_makes_a_large_record() {
        let long = "x".repeat(900 << 10);
        let action = bounded(heal(vec![step(&long, "ok")]));
        assert_eq!(action.steps, [step(&long[..MAX_ACTION], "ok")]);
        let mut times = heal(Vec::new());
        times.detected_at.clone_from(&long);
        for time in [
            &mut times.fault_at,
            &mut times.acted_at,
            &mut times.restored_at,
        ] {
            *time = Some(long.clone());
        }
        let said = size(&bounded(times));
        assert!(said < 1_000, "{said}");
        let most = bounded(greedy());
        assert!(size(&most) <= MAX_RECORD, "{}", size(&most));
        assert!(most.evidence.ends_with(CUT), "{}", most.evidence);
        assert!(most.evidence.len() <= MAX_VALUE);
    }

    #[test]
    fn a_record_that_is_cut_keeps_its_first_and_last_steps_and_says_so() {
        let steps = (0..200).map(|n| step("apply", &format!("{n} {}", "x".repeat(1_000))));
        let mut said = heal(steps.collect());
        said.scene.log = vec!["a line of a log".to_owned()];
        let stored = bounded(said);
        assert!(size(&stored) <= MAX_RECORD && size(&stored) > MAX_RECORD - 2_000);
        let number = |step: &HealStep| step.outcome.split(' ').next().unwrap().to_owned();
        let numbers: Vec<String> = stored.steps.iter().map(number).collect();
        assert_eq!(numbers[0], "0");
        assert_eq!(numbers.last().unwrap(), "199");
        let evidence = format!("deleted\n\tby somebody{CUT}");
        assert_eq!(
            (stored.evidence, stored.scene),
            (evidence, Scene::default())
        );
    }

    #[test]
    fn no_text_of_an_agent_moves_a_cursor() {
        let mut said = heal(vec![step("a\u{7}", "b\u{9b}2J")]);
        said.evidence = "a\u{1b}[2K\rb\n\tc\0".to_owned();
        let stored = bounded(said);
        assert_eq!(stored.evidence, "a\u{fffd}[2K\u{fffd}b\n\tc\u{fffd}");
        assert_eq!(stored.steps, [step("a\u{fffd}", "b\u{fffd}2J")]);
    }

    #[test]
    fn ids_are_those_that_agents_make_and_of_a_day_from_now_at_most() {
        const DAY: u64 = 24 * 3600 * 1000;
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let of = |ms: u64| {
            let (high, low) = (ms >> 16, ms & 0xffff);
            format!("{high:08x}-{low:04x}-7abc-8def-0123456789ab")
        };
        let ms = 1_800_000_000_000;
        for id in [of(ms), of(ms + DAY), of(ms - 400 * DAY), of(0)] {
            assert_eq!(of_id(&id, now), None, "{id}");
        }
        for id in [
            of(ms + DAY + 1),
            "ffffffff-ffff-7fff-bfff-ffffffffffff".to_owned(),
        ] {
            assert_eq!(of_id(&id, now), Some(Refusal::Ahead), "{id}");
        }
        for id in [
            "ffffffff-ffff-ffff-ffff-ffffffffffff".to_owned(),
            "1b4e28ba-2fa1-41d2-883f-0016d3cca427".to_owned(),
            of(ms).to_uppercase(),
            of(ms).replace('-', ""),
            format!("{{{}}}", of(ms)),
            format!("urn:uuid:{}", of(ms)),
            String::new(),
        ] {
            assert_eq!(of_id(&id, now), Some(Refusal::Id), "{id}");
        }
        let made = clock::id();
        assert_eq!(of_id(&made, clock::now()), None, "{made}");
    }

    /// F50, F57: one that an agent could open would be the hub's own to end, and stand in the place of the true one.
    #[test]
    fn no_agent_tells_of_what_the_hub_alone_sees() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        for (class, refused) in [
            ("AgentLost", Some(Refusal::Class)),
            ("DuplicateAgent", Some(Refusal::Class)),
            ("ObjectMissing", None),
            ("SomethingNew", None),
        ] {
            let said = HealRecord {
                class: class.to_owned(),
                ..heal(Vec::new())
            };
            assert_eq!(refusal(&said, now), refused, "{class}");
        }
    }
}
