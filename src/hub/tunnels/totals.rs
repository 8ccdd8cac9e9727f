//! All lines in figures, for `/metrics`, and what was refused per cluster, for `linesman line`. Labels are kinds, codes
//! and rules: closed sets of ours, whatever a peer says.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Entry, MAX_PARKED_ALL, Tunnels};
use crate::telemetry::{ClassBytes, Lines};
use crate::tunnel::{ClassLoad, Ended, Line};
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

/// What lines that are gone have carried, and why they ended.
#[derive(Debug, Default)]
pub(super) struct Past {
    opened: u64,
    sent: u64,
    received: u64,
    stalls: u64,
    classes: BTreeMap<&'static str, ClassBytes>,
    ends: BTreeMap<String, u64>,
}

impl Past {
    pub(super) fn add(&mut self, line: &Line, ended: &Ended) {
        let (facts, load) = (line.facts(), line.load());
        self.opened += facts.opened;
        self.sent += facts.sent;
        self.received += facts.received;
        self.stalls += load.stalls;
        for (class, load) in load.classes.named() {
            count_class(&mut self.classes, class, load);
        }
        let cause = match ended.code {
            // The number is the peer's.
            Code::Other(_) => "other".to_owned(),
            known => known.to_string(),
        };
        *self.ends.entry(cause).or_default() += 1;
    }
}

impl Tunnels {
    /// A Kubernetes request for the cluster was refused. Clusters without a line since the hub began are not counted:
    /// a name may be anything that a user writes.
    pub fn denied(&self, cluster: &ClusterName, rule: &'static str) {
        if let Some(entry) = self.lock().get_mut(cluster) {
            *entry.denied.entry(rule).or_default() += 1;
        }
    }

    /// How many requests for the cluster were refused since the hub began, by rule.
    pub fn denials(&self, cluster: &ClusterName, cluster_id: &str) -> BTreeMap<String, u64> {
        let clusters = self.lock();
        let entry = clusters.get(cluster);
        // One that has had no line here yet is the present cluster's.
        let its =
            entry.filter(|entry| entry.cluster_id.is_empty() || entry.cluster_id == cluster_id);
        let rules = its.into_iter().flat_map(|entry| &entry.denied);
        rules.map(|(rule, n)| ((*rule).to_owned(), *n)).collect()
    }

    /// All lines of this hub, those that are gone included where it is a count.
    pub fn totals(&self) -> Lines {
        // Not a lock within a lock: each line is asked on its own.
        let entries = |entry: &Entry| entry.lines.clone();
        let clusters: Vec<Vec<Line>> = self.lock().values().map(entries).collect();
        let past = self.past();
        let mut lines = Lines {
            opened: past.opened,
            sent: past.sent,
            received: past.received,
            stalls: past.stalls,
            ends: past.ends.clone().into_iter().collect(),
            ..Lines::default()
        };
        let mut classes = past.classes.clone();
        drop(past);
        let mut delays: BTreeMap<&'static str, Vec<Duration>> = BTreeMap::new();
        let parked = MAX_PARKED_ALL.saturating_sub(self.parked.available_permits());
        lines.parked = count(parked);
        let mut rtts: Vec<Duration> = Vec::new();
        let mut streams = [("api", 0), ("git", 0), ("report", 0), ("other", 0)];
        for line in clusters.iter().flatten() {
            let (facts, load) = (line.facts(), line.load());
            lines.draining += u64::from(facts.draining);
            lines.opened += facts.opened;
            lines.sent += facts.sent;
            lines.received += facts.received;
            lines.stalls += load.stalls;
            lines.unread += count(load.unread);
            let live = [load.api, load.git, load.report, load.other];
            for ((_, sum), n) in streams.iter_mut().zip(live) {
                *sum += count(n);
            }
            rtts.extend(facts.rtt);
            for (class, load) in load.classes.named() {
                count_class(&mut classes, class, load);
                delays.entry(class).or_default().extend(load.delay);
            }
        }
        lines.up = count(clusters.iter().filter(|lines| !lines.is_empty()).count());
        lines.streams = streams.to_vec();
        lines.rtt = quantiles(rtts);
        lines.classes = classes.into_iter().collect();
        let delays = delays.into_iter();
        lines.delays = delays.map(|(class, all)| (class, quantiles(all))).collect();
        lines
    }
}

fn count_class(
    classes: &mut BTreeMap<&'static str, ClassBytes>,
    class: &'static str,
    load: ClassLoad,
) {
    let bytes = classes.entry(class).or_default();
    bytes.sent += load.sent;
    bytes.received += load.received;
}

/// Nothing where there is no value.
fn quantiles(mut all: Vec<Duration>) -> Vec<(&'static str, Duration)> {
    all.sort_unstable();
    [("0.5", 50), ("0.9", 90), ("0.99", 99), ("1", 100)]
        .into_iter()
        .filter_map(|(name, percent)| Some((name, *all.get(rank(all.len(), percent))?)))
        .collect()
}

/// The place of a quantile among so many sorted values: the smallest below which that share lies.
fn rank(count: usize, percent: usize) -> usize {
    (count * percent).div_ceil(100).saturating_sub(1)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        for (count, percent, place) in [
            (1, 50, 0),
            (2, 50, 0),
            (3, 50, 1),
            (10, 90, 8),
            (10, 99, 9),
            (1000, 99, 989),
            (10, 100, 9),
        ] {
            assert_eq!(rank(count, percent), place, "{count} {percent}");
        }
    }
}
