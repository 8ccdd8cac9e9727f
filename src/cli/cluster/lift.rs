//! `linesman cluster lift`: what is held back from Git is given back to it.

use std::time::Duration;

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::output::{Output, progress_line};
use crate::cli::wait::{self, Found, Patience};
use crate::wire::api::{LiftRequest, ToldCluster};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Status};

const EXAMPLES: &str = "\
Where a commit breaks the engine, the agent mends the object and holds it back from Git until another commit
comes; condition Quarantined of 'linesman cluster show' names object and commit. Where the same commit does no
harm any more (the image that it names is in the registry now), nobody has to commit for it: this gives all of
it back at once. What breaks the engine once more is held again, and another lift is needed. What the catalog
has no more, after a revert, the engine no longer brings: where it is as in the bundle of the engine, it is
the agent's again, as before the catalog had it. Else it stays held: commit it again. An agent that is out of
reach does it when it is back.

Examples:
  linesman cluster lift eu1 --reason 'the image is in the registry now' --wait";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Then wait until nothing is held any more: 2m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let (name, format) = (&args.name, args.output.output);
    let cluster = client.cluster(name).await?;
    let Some(held) = held(&cluster) else {
        progress_line(&format!(
            "cluster {name} holds nothing back from Git; nothing was changed"
        ));
        return super::stands(&client, name, format).await;
    };
    let asked = LiftRequest {
        reason: args.reason,
    };
    client.lift(name, &asked).await?;
    progress_line(&format!(
        "cluster {name} is to give back to Git: {}",
        names(held)
    ));
    let Some(limit) = args.wait else {
        progress_line(&format!("see how it goes: linesman cluster show {name}"));
        return super::stands(&client, name, format).await;
    };
    let next = format!(
        "what stays held the catalog has no more, and a commit that has it again gives it back, or the engine is not done with its commit yet; which that is: linesman cluster show {name}"
    );
    let patience = Patience { limit, next: &next };
    let given = wait::until("nothing is held any more", patience, async || {
        let cluster = client.cluster(name).await?;
        let lack = self::held(&cluster).map(|_| still(&cluster));
        Ok(Found::of((), lack))
    });
    let ((), took) = given.await?;
    progress_line(&format!("cluster {name} holds nothing back ({took:.1} s)"));
    super::stands(&client, name, format).await
}

/// What is held back from Git, in the agent's words.
fn held(cluster: &ToldCluster) -> Option<&str> {
    let mut conditions = cluster.conditions.iter();
    let told = conditions.find(|c| c.kind == ConditionType::Quarantined)?;
    // The other reason of this condition is for the catalog's own sync objects.
    (told.status == Status::True && told.reason == "BadEngineCommit").then_some(&told.message)
}

/// The objects alone: the rest of the agent's words is for whom nobody has helped yet.
fn names(told: &str) -> String {
    let before = told.match_indices(" since ").filter_map(|(at, since)| {
        let (said, rest) = (told.get(..at)?, told.get(at + since.len()..)?);
        let (_, why) = rest.split_once(' ')?;
        why.starts_with("because of ").then_some(said)
    });
    let named = before.map(|said| said.rsplit("; ").next().unwrap_or(said));
    let mut named: Vec<&str> = named.collect();
    // Not all of many are named.
    let more = told.split("; ").find(|part| {
        let count = part.strip_prefix("and ");
        let count = count.and_then(|rest| rest.strip_suffix(" more"));
        count.is_some_and(|count| count.parse::<usize>().is_ok())
    });
    if named.is_empty() {
        return told.to_owned();
    }
    named.extend(more);
    named.join(", ")
}

fn still(cluster: &ToldCluster) -> String {
    let name = &cluster.name;
    super::awaits(
        cluster,
        format!("cluster {name} still holds something back"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait::tests::cluster;
    use crate::wire::api::ToldCondition;
    use crate::wire::report::Phase;

    #[test]
    fn of_what_is_held_the_names_are_told() {
        let one = "Deployment flux-system/source-controller since 2026-01-02T03:04:05Z because of main@sha1:1: it crashes";
        let other = "ClusterRole crds since 2026-01-02T03:04:06Z because of main@sha1:1, next try at 2026-01-02T04:00:00Z: x; since y";
        assert_eq!(
            names(&format!("{one}; {other}; mend it in the catalog")),
            "Deployment flux-system/source-controller, ClusterRole crds"
        );
        assert_eq!(
            names(&format!(
                "{one}; {other}; and 5 more; mend it in the catalog"
            )),
            "Deployment flux-system/source-controller, ClusterRole crds, and 5 more"
        );
        assert_eq!(names("something else"), "something else");
    }

    /// H10: where a WebSocket is blocked there is no line, and the order is taken all the same.
    #[test]
    fn an_agent_that_is_heard_by_https_is_not_said_to_wait_for_its_line() {
        let by_https = "cluster eu1 still holds something back; the line of cluster eu1 is down, and its agent takes orders with \
                        its reports by HTTPS";
        for (phase, lack) in [
            (Phase::Healthy, by_https),
            (Phase::Offline, "the line of cluster eu1 is down"),
        ] {
            assert_eq!(still(&cluster(phase, &[], Vec::new())), lack);
        }
    }

    #[test]
    fn what_the_engines_own_commits_broke_is_given_back_and_nothing_else() {
        let said = |status: Status, reason: &str| {
            let condition = ToldCondition {
                kind: ConditionType::Quarantined.into(),
                status: status.into(),
                reason: reason.to_owned(),
                message: "Deployment".to_owned(),
                since: String::new(),
            };
            let cluster = cluster(Phase::Healthy, &[], vec![condition]);
            held(&cluster).map(str::to_owned)
        };
        let deployment = Some("Deployment".to_owned());
        assert_eq!(said(Status::True, "BadEngineCommit"), deployment);
        assert_eq!(said(Status::True, "UndecodableObject"), None);
        assert_eq!(said(Status::False, "None"), None);
        assert_eq!(held(&cluster(Phase::Healthy, &[], Vec::new())), None);
    }
}
