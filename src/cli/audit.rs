//! `linesman audit`: who did what, to which cluster, and how it ended.

mod asked;
mod tail;
mod verify;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Column, Output, counted, emit, list, progress_line, progress_line_anew};
use super::progress::Ticker;
use super::session::Replacement;
use super::{moment, output};
use crate::client::{AuditFilter, AuditPlace, Client};
use crate::wire::api::AuditView;
use crate::wire::id::ClusterName;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List audit records, the newest first
    List(ListArgs),
    /// Print the last records as JSON lines, and those that come with --follow
    Tail(tail::Args),
    /// Print records as JSON lines, the oldest first
    Export(ExportArgs),
    /// Check the hash chain and the hub's signatures; names the first record that does not fit
    Verify(verify::Args),
}

/// Which records.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Filter")]
struct FilterArgs {
    /// By this user, or this actor: agent:eu1, hub, anyone; user:NAME for a user whose name reads like one
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// Allowed or denied
    #[arg(long, value_name = "VERDICT", value_parser = ["allow", "deny"])]
    verdict: Option<String>,
    /// At this stage: open (it begins), close (it is over) or event (both at once, as a refusal is); may be given several times
    #[arg(long = "stage", value_name = "STAGE", value_parser = ["open", "close", "event"])]
    stages: Vec<String>,
    /// Of this action, such as kube.exec, or of all that begin so: kube.*; may be given several times
    #[arg(long = "action", value_name = "ACTION")]
    actions: Vec<String>,
    /// Kubernetes requests in this namespace, as their paths name it
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Of the request with this id, which stands in its refusal
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// From then on: a length of time ago (2h), a time of today in UTC (03:12), or RFC 3339 (2027-01-15T08:00:00Z)
    #[arg(long, value_name = "WHEN", value_parser = moment::parse)]
    since: Option<String>,
    /// Up to then: written as --since
    #[arg(long, value_name = "WHEN", value_parser = moment::parse)]
    until: Option<String>,
}

impl FilterArgs {
    fn filter(self) -> Result<AuditFilter, Failure> {
        let filter = AuditFilter {
            user: self.user,
            cluster: self.cluster,
            verdict: self.verdict,
            stages: self.stages,
            actions: self.actions,
            namespace: self.namespace,
            request: self.request,
            since: self.since,
            until: self.until,
        };
        asked::backwards(&filter).map_or(Ok(filter), Err)
    }
}

const LIST: &str = "\
Examples:
  linesman audit list
  linesman audit list --stage close --stage event      # one row for each request that is over
  linesman audit list --cluster eu1 --verdict deny --since 2h
  linesman audit list --cluster eu1 --namespace shop --action kube.exec -o wide      # what was run there
  linesman audit list --request 0197a1b2-…      # kubectl's error names it: (request 0197a1b2-…)";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = output::count)]
    limit: usize,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const EXPORT: &str = "\
Examples:
  linesman audit export --since 30d --file audit.jsonl
  linesman audit export --after 4711 >> audit.jsonl      # what came since the last export
  linesman audit export --cluster eu1 | gzip > eu1.jsonl.gz";

#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Those behind this record's number, where an export before ended
    #[arg(long, value_name = "SEQ", value_parser = seq())]
    after: Option<i64>,
    /// Write to this file (0600) instead of stdout
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

/// A record's number; 0 is before the first.
fn seq() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(0..)
}

