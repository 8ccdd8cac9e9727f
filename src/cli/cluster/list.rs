//! `linesman cluster list`: the fleet, worst first.

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::output::{Column, Format, Output, ago, list, phase, progress_line, short};
use crate::wire::api::{ToldCluster, UnknownAgentView};

const EXAMPLES: &str = "\
Phases, the worst first:
  Conflict     an agent that would join as it was refused: condition JoinConflict says why
  Offline      its agent is not heard any more (the hub's --offline-after, 40s); the cluster heals itself
  Broken       its engine does not work, or its agent lacks a right
  Healing      its agent mends something now: linesman heal list NAME
  Degraded     it works, but not all is well: Git is out of reach, say, or a commit is held back
  Installing, Joining   its adoption is under way: linesman cluster wait NAME
  Pending      its YAML was not applied yet
  Paused       its agent only looks: a maintenance window, or another manager of the engine
  Unknown      not heard since the hub started, a moment ago
  Healthy      nothing is wrong

Examples:
  linesman cluster list
  linesman cluster list -l env=prod -o wide
  linesman cluster list --unknown      # agents whose keys the hub does not know";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Only clusters with this label; may be given again, and all have to match
    #[arg(long, short = 'l', value_name = "KEY=VALUE", value_parser = selector)]
    selector: Vec<String>,
    /// Instead: agents that sign well, and whose keys the hub does not know
    #[arg(long, conflicts_with = "selector")]
    unknown: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<ToldCluster>; 10] = [
    Column::new("NAME", |c, _| c.name.to_string()),
    Column::new("PHASE", |c, _| phase(&c.phase)),
    Column::new("LINE", |c, _| {
        if c.line.up { "up" } else { "down" }.to_owned()
    }),
    Column::new("SEEN", seen),
    Column::new("ENGINE", |c, _| {
        format!("{} {}", c.engine, c.engine_version)
            .trim_end()
            .to_owned()
    }),
    Column::new("REVISION", |c, _| revision(c.revision.as_deref())),
    Column::new("AGE", |c, now| ago(&c.created_at, now)),
    Column::wide("AGENT", |c, _| c.agent_version.clone().unwrap_or_default()),
    Column::wide("RTT", |c, _| {
        c.line.rtt_micros.map(millis).unwrap_or_default()
    }),
    Column::wide("LABELS", |c, _| labels(c)),
];

const UNKNOWN: [Column<UnknownAgentView>; 6] = [
    Column::new("FINGERPRINT", |a, _| a.fingerprint.clone()),
    Column::new("CLAIMS", |a, _| a.cluster.to_string()),
    Column::new("WHY", |a, _| a.reason.clone()),
    Column::new("FIRST", |a, now| ago(&a.first_seen, now)),
    Column::new("SEEN", |a, now| ago(&a.last_seen, now)),
    Column::new("ADDRESS", |a, _| a.address.clone()),
];

async fn unknown(args: Args) -> Result<()> {
    let agents = args.connect.client().await?.unknown_agents().await?;
    list(
        args.output.output,
        &agents,
        &UNKNOWN,
        |a| a.fingerprint.clone(),
        "no agent whose key is not known has come",
    )?;
    if !agents.is_empty() && matches!(args.output.output, Format::Table | Format::Wide) {
        progress_line(
            "let one in, when you know that it is yours: linesman cluster accept FINGERPRINT",
        );
    }
    Ok(())
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    if args.unknown {
        return unknown(args).await;
    }
    let mut clusters = args.connect.client().await?.clusters().await?;
    let all = clusters.len();
    clusters.retain(|c| args.selector.iter().all(|wanted| has(c, wanted)));
    // A phase that is not known here may be the worst of all.
    clusters.sort_by(|a, b| (a.phase.known(), &a.name).cmp(&(b.phase.known(), &b.name)));
    let empty = nothing(&args.selector, all);
    list(
        args.output.output,
        &clusters,
        &COLUMNS,
        |c| c.name.to_string(),
        &empty,
    )
}

/// Why the list is empty.
fn nothing(selector: &[String], all: usize) -> String {
    if all == 0 {
        return "no clusters; run: linesman cluster add NAME".to_owned();
    }
    let (are, labels) = (if all == 1 { "is" } else { "are" }, selector.join(", "));
    format!("no cluster has {labels}; there {are} {all}")
}

/// A label that clusters are chosen by, as it was written.
pub(super) fn selector(text: &str) -> Result<String, String> {
    super::add::label(text).map(|_| text.to_owned())
}

pub(super) fn has(cluster: &ToldCluster, wanted: &str) -> bool {
    let (key, value) = wanted.split_once('=').unwrap_or((wanted, ""));
    cluster.labels.get(key).is_some_and(|v| v == value)
}

pub(super) fn seen(cluster: &ToldCluster, now: time::OffsetDateTime) -> String {
    cluster
        .last_seen
        .as_deref()
        .map_or_else(|| "never".to_owned(), |at| ago(at, now))
}

pub(super) fn labels(cluster: &ToldCluster) -> String {
    cluster
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

pub(super) fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

/// `main@sha1:0123456789abcdef…` with as many digits as Git shows.
pub(super) fn revision(revision: Option<&str>) -> String {
    let Some(revision) = revision else {
        return String::new();
    };
    match revision.split_once("@sha1:") {
        Some((branch, commit)) => format!("{branch}@{}", commit.get(..8).unwrap_or(commit)),
        None => short(revision, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_says_whether_there_are_others() {
        let wanted = ["env=prod".to_owned(), "site=eu".to_owned()];
        assert_eq!(
            nothing(&wanted[..1], 3),
            "no cluster has env=prod; there are 3"
        );
        assert_eq!(
            nothing(&wanted, 1),
            "no cluster has env=prod, site=eu; there is 1"
        );
        assert_eq!(
            nothing(&wanted, 0),
            "no clusters; run: linesman cluster add NAME"
        );
        assert!(selector("env").is_err() && selector("=prod").is_err());
        assert_eq!(selector("env="), Ok("env=".to_owned()));
    }

    #[test]
    fn revisions_and_times_are_short() {
        assert_eq!(
            revision(Some("main@sha1:0123456789abcdef0123")),
            "main@01234567"
        );
        assert_eq!(revision(Some("main@sha1:01")), "main@01");
        assert_eq!(revision(None), "");
        assert_eq!(millis(1_250), "1.2 ms");
    }
}
