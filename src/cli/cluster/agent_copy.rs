//! `linesman cluster agent-copy`: whether the catalog keeps a copy of the agent, from which the engine brings it back.

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::output::{Output, progress_line};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
The hub commits the agent's manifests to linesman/NAME/agent.yaml of the catalog, and the object by which the cluster's engine
follows them to linesman.yaml in the cluster's directory. The engine makes what is missing of them and leaves alone what is
there, so an upgraded image or your own edits stay. No token, key or password is in them.

An agent that comes back without its Secrets proves itself with the deploy key in the engine's Secret, one minute after the
former one was last heard, and needs no new YAML; on a hub with --identity-recovery=manual it waits for 'linesman cluster readopt'.

The hub writes the copy anew whenever the cluster's owner applies other adoption YAML, and after another image of the agent, another
engine, and another URL, CA or key of the hub; 'linesman cluster show' says how it stands. Who takes a part of it out of the catalog
wants none. 'linesman cluster remove' takes the copy out first.

Examples:
  linesman cluster agent-copy eu1
  linesman cluster agent-copy eu1 --remove      # what is deleted stays deleted";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Take the copy out of the catalog; what runs in the cluster stays
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let name = &args.name;
    let told = client.set_agent_copy(name, !args.remove).await?;
    match (&told.proposed, told.kept) {
        (Some(branch), _) => progress_line(&waits(branch)),
        (None, true) => progress_line(&format!(
            "the catalog keeps a copy of the agent of cluster {name} in linesman/{name}/agent.yaml"
        )),
        (None, false) => progress_line(&format!(
            "the catalog keeps no copy of the agent of cluster {name}"
        )),
    }
    super::stands(&client, name, args.output.output).await
}

/// How to bring a branch of the hub into a head that has to be signed.
fn waits(branch: &str) -> String {
    format!(
        "the change waits on the catalog's branch {branch}, because the head has to be signed; in a clone:\n  \
         git fetch && git merge -S --no-ff origin/{branch} && git push"
    )
}
