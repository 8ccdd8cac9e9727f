//! What two agents with one cluster's keys are as a fault. Pure.

use time::OffsetDateTime;

use super::takeovers::{Takeover, Takeovers, WITHIN};
use crate::clock::rfc3339;
use crate::heal::{self, DUPLICATE_AGENT};
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, HealResult, Scene};

/// A fault whose end was not seen: it is open, or was closed by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrestored {
    pub cluster: ClusterName,
    pub cluster_id: String,
    pub record: HealRecord,
    /// When it was stored last: with the newest takeover, or when it was closed.
    pub written: OffsetDateTime,
}

/// The record to keep after a takeover, where it changes: one that is open tells of the newest, and a new one begins with many.
/// `last` is the newest of the cluster.
pub fn taken(
    now: OffsetDateTime,
    cluster: &ClusterName,
    (newest, all): (&Takeover, &Takeovers),
    last: Option<Unrestored>,
    id: impl FnOnce() -> String,
) -> Option<HealRecord> {
    let known = match last {
        Some(last) if !heal::is_over(&last.record) => {
            return Some(HealRecord {
                evidence: words(newest),
                ..last.record
            });
        }
        last => last.map(|closed| closed.written),
    };
    let counted = all.duplicate(now, known)?;
    Some(opened(id(), cluster, &counted, newest, now))
}

/// The record to keep of one that was written last then, where it is over: nobody took the line for long enough. What was written by a
/// clock that was ahead is kept as it is, and counts from now on.
pub fn quiet(now: OffsetDateTime, last: Unrestored) -> Option<HealRecord> {
    if heal::is_over(&last.record) {
        return None;
    }
    if last.written - now > WITHIN {
        return Some(last.record);
    }
    let over = now - last.written >= WITHIN;
    over.then(|| HealRecord {
        restored_at: Some(rfc3339(now)),
        next: String::new(),
        ..last.record
    })
}

fn words(newest: &Takeover) -> String {
    let Takeover { at, from, to } = newest;
    format!(
        "last at {}: instance {} at {} took the line from instance {} at {}, which still answered",
        rfc3339(*at),
        to.instance,
        to.remote,
        from.instance,
        from.remote
    )
}

fn opened(
    id: String,
    cluster: &ClusterName,
    counted: &[Takeover],
    newest: &Takeover,
    now: OffsetDateTime,
) -> HealRecord {
    HealRecord {
        id,
        class: DUPLICATE_AGENT.to_owned(),
        number: heal::DUPLICATE_AGENT_NUMBER,
        meaning: heal::DUPLICATE_AGENT_SEEN.to_owned(),
        object: format!("Cluster {cluster}"),
        evidence: words(newest),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: counted.first().map(|first| rfc3339(first.at)),
        detected_at: rfc3339(now),
        acted_at: None,
        restored_at: None,
        result: HealResult::Reported,
        next: heal::DUPLICATE_AGENT_ADVICE.to_owned(),
        scene: Scene::default(),
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::super::takeovers::tests::{NOON, taken as takeover};
    use super::*;

    fn name() -> ClusterName {
        "eu1".parse().unwrap()
    }

    fn after(seconds: i64) -> OffsetDateTime {
        NOON + Duration::seconds(seconds)
    }

    /// What becomes of it with the last of these takeovers, seconds after noon.
    fn with(at: &[i64], last: Option<Unrestored>) -> Option<HealRecord> {
        let mut all = Takeovers::default();
        for at in at {
            all.add(takeover(*at));
        }
        let newest = *at.last().unwrap();
        let seen = (&takeover(newest), &all);
        taken(after(newest + 6), &name(), seen, last, || "1".to_owned())
    }

    fn kept(record: HealRecord, written: i64) -> Unrestored {
        Unrestored {
            cluster: name(),
            cluster_id: "0197".to_owned(),
            record,
            written: after(written),
        }
    }

    /// L41, F57: both processes and their addresses, since when, and what a person does.
    #[test]
    fn the_third_takeover_opens_it_and_the_next_ones_are_told() {
        assert_eq!(with(&[0], None), None);
        assert_eq!(with(&[0, 40], None), None);
        let opened = with(&[0, 40, 80], None).unwrap();
        let expected = HealRecord {
            id: "1".to_owned(),
            class: "DuplicateAgent".to_owned(),
            number: 57,
            meaning: heal::DUPLICATE_AGENT_SEEN.to_owned(),
            object: "Cluster eu1".to_owned(),
            evidence: "last at 2026-01-01T12:01:20.000Z: instance b at 10.0.0.1:b took the line from instance a at 10.0.0.1:a, which still answered".to_owned(),
            writer: String::new(),
            revision: String::new(),
            commit: String::new(),
            steps: Vec::new(),
            fault_at: Some("2026-01-01T12:00:00.000Z".to_owned()),
            detected_at: "2026-01-01T12:01:26.000Z".to_owned(),
            acted_at: None,
            restored_at: None,
            result: HealResult::Reported,
            next: heal::DUPLICATE_AGENT_ADVICE.to_owned(),
            scene: Scene::default(),
        };
        assert_eq!(opened, expected);
        // A replica that has seen no other one tells of it as well.
        let next = with(&[120], Some(kept(opened.clone(), 86)));
        let evidence = words(&takeover(120));
        assert_eq!(next, Some(HealRecord { evidence, ..opened }));
    }

    /// L41: it is over after ten minutes, whoever was there to see them.
    #[test]
    fn ten_minutes_without_a_takeover_end_it() {
        let opened = with(&[0, 40, 80], None).unwrap();
        assert_eq!(quiet(after(685), kept(opened.clone(), 86)), None);
        let ended = quiet(after(686), kept(opened.clone(), 86)).unwrap();
        let expected = HealRecord {
            restored_at: Some("2026-01-01T12:11:26.000Z".to_owned()),
            next: String::new(),
            ..opened
        };
        assert_eq!(ended, expected);
    }

    /// It would stay open for as long as the clock was ahead.
    #[test]
    fn what_a_clock_that_was_ahead_wrote_counts_from_now_on() {
        let opened = with(&[0, 40, 80], None).unwrap();
        let day = 86_400;
        let ahead = kept(opened.clone(), 86 + day);
        assert_eq!(quiet(after(86), ahead), Some(opened.clone()));
        // Clocks of two replicas differ by a little.
        assert_eq!(quiet(after(86), kept(opened.clone(), 90)), None);
        let closed = HealRecord {
            result: HealResult::Failed,
            ..opened
        };
        assert_eq!(quiet(after(86), kept(closed, 86 + day)), None);
    }

    #[test]
    fn what_was_closed_by_hand_begins_anew_with_three_more() {
        let closed = HealRecord {
            result: HealResult::Failed,
            ..with(&[0, 40, 80], None).unwrap()
        };
        let closed = kept(closed, 100);
        assert_eq!(quiet(after(9_000), closed.clone()), None);
        assert_eq!(with(&[40, 80, 120], Some(closed.clone())), None);
        assert_eq!(with(&[80, 120, 160], Some(closed.clone())), None);
        let again = with(&[120, 160, 200], Some(closed)).unwrap();
        assert_eq!(again.fault_at.as_deref(), Some("2026-01-01T12:02:00.000Z"));
    }
}
