//! `linesman audit`: who did what, to which cluster, and how it ended.

mod tail;
mod verify;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Column, Output, counted, emit, list, progress_line};
use super::progress::Ticker;
use super::session::Replacement;
use super::{duration, output};
use crate::client::{AuditFilter, AuditPlace, Client};
use crate::clock;
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
    /// Of the request with this id, which stands in its refusal
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// From then on: a length of time ago (2h), or RFC 3339 (2027-01-15T08:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<String>,
    /// Up to then: written as --since
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<String>,
}

impl FilterArgs {
    fn filter(self) -> AuditFilter {
        AuditFilter {
            user: self.user,
            cluster: self.cluster,
            verdict: self.verdict,
            request: self.request,
            since: self.since,
            until: self.until,
        }
    }
}

/// A moment as RFC 3339.
fn moment(text: &str) -> Result<String, String> {
    if clock::parse_rfc3339(text).is_some() {
        return Ok(text.to_owned());
    }
    let ago = duration::parse(text)
        .map_err(|_| format!("'{text}' is neither a length of time such as 2h nor RFC 3339"))?;
    let ago = time::Duration::try_from(ago).map_err(|e| e.to_string())?;
    let at = clock::now()
        .checked_sub(ago)
        .ok_or_else(|| format!("'{text}' is too long ago"))?;
    Ok(clock::rfc3339(at))
}

const LIST: &str = "\
Examples:
  linesman audit list
  linesman audit list --cluster eu1 --verdict deny --since 2h
  linesman audit list --request 0197a1b2-…      # kubectl's error names it: (request 0197a1b2-…)";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(super) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = output::count())]
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
    #[arg(long, value_name = "SEQ", default_value_t = 0, value_parser = seq(), hide_default_value = true)]
    after: i64,
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

const COLUMNS: [Column<AuditView>; 17] = [
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
    // The longest and the rarest stands last, where it moves nothing.
    Column::new("REASON", |a, _| a.reason.clone().unwrap_or_default()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::List(args) => {
            let client = args.connect.client().await?;
            let records = client.audit(&args.filter.filter(), args.limit).await?;
            let name = |a: &AuditView| a.seq.to_string();
            list(
                args.output.output,
                &records,
                &COLUMNS,
                name,
                "no audit records",
            )
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

/// All records of a filter behind a number, in order, page by page; gives how many there were.
async fn each_behind(
    client: &Client,
    filter: &AuditFilter,
    after: i64,
    mut take: impl FnMut(&[AuditView]) -> Result<()>,
) -> Result<usize> {
    let (mut place, mut count) = (Some(AuditPlace::After(after)), 0);
    while let Some(from) = place {
        let (records, next) = client.audit_page(filter, &from).await?;
        (place, count) = (next, count + records.len());
        take(&records)?;
    }
    Ok(count)
}

async fn export(args: ExportArgs) -> Result<()> {
    let client = args.connect.client().await?;
    let filter = args.filter.filter();
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
