//! Sync objects that their controller cannot read (fluxcd/flux2#2641): Go decodes a list as a whole, so one of them keeps
//! all of its kind from the controller, and a restarted controller does not come up at all.
//!
//! Only its log says so, and names no object. The fields by which the API server lets one through are known: a duration
//! is checked there by a pattern, which knows no bounds.

use serde_json::Value;
use time::Duration;

use super::fault::Class;
use super::find::Finding;
use super::state::{Child, Observed};
use crate::agent::engine::Install;
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

/// Whether what a controller should know of this kind does not reach it.
pub(super) fn blinds(observed: &Observed, kind: Kind) -> bool {
    // Who applies reads the sources, too.
    let reads = |id: &ObjectId| id.kind == kind || id.kind.is_source();
    let mut read = observed.children.iter().filter(|(id, _)| reads(id));
    read.any(|(_, child)| {
        let reason = child.trouble.as_ref().map(|(reason, _)| reason.as_str());
        reason == Some(REASON)
    })
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::engine::REQUESTED_AT;
    use crate::agent::plan::Class;
    use crate::agent::plan::tests::Cluster;
    use crate::clock::rfc3339;

    /// F18: sources are read by whoever applies what they fetched, too; those that can be read are not even kept.
    #[test]
    fn a_source_that_cannot_be_read_is_taken_out_of_the_way() {
        for kind in [
            Kind::GitRepository,
            Kind::HelmRepository,
            Kind::OciRepository,
            Kind::Bucket,
            Kind::HelmChart,
        ] {
            let mut cluster = Cluster::working();
            let id = ObjectId::new(kind, "apps", "a");
            let source = |interval: &str| {
                json!({
                    "apiVersion": kind.api_version(), "kind": kind.as_str(),
                    "metadata": {"name": "a", "namespace": "apps", "uid": "u", "resourceVersion": "7"},
                    "spec": {"interval": interval, "url": "https://git.test/a"},
                })
            };
            cluster.applications.insert(id.clone(), source("10m"));
            let plan = cluster.plan();
            assert_eq!(
                (plan.findings, plan.steps),
                (Vec::new(), Vec::new()),
                "{kind}"
            );

            cluster.applications.insert(id.clone(), source("2562048h"));
            let plan = cluster.plan();
            let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
            assert_eq!(found, [(Class::UndecodableObject, &id)], "{kind}");
            // Of these alone the simulated cluster has the definition.
            if kind != Kind::GitRepository {
                continue;
            }
            cluster.settle(60);
            let spec = &cluster.applications[&id]["spec"];
            let expected =
                json!({"interval": aside::STAND_IN, "suspend": true, "url": "https://git.test/a"});
            assert_eq!(*spec, expected, "{kind}");
        }
    }

    /// F18: restarted, the controller would not come up.
    #[test]
    fn the_silent_controller_of_what_may_not_be_mended_is_left() {
        let mut cluster = Cluster::working();
        cluster.covered = Some([].into());
        let id = cluster.unreadable("a");
        let sync = cluster.install.sync.clone();
        let asked = rfc3339(cluster.now);
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
        cluster.now += Duration::seconds(120);
        let plan = cluster.plan();
        let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.object)).collect();
        assert_eq!(found, [(Class::UndecodableObject, &id)]);
        assert_eq!(plan.steps, Vec::new());
        // When it is gone, the controller has not been asked for long: it could not answer before.
        cluster.history.saw(cluster.now, &plan);
        cluster.applications.remove(&id);
        for _ in 0..2 {
            cluster.now += Duration::seconds(45);
            let plan = cluster.plan();
            cluster.history.saw(cluster.now, &plan);
            assert_eq!(plan.findings, []);
        }
        cluster.now += Duration::seconds(60);
        let classes: Vec<_> = cluster.plan().findings.iter().map(|f| f.class).collect();
        assert_eq!(classes, [Class::QueueWedged]);
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for text in [
            "10m",
            "1h30m",
            "1.5h",
            ".5s",
            "0",
            "0s",
            "+1m",
            "-1m",
            "100us",
            "1µs",
            "2562047h",
            "9223372036s",
            "000000000000000000000001s",
        ] {
            assert!(duration(text).is_some(), "{text}");
        }
        for text in [
            "",
            "-",
            "10",
            "m",
            "1d",
            "1..5h",
            ".s",
            "1h ",
            "2562048h",
            "9223372037s",
            "99999999999999h",
            "99999999999999999999ms",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_as_long_as_in_go() {
        for (text, milliseconds) in [
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("-2.25s", -2_250),
            ("+.5s", 500),
            ("1500us", 1),
            ("0", 0),
        ] {
            let read = duration(text).map(Duration::whole_milliseconds);
            assert_eq!(read, Some(milliseconds), "{text}");
        }
    }

    #[test]
    fn the_field_is_named_wherever_it_is() {
        assert_eq!(why(&json!({"interval": "10m", "timeout": "5m"})), None);
        let far = json!({"interval": "10m", "install": {"timeout": "99999999999h"}});
        let text = "spec.install.timeout '99999999999h' is no duration that Go can hold";
        assert_eq!(why(&far), Some(text.to_owned()));
    }
}
