//! `linesman audit`: who did what, to which cluster, and how it ended.

use anyhow::Result;

use super::connect::Connect;
use super::output::{Column, Output, list};
use crate::wire::api::AuditView;
use crate::wire::id::ClusterName;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List audit records, the newest first
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Of this cluster only
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<AuditView>; 13] = [
    Column::new("SEQ", |a, _| a.seq.to_string()),
    Column::new("AT", |a, _| a.at.clone()),
    Column::new("STAGE", |a, _| a.stage.clone()),
    Column::new("ACTOR", |a, _| a.actor.clone()),
    Column::new("CLUSTER", |a, _| a.cluster.clone().unwrap_or_default()),
    Column::new("ACTION", |a, _| a.action.clone()),
    Column::new("TARGET", |a, _| a.target.clone()),
    Column::new("VERDICT", |a, _| a.verdict.clone()),
    Column::new("CODE", |a, _| number(a.code)),
    Column::wide("MILLIS", |a, _| number(a.millis)),
    Column::wide("BYTES", |a, _| number(a.bytes)),
    Column::wide("REMOTE", |a, _| a.remote.clone()),
    Column::wide("REQUEST", |a, _| a.request_id.clone()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    let Verb::List(args) = verb;
    let records = args
        .connect
        .client()?
        .audit(args.cluster.as_ref(), args.limit)
        .await?;
    list(
        args.output.output,
        &records,
        &COLUMNS,
        |a| a.seq.to_string(),
        "no audit records",
    )
}

fn number<T: ToString>(value: Option<T>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}
