//! What is told of the fleet's troubles, and when. Pure.
//!
//! Level-triggered: each look is at the whole fleet. A trouble is one cluster and one class, whoever says it: an open
//! heal and the condition that tells of the same fault are one. It is told when it has lasted, again while it lasts, and
//! when it has been over for a while; the same class in many clusters at one look is one notice.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::heal::{self, AGENT_LOST, DUPLICATE_AGENT, OTHER};
use crate::wire::id::ClusterName;
use crate::wire::report::{Condition, ConditionType, HealRecord, HealResult, Phase};

mod found;

use found::{Found, Look, found};

/// A trouble that is over is told when it has been so for this long: what comes and goes is one trouble.
const OVER: Duration = Duration::minutes(1);
/// After its end, the same trouble is not told as a new one for this long.
const QUIET: Duration = Duration::minutes(10);
/// So many clusters with the same class at one look share a notice.
pub(super) const TOGETHER: usize = 5;
/// Clusters that a notice names.
pub(super) const NAMED: usize = 50;
/// Of one cluster and class, what was mended is told at most this often.
const HEALED_EVERY: Duration = Duration::hours(1);
/// Classes of one cluster that are none of ours, as an agent of a later build may have: what is beyond them is one trouble more, or
/// one that lies could have something new to tell at each look.
const STRANGE: usize = 16;
/// Troubles that are kept; the rest of a fleet in flames is counted, not told one by one.
pub const MAX_TROUBLES: usize = 20_000;
const MAX_TEXT: usize = 1000;

/// One cluster at a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub cluster: ClusterName,
    pub phase: Phase,
    pub conditions: Vec<Condition>,
    /// Those that are open.
    pub heals: Vec<HealRecord>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Open,
    Reminder,
    Resolved,
    /// Broken and mended before anyone had to be told.
    Healed,
}

/// What is told: one class of trouble, of one cluster or of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    pub state: State,
    pub severity: Severity,
    /// A fault's class, or a condition.
    pub class: String,
    /// At most 50.
    pub clusters: Vec<ClusterName>,
    pub clusters_total: usize,
    /// What was seen; of many clusters, of the first.
    pub text: String,
    /// RFC 3339: since when; of many clusters, of the first.
    pub since: String,
    /// What to do next, where the class and the clusters do not say it ([`super::letter`]).
    #[serde(skip)]
    pub next: Option<String>,
}

/// A trouble that is known, as it outlives the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    severity: Severity,
    text: String,
    #[serde(with = "time::serde::rfc3339")]
    since: OffsetDateTime,
    /// When it was told last; None = not told yet.
    #[serde(with = "time::serde::rfc3339::option")]
    told: Option<OffsetDateTime>,
    /// Since when it is not there any more.
    #[serde(with = "time::serde::rfc3339::option")]
    gone: Option<OffsetDateTime>,
    /// Its end was told too; kept for a while, so that its return is not news.
    over: bool,
}

/// One cluster and one class.
pub type Key = (ClusterName, String);

/// Every trouble of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Board {
    troubles: BTreeMap<Key, Trouble>,
    /// When a heal of this cluster and class was told last.
    healed: BTreeMap<Key, OffsetDateTime>,
    /// Troubles that found no place since the last look.
    pub surplus: usize,
}

impl Board {
    /// What an earlier process kept.
    pub fn of(troubles: impl IntoIterator<Item = (Key, Trouble)>) -> Self {
        Self {
            troubles: troubles.into_iter().take(MAX_TROUBLES).collect(),
            ..Self::default()
        }
    }

    pub fn troubles(&self) -> &BTreeMap<Key, Trouble> {
        &self.troubles
    }

    /// Takes in the fleet as it is and gives what has to be told now. `remind` = how often of what lasts; None = never.
    /// A cluster that is not in the fleet any more is forgotten without a word.
    pub fn look(
        &mut self,
        now: OffsetDateTime,
        remind: Option<Duration>,
        fleet: &[Seen],
    ) -> Vec<Notice> {
        let known: BTreeSet<&ClusterName> = fleet.iter().map(|seen| &seen.cluster).collect();
        self.troubles
            .retain(|(cluster, _), _| known.contains(cluster));
        for trouble in self.troubles.values_mut() {
            trouble.dated(now);
        }
        let mut due: BTreeMap<(State, String), Vec<(ClusterName, Trouble)>> = BTreeMap::new();
        self.surplus = 0;
        let mut silent: BTreeSet<Key> = BTreeSet::new();
        for seen in fleet {
            // Of a cluster that the hub cannot judge yet, everything stays as it was.
            if seen.phase != Phase::Unknown {
                silent.extend(self.take_in(now, seen));
            }
        }
        self.troubles.retain(|key, trouble| {
            if silent.contains(key) {
                return true;
            }
            let (cluster, class) = key;
            if let Some(state) = trouble.step(now, remind, class) {
                let of_class = due.entry((state, class.clone())).or_default();
                of_class.push((cluster.clone(), trouble.clone()));
            }
            !trouble.is_past(now)
        });
        due.into_iter().flat_map(grouped).collect()
    }

