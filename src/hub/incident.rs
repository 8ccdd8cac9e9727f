//! When many clusters fail alike, what is repeated in all of them may be the cause, or make it worse. Then agents put
//! back what is missing, and nothing else, until somebody has looked or the time is over. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

/// Fewer clusters than these are no pattern, whatever their share.
const LEAST: usize = 3;
/// Per cent of the fleet.
const SHARE: usize = 30;
/// How far back acts count.
pub const WITHIN: Duration = Duration::minutes(10);
/// How long agents hold back after the hub saw the pattern last.
pub const HOLDS: Duration = Duration::minutes(10);
/// One that would stand for longer was found by a clock that was ahead; agents take no such word either.
const LONGEST: Duration = Duration::hours(1);

/// A fault that an agent has acted on lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acted {
    pub cluster_id: String,
    /// The fault's class.
    pub class: String,
}

/// What a fleet did lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Clusters that were heard of at least once.
    pub fleet: usize,
    pub acted: Vec<Acted>,
}

/// One cause in many clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    pub class: String,
    pub clusters: usize,
    /// Clusters that could have it.
    pub fleet: usize,
    pub since: OffsetDateTime,
    pub until: OffsetDateTime,
}

impl Incident {
    /// For people: what was seen.
    pub fn reason(&self) -> String {
        let Self {
            class,
            clusters,
            fleet,
            ..
        } = self;
        format!("{clusters} of {fleet} clusters had {class} within ten minutes")
    }
}

/// As it is on record, for the other replicas and for the next start.
#[derive(Serialize, Deserialize)]
struct Text {
    class: String,
    clusters: usize,
    fleet: usize,
    since: String,
    until: String,
}

impl Incident {
    pub fn text(&self) -> String {
        let text = Text {
            class: self.class.clone(),
            clusters: self.clusters,
            fleet: self.fleet,
            since: crate::clock::rfc3339(self.since),
            until: crate::clock::rfc3339(self.until),
        };
        serde_json::to_string(&text).expect("an incident has string keys")
    }

    pub fn parse(text: &str) -> Option<Self> {
        let text: Text = serde_json::from_str(text).ok()?;
        Some(Self {
            since: crate::clock::parse_rfc3339(&text.since)?,
            until: crate::clock::parse_rfc3339(&text.until)?,
            class: text.class,
            clusters: text.clusters,
            fleet: text.fleet,
        })
    }
}

/// What stands now, given what was done within [`WITHIN`] in a fleet of so many clusters.
pub fn judge(
    now: OffsetDateTime,
    fleet: usize,
    acted: &[Acted],
    standing: Option<&Incident>,
) -> Option<Incident> {
    let stands = |incident: &&Incident| now < incident.until && incident.until - now <= LONGEST;
    let standing = standing.filter(stands);
    let mut by_class: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Acted { cluster_id, class } in acted {
        by_class.entry(class).or_default().insert(cluster_id);
    }
    let most = by_class.iter().max_by_key(|(_, clusters)| clusters.len());
    let Some((class, clusters)) = most
        .filter(|(_, clusters)| clusters.len() >= LEAST && clusters.len() * 100 >= fleet * SHARE)
    else {
        return standing.cloned();
    };
    // Each change of the end is told to every agent: not more often than needed.
    let fresh = standing.filter(|old| old.class == *class && old.until - now > HOLDS / 2);
    Some(fresh.cloned().unwrap_or_else(|| Incident {
        class: (*class).to_owned(),
        clusters: clusters.len(),
        fleet,
        since: standing.map_or(now, |old| old.since),
        until: now + HOLDS,
    }))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-01-02 03:04:05 UTC);

    fn acted(class: &str, clusters: usize) -> Vec<Acted> {
        let one = |n| Acted {
            cluster_id: format!("c{n}"),
            class: class.to_owned(),
        };
        (0..clusters).map(one).collect()
    }

    /// W26
    #[test]
    fn one_cause_in_three_of_ten_clusters_is_an_incident() {
        let mut all = acted("BadImage", 80);
        all.extend(acted("ObjectMissing", 59));
        // The same cluster twice is one cluster.
        all.extend(acted("BadImage", 80));
        let expected = Incident {
            class: "BadImage".to_owned(),
            clusters: 80,
            fleet: 200,
            since: NOW,
            until: NOW + HOLDS,
        };
        let found = judge(NOW, 200, &all, None);
        assert_eq!(found, Some(expected));
        assert_eq!(
            found.unwrap().reason(),
            "80 of 200 clusters had BadImage within ten minutes"
        );
        assert_eq!(judge(NOW, 267, &all, None), None, "less than 30 %");
        assert_eq!(
            judge(NOW, 4, &acted("BadImage", 2), None),
            None,
            "two are no pattern"
        );
        assert_eq!(judge(NOW, 0, &[], None), None);
    }

    #[test]
    fn one_replica_reads_what_another_one_noted() {
        let incident = judge(NOW, 10, &acted("BadImage", 5), None).unwrap();
        assert_eq!(Incident::parse(&incident.text()), Some(incident));
        assert_eq!(Incident::parse("{}"), None);
    }

    #[test]
    fn it_goes_on_while_it_is_seen_and_ends_by_its_time() {
        let all = acted("BadImage", 5);
        let first = judge(NOW, 10, &all, None).unwrap();
        let later = NOW + Duration::minutes(4);
        assert_eq!(
            judge(later, 10, &all, Some(&first)),
            Some(first.clone()),
            "told once"
        );
        let later = NOW + Duration::minutes(6);
        let second = judge(later, 10, &all, Some(&first)).unwrap();
        assert_eq!((second.since, second.until), (NOW, later + HOLDS));
        let quiet = later + Duration::minutes(9);
        assert_eq!(judge(quiet, 10, &[], Some(&second)), Some(second.clone()));
        assert_eq!(judge(second.until, 10, &[], Some(&second)), None);
        // A clock that was ahead ends it when it is set.
        let earlier = NOW - Duration::days(1);
        assert_eq!(judge(earlier, 10, &[], Some(&second)), None);
        // Another cause takes its place at once.
        let other = judge(quiet, 10, &acted("CrashLoop", 9), Some(&second)).unwrap();
        assert_eq!((other.class.as_str(), other.since), ("CrashLoop", NOW));
    }
}
