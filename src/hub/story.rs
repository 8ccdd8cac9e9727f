//! A heal as a story: how long its parts took, and what happened in what order. Pure.

use time::OffsetDateTime;

use super::git::Made;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::heal;
use crate::wire::api::{CommitView, HealView, StoryLine};
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, HealResult};

/// The id in a revision as an engine writes it: `main@sha1:3f2a…`, `refs/heads/main@sha1:3f2a…` or `3f2a…`.
pub fn commit_id(revision: &str) -> Option<&str> {
    let id = revision.rsplit(':').next().unwrap_or(revision);
    let hex = id.bytes().all(|b| b.is_ascii_hexdigit());
    (hex && matches!(id.len(), 40 | 64)).then_some(id)
}

/// One heal as it is listed.
pub fn view(cluster: ClusterName, heal: HealRecord, made: Option<&Made>) -> HealView {
    let author = made.and_then(|made| author(&heal, made));
    HealView {
        cluster,
        took: heal::took(&heal),
        author,
        story: Vec::new(),
        heal,
    }
}

/// The same with all that happened, in order.
pub fn told(mut view: HealView) -> HealView {
    view.story = story(&view.heal, view.author.as_ref());
    view
}

fn author(heal: &HealRecord, made: &Made) -> Option<CommitView> {
    let at = OffsetDateTime::from_unix_timestamp(made.at).ok()?;
    Some(CommitView {
        id: commit_id(&heal.commit)?.to_owned(),
        author: format!("{} <{}>", made.name, made.email),
        at: rfc3339(at),
        subject: made.subject.clone(),
    })
}

fn story(heal: &HealRecord, commit: Option<&CommitView>) -> Vec<StoryLine> {
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
        let text = format!("{} {}: {}", step.action, step.object, step.outcome);
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