    /// Takes in heals that have closed since the last look. What was told as a trouble is told as over when it is; the
    /// others are told as healed, within bounds.
    pub fn healed(
        &mut self,
        now: OffsetDateTime,
        heals: &[(ClusterName, HealRecord)],
    ) -> Vec<Notice> {
        self.healed
            .retain(|_, at| *at <= now && now - *at < HEALED_EVERY);
        let mut due: BTreeMap<(State, String), Vec<(ClusterName, Trouble)>> = BTreeMap::new();
        for (cluster, heal) in heals {
            let key = (cluster.clone(), self.healed_as(cluster, &heal.class));
            let told = self.troubles.get(&key).is_some_and(|t| t.told.is_some());
            let lately = self.healed.contains_key(&key) || self.healed.len() >= MAX_TROUBLES;
            let ended = heal.restored_at.as_deref();
            let ended = ended.and_then(crate::clock::parse_rfc3339).unwrap_or(now);
            // An agent whose hub was away tells of them when it is back: that is history.
            let old = now - ended >= HEALED_EVERY;
            if heal.result != HealResult::Healed || told || lately || old {
                continue;
            }
            let class = key.1.clone();
            self.healed.insert(key, now);
            let began = crate::clock::parse_rfc3339(&heal.detected_at).unwrap_or(now);
            let took = (ended - began).whole_seconds().max(0);
            let text = format!("{}: {}; mended in {took} s", heal.object, heal.evidence);
            let of_class = due.entry((State::Healed, class)).or_default();
            of_class.push((
                cluster.clone(),
                Trouble {
                    severity: Severity::Info,
                    text: cut(&text),
                    since: began,
                    told: Some(now),
                    gone: Some(ended),
                    over: true,
                },
            ));
        }
        due.into_iter().flat_map(grouped).collect()
    }

    /// What was found of a cluster, with one trouble for all those classes that find no place among the strange ones.
    fn folded(
        &self,
        cluster: &ClusterName,
        all: BTreeMap<String, Found>,
    ) -> BTreeMap<String, Found> {
        let mut room = STRANGE.saturating_sub(strange(&self.troubles, cluster));
        let (mut folded, mut beyond) = (BTreeMap::new(), Vec::new());
        for (class, one) in all {
            let key = (cluster.clone(), class);
            let told_apart = is_known(&key.1) || self.troubles.contains_key(&key);
            if !told_apart && room == 0 {
                beyond.push(one.severity);
                continue;
            }
            room -= usize::from(!told_apart);
            folded.insert(key.1, one);
        }
        let more = beyond.len();
        if let Some(severity) = beyond.into_iter().max() {
            let text = format!("{more} faults more, of classes that this hub does not know");
            folded.insert(OTHER.to_owned(), Found { severity, text });
        }
        folded
    }

    /// The class under which it is told that a heal of this one closed.
    fn healed_as(&self, cluster: &ClusterName, class: &str) -> String {
        let key = (cluster.clone(), class.to_owned());
        let told_apart = is_known(class)
            || self.healed.contains_key(&key)
            || strange(&self.healed, cluster) < STRANGE;
        if told_apart { key.1 } else { OTHER.to_owned() }
    }

    /// Takes in one cluster. Gives what was told of it and comes of another trouble by now: while that is there, nobody can say
    /// whether this would be over.
    fn take_in(&mut self, now: OffsetDateTime, seen: &Seen) -> Vec<Key> {
        let Look {
            found,
            follows,
            only,
        } = found(seen);
        let found = self.folded(&seen.cluster, found);
        for (class, Found { severity, text }) in &found {
            let key = (seen.cluster.clone(), class.clone());
            if let Some(trouble) = self.troubles.get_mut(&key) {
                trouble.back(now);
                (trouble.severity, trouble.text) = (*severity, text.clone());
            } else if self.troubles.len() < MAX_TROUBLES {
                let new = Trouble {
                    severity: *severity,
                    text: text.clone(),
                    since: now,
                    told: None,
                    gone: None,
                    over: false,
                };
                self.troubles.insert(key, new);
            } else {
                self.surplus += 1;
            }
        }
        let mut silent = Vec::new();
        let first = (seen.cluster.clone(), String::new());
        for (key, trouble) in self
            .troubles
            .range_mut(first..)
            .take_while(|((of, _), _)| *of == seen.cluster)
        {
            let class = &key.1;
            let spoken_of = only.is_none_or(|only| only == class);
            if !spoken_of || found.contains_key(class) {
                continue;
            }
            match follows.get(class.as_str()) {
                Some(there) if trouble.is_told() => {
                    if *there {
                        trouble.gone = None;
                    }
                    // What was gone before that came is over when it would have been.
                    silent.extend(trouble.gone.is_none().then(|| key.clone()));
                }
                _ => {
                    trouble.gone.get_or_insert(now);
                }
            }
        }
        silent
    }
}

