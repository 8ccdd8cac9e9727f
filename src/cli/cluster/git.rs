//! `linesman cluster git`: which way a cluster reaches the catalog's Git host.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::output::{Output, progress_line};
use crate::cli::wait::{self, Found, Patience};
use crate::wire::api::{GitRoute, ToldCluster, ToldGitRoute, Via};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, GIT_IN_FORCE, Status};

const EXAMPLES: &str = "\
The agent proves the new way with its own SSH client first; until then the engine keeps the old one. 'auto' is
the direct way, until the agent, with its line up, finds no route time and again (and the hub was not started
with --git-over-line=asked). Choosing 'auto' again makes it try the direct way anew.

Examples:
  linesman cluster git edge7 line --wait
  linesman cluster git edge7 auto";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// The way to the Git host
    #[arg(value_enum)]
    route: Route,
    /// Then wait until the agent has proven that way, and the engine is set up for it: 5m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// [`GitRoute`] as an argument.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Route {
    /// Directly; over the line where the agent finds no route and the hub allows it
    Auto,
    /// Directly, whatever the agent finds
    Direct,
    /// Through the agent's Service `linesman-git` and its line
    Line,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let route = match args.route {
        Route::Auto => GitRoute::Auto,
        Route::Direct => GitRoute::Direct,
        Route::Line => GitRoute::Line,
    };
    let client = args.connect.client().await?;
    let told = client.git_route(&args.name, route).await?;
    let (name, format) = (&args.name, args.output.output);
    progress_line(&format!(
        "cluster {name} is to reach the Git host {}",
        words(&told)
    ));
    let Some(limit) = args.wait else {
        progress_line(&format!("see how it goes: linesman cluster show {name}"));
        return super::stands(&client, name, format).await;
    };
    let next = format!(
        "until that way is proven the engine keeps the other one; look closer: linesman doctor --cluster {name}"
    );
    let patience = Patience { limit, next: &next };
    let taken = wait::until("that way is taken", patience, async || {
        let cluster = client.cluster(name).await?;
        let lack = lacks(&cluster);
        Ok(Found::of(cluster.git, lack))
    });
    let (git, took) = taken.await?;
    progress_line(&format!(
        "cluster {name} reaches the Git host {} ({took:.1} s)",
        words(&git)
    ));
    super::stands(&client, name, format).await
}

/// What the way of now still waits for; `auto` may have come to another one meanwhile.
fn lacks(cluster: &ToldCluster) -> Option<String> {
    let wished = cluster.git.via.shown(|via| via.as_str());
    let in_force = cluster.facts.get(GIT_IN_FORCE);
    if in_force == Some(&wished) {
        return None;
    }
    let name = &cluster.name;
    // Without a line nothing proves that way, however the agent is heard.
    if !cluster.line.up && cluster.git.via == Via::Line {
        return Some(format!("the line of cluster {name} is down"));
    }
    let mut told = cluster.conditions.iter();
    let failed = told.find(|c| {
        let kinds = [ConditionType::GitOverLine, ConditionType::GitReachable];
        c.status == Status::False && kinds.iter().any(|kind| c.kind == *kind)
    });
    let lack = match (failed, in_force) {
        (Some(failed), _) => format!("that way is not proven: {}", failed.message),
        (None, Some(_)) => format!("the agent of cluster {name} has not proven that way yet"),
        (None, None) => format!("the agent of cluster {name} does not say yet which way it takes"),
    };
    Some(super::awaits(cluster, lack))
}

/// The way in force, and whether it may change by itself.
pub(super) fn words(git: &ToldGitRoute) -> String {
    let by_itself = git.route == GitRoute::Auto;
    git.via.shown(|via| match via {
        Via::Line if by_itself => "over the line (its agent found no other way)",
        Via::Line => "over the line",
        Via::Direct if by_itself => "directly, as long as its agent finds a route",
        Via::Direct => "directly",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait::tests::cluster;
    use crate::wire::api::ToldCondition;
    use crate::wire::report::Phase;

    #[test]
    fn a_way_is_taken_when_the_agent_says_that_it_is_in_force() {
        let lack = |via: Via, up: bool, in_force: Option<&str>, failed: Option<&str>| {
            let failed = failed.map(|message| ToldCondition {
                kind: ConditionType::GitReachable.into(),
                status: Status::False.into(),
                reason: "NotRead".to_owned(),
                message: message.to_owned(),
                since: String::new(),
            });
            let mut cluster = cluster(Phase::Healthy, &[], failed.into_iter().collect());
            (cluster.git.via, cluster.line.up) = (via.into(), up);
            let fact = in_force.map(|way| (GIT_IN_FORCE.to_owned(), way.to_owned()));
            cluster.facts.extend(fact);
            lacks(&cluster)
        };
        let told = |text: &str| Some(text.to_owned());
        let refused = Some("tcp: no route to host");
        for (via, up, in_force, failed, lacks) in [
            (Via::Line, true, Some("line"), None, None),
            // What fails after it was proven is another matter.
            (Via::Direct, false, Some("direct"), refused, None),
            (
                Via::Line,
                true,
                Some("direct"),
                None,
                told("the agent of cluster eu1 has not proven that way yet"),
            ),
            (
                Via::Direct,
                true,
                Some("line"),
                refused,
                told("that way is not proven: tcp: no route to host"),
            ),
            (
                Via::Line,
                false,
                Some("direct"),
                refused,
                told("the line of cluster eu1 is down"),
            ),
            // By HTTPS the agent hears of the way that needs no line.
            (
                Via::Direct,
                false,
                Some("line"),
                None,
                told(
                    "the agent of cluster eu1 has not proven that way yet; the line of cluster eu1 is down, and its agent takes \
                     orders with its reports by HTTPS",
                ),
            ),
            (
                Via::Line,
                true,
                None,
                None,
                told("the agent of cluster eu1 does not say yet which way it takes"),
            ),
        ] {
            assert_eq!(
                lack(via, up, in_force, failed),
                lacks,
                "{via:?} {in_force:?}"
            );
        }
    }
}
