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
    progress_line(&agents_end(&cluster));
    done(args.output.output, args.name.as_str(), &cluster)
}

/// What becomes of its agent.
fn agents_end(cluster: &ToldCluster) -> String {
    if super::is_heard(cluster) {
        return format!(
            "its agent takes itself away within a minute or two; apply no new YAML there before: the agent may take it along; \
             then only its empty namespace is left: kubectl delete namespace {NAMESPACE}"
        );
    }
    by_hand(if cluster.keys.is_empty() {
        "it never joined; if its YAML was applied, end the agent there and take its rights away"
    } else {
        "its agent is out of reach; end it there and take its rights away"
    })
}

/// What its agent would have done. Rights that stay are those of whoever makes the namespace and its ServiceAccounts anew.
fn by_hand(why: &str) -> String {
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
    format!("{why}:\n  {}", commands.join("\n  "))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait;
    use crate::wire::api::KeyView;
    use crate::wire::report::Phase;

    #[test]
    fn whoever_removes_a_cluster_hears_what_becomes_of_its_agent() {
        let said = |phase: Phase, up: bool, joined: bool| {
            let mut cluster = wait::tests::cluster(phase, &[], Vec::new());
            cluster.line.up = up;
            let key = joined.then(|| KeyView {
                kind: "identity".to_owned(),
                fingerprint: "SHA256:id".to_owned(),
                public: String::new(),
                state: "active".to_owned(),
                created_at: None,
            });
            cluster.keys.extend(key);
            agents_end(&cluster)
        };
        let leaves = "its agent takes itself away within a minute or two; apply no new YAML there before: the agent may take it \
                  along; then only its empty namespace is left: kubectl delete namespace linesman";
        assert_eq!(said(Phase::Healthy, true, true), leaves);
        // By HTTPS alone it is told as well.
        assert_eq!(said(Phase::Healthy, false, true), leaves);
        for (phase, joined, begins) in [
            (Phase::Offline, true, "its agent is out of reach; "),
            (Phase::Pending, false, "it never joined; "),
            // An agent that would join as it was refused.
            (Phase::Conflict, false, "it never joined; "),
        ] {
            let said = said(phase, false, joined);
            assert!(said.starts_with(begins), "{said}");
            assert_eq!(said.lines().count(), 6, "{said}");
        }
    }
}
