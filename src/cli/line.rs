//! `linesman line`: one cluster's line as the hub sees it now.

use anyhow::Result;
use time::OffsetDateTime;

use super::connect::Connect;
use super::output::{Format, Output, ago, document, emit, rows_text};
use crate::clock;
use crate::wire::api::{LineClass, LineDetail};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Examples:
  linesman line eu1              # up since when, from where, how far away, what it carries
  linesman line eu1 -o json      # the same for a program";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The cluster's name
    name: ClusterName,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let line = args.connect.client().await?.line(&args.name).await?;
    emit(&match args.output.output {
        format @ (Format::Json | Format::Yaml) => document(format, &line)?,
        Format::Name => format!("{}\n", args.name),
        Format::Table | Format::Wide => describe(&line, clock::now()),
    })
}

fn describe(line: &LineDetail, now: OffsetDateTime) -> String {
    let state = match (line.up, line.draining) {
        (true, false) => "up",
        (true, true) => "draining",
        (false, _) => "down",
    };
    let since = line.since.as_deref();
    let since = since.map(|at| format!(" for {}", ago(at, now)));
    let streams: Vec<String> = line
        .streams
        .iter()
        .map(|(kind, n)| format!("{n} {kind}"))
        .collect();
    let denied = line.denied.iter();
    let denied: Vec<String> = denied.map(|(rule, n)| format!("{n} {rule}")).collect();
    let micros = line.rtt_micros;
    // Of a line at another replica than the one that answers nothing is counted, the kinds of streams neither.
    let elsewhere = line.up && line.streams.is_empty();
    let hub = if elsewhere {
        format!("{}, which alone counts what it carries", line.replica)
    } else {
        line.replica.clone()
    };
    let class = |told: fn(&LineClass) -> Option<String>| {
        let classes = ["sparse", "bulk", "background"].into_iter();
        let told =
            classes.filter_map(|name| Some(format!("{name} {}", told(line.classes.get(name)?)?)));
        told.collect::<Vec<_>>().join(", ")
    };
    let sent = class(|class| (class.sent > 0).then(|| class.sent.to_string()));
    let received = class(|class| (class.received > 0).then(|| class.received.to_string()));
    let queued = class(|class| class.queue_micros.map(|m| format!("{m} µs")));
    rows_text(
        None,
        [
            ("line", format!("{state}{}", since.unwrap_or_default())),
            ("hub", hub),
            ("epoch", line.epoch.to_string()),
            ("from", line.remote.clone().unwrap_or_default()),
            ("agent", line.instance.clone().unwrap_or_default()),
            (
                "ended at the age of",
                line.cap_seconds
                    .map(|s| format!("{s} s, by something on the way; renewed before it"))
                    .unwrap_or_default(),
            ),
            (
                "round trip",
                micros.map(|m| format!("{m} µs")).unwrap_or_default(),
            ),
            ("streams", streams.join(", ")),
            ("opened", counted(line.opened, elsewhere)),
            ("bytes sent", counted(line.sent, elsewhere)),
            ("sent by class", sent),
            ("waited for a turn", queued),
            ("bytes received", counted(line.received, elsewhere)),
            ("received by class", received),
            ("bytes unread", counted(line.unread, elsewhere)),
            ("credit stalls", counted(line.credit_stalls, elsewhere)),
            ("parked requests", line.parked.to_string()),
            ("refused requests", denied.join(", ")),
            ("last ended", line.last_cause.clone().unwrap_or_default()),
        ]
        .map(|(key, value)| vec![key.to_owned(), value]),
    )
}

