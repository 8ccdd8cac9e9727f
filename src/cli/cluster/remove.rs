//! `linesman cluster remove`: the hub forgets a cluster; the cluster keeps its engine and workloads.

use std::io::{self, BufRead as _, IsTerminal as _};

use anyhow::{Context as _, Result};

use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{phase, progress_line};
use crate::wire::api::ToldCluster;
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
The hub closes the line and forgets the cluster's keys, tokens and grants. Engine, workloads and the catalog's
directory stay as they are: nothing is pruned.

Examples:
  linesman cluster remove eu1
  linesman cluster remove eu1 --yes       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let cluster = client.cluster(&args.name).await?;
    if !args.yes {
        confirm(&cluster)?;
    }
    client.remove_cluster(&args.name, cluster.rev).await?;
    progress_line(&format!(
        "cluster {} removed from the hub; its engine, workloads and catalog stay",
        args.name
    ));
    if !cluster.line.up {
        progress_line(
            "its agent is out of reach; end it there with: kubectl delete namespace linesman",
        );
    }
    Ok(())
}

fn confirm(cluster: &ToldCluster) -> Result<()> {
    let name = &cluster.name;
    if !io::stdin().is_terminal() {
        return Err(Failure::new(
            Code::Usage,
            format!("removing cluster {name} needs a yes, and nobody is here to ask"),
            format!("run: linesman cluster remove {name} --yes"),
        )
        .into());
    }
    progress_line(&format!(
        "This ends the line of cluster {name} ({}).",
        phase(&cluster.phase)
    ));
    progress_line("Type the cluster's name to go on:");
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("read the answer")?;
    if answer.trim() == name.as_str() {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, "not confirmed; nothing was changed", "").into())
}
