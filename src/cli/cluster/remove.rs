//! `linesman cluster remove`: the hub forgets a cluster; the cluster keeps its engine and workloads.

use anyhow::Result;

use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::output::{Output, done, phase, progress_line};
use crate::manifests::{AGENT, ENGINE_ROLE, GUARD_POLICY, NAMESPACE};
use crate::wire::api::ToldCluster;
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
The hub closes the line and forgets the cluster's keys, tokens and grants. Engine, workloads and the catalog's
directory stay as they are: nothing is pruned. A copy of the agent (linesman cluster agent-copy) is taken out
of the catalog first.

Examples:
  linesman cluster remove eu1
  linesman cluster remove eu1 --yes       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    #[command(flatten)]
    asks: Yes,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let cluster = client.cluster(&args.name).await?;
    if !args.asks.yes {
        ask(&cluster, &args)?;
    }
    client.remove_cluster(&args.name, cluster.rev).await?;
    progress_line(&format!(
        "cluster {} removed from the hub; its engine, workloads and catalog stay",
        args.name
    ));
    if !cluster.line.up {
        progress_line(&by_hand());
    }
    done(args.output.output, args.name.as_str(), &cluster)
}

/// What its agent would have done. Rights that stay are those of whoever makes the namespace and its ServiceAccounts anew.
fn by_hand() -> String {
    let label = format!("app.kubernetes.io/name={AGENT}");
    let commands = [
        format!("kubectl delete namespace {NAMESPACE}"),
        format!("kubectl delete clusterrolebindings,clusterroles -l {label}"),
        format!("kubectl delete rolebindings -A -l {label}"),
        format!("kubectl delete rolebindings -A --field-selector metadata.name={ENGINE_ROLE}"),
        format!(
            "kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings {GUARD_POLICY}"
        ),
    ];
    format!(
        "its agent is out of reach; end it there and take its rights away:\n  {}",
        commands.join("\n  ")
    )
}

fn ask(cluster: &ToldCluster, args: &Args) -> Result<()> {
    let name = &cluster.name;
    confirm(&Question {
        doing: format!("removing cluster {name}"),
        means: vec![
            format!(
                "This ends the line of cluster {name} ({}).",
                phase(&cluster.phase)
            ),
            "Grants and API tokens that are for it alone end with it; others name it no more."
                .to_owned(),
        ],
        word: (name.as_str(), "the cluster's name"),
        unasked: whole_command(
            &["cluster", "remove", name.as_str()],
            &args.connect,
            &args.output,
        ),
    })
}
