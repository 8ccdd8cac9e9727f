//! What the cluster says around a fault, within bounds and without passwords.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::state::Object;
use crate::agent::engine::is_workload;
use crate::bundle::{Kind, ObjectId};
use crate::clock::{from_nanoseconds, rfc3339};
use crate::manifests::AGENT;
use crate::wire::report::{ObjectCondition, ObjectEvent, Scene};

pub mod log;

/// Events that are older say nothing of a fault of now.
const RECENT: Duration = Duration::minutes(10);
const MAX_EVENTS: usize = 10;
const MAX_CONDITIONS: usize = 8;
const MAX_TEXT: usize = 512;
/// Of all texts of one kind together: heals that are open are kept in one ConfigMap.
const MAX_ALL: usize = 4096;

/// What an object says of itself; nothing where it is gone.
pub fn of(live: Option<&Object>) -> Scene {
    let Some(live) = live else {
        return Scene::default();
    };
    let said = live.fields.pointer("/status/conditions");
    let said = said.and_then(Value::as_array).into_iter().flatten();
    let mut room = MAX_ALL;
    let conditions = said.map(|one| {
        let text = |name: &str| safe(one.get(name).and_then(Value::as_str).unwrap_or_default());
        ObjectCondition {
            kind: text("type"),
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            since: text("lastTransitionTime"),
        }
    });
    let conditions = conditions.take(MAX_CONDITIONS);
    Scene {
        uid: live.uid.clone(),
        conditions: conditions
            .take_while(|c| fits(&mut room, &c.message))
            .collect(),
        ..Scene::default()
    }
}

/// What an Event says, and when it was last, if it is about `id` or its Pods.
pub fn about(
    now: OffsetDateTime,
    id: &ObjectId,
    event: &Event,
) -> Option<(OffsetDateTime, ObjectEvent)> {
    if !is_about(id, event) || is_ours(event) {
        return None;
    }
    let at = last(event)?;
    (now - at <= RECENT).then(|| (at, told(at, event)))
}

/// As many of them as there is room for, newest first.
pub fn newest(mut recent: Vec<(OffsetDateTime, ObjectEvent)>) -> Vec<ObjectEvent> {
    recent.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let mut room = MAX_ALL;
    let told = recent.into_iter().map(|(_, event)| event);
    told.take(MAX_EVENTS)
        .take_while(|event| fits(&mut room, &event.message))
        .collect()
}

/// Pods and `ReplicaSets` have the name of what they are of before their own part.
fn is_about(id: &ObjectId, event: &Event) -> bool {
    let kind = event.involved_object.kind.as_deref().unwrap_or_default();
    let name = event.involved_object.name.as_deref().unwrap_or_default();
    let has_pods = is_workload(id.kind) || id.kind == Kind::ServiceAccount;
    let part = name.strip_prefix(id.name.as_str());
    let of_its_pods =
        matches!(kind, "Pod" | "ReplicaSet") && part.is_some_and(|part| part.starts_with('-'));
    kind == id.kind.as_str() && name == id.name || has_pods && of_its_pods
}

/// What the agent itself said of it is no evidence.
fn is_ours(event: &Event) -> bool {
    event.reporting_component.as_deref() == Some(AGENT)
}

/// When it was last.
pub fn last(event: &Event) -> Option<OffsetDateTime> {
    let series = event.series.as_ref();
    let micro = series
        .and_then(|series| series.last_observed_time.as_ref())
        .or(event.event_time.as_ref());
    let second = event
        .last_timestamp
        .as_ref()
        .or(event.first_timestamp.as_ref());
    let at = second.map(|at| at.0).max(micro.map(|at| at.0))?;
    moment(at)
}

fn moment(at: Timestamp) -> Option<OffsetDateTime> {
    from_nanoseconds(at.as_nanosecond())
}

fn told(at: OffsetDateTime, event: &Event) -> ObjectEvent {
    let text = |text: &Option<String>| safe(text.as_deref().unwrap_or_default());
    let involved = &event.involved_object;
    let series = event.series.as_ref().and_then(|series| series.count);
    ObjectEvent {
        at: rfc3339(at),
        kind: text(&event.type_),
        object: format!("{} {}", text(&involved.kind), text(&involved.name)),
        reason: text(&event.reason),
        message: text(&event.message),
        count: u32::try_from(series.or(event.count).unwrap_or(1)).unwrap_or(1),
    }
}

/// Whether there is room for it; what has none ends the list.
pub fn fits(room: &mut usize, text: &str) -> bool {
    let left = room.checked_sub(text.len());
    *room = left.unwrap_or_default();
    left.is_some()
}

/// In one line, cut, and without a password.
fn safe(text: &str) -> String {
    let shown = masked(text);
    let line = shown.chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(MAX_TEXT).collect()
}

/// Words of the engine's as part of a sentence: they end with a newline, and have others within, which tear tables and notices apart.
pub fn line(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    let mut told = String::new();
    let parts = text.split(char::is_control).map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        if !told.is_empty() && !part.starts_with([';', ',']) {
            told.push(' ');
        }
        told.push_str(part);
    }
    told
}

/// Without a password: a URL may hold one before its host.
pub(super) fn masked(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let end = after.find(|c: char| c.is_whitespace() || "/\"'`)".contains(c));
        let (authority, tail) = after.split_at(end.unwrap_or(after.len()));
        shown.extend([before, "://"]);
        match authority.rsplit_once('@') {
            Some((user, host)) if user.contains(':') => {
                let name = user.split(':').next().unwrap_or_default();
                shown.extend([name, ":***@", host]);
            }
            // A token alone stands where a name does.
            Some((_, host)) if before.ends_with("http") || before.ends_with("https") => {
                shown.extend(["***@", host]);
            }
            _ => shown.push_str(authority),
        }
        rest = tail;
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests;
