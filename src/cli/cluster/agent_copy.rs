//! `linesman cluster agent-copy`: whether the catalog keeps a copy of the agent, from which the engine brings it back.

use std::time::Duration;

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Output, progress_line};
use crate::cli::wait::{self, Found, Patience};
use crate::wire::api::ToldCluster;
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
The hub commits the agent's manifests to linesman/NAME/agent.yaml of the catalog, and the object by which the
cluster's engine follows them to linesman.yaml in the cluster's directory. The engine makes what is missing of
them and leaves alone what is there, so an upgraded image or your own edits stay. No token, key or password is
in them.

An agent that comes back without its Secrets proves itself with the deploy key in the engine's Secret, one
minute after the former one was last heard, and needs no new YAML; on a hub with --identity-recovery=manual it
waits for 'linesman cluster readopt'.

The hub writes the copy anew whenever the cluster's owner applies other adoption YAML, and after another image
of the agent, another engine, and another URL, CA or key of the hub; 'linesman cluster show' says how it
stands. Who takes a part of it out of the catalog wants none. 'linesman cluster remove' takes the copy out
first.

Examples:
  linesman cluster agent-copy eu1 --wait
  linesman cluster agent-copy eu1 --remove      # what is deleted stays deleted";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Take the copy out of the catalog; what runs in the cluster stays
    #[arg(long)]
    remove: bool,
    /// Then wait until the cluster's engine has applied the catalog with the copy, or without it: 5m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = duration::parse)]
    wait: Option<Duration>,
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
    let Some(limit) = args.wait else {
        return super::stands(&client, name, args.output.output).await;
    };
    let next = format!("it goes on by itself; look closer: linesman cluster show {name}");
    let patience = Patience { limit, next: &next };
    let applied = wait::until("the engine has applied that", patience, async || {
        let cluster = client.cluster(name).await?;
        Ok(state(&cluster, !args.remove, told.proposed.as_deref()))
    });
    let ((), took) = applied.await?;
    progress_line(&format!(
        "the engine of cluster {name} has applied that ({took:.1} s)"
    ));
    super::stands(&client, name, args.output.output).await
}

/// What the catalog and the cluster's engine still lack of a copy that is `wanted` or not; `proposed` is the branch on which
/// the change of it was left.
fn state(cluster: &ToldCluster, wanted: bool, proposed: Option<&str>) -> Found<()> {
    let name = &cluster.name;
    let silent = || {
        let text = "the hub does not say what the cluster's engine has applied of it";
        let next = "a hub of this program's version does; see: linesman version";
        Found::Never(Failure::new(Code::Failed, text, next))
    };
    let Some(copy) = &cluster.agent_copy else {
        return silent();
    };
    if let Some(trouble) = &copy.trouble {
        return Found::Waits(trouble.clone());
    }
    if (copy.kept, copy.current) != (wanted, wanted) {
        let branch = copy.proposed.as_deref().or(proposed);
        return Found::Waits(match branch {
            Some(branch) => format!("branch {branch} is not merged with a signature yet"),
            None => "the catalog is not as it has to be yet".to_owned(),
        });
    }
    let heard = cluster.line.up || super::is_heard_by_https(cluster);
    match copy.applied {
        Some(true) => Found::Over(()),
        Some(false) if heard => Found::Waits(format!(
            "the engine of cluster {name} has not applied it yet"
        )),
        Some(false) => Found::Waits(format!("the line of cluster {name} is down")),
        None => silent(),
    }
}

/// How to bring a branch of the hub into a head that has to be signed.
fn waits(branch: &str) -> String {
    format!(
        "the change waits on the catalog's branch {branch}, because the head has to be signed; in a clone:\n  \
         git fetch && git merge -S --no-ff origin/{branch} && git push"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait::tests::cluster;
    use crate::wire::api::AgentCopyStanding;
    use crate::wire::report::Phase;

    #[test]
    fn a_copy_counts_when_the_engine_has_applied_it_and_its_end_likewise() {
        let standing = |kept, current, applied| AgentCopyStanding {
            kept,
            current,
            applied,
            ..AgentCopyStanding::default()
        };
        let signed = AgentCopyStanding {
            proposed: Some("linesman-agent/eu1".to_owned()),
            ..standing(true, false, Some(true))
        };
        let lost = AgentCopyStanding {
            trouble: Some("the hub cannot read the catalog; see its log".to_owned()),
            ..standing(false, false, Some(true))
        };
        let unmerged = "waits: branch linesman-agent/eu1 is not merged with a signature yet";
        let old = "waits: the catalog is not as it has to be yet";
        let not_yet = "waits: the engine of cluster eu1 has not applied it yet";
        let silent = "never: the hub does not say what the cluster's engine has applied of it";
        let branch = Some("linesman-agent/eu1");
        for (copy, wanted, proposed, expected) in [
            (Some(standing(true, true, Some(true))), true, None, "over"),
            (
                Some(standing(false, false, Some(true))),
                false,
                None,
                "over",
            ),
            (Some(standing(true, true, Some(false))), true, None, not_yet),
            (
                Some(standing(false, false, Some(false))),
                false,
                None,
                not_yet,
            ),
            // There as it has to be, and asked to go; and the other way about.
            (
                Some(standing(true, true, Some(true))),
                false,
                branch,
                unmerged,
            ),
            (
                Some(standing(false, false, Some(true))),
                true,
                branch,
                unmerged,
            ),
            (Some(signed), true, None, unmerged),
            (Some(standing(true, false, Some(true))), true, None, old),
            (
                Some(lost),
                false,
                None,
                "waits: the hub cannot read the catalog; see its log",
            ),
            (Some(standing(true, true, None)), true, None, silent),
            (None, true, None, silent),
        ] {
            let mut cluster = cluster(Phase::Healthy, &[], Vec::new());
            cluster.line.up = true;
            cluster.agent_copy = copy;
            let said = match state(&cluster, wanted, proposed) {
                Found::Over(()) => "over".to_owned(),
                Found::Waits(lack) => format!("waits: {lack}"),
                Found::Never(failure) => format!("never: {failure}"),
            };
            assert_eq!(said, expected, "{:?} {wanted}", cluster.agent_copy);
        }
    }

    /// H10: what the engine has applied is told by HTTPS as well.
    #[test]
    fn without_a_line_the_engine_is_waited_for_where_its_agent_is_heard() {
        for (phase, lack) in [
            (
                Phase::Healthy,
                "the engine of cluster eu1 has not applied it yet",
            ),
            (Phase::Offline, "the line of cluster eu1 is down"),
        ] {
            let mut cluster = cluster(phase, &[], Vec::new());
            cluster.agent_copy = Some(AgentCopyStanding {
                kept: true,
                current: true,
                applied: Some(false),
                ..AgentCopyStanding::default()
            });
            let found = state(&cluster, true, None);
            assert!(
                matches!(&found, Found::Waits(said) if said == lack),
                "{found:?}"
            );
        }
    }
}
