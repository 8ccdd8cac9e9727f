//! What a silent agent is as a fault. Pure.

use time::OffsetDateTime;

use crate::clock::{parse_rfc3339, rfc3339};
use crate::heal::{self, AGENT_LOST};
use crate::hub::fleet::Beat;
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, HealResult, Scene};

/// How a cluster's agent is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beating {
    pub name: ClusterName,
    pub id: String,
    pub beat: Beat,
    /// How its last line ended, where one had begun since this hub did.
    pub cause: Option<String>,
}

/// What there is of it so far.
pub struct Known {
    pub now: OffsetDateTime,
    /// The newest record whose end was not seen: it is open, or was closed by hand.
    pub last: Option<HealRecord>,
}

/// The record to keep, where it changes: one begins with the silence, and ends with the next word.
pub fn change(known: Known, cluster: &Beating, id: impl FnOnce() -> String) -> Option<HealRecord> {
    match (cluster.beat, known.last) {
        (Beat::Lost { since }, Some(last)) if tells_of(&last, since) => None,
        (Beat::Lost { since }, _) => Some(opened(id(), cluster, since, known.now)),
        (Beat::Heard, Some(mut record)) if !heal::is_over(&record) => {
            record.restored_at = Some(rfc3339(known.now));
            record.next.clear();
            Some(record)
        }
        // A hub that has just begun to listen knows nothing of the agents yet.
        (Beat::Never | Beat::Unjudged | Beat::Heard, _) => None,
    }
}

/// Whether a record is of the silence that goes on since then. Someone who closed it knows of that silence: there is
/// nothing new before the agent was heard.
fn tells_of(last: &HealRecord, since: OffsetDateTime) -> bool {
    !heal::is_over(last) || parse_rfc3339(&last.detected_at).is_some_and(|at| since <= at)
}

/// What people are told of it: since when, and why the line ended.
pub fn words(since: &str, cause: Option<&str>) -> String {
    let cause = cause.unwrap_or("no line since this hub started");
    format!("not heard since {since}; the last line: {cause}")
}

fn opened(id: String, cluster: &Beating, since: OffsetDateTime, now: OffsetDateTime) -> HealRecord {
    HealRecord {
        id,
        class: AGENT_LOST.to_owned(),
        number: heal::AGENT_LOST_NUMBER,
        meaning: heal::AGENT_LOST_SEEN.to_owned(),
        object: format!("Cluster {}", cluster.name),
        evidence: words(&rfc3339(since), cluster.cause.as_deref()),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: Some(rfc3339(since)),
        detected_at: rfc3339(now),
        acted_at: None,
        restored_at: None,
        result: HealResult::Reported,
        next: heal::AGENT_LOST_ADVICE.to_owned(),
        scene: Scene::default(),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-01 00:01 UTC);
    const SINCE: OffsetDateTime = datetime!(2026-01-01 00:00:19 UTC);

    fn beating(beat: Beat, cause: Option<&str>) -> Beating {
        Beating {
            name: "eu1".parse().unwrap(),
            id: "0197".to_owned(),
            beat,
            cause: cause.map(str::to_owned),
        }
    }

    fn change_of(beat: Beat, last: Option<HealRecord>) -> Option<HealRecord> {
        let known = Known { now: NOW, last };
        change(known, &beating(beat, Some("no byte for 25 s")), || {
            "1".to_owned()
        })
    }

    /// F50, W27: since when and how the last line ended; the next word of the agent ends it.
    #[test]
    fn a_silent_agent_is_a_fault_until_it_speaks() {
        let opened = change_of(Beat::Lost { since: SINCE }, None).unwrap();
        assert_eq!(
            (opened.class.as_str(), opened.number, opened.result),
            ("AgentLost", 50, HealResult::Reported)
        );
        assert_eq!(opened.object, "Cluster eu1");
        assert_eq!(
            opened.evidence,
            "not heard since 2026-01-01T00:00:19.000Z; the last line: no byte for 25 s"
        );
        let times = (opened.fault_at.as_deref(), opened.detected_at.as_str());
        assert_eq!(
            times,
            (Some("2026-01-01T00:00:19.000Z"), "2026-01-01T00:01:00.000Z")
        );
        for beat in [Beat::Lost { since: SINCE }, Beat::Unjudged, Beat::Never] {
            assert_eq!(change_of(beat, Some(opened.clone())), None, "{beat:?}");
        }
        let ended = change_of(Beat::Heard, Some(opened.clone())).unwrap();
        let expected = HealRecord {
            restored_at: Some("2026-01-01T00:01:00.000Z".to_owned()),
            next: String::new(),
            ..opened
        };
        assert_eq!(ended, expected);
    }

    /// F50: whoever closes it knows of this silence; the next one, after a word of the agent, is news.
    #[test]
    fn what_was_closed_by_hand_stays_closed_until_the_agent_was_heard() {
        let silent = Beat::Lost { since: SINCE };
        let closed = HealRecord {
            result: HealResult::Failed,
            ..change_of(silent, None).unwrap()
        };
        for beat in [silent, Beat::Heard, Beat::Unjudged, Beat::Never] {
            assert_eq!(change_of(beat, Some(closed.clone())), None, "{beat:?}");
        }
        let later = NOW + time::Duration::seconds(1);
        let again = change_of(Beat::Lost { since: later }, Some(closed)).unwrap();
        let told = (again.fault_at, again.result);
        assert_eq!(told, (Some(rfc3339(later)), HealResult::Reported));
    }

    /// A hub that has just started, a cluster that never joined: nobody is lost.
    #[test]
    fn who_is_not_judged_is_not_lost() {
        for beat in [Beat::Heard, Beat::Unjudged, Beat::Never] {
            assert_eq!(change_of(beat, None), None, "{beat:?}");
        }
    }
}
