//! A heal as a story: how long its parts took, and what happened in what order. Pure.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::git::Made;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::heal;
use crate::wire::api::{CommitView, HealView, StoryLine};
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, HealResult};

pub mod through;

/// The id in a revision as an engine writes it: `main@sha1:3f2a…`, `refs/heads/main@sha1:3f2a…` or `3f2a…`.
pub fn commit_id(revision: &str) -> Option<&str> {
    let id = revision.rsplit(':').next().unwrap_or(revision);
    let hex = id.bytes().all(|b| b.is_ascii_hexdigit());
    (hex && matches!(id.len(), 40 | 64)).then_some(id)
}

/// The ids of all commits that a heal names.
pub fn commits(heal: &HealRecord) -> impl Iterator<Item = &str> {
    let others = heal.steps.iter().filter_map(heal::commit_of);
    let all = std::iter::once(heal.commit.as_str()).chain(others);
    all.filter_map(commit_id)
}

/// One heal as it is listed; `made` has the commits that are known.
pub fn view(cluster: ClusterName, heal: HealRecord, made: &BTreeMap<String, Made>) -> HealView {
    let author = commit_id(&heal.commit).and_then(|id| made.get(id));
    let author = author.and_then(|made| self::author(&heal, made));
    HealView {
        cluster,
        took: heal::took(&heal),
        author,
        through_hub: None,
        story: Vec::new(),
        heal,
    }
}

/// The same with all that happened, in order.
pub fn told(mut view: HealView, made: &BTreeMap<String, Made>) -> HealView {
    view.story = story(&view.heal, view.author.as_ref(), made);
    view
}

fn author(heal: &HealRecord, made: &Made) -> Option<CommitView> {
    let at = OffsetDateTime::from_unix_timestamp(made.at).ok()?;
    Some(CommitView {
        id: commit_id(&heal.commit)?.to_owned(),
        author: by(made),
        at: rfc3339(at),
        subject: made.subject.clone(),
    })
}

fn by(made: &Made) -> String {
    format!("{} <{}>", made.name, made.email)
}

fn story(
    heal: &HealRecord,
    commit: Option<&CommitView>,
    made: &BTreeMap<String, Made>,
) -> Vec<StoryLine> {
    let line = |at: &str, text: String| StoryLine {
        at: at.to_owned(),
        text,
    };
    let mut lines = Vec::new();
    if let Some(commit) = commit {
        let text = format!("{} committed '{}'", commit.author, commit.subject);
        lines.push(line(&commit.at, text));
    }
    if let Some(at) = &heal.fault_at {
        lines.push(line(at, broke(heal)));
    }
    let number = match heal.number {
        0 => String::new(),
        n => format!("F{n} "),
    };
    let seen = format!("seen, and called {number}{}", heal.class);
    lines.push(line(&heal.detected_at, seen));
    for step in &heal.steps {
        let id = heal::commit_of(step).and_then(commit_id);
        let who = id
            .and_then(|id| made.get(id))
            .map_or_else(String::new, |made| {
                format!("; {} committed '{}'", by(made), made.subject)
            });
        let text = format!("{} {}: {}{who}", step.action, step.object, step.outcome);
        lines.push(line(&step.at, text));
    }
    if let Some(at) = &heal.restored_at {
        lines.push(line(at, over(heal.result).to_owned()));
    }
    lines.sort_by_cached_key(|line| parse_rfc3339(&line.at));
    lines
}

fn broke(heal: &HealRecord) -> String {
    match heal.writer.as_str() {
        "" => format!("{} broke", heal.object),
        writer => format!("'{writer}' wrote {}", heal.object),
    }
}

fn over(result: HealResult) -> &'static str {
    match result {
        HealResult::Healed | HealResult::Open => "mended: the engine was asked, and works",
        HealResult::Reported => "it is over; nothing had been done about it here",
        HealResult::Failed => "given up",
    }
}

#[cfg(test)]
mod tests;