impl Trouble {
    /// It was told, and its end was not.
    fn is_told(&self) -> bool {
        self.told.is_some() && !self.over
    }

    /// What is dated ahead was noted by a clock that was: it counts from now on. Only the start of what came back is put off.
    fn dated(&mut self, now: OffsetDateTime) {
        if self.since - now > QUIET {
            self.since = now;
        }
        self.told = self.told.map(|told| told.min(now));
        self.gone = self.gone.map(|gone| gone.min(now));
    }

    /// It is there at this look.
    fn back(&mut self, now: OffsetDateTime) {
        let gone = self.gone.take();
        if self.over {
            // Told as over, and back within the quiet time: it is news again only when that is up.
            self.over = false;
            self.since = gone.map_or(now, |gone| (gone + QUIET).max(now));
            self.told = None;
        }
    }

    /// What is to be told of it now.
    fn step(
        &mut self,
        now: OffsetDateTime,
        remind: Option<Duration>,
        class: &str,
    ) -> Option<State> {
        if let Some(gone) = self.gone {
            let ended = self.told.is_some() && !self.over && now - gone >= OVER;
            self.over |= ended;
            return ended.then_some(State::Resolved);
        }
        let state = match self.told {
            None if now - self.since >= patience(class) => State::Open,
            Some(told) if remind.is_some_and(|every| now - told >= every) => State::Reminder,
            None | Some(_) => return None,
        };
        self.told = Some(now);
        Some(state)
    }

    /// Nothing is left to remember.
    fn is_past(&self, now: OffsetDateTime) -> bool {
        let quiet = |gone| !self.over || now - gone >= QUIET;
        // One that was told is kept until its end is told, too.
        self.gone.is_some_and(quiet) && (self.told.is_none() || self.over)
    }
}

/// Whether a class is one of ours, of a fault or a condition.
fn is_known(class: &str) -> bool {
    heal::class(class) != OTHER || serde_json::from_value::<ConditionType>(class.into()).is_ok()
}

/// How many of these are of the cluster and of a class that is none of ours.
fn strange<T>(kept: &BTreeMap<Key, T>, cluster: &ClusterName) -> usize {
    let first = (cluster.clone(), String::new());
    let of_cluster = kept.range(first..).take_while(|((of, _), _)| of == cluster);
    let strange = of_cluster.filter(|((_, class), _)| class != OTHER && !is_known(class));
    strange.count()
}

/// How long a trouble has to last before anyone is told. What heals by itself in that time is in the heals' history.
fn patience(class: &str) -> Duration {
    match class {
        AGENT_LOST | DUPLICATE_AGENT | "HostKeyMismatch" | "JoinConflict" | "RightsLost"
        | "BadEngineCommit" | "SafeHealsOnly" | "Paused" => Duration::ZERO,
        "NotSynced" | "Ready" | "NotRead" | "NoRoute" => Duration::minutes(5),
        _ => Duration::minutes(1),
    }
}

/// One notice a cluster, or one for all where they are many.
fn grouped(
    ((state, class), of_class): ((State, String), Vec<(ClusterName, Trouble)>),
) -> Vec<Notice> {
    let notice = |some: &[(ClusterName, Trouble)]| {
        let worst = some.iter().map(|(_, t)| t.severity).max();
        let first = some.iter().min_by_key(|(_, t)| t.since);
        let clusters = some.iter().take(NAMED).map(|(name, _)| name.clone());
        Notice {
            state,
            severity: worst.unwrap_or(Severity::Info),
            class: class.clone(),
            clusters: clusters.collect(),
            clusters_total: some.len(),
            text: first.map(|(_, t)| t.text.clone()).unwrap_or_default(),
            since: first
                .map(|(_, t)| crate::clock::rfc3339(t.since))
                .unwrap_or_default(),
            next: None,
        }
    };
    if of_class.len() >= TOGETHER {
        return vec![notice(&of_class)];
    }
    of_class.chunks(1).map(notice).collect()
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
