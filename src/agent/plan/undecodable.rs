//! Sync objects that their controller cannot read (fluxcd/flux2#2641): Go decodes a list as a whole, so one of them keeps
//! all of its kind from the controller, and a restarted controller does not come up at all.
//!
//! Only its log says so, and names no object. The fields by which the API server lets one through are known: a duration
//! is checked there by a pattern, which knows no bounds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use time::Duration;

use super::fault::Class;
use super::find::Finding;
use super::shard;
use super::state::{Child, Observed};
use crate::agent::engine::{Install, flux};
use crate::bundle::{Kind, ObjectId};

pub mod aside;

/// As a child's trouble says it; no engine has a reason of this name.
pub(super) const REASON: &str = "Undecodable";

/// Below `spec`.
const DURATIONS: [&str; 11] = [
    "/interval",
    "/retryInterval",
    "/timeout",
    "/chart/spec/interval",
    "/install/timeout",
    "/install/strategy/retryInterval",
    "/upgrade/timeout",
    "/upgrade/strategy/retryInterval",
    "/rollback/timeout",
    "/uninstall/timeout",
    "/test/timeout",
];

/// Go's units, in nanoseconds.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Why a Flux controller cannot read an object with this `spec`.
pub(super) fn why(spec: &Value) -> Option<String> {
    let bad = aside::bad_fields(spec);
    (!bad.is_empty()).then(|| aside::text(&bad))
}

/// The first field with a duration that Go cannot hold.
pub(super) fn field(spec: &Value) -> Option<&'static str> {
    DURATIONS.into_iter().find(|field| {
        let text = spec.pointer(field).and_then(Value::as_str);
        text.is_some_and(|text| duration(text).is_none())
    })
}

/// The finding for a sync object of Flux that says this of itself.
pub(super) fn finding(
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
    child: &Child,
) -> Option<Finding> {
    let suspect = child.suspect.as_ref().filter(|s| s.is_unreadable())?;
    let (_, message) = child.trouble.as_ref()?;
    let text = format!("its controller can read none of its kind: {message}");
    let mut finding = Finding::new(Class::UndecodableObject, id, text);
    let (writer, written) = suspect.writer();
    writer.clone_into(&mut finding.writer);
    finding.fault_at = written;
    finding.reported = !aside::is_covered(install, observed, id);
    if writer == install.traits.applier {
        finding.commit = aside::tried(install, observed, suspect);
    }
    Some(finding)
}

/// Whether what the install's controller should know of this kind does not reach it.
pub(super) fn blinds(observed: &Observed, kind: Kind) -> bool {
    let selector = selector(observed, kind);
    unread(observed).any(|(id, child)| {
        let own = id.kind == kind || kind.is_source() && id.kind.is_source();
        if own {
            child.shard.is_seen_with(selector)
        } else {
            // Who applies reads the sources, too, and selects none of them (`ByObject` of its cache).
            id.kind.is_source()
        }
    })
}

/// Those that cannot be read and that blind none of the install's controllers: they are of a shard with controllers of its own. Of the
/// `former` ones, what can be read by now or is gone was apart to its end.
pub(super) fn apart<'a>(
    observed: &Observed,
    former: impl Iterator<Item = &'a ObjectId>,
) -> BTreeSet<ObjectId> {
    let all: BTreeMap<&ObjectId, &Child> = unread(observed).collect();
    let over = former.filter(|id| !all.contains_key(*id)).cloned();
    let apart = all.iter().filter(|(id, child)| {
        !id.kind.is_source() && !child.shard.is_seen_with(selector(observed, id.kind))
    });
    apart.map(|(id, _)| (*id).clone()).chain(over).collect()
}

fn unread(observed: &Observed) -> impl Iterator<Item = (&ObjectId, &Child)> {
    observed.children.iter().filter(|(_, child)| {
        let reason = child.trouble.as_ref().map(|(reason, _)| reason.as_str());
        reason == Some(REASON)
    })
}

/// What the install's controller of a kind selects of it.
fn selector(observed: &Observed, kind: Kind) -> Option<&str> {
    let [(_, source), (_, sync)] = flux::TRAITS.controllers;
    let name = match kind {
        Kind::HelmRelease => flux::HELM,
        kind if kind.is_source() => source,
        _ => sync,
    };
    let controller = ObjectId::new(Kind::Deployment, flux::NAME, name);
    shard::selector_of(observed, &controller)
}

/// As Go's `time.ParseDuration` takes it: numbers with units, whose sum in nanoseconds fits into 63 bits.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let (nanoseconds, after) = term(rest)?;
        sum = sum.saturating_add(nanoseconds);
        rest = after;
    }
    let sum = Duration::nanoseconds(i64::try_from(sum).ok()?);
    Some(if text.starts_with('-') { -sum } else { sum })
}

/// The first number with its unit, in nanoseconds, and what follows.
fn term(text: &str) -> Option<(i128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at_checked(end)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') {
        return None;
    }
    let end = rest.find(|c: char| c.is_ascii_digit() || c == '.');
    let (unit, rest) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
    let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
    // More digits than these are beyond any bound.
    let whole = whole.trim_start_matches('0');
    let whole: i128 = match whole.len() {
        0 => 0,
        1..=19 => whole.parse().ok()?,
        _ => return None,
    };
    // Of an hour the tenth digit is below a microsecond.
    let part = &part[..part.len().min(9)];
    let mut parts: i128 = 0;
    let mut of = *size;
    for digit in part.bytes() {
        of /= 10;
        parts += of * i128::from(digit - b'0');
    }
    Some((whole.checked_mul(*size)? + parts, rest))
}

#[cfg(test)]
mod tests;
