//! `linesman heal`: what was broken in a cluster, and how and how fast it was mended.

mod show;

use std::collections::BTreeSet;

use anyhow::Result;
use uuid::Uuid;

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{self, Column, Format, Output, ago, done, list, progress_line};
use super::{cluster, moment};
use crate::client::{Client, HealFilter};
use crate::wire::api::{ToldCluster, ToldHeal, ToldHealRecord};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, HealResult, Status};
use crate::wire::word::Word;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List heals, the newest first
    List(ListArgs),
    /// Show one heal: evidence, steps, times
    Show(show::Args),
    /// End a heal that no agent will end any more
    Close(CloseArgs),
}

const LIST: &str = "\
RESULT is open while the fault lasts, then healed; reported (no step was safe: NEXT of -o wide is for people);
or failed (closed by hand, its agent is gone, or the other engine took over). What each FAULT is:
docs/faults.md.

Examples:
  linesman heal list
  linesman heal list --open                      # what is wrong now, in all clusters
  linesman heal list --since 03:00 --until 03:30 # what began then, today, in UTC
  linesman heal list eu1 --limit 10 -o wide      # with what a person should do";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(super) struct ListArgs {
    /// Of this cluster only
    cluster: Option<ClusterName>,
    /// Those alone that are not over: open, or reported and still so
    #[arg(long)]
    open: bool,
    /// Those that began from then on: a length of time ago (2h), a time of today in UTC (03:12), or RFC 3339
    #[arg(long, value_name = "WHEN", value_parser = moment::parse)]
    since: Option<String>,
    /// Those that began before then: written as --since
    #[arg(long, value_name = "WHEN", value_parser = moment::parse)]
    until: Option<String>,
    /// At most this many, the newest; that there are more is said on stderr
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = output::count)]
    limit: usize,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const CLOSE: &str = "\
An agent ends its heals by itself, also those of the agent before it, and counts on its ConfigMap
linesman-open-heals for that. Where that was lost, or the agent is gone for good, a heal stays open at the
hub, is counted and told again. Look first whether what it names is over: an agent that still knows of it
tells its end all the same, and a fault that is found anew has a heal of its own. What is closed counts as
failed, with who closed it and why; the audit has it, too (heal.close). An AgentLost that is closed stays so
for as long as the agent is silent: there is another one only when it was heard meanwhile and is lost again.
After a DuplicateAgent that is closed there is another one with three more takeovers in ten minutes.

Examples:
  linesman heal close 26b5e3 --reason 'the namespace was made anew by hand'";

#[derive(Debug, clap::Args)]
#[command(after_help = CLOSE)]
pub(super) struct CloseArgs {
    /// The heal's id, or its beginning or end as far as it names one
    id: String,
    /// Why, in one line
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// How far back `heal show` and `heal close` look for a part of an id.
const HISTORY: usize = 5_000;
/// Of what the cluster said to a write: an admission policy names itself first, and its reason last.
const MAX_REFUSAL: usize = 400;

const COLUMNS: [Column<ToldHeal>; 14] = [
    Column::new("ID", |h, _| short_id(&h.heal.id)),
    Column::new("CLUSTER", |h, _| h.cluster.to_string()),
    Column::new("AGE", |h, now| ago(&h.heal.detected_at, now)),
    Column::new("FAULT", |h, _| h.heal.class.clone()),
    Column::new("OBJECT", |h, _| h.heal.object.clone()),
    Column::new("RESULT", |h, _| result(&h.heal.result)),
    Column::new("DETECTED", |h, _| seconds(h.took.detect_ms)),
    Column::new("ACTED", |h, _| seconds(h.took.act_ms)),
    Column::new("RESTORED", |h, _| seconds(h.took.restore_ms)),
    Column::wide("WRITER", |h, _| h.heal.writer.clone()),
    Column::wide("REVISION", |h, _| cluster::revision(Some(&h.heal.revision))),
    Column::wide("COMMIT", |h, _| cluster::revision(Some(&h.heal.commit))),
    Column::wide("AUTHOR", |h, _| {
        let made = h.author.as_ref();
        made.map(|made| made.author.clone()).unwrap_or_default()
    }),
    Column::wide("NEXT", |h, _| next(&h.heal)),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::List(args) => newest(&args).await,
        Verb::Show(args) => show::run(args).await,
        Verb::Close(args) => close(&args).await,
    }
}

async fn newest(args: &ListArgs) -> Result<()> {
    let (since, until) = (args.since.as_deref(), args.until.as_deref());
    if let Some(failure) = moment::backwards(since, until) {
        return Err(failure.into());
    }
    let client = args.connect.client().await?;
    let filter = HealFilter {
        cluster: args.cluster.as_ref(),
        open: args.open,
        since,
        until,
    };
    let none = if args.open {
        "nothing is open"
    } else {
        "nothing had to be healed"
    };
    // One more than is shown tells whether there are more.
    let asked = args.limit.saturating_add(1);
    let mut heals = client.heals(&filter, asked).await?;
    let more = heals.len() > args.limit;
    heals.truncate(args.limit);
    if args.output.output == Format::Wide {
        ask(&client, &mut heals).await;
    }
    let name = |h: &ToldHeal| h.heal.id.clone();
    list(args.output.output, &heals, &COLUMNS, name, none)?;
    if more {
        progress_line(&output::cut(args.limit));
    }
    Ok(())
}

