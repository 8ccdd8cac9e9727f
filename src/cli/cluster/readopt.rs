//! `linesman cluster readopt`: new adoption YAML, for a cluster that lost its keys or never used its token.

use anyhow::Result;

use super::add::{self, Adoption};
use crate::cli::connect::Connect;
use crate::wire::api::NewJoinToken;
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Examples:
  linesman cluster readopt eu1 --file adopt.yaml
  linesman cluster readopt eu1 --new-cluster --wait | kubectl apply -f -    # eu1 was built anew

Older unused join tokens of the cluster end. The identity that the cluster has stays valid until the new one
joins; workloads are not touched.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Accept that it is another cluster than before (its kube-system has another UID)
    #[arg(long)]
    new_cluster: bool,
    #[command(flatten)]
    adoption: Adoption,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let access = args.connect.access().await?;
    args.adoption.check(&access)?;
    let new = NewJoinToken {
        adoption: args.adoption.options(),
        new_cluster: args.new_cluster,
    };
    let answer = args
        .connect
        .client()
        .await?
        .readopt(&args.name, &new)
        .await?;
    add::hand_out(
        &answer,
        &args.adoption,
        &access,
        args.connect.ca.as_deref(),
        "may be adopted again",
    )
    .await
}