const COLUMNS: [Column<AuditView>; 20] = [
    Column::new("SEQ", |a, _| a.seq.to_string()),
    Column::new("AT", |a, _| a.at.clone()),
    Column::new("STAGE", |a, _| a.stage.clone()),
    Column::new("ACTOR", |a, _| a.actor.clone()),
    Column::new("CLUSTER", |a, _| a.cluster.clone().unwrap_or_default()),
    Column::new("ACTION", |a, _| a.action.clone()),
    Column::new("TARGET", |a, _| a.target.clone()),
    Column::new("VERDICT", |a, _| a.verdict.clone()),
    Column::new("CODE", |a, _| number(a.code)),
    Column::wide("AS", |a, _| a.acted_as.clone().unwrap_or_default()),
    Column::wide("EXIT", |a, _| number(a.exit)),
    Column::wide("MILLIS", |a, _| number(a.millis)),
    Column::wide("BYTES", |a, _| number(a.bytes)),
    Column::wide("REMOTE", |a, _| a.remote.clone()),
    Column::wide("REQUEST", |a, _| a.request_id.clone()),
    Column::wide("HASH", |a, _| a.hash.clone()),
    Column::wide("CONTAINER", |a, _| a.container.clone().unwrap_or_default()),
    Column::wide("PORTS", |a, _| a.ports.clone().unwrap_or_default()),
    // The longest and the rarest stand last, where they move nothing.
    Column::wide("COMMAND", |a, _| a.command.clone().unwrap_or_default()),
    Column::new("REASON", |a, _| a.reason.clone().unwrap_or_default()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::List(args) => {
            let filter = args.filter.filter()?;
            let client = args.connect.client().await?;
            let records = client.audit(&filter, args.limit).await?;
            let name = |a: &AuditView| a.seq.to_string();
            list(
                args.output.output,
                &records,
                &COLUMNS,
                name,
                "no audit records",
            )?;
            // Whether there are more only a search through the whole record would tell.
            if records.len() >= args.limit {
                let limit = args.limit;
                progress_line(&format!(
                    "the newest {limit} are shown, and there may be more: see them with a higher --limit"
                ));
            }
            asked::of_cluster(&client, &filter).await;
            Ok(())
        }
        Verb::Tail(args) => tail::run(args).await,
        Verb::Export(args) => export(args).await,
        Verb::Verify(args) => verify::run(args).await,
    }
}

fn number<T: ToString>(value: Option<T>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

fn lines(records: &[AuditView]) -> Result<String> {
    let mut text = String::new();
    for record in records {
        text += &serde_json::to_string(record).context("print as JSON")?;
        text.push('\n');
    }
    Ok(text)
}

/// How far records were read, so that those are missed that retention took before they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// The number of the last one, or the one behind which it began; None = it begins with the oldest there is.
    last: Option<i64>,
    /// No filter leaves some out. Numbers have no gaps then but those that retention makes.
    whole: bool,
}

impl Seen {
    fn behind(last: Option<i64>, filter: &AuditFilter) -> Self {
        Self {
            last,
            whole: *filter == AuditFilter::default(),
        }
    }

    /// Takes the next records in; gives the first and the last number of those that are missing before them.
    fn take(&mut self, records: &[AuditView]) -> Option<(i64, i64)> {
        let (first, last) = (records.first()?.seq, records.last()?.seq);
        let before = self.last.replace(last).filter(|_| self.whole)?;
        (first - before > 1).then(|| (before + 1, first - 1))
    }

    /// The same where a filter says nothing by its gaps, for what is removed up to a number.
    fn removed(&self, up_to: i64) -> Option<(i64, i64)> {
        let before = self.last.filter(|_| !self.whole)?;
        (up_to > before).then(|| (before + 1, up_to))
    }
}

/// What people are told of records that are missing.
fn missing((first, last): (i64, i64)) -> String {
    if first == last {
        format!("record {first} is missing: the hub's retention removed it")
    } else {
        format!("records {first} to {last} are missing: the hub's retention removed them")
    }
}

/// The same of those among which a filter may ask for some.
fn missing_some((first, last): (i64, i64)) -> String {
    if first == last {
        format!(
            "the hub's retention removed record {first}: it is missing if the filter asks for it"
        )
    } else {
        format!(
            "the hub's retention removed records {first} to {last}: those that the filter asks for are missing"
        )
    }
}

/// Beside the records, which programs read, and not in the line of a ticker.
fn say(text: &str) {
    if io::stderr().is_terminal() {
        progress_line_anew(text);
    } else {
        progress_line(text);
    }
}

/// Says what retention removed behind a number before a filter's records are read, for their numbers do not show it.
async fn look_behind(client: &Client, seen: &Seen) -> Result<()> {
    if seen.whole || seen.last.is_none() {
        return Ok(());
    }
    let removed = client.audit_removed().await?;
    if let Some(numbers) = removed.and_then(|up_to| seen.removed(up_to)) {
        say(&missing_some(numbers));
    }
    Ok(())
}

/// All records of a filter behind a number, or from the oldest on, in order, page by page; gives how many there were, and says
/// which are missing.
async fn each_behind(
    client: &Client,
    filter: &AuditFilter,
    after: Option<i64>,
    mut take: impl FnMut(&[AuditView]) -> Result<()>,
) -> Result<usize> {
    let mut seen = Seen::behind(after, filter);
    look_behind(client, &seen).await?;
    let (mut place, mut count) = (Some(AuditPlace::After(after.unwrap_or(0))), 0);
    while let Some(from) = place {
        let (records, next) = client.audit_page(filter, &from).await?;
        (place, count) = (next, count + records.len());
        if let Some(numbers) = seen.take(&records) {
            say(&missing(numbers));
        }
        take(&records)?;
    }
    if let Some(after) = after.filter(|_| count == 0) {
        asked::behind(client, after).await?;
    }
    Ok(count)
}

