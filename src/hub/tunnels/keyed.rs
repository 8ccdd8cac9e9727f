//! By which identity key each line here was proven. A line ends with its key, whichever replica ended that; where the agent itself moved
//! on to its next key, what runs on its former line may end in its time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Tunnels};
use crate::tunnel::{Line, LineFacts};
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

const ENDED: &str = "the key of this line has ended";

/// A line by its epoch and the agent's process.
type Place<'a> = (u64, &'a str);

impl Tunnels {
    /// The line of this epoch was proven by the key with this fingerprint.
    pub(in crate::hub) fn proven(
        &self,
        (cluster, cluster_id): (&ClusterName, &str),
        epoch: u64,
        key: &str,
    ) {
        let mut clusters = self.lock();
        let entry = clusters.get_mut(cluster);
        // Another cluster that has the name by now has lines of its own, with the same epochs.
        if let Some(entry) = entry.filter(|entry| entry.cluster_id == cluster_id) {
            entry.keys.insert(epoch, key.to_owned());
        }
    }

    /// The keys by which lines here were proven; those of one cluster where it is named.
    pub(in crate::hub) fn keys(&self, of: Option<&ClusterName>) -> Vec<String> {
        let clusters = self.lock();
        let keys: BTreeSet<&String> = match of {
            Some(name) => clusters.get(name).into_iter().flat_map(its_keys).collect(),
            None => clusters.values().flat_map(its_keys).collect(),
        };
        keys.into_iter().cloned().collect()
    }

    /// The clusters that have a line here by one of these keys.
    pub(in crate::hub) fn proven_by<T>(&self, keys: &BTreeMap<String, T>) -> Vec<ClusterName> {
        let clusters = self.lock();
        let of = |entry: &Entry| entry.keys.values().any(|key| keys.contains_key(key));
        let with = clusters.iter().filter(|(_, entry)| of(entry));
        with.map(|(name, _)| name.clone()).collect()
    }

    /// Ends the cluster's lines whose keys have `ended`, each with whether the agent had moved on from it by itself. `elsewhere` is its
    /// newest line at another replica.
    pub(in crate::hub) fn end_former(
        &self,
        cluster: &ClusterName,
        ended: &BTreeMap<String, bool>,
        elsewhere: Option<Place<'_>>,
    ) {
        let over = self.lock().get(cluster).map(|e| e.former(ended, elsewhere));
        for line in over.unwrap_or_default() {
            line.close(Code::Revoked, ENDED);
        }
    }
}

impl Entry {
    fn former(&self, ended: &BTreeMap<String, bool>, elsewhere: Option<Place<'_>>) -> Vec<Line> {
        let moved = |epoch: u64| ended.get(self.keys.get(&epoch)?).copied();
        let facts: Vec<LineFacts> = self.lines.iter().map(Line::facts).collect();
        let in_force = facts.iter().rfind(|facts| moved(facts.epoch).is_none());
        let newest = [in_force.map(place), elsewhere];
        let lines = self.lines.iter().zip(&facts);
        let over = lines.filter(|(_, facts)| {
            moved(facts.epoch).is_some_and(|moved| is_over(place(facts), moved, newest))
        });
        over.map(|(line, _)| line.clone()).collect()
    }
}

fn its_keys(entry: &Entry) -> impl Iterator<Item = &String> {
    entry.keys.values()
}

fn place(facts: &LineFacts) -> Place<'_> {
    (facts.epoch, &facts.instance)
}

/// Whether a line goes with its key that has ended: unless the agent had `moved` on from that, and the same process has one of the newest
/// lines.
fn is_over((epoch, instance): Place<'_>, moved: bool, newest: [Option<Place<'_>>; 2]) -> bool {
    let mut newest = newest.into_iter().flatten();
    !moved || !newest.any(|(newer, of)| epoch < newer && of == instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H16, L41
    #[test]
    fn a_line_goes_with_its_key_unless_its_own_process_has_moved_on() {
        let line = (7, "one");
        for (what, moved, newest, over) in [
            ("others ended it", false, [Some((8, "one")), None], true),
            (
                "it was moved on from",
                true,
                [Some((8, "one")), None],
                false,
            ),
            ("to another replica", true, [None, Some((9, "one"))], false),
            ("by another process", true, [None, Some((9, "two"))], true),
            ("and no line is there", true, [None, None], true),
            ("or an older one", true, [Some((6, "one")), None], true),
        ] {
            assert_eq!(is_over(line, moved, newest), over, "{what}");
        }
    }
}
