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
            ("hub", line.replica.clone()),
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
            ("opened", line.opened.to_string()),
            ("bytes sent", line.sent.to_string()),
            ("sent by class", sent),
            ("waited for a turn", queued),
            ("bytes received", line.received.to_string()),
            ("received by class", received),
            ("bytes unread", line.unread.to_string()),
            ("credit stalls", line.credit_stalls.to_string()),
            ("parked requests", line.parked.to_string()),
            ("refused requests", denied.join(", ")),
            ("last ended", line.last_cause.clone().unwrap_or_default()),
        ]
        .map(|(key, value)| vec![key.to_owned(), value]),
    )
}
