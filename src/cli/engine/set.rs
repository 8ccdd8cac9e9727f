//! `linesman engine set`: another version of a cluster's engine, and how that goes.

use std::time::Duration;

use anyhow::Result;

use crate::cli::cluster::{Engine, stands};
use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::follow::{self, Wish};
use crate::cli::output::{Output, progress_line};
use crate::client::Client;
use crate::wire::api::EngineRequest;
use crate::wire::id::{ClusterName, Digest};
use crate::wire::report::ConditionType;

const EXAMPLES: &str = "\
The agent applies the new version stage by stage (CRDs and roles, then accounts and settings, then
controllers) and asks the engine to read the catalog. Where that does not work within --within, the version
that worked before comes back, and 'linesman cluster show' tells why; the same command tries again. What the
new version has no use for is removed, CRDs excepted. Where the catalog itself installs the engine, versions
change by a commit, and this is refused.

Examples:
  linesman engine set eu1 flux 2.9.5 --wait
  linesman engine set eu1 argocd                  # the newest that is imported
  linesman engine set eu1 flux --bundle sha256:4f1c… --wait=15m";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// The engine that the cluster has
    #[arg(value_enum)]
    engine: Engine,
    /// The version; without it, the newest that is imported
    #[arg(value_parser = duration::other)]
    version: Option<String>,
    /// One of several bundles of a version, sha256:…
    #[arg(long, value_name = "DIGEST")]
    bundle: Option<Digest>,
    /// How long the engine has to work with it, before the previous version comes back: 30s to 1h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    within: Duration,
    /// Then wait until the engine works with it: 10m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
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
    follow(&client, &args.name, set.change, args.wait).await?;
    stands(&client, &args.name, args.output.output).await
}

/// Tells how a change goes, where somebody waits for it.
pub(in crate::cli) async fn follow(
    client: &Client,
    name: &ClusterName,
    change: u64,
    wait: Option<Duration>,
) -> Result<()> {
    let wish = Wish {
        kind: ConditionType::EngineCurrent,
        about: format!("change {change}: "),
        number: 0,
        until: "the engine works with it",
        undone: format!("look closer: linesman doctor --cluster {name}"),
    };
    follow::follow(client, name, &wish, wait).await
}
