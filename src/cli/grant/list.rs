//! `linesman grant list`: who reaches which clusters now.

use anyhow::Result;

use super::COLUMNS;
use crate::cli::connect::Connect;
use crate::cli::output::{Output, list, progress_line};
use crate::client::GrantFilter;
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Grants whose end has passed and those that were revoked are kept for 30 days; --all lists them, too.

Examples:
  linesman grant list --cluster eu1            # who reaches it now
  linesman grant list --user ada -o wide       # where ada gets, also by her groups; who gave it, and when";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Of this user, and of the groups that the user is in
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Those that take in this cluster, by its name or its labels
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// Those that have ended or were revoked, too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let filter = GrantFilter {
        user: args.user,
        cluster: args.cluster,
    };
    let client = args.connect.client().await?;
    let mut grants = client.grants(&filter).await?;
    if args.all {
        let mut all = client.ended_grants(&filter).await?;
        all.append(&mut grants);
        // One that ended between the two answers is in both: as ended it stands first.
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all.dedup_by(|other, one| other.id == one.id);
        grants = all;
    }
    let (ended, in_force): (Vec<_>, Vec<_>) = grants
        .into_iter()
        .partition(|grant| grant.over && !args.all);
    let none = if args.all {
        "no grants"
    } else {
        "no grants in force"
    };
    list(
        args.output.output,
        &in_force,
        &COLUMNS,
        |g| g.id.clone(),
        none,
    )?;
    match ended.len() {
        0 => {}
        1 => progress_line("1 grant that has ended is not shown: --all"),
        more => progress_line(&format!(
            "{more} grants that have ended are not shown: --all"
        )),
    }
    Ok(())
}
