//! `linesman engine set`: another version of a cluster's engine, and how that goes.

use std::time::Duration;

use anyhow::Result;

use crate::cli::cluster::Engine;
use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::progress_line;
use crate::cli::wait::{self, Found, Patience};
use crate::client::Client;
use crate::wire::api::{ClusterView, EngineRequest};
use crate::wire::id::{ClusterName, Digest};
use crate::wire::report::{Condition, ConditionType, Status};

const EXAMPLES: &str = "\
The agent applies the new version stage by stage (CRDs and roles, then accounts and settings, then controllers) and asks the
engine to read the catalog. Where that does not work within --within, the version that worked before comes back, and
'linesman cluster show' tells why; the same command tries again. What the new version has no use for is removed, CRDs
excepted. Where the catalog itself installs the engine, versions change by a commit, and this is refused.

Examples:
  linesman engine set eu1 flux 2.9.5 --wait
  linesman engine set eu1 argocd                  # the newest that was imported
  linesman engine set eu1 flux --bundle sha256:4f1c… --wait=15m";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// The engine that the cluster has
    #[arg(value_enum)]
    engine: Engine,
    /// The version; without it, the one imported last
    version: Option<String>,
    /// One of several bundles of a version, sha256:…
    #[arg(long, value_name = "DIGEST")]
    bundle: Option<Digest>,
    /// How long the engine has to work with it, before the version of before comes back: 30s to 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    within: Duration,
    /// Then wait until the engine works with it
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let asked = EngineRequest {
        engine: args.engine.into(),
        version: args.version,
        bundle: args.bundle,
        within: u32::try_from(args.within.as_secs()).unwrap_or(u32::MAX),
        replace: false,
        path: None,
    };
    let set = client.set_engine(&args.name, &asked).await?;
    let what = format!("{} {} ({})", set.engine, set.version, set.bundle);
    progress_line(&format!("cluster {} is to run {what}", args.name));
    follow(&client, &args.name, set.change, args.wait).await
}

/// Tells how a change goes, where somebody waits for it.
pub(in crate::cli) async fn follow(
    client: &Client,
    name: &ClusterName,
    change: u64,
    wait: Option<Duration>,
) -> Result<()> {
    let Some(limit) = wait else {
        progress_line(&format!("see how it goes: linesman cluster show {name}"));
        return Ok(());
    };
    let next = format!("it goes on by itself; look closer: linesman cluster show {name}");
    let patience = Patience { limit, next: &next };
    let asked = wait::until("the engine works with it", patience, async || {
        Ok(match state(&client.cluster(name).await?, change) {
            State::Done(told) => Found::Over(told),
            State::Waits(lack) => Found::Waits(lack),
            State::Undone(told) => {
                let next = format!("look closer: linesman doctor --cluster {name}");
                Found::Never(Failure::new(Code::Failed, told, next))
            }
        })
    });
    let (told, took) = asked.await?;
    progress_line(&format!("{told} ({took:.1} s)"));
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Done(String),
    Undone(String),
    Waits(String),
}

/// What the agent last said of the change with this number.
fn state(cluster: &ClusterView, change: u64) -> State {
    let told = cluster.conditions.iter();
    let mut told = told.filter(|c| c.kind == ConditionType::EngineCurrent);
    let name = &cluster.name;
    let Some(told) = told.find(|c| c.message.starts_with(&format!("change {change}: "))) else {
        return State::Waits(if cluster.line.up {
            format!("cluster {name} has not begun yet")
        } else {
            format!("the line of cluster {name} is down")
        });
    };
    let Condition {
        status,
        reason,
        message,
        ..
    } = told;
    match (status, reason.as_str()) {
        (Status::True, _) => State::Done(message.clone()),
        (_, "Returned") => State::Undone(message.clone()),
        (Status::False | Status::Unknown, _) => State::Waits(message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait;
    use crate::wire::report::Phase;

    #[test]
    fn only_the_word_about_this_change_counts() {
        let says = |status, reason: &str, message: &str| {
            let told = Condition {
                kind: ConditionType::EngineCurrent,
                status,
                reason: reason.to_owned(),
                message: message.to_owned(),
                since: String::new(),
            };
            let mut cluster = wait::tests::cluster(Phase::Healthy, &[], vec![told]);
            cluster.line.up = true;
            state(&cluster, 12)
        };
        let words = |n: u8| format!("change {n}: flux 2.9.5");
        let waits = says(Status::True, "InForce", &words(1));
        assert!(matches!(waits, State::Waits(text) if text.contains("not begun")));
        let text = words(12);
        assert_eq!(
            says(Status::True, "InForce", &text),
            State::Done(text.clone())
        );
        assert_eq!(
            says(Status::False, "Changing", &text),
            State::Waits(text.clone())
        );
        assert_eq!(
            says(Status::False, "Returned", &text),
            State::Undone(text.clone())
        );
    }
}
