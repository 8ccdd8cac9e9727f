//! Whose requests through the hub wrote to a heal's object shortly before it was seen. The API server does not keep of every write who
//! made it: of `kubectl scale` nothing is left in an object. Pure.

use time::{Duration, OffsetDateTime};

use crate::clock::{parse_rfc3339, rfc3339};
use crate::heal::{AGENT_LOST, DUPLICATE_AGENT};
use crate::hub::store::{AuditRow, AuditWrites};
use crate::wire::api::HubWrite;
use crate::wire::report::HealRecord;

/// Before a fault is seen it may have to be there for a while.
const BEFORE: Duration = Duration::minutes(2);
/// However long it was there: what people did long before is another story.
const LONGEST: Duration = Duration::minutes(10);
/// By so much the cluster's clock may be behind the hub's.
const SLACK: Duration = Duration::seconds(2);
/// The newest of them.
const MOST: usize = 10;

/// A heal's object, as its text names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    kind: &'a str,
    /// Empty = the object is in none.
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Object<'a> {
    /// None where the heal is about no object of the cluster's API.
    pub fn of(heal: &'a HealRecord) -> Option<Self> {
        if matches!(heal.class.as_str(), AGENT_LOST | DUPLICATE_AGENT) {
            return None;
        }
        let (kind, place) = heal.object.split_once(' ')?;
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        let named = !kind.is_empty() && !name.is_empty() && !name.contains([' ', ',']);
        named.then_some(Self {
            kind,
            namespace,
            name,
        })
    }

    /// Which records may be about it.
    pub fn asked(&self, cluster: &str, heal: &HealRecord) -> Option<AuditWrites> {
        let (since, until) = span(heal)?;
        Some(AuditWrites {
            cluster: cluster.to_owned(),
            name: self.name.to_owned(),
            since: millis(since)?,
            until: millis(until)?,
        })
    }

    /// What people are told of those records that are, the oldest first.
    pub fn writes(&self, newest_first: Vec<AuditRow>) -> Vec<HubWrite> {
        let its = newest_first
            .into_iter()
            .filter(|row| self.is_written(&row.action, &row.target));
        let mut writes: Vec<HubWrite> = its.take(MOST).map(told).collect();
        writes.reverse();
        writes
    }

    /// Whether a request with this path writes to it, to a subresource of it, or deletes all of its kind in its namespace.
    fn is_written(&self, action: &str, path: &str) -> bool {
        let Some(rest) = below_version(path) else {
            return false;
        };
        let parts: Vec<&str> = rest.split('/').collect();
        let parts = match (self.namespace, &parts[..]) {
            ("", all) => all,
            (own, ["namespaces", namespace, all @ ..]) if own == *namespace => all,
            _ => return false,
        };
        let of_kind = |resource: &str| is_plural(self.kind, resource);
        match parts {
            [resource] => action == "kube.deletecollection" && of_kind(resource),
            // What is in a namespace has a path of the same form as the namespace's own parts.
            ["namespaces", name, part] => {
                let own = matches!(*part, "status" | "finalize");
                own && *name == self.name && of_kind("namespaces")
            }
            [resource, name] | [resource, name, _] => *name == self.name && of_kind(resource),
            _ => false,
        }
    }
}

/// `namespaces/shop/pods/web` of `/api/v1/namespaces/shop/pods/web`.
fn below_version(path: &str) -> Option<&str> {
    if let Some(core) = path.strip_prefix("/api/v1/") {
        return Some(core);
    }
    let (_group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
    rest.split_once('/').map(|(_version, rest)| rest)
}

/// Whether a kind is served under this name: `NetworkPolicy` as `networkpolicies` (`UnsafeGuessKindToResource` of apimachinery).
fn is_plural(kind: &str, resource: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    if kind == "endpoints" {
        return resource == kind;
    }
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| kind.ends_with(end));
    let stem = kind.strip_suffix('y');
    let plural = if hisses {
        format!("{kind}es")
    } else if let Some(stem) = stem.filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        format!("{stem}ies")
    } else {
        format!("{kind}s")
    };
    plural == resource
}

/// When what broke it was written: from before the fault, or its detection where that is not known, to its detection.
fn span(heal: &HealRecord) -> Option<(OffsetDateTime, OffsetDateTime)> {
    let seen = parse_rfc3339(&heal.detected_at)?;
    let broke = heal.fault_at.as_deref().and_then(parse_rfc3339);
    let first = broke.map_or(seen, |broke| broke.min(seen)) - BEFORE;
    Some((first.max(seen - LONGEST), seen + SLACK))
}

/// Since 1970.
fn millis(at: OffsetDateTime) -> Option<i64> {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
}

fn told(row: AuditRow) -> HubWrite {
    let at = OffsetDateTime::UNIX_EPOCH.saturating_add(Duration::milliseconds(row.at));
    HubWrite {
        at: rfc3339(at),
        actor: row.actor,
        action: row.action,
        target: row.target,
        request_id: row.request_id,
    }
}

#[cfg(test)]
mod tests;