async fn close(args: &CloseArgs) -> Result<()> {
    let client = args.connect.client().await?;
    let before = named(&client, &args.id).await?;
    let (class, cluster) = (&before.heal.class, &before.cluster);
    let after = client.close_heal(&before.heal.id, &args.reason).await?;
    let told = if after.heal.result == before.heal.result {
        format!("{class} of cluster {cluster} is over already; nothing was changed")
    } else {
        format!("{class} of cluster {cluster} is closed")
    };
    progress_line(&told);
    done(args.output.output, &after.heal.id, &after)
}

/// The heal of this id, be it the oldest, or the one among the newest whose id this is a part of.
async fn named(client: &Client, id: &str) -> Result<ToldHeal> {
    let id = if let Ok(whole) = Uuid::try_parse(id) {
        whole.to_string()
    } else {
        let heals = client.heals(&HealFilter::default(), HISTORY).await?;
        find(&heals, id, HISTORY)?.heal.id.clone()
    };
    Ok(client.heal(&id).await?)
}

/// `looked` = how many were asked for: where there are as many, older ones may be left.
fn find<'a>(heals: &'a [ToldHeal], id: &str, looked: usize) -> Result<&'a ToldHeal, Failure> {
    // A script's variable that is not set names none, and not the only one that there is.
    let fits =
        |h: &&ToldHeal| !id.is_empty() && (h.heal.id.starts_with(id) || h.heal.id.ends_with(id));
    let mut found = heals.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Failure::new(
            Code::Usage,
            format!("'{id}' names more than one heal"),
            "give more of the id: linesman heal list -o name",
        )),
        (None, _) if heals.len() >= looked => Err(Failure::new(
            Code::NotFound,
            format!("no heal '{id}' among the newest {looked}"),
            "give the whole id: linesman heal list CLUSTER -o name",
        )),
        (None, _) => Err(Failure::new(
            Code::NotFound,
            format!("no heal '{id}'"),
            "see them all: linesman heal list",
        )),
    }
}

/// The random end of a UUIDv7: its beginning is the time, which heals of one moment share.
pub(super) fn short_id(id: &str) -> String {
    id.rsplit('-').next().unwrap_or(id).to_owned()
}

pub(super) fn result(result: &Word<HealResult>) -> String {
    result.shown(|result| match result {
        HealResult::Open => "open",
        HealResult::Healed => "healed",
        HealResult::Reported => "reported",
        HealResult::Failed => "failed",
    })
}

/// Milliseconds as seconds, `8.7s`; empty where not known.
pub(super) fn seconds(millis: Option<u64>) -> String {
    millis.map_or_else(String::new, |ms| {
        let tenths = ms.saturating_add(50) / 100;
        format!("{}.{}s", tenths / 10, tenths % 10)
    })
}

/// What a person should do next.
pub(super) fn next(heal: &ToldHealRecord) -> String {
    match heal.next.as_str() {
        "" if heal.result == HealResult::Open => {
            refused(heal).unwrap_or_else(|| "it is being mended".to_owned())
        }
        "" => "nothing".to_owned(),
        next => next.to_owned(),
    }
}

/// What the cluster said to the last write, where it did not take it: an admission policy that forbids it stays until somebody acts.
fn refused(heal: &ToldHealRecord) -> Option<String> {
    let step = heal.steps.last()?;
    // Of other steps the outcome is no error alone: a commit that came, for one.
    let writes = matches!(
        step.action.as_str(),
        "create" | "apply" | "recreate" | "restart"
    );
    (writes && step.outcome != "ok").then(|| {
        let why = output::short(&step.outcome, MAX_REFUSAL);
        format!("{} did not work, and is tried again: {why}", step.action)
    })
}

/// Asks what keeps those from being mended that are said to be. A cluster that cannot be asked for says nothing of that.
async fn ask(client: &Client, heals: &mut [ToldHeal]) {
    let mended = heals.iter().filter(|h| is_mended(&h.heal));
    let of: BTreeSet<ClusterName> = mended.map(|h| h.cluster.clone()).collect();
    let clusters = match of.first() {
        None => return,
        Some(name) if of.len() == 1 => client.cluster(name).await.map(|one| vec![one]),
        Some(_) => client.clusters().await,
    };
    for cluster in clusters.unwrap_or_default() {
        hold_back(&cluster, heals);
    }
}

fn is_mended(heal: &ToldHealRecord) -> bool {
    heal.next.is_empty() && heal.result == HealResult::Open
}

/// Says of the heals of a cluster in which nothing is mended who changes that.
pub(super) fn hold_back(cluster: &ToldCluster, heals: &mut [ToldHeal]) {
    let mut all = cluster.conditions.iter();
    let holds = all.find(|c| {
        let holds = c.kind == ConditionType::Paused || c.kind == ConditionType::ObserveOnly;
        holds && c.status == Status::True
    });
    let Some(holds) = holds else {
        return;
    };
    // Of a window the message begins with its end.
    let between = if holds.message.starts_with("until ") {
        " "
    } else {
        ": "
    };
    let own = heals.iter_mut().filter(|h| h.cluster == cluster.name);
    for heal in own.filter(|h| is_mended(&h.heal)) {
        heal.heal.next = format!("nothing is mended{between}{}", holds.message);
    }
}

#[cfg(test)]
mod tests;