/// Zeros of a line elsewhere would say that nothing goes through it.
fn counted(n: u64, elsewhere: bool) -> String {
    if elsewhere {
        String::new()
    } else {
        n.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The rows as a person reads them: what it is, and what is said of it.
    fn told(line: &LineDetail) -> Vec<(String, String)> {
        let now = clock::parse_rfc3339("2026-01-01T00:01:30Z").unwrap();
        let text = describe(line, now);
        let row = |line: &str| {
            let (key, value) = line.split_once("  ").unwrap();
            (key.to_owned(), value.trim().to_owned())
        };
        text.lines().map(row).collect()
    }

    fn numbers(all: [(&str, u64); 2]) -> BTreeMap<String, u64> {
        all.map(|(name, n)| (name.to_owned(), n)).into()
    }

    fn all() -> LineDetail {
        let class = |sent, received, queue_micros| LineClass {
            sent,
            received,
            queue_micros,
        };
        let classes = [
            ("sparse", class(10, 11, Some(12))),
            ("bulk", class(20, 0, None)),
            ("background", class(0, 31, Some(32))),
        ];
        LineDetail {
            up: true,
            draining: false,
            replica: "hub-1".to_owned(),
            epoch: 7,
            since: Some("2026-01-01T00:00:00Z".to_owned()),
            remote: Some("192.0.2.1:4711".to_owned()),
            instance: Some("process-1".to_owned()),
            cap_seconds: Some(30),
            rtt_micros: Some(2_500),
            streams: numbers([("api", 3), ("git", 1)]),
            opened: 40,
            classes: classes.map(|(name, told)| (name.to_owned(), told)).into(),
            sent: 41,
            received: 42,
            unread: 43,
            credit_stalls: 44,
            parked: 45,
            denied: numbers([("NoGrant", 2), ("agent:ReadOnly", 5)]),
            last_cause: Some("line lost".to_owned()),
        }
    }

    /// L50
    #[test]
    fn a_line_is_told_with_all_that_is_known_of_it() {
        let expected = [
            ("line", "up for 90s"),
            ("hub", "hub-1"),
            ("epoch", "7"),
            ("from", "192.0.2.1:4711"),
            ("agent", "process-1"),
            (
                "ended at the age of",
                "30 s, by something on the way; renewed before it",
            ),
            ("round trip", "2500 µs"),
            ("streams", "3 api, 1 git"),
            ("opened", "40"),
            ("bytes sent", "41"),
            ("sent by class", "sparse 10, bulk 20"),
            ("waited for a turn", "sparse 12 µs, background 32 µs"),
            ("bytes received", "42"),
            ("received by class", "sparse 11, background 31"),
            ("bytes unread", "43"),
            ("credit stalls", "44"),
            ("parked requests", "45"),
            ("refused requests", "2 NoGrant, 5 agent:ReadOnly"),
            ("last ended", "line lost"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(told(&all()), expected);
    }

    /// What is not known is said to be so, and draining is a line that is up.
    #[test]
    fn each_state_of_a_line_has_a_word() {
        for (up, draining, word) in [
            (true, false, "up for 90s"),
            (true, true, "draining for 90s"),
            (false, false, "down for 90s"),
        ] {
            let line = LineDetail {
                up,
                draining,
                ..all()
            };
            assert_eq!(told(&line)[0].1, word);
        }
        let never = told(&LineDetail::default());
        let unknown = never.iter().filter(|(_, value)| value == "-");
        let unknown: Vec<&str> = unknown.map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            unknown,
            [
                "hub",
                "from",
                "agent",
                "ended at the age of",
                "round trip",
                "streams",
                "sent by class",
                "waited for a turn",
                "received by class",
                "refused requests",
                "last ended",
            ]
        );
        assert_eq!(never.len(), 19);
    }

    #[test]
    fn what_only_another_replica_counts_is_not_told_as_nothing() {
        let line = LineDetail {
            up: true,
            replica: "hub-2".to_owned(),
            since: Some("2026-01-01T00:00:00Z".to_owned()),
            ..LineDetail::default()
        };
        let told = told(&line);
        let known = told.iter().filter(|(_, value)| value != "-");
        let known: Vec<(&str, &str)> = known.map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            known,
            [
                ("line", "up for 90s"),
                ("hub", "hub-2, which alone counts what it carries"),
                ("epoch", "0"),
                ("parked requests", "0"),
            ]
        );
    }
}
