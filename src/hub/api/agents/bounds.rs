//! What an agent says, within what one cluster may store.

use super::heals;
use crate::hub::cut;
use crate::hub::store::Reported;
use crate::ssh::known_hosts::HostKey;
use crate::wire::api::{AgentBuild, HostKeysReport, MAX_HOST_KEY, MAX_HOST_KEYS, Report};
use crate::wire::report::{ConditionType, Facts, LaterConditions, StepName};

/// Facts of one cluster.
const MAX_FACTS: usize = 256;
/// Conditions that this build does not know.
const MAX_LATER: usize = 32;
pub(super) const MAX_VALUE: usize = 4096;
/// What one agent says that it can do.
const MAX_FEATURES: usize = 32;
pub(super) const MAX_TEXT: usize = 1024;
/// Heals in one report; the agent sends the rest when these are acknowledged.
const MAX_HEALS: usize = 200;
/// Heals that one agent has open or has not told yet: it knows fewer.
const MAX_OPEN_HEALS: usize = 1024;

/// A report within what one cluster may store.
pub(super) fn bounded(report: Report, later: LaterConditions) -> Reported {
    let mut conditions = report.conditions;
    if let Some(conditions) = &mut conditions {
        let mut seen: Vec<ConditionType> = Vec::new();
        conditions.retain(|c| {
            let first = !seen.contains(&c.kind);
            seen.push(c.kind);
            first
        });
        for condition in conditions {
            shorten(&mut condition.reason, 100);
            shorten(&mut condition.message, MAX_TEXT);
            shorten(&mut condition.since, 40);
        }
    }
    let mut steps = report.steps;
    steps.truncate(4 * StepName::ALL.len());
    for step in &mut steps {
        shorten(&mut step.reason, MAX_TEXT);
        shorten(&mut step.at, 40);
    }
    let mut later = later.conditions;
    later.truncate(MAX_LATER);
    for condition in &mut later {
        shorten(&mut condition.kind, 100);
        shorten(&mut condition.status, 40);
        if !["True", "False", "Unknown"].contains(&condition.status.as_str()) {
            condition.message = format!("{}: {}", condition.status, condition.message);
            "Unknown".clone_into(&mut condition.status);
        }
        shorten(&mut condition.reason, 100);
        shorten(&mut condition.message, MAX_TEXT);
        shorten(&mut condition.since, 40);
    }
    Reported {
        later,
        facts: report.facts.map(bounded_facts),
        agent: bounded_build(report.agent),
        steps,
        conditions,
        heals: report
            .heals
            .into_iter()
            .take(MAX_HEALS)
            .map(heals::bounded)
            .collect(),
        // Cut short it would say another thing.
        open_heals: report.open_heals.filter(|ids| ids.len() <= MAX_OPEN_HEALS),
        revision: report.revision.filter(|r| r.len() <= MAX_TEXT),
        host_keys: report.host_keys.map(bounded_host_keys),
    }
}

/// A key is kept in its normal form, with the fingerprint that is really its own.
fn bounded_host_keys(mut host_keys: HostKeysReport) -> HostKeysReport {
    host_keys.trusted.truncate(MAX_HOST_KEYS);
    for fingerprint in &mut host_keys.trusted {
        shorten(fingerprint, 100);
    }
    let shown = host_keys.shown.and_then(|mut shown| {
        let key = HostKey::parse(&shown.key, MAX_HOST_KEY).ok()?;
        (shown.key, shown.fingerprint) = (key.text, key.fingerprint);
        shorten(&mut shown.since, 40);
        Some(shown)
    });
    HostKeysReport { shown, ..host_keys }
}

/// What lists of all clusters show of one is as short as an honest one's.
pub(super) fn bounded_build(mut build: AgentBuild) -> AgentBuild {
    shorten(&mut build.version, 100);
    shorten(&mut build.image, MAX_TEXT);
    shorten(&mut build.arch, 40);
    build.features.truncate(MAX_FEATURES);
    for feature in &mut build.features {
        shorten(feature, 100);
    }
    build
}

pub(super) fn bounded_facts(facts: Facts) -> Facts {
    facts
        .into_iter()
        .filter(|(key, _)| key.len() <= 200)
        .take(MAX_FACTS)
        .map(|(key, mut value)| {
            shorten(&mut value, MAX_VALUE);
            (key, value)
        })
        .collect()
}

/// At most `max` bytes, on which PostgreSQL, terminals and notices agree: without NUL, and without what moves a cursor.
pub(super) fn shorten(text: &mut String, max: usize) {
    text.truncate(cut(text, max).len());
    let wild = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(wild) {
        *text = text.replace(wild, "\u{fffd}");
        text.truncate(cut(text, max).len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_of_itself_is_kept_as_short_as_an_honest_ones() {
        let honest = AgentBuild {
            version: "0.1.0".to_owned(),
            image: "registry.example/linesman@sha256:1".to_owned(),
            arch: "amd64".to_owned(),
            features: vec!["lift".to_owned()],
        };
        assert_eq!(bounded_build(honest.clone()), honest);
        let much = "x".repeat(1 << 20);
        let build = AgentBuild {
            version: much.clone(),
            image: much.clone(),
            arch: much.clone(),
            features: vec![much; 100],
        };
        let bounded = AgentBuild {
            version: "x".repeat(100),
            image: "x".repeat(MAX_TEXT),
            arch: "x".repeat(40),
            features: vec!["x".repeat(100); MAX_FEATURES],
        };
        assert_eq!(bounded_build(build), bounded);
    }
}
