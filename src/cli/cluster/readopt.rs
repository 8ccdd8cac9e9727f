//! `linesman cluster readopt`: new adoption YAML, for a cluster that lost its keys or never used its token.

use anyhow::Result;

use super::add::{self, Adoption};
use super::wait::Before;
use crate::cli::connect::Connect;
use crate::wire::api::{NewJoinToken, ScopeOptions};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Examples:
  linesman cluster readopt eu1 --file adopt.yaml
  linesman cluster readopt eu1 --new-cluster --wait | kubectl apply -f -    # eu1 was built anew
  linesman cluster readopt eu1 --namespaces shop,shop-db,mail --access edit --file adopt.yaml    # one more

What is not given stays as it was. Older unused join tokens of the cluster end.
The identity that the cluster has stays valid until the new one joins; workloads are not touched.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Accept that it is another cluster than before (its kube-system has another UID)
    #[arg(long)]
    new_cluster: bool,
    /// Cover the whole cluster, where it was adopted with --namespaces
    #[arg(long, conflicts_with_all = ["namespaces", "strict"])]
    whole_cluster: bool,
    #[command(flatten)]
    adoption: Adoption,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let proxy = args.adoption.way.url(&args.connect)?;
    let access = args.connect.access().await?;
    let client = access.user_client()?;
    args.adoption.check(&access)?;
    let file = args.adoption.open()?;
    let mut adoption = args.adoption.changes(proxy)?;
    if args.whole_cluster {
        adoption.scope = Some(ScopeOptions::default());
    }
    let new = NewJoinToken {
        adoption,
        new_cluster: args.new_cluster,
    };
    let answer = client.readopt(&args.name, &new).await?;
    let hub = (&access, args.connect.ca.as_deref());
    let before = Before::of(&answer.cluster);
    let done = ("may be adopted again", Some(&before));
    add::hand_out(&answer, (&args.adoption, file), hub, done).await
}