async fn export(args: ExportArgs) -> Result<()> {
    let filter = args.filter.filter()?;
    let client = args.connect.client().await?;
    asked::of_cluster(&client, &filter).await;
    let mut file = args.file.as_deref().map(Replacement::open).transpose()?;
    // Whoever sees the records needs no word of them.
    let unseen = file.is_some() || !io::stdout().is_terminal();
    let (mut ticker, mut last) = (Ticker::start(Instant::now()), None);
    let exported = each_behind(&client, &filter, args.after, |records| {
        let text = lines(records)?;
        match &mut file {
            Some(file) => file.add(text.as_bytes())?,
            None => emit(&text)?,
        }
        last = records.last().map(reached).or_else(|| last.take());
        if unseen && ticker.is_due(Instant::now()) {
            ticker.say(last.as_deref().unwrap_or("no record yet"));
        }
        Ok(())
    });
    let count = exported.await?;
    drop(ticker);
    if let (Some(file), Some(path)) = (file, args.file) {
        file.done()?;
        let records = counted(count, "record");
        progress_line(&format!("{records} in {}", path.display()));
    }
    Ok(())
}

/// How far an export is.
fn reached(record: &AuditView) -> String {
    format!("record {}, {}", record.seq, record.at)
}

/// A chain that does not hold.
fn broken(what: &str) -> anyhow::Error {
    Failure::new(
        Code::Failed,
        format!("the audit was tampered with or damaged: {what}"),
        "keep the database as it is, and compare it with the last backup or the SIEM's copy",
    )
    .into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn records(seqs: std::ops::RangeInclusive<i64>) -> Vec<AuditView> {
        let record = |seq: i64| {
            json!({
                "seq": seq, "at": "2026-11-21T08:00:00.000Z", "stage": "event", "actor": "hub", "action": "test",
                "target": "", "requestId": "", "verdict": "allow", "remote": "", "prev": "", "hash": "",
            })
        };
        let read = |seq| serde_json::from_value(record(seq)).unwrap();
        seqs.map(read).collect()
    }

    /// Before the first page and between two of them; what was removed before somebody began with the oldest is not missing.
    #[test]
    fn what_retention_took_before_it_was_read_is_missed() {
        let whole = AuditFilter::default();
        let mut seen = Seen::behind(Some(4_711), &whole);
        assert_eq!(seen.take(&[]), None);
        assert_eq!(seen.take(&records(5_001..=5_003)), Some((4_712, 5_000)));
        assert_eq!(seen.take(&records(5_004..=5_004)), None);
        assert_eq!(seen.take(&[]), None);
        assert_eq!(seen.take(&records(5_006..=5_007)), Some((5_005, 5_005)));
        assert_eq!(seen.last, Some(5_007));
        let mut oldest = Seen::behind(None, &whole);
        assert_eq!(oldest.take(&records(5_001..=5_002)), None);
        assert_eq!(oldest.take(&records(5_004..=5_004)), Some((5_003, 5_003)));
        let mut none = Seen::behind(Some(0), &whole);
        assert_eq!(none.take(&records(1..=1)), None);
    }

    #[test]
    fn the_gaps_of_a_filter_are_not_taken_for_retention() {
        let of_ada = AuditFilter {
            user: Some("ada".to_owned()),
            ..AuditFilter::default()
        };
        let mut seen = Seen::behind(Some(7), &of_ada);
        let removed = [5, 7, 8, 100].map(|up_to| seen.removed(up_to));
        assert_eq!(removed, [None, None, Some((8, 8)), Some((8, 100))]);
        assert_eq!(seen.take(&records(12..=12)), None);
        assert_eq!(seen.last, Some(12));
        assert_eq!(Seen::behind(None, &of_ada).removed(100), None);
    }

    #[test]
    fn people_are_told_which_are_missing_and_why() {
        assert_eq!(
            [missing((7, 7)), missing((4_712, 5_000))],
            [
                "record 7 is missing: the hub's retention removed it",
                "records 4712 to 5000 are missing: the hub's retention removed them",
            ]
        );
        assert_eq!(
            [missing_some((7, 7)), missing_some((8, 9))],
            [
                "the hub's retention removed record 7: it is missing if the filter asks for it",
                "the hub's retention removed records 8 to 9: those that the filter asks for are missing",
            ]
        );
    }
}
