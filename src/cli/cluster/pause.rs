//! `linesman cluster pause|resume`: a maintenance window, in which the agent only looks.

use std::time::Duration;

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Output, progress_line};
use crate::wire::api::PauseRequest;
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Until then the agent shows what is wrong and mends nothing. One thing it does all the same: where somebody deletes
the engine's CRDs or Namespace, it keeps the engine from pruning what it brought. An agent that is out of reach
learns of it when it is back; in the cluster itself, the annotation
linesman.dev/maintenance-until=TIME on the engine's Namespace, or on one object, does the same.

Examples:
  linesman cluster pause eu1 --for 2h --reason 'node upgrade'
  linesman cluster resume eu1";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Pause {
    /// The cluster's name
    name: ClusterName,
    /// For how long, from now: 1m to 24h
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    length: Duration,
    /// Why, for those who look at the cluster meanwhile
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const RESUME: &str = "\
Examples:
  linesman cluster resume eu1";

#[derive(Debug, clap::Args)]
#[command(after_help = RESUME)]
pub(in crate::cli) struct Resume {
    /// The cluster's name
    name: ClusterName,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn pause(args: Pause) -> Result<()> {
    let seconds = u32::try_from(args.length.as_secs()).unwrap_or(u32::MAX);
    if !(60..=86_400).contains(&seconds) {
        return Err(Failure::new(
            Code::Usage,
            format!(
                "a cluster is paused for 1m to 24h, not {}",
                duration::show(args.length)
            ),
            "give another length with --for",
        )
        .into());
    }
    let asked = PauseRequest {
        seconds,
        reason: args.reason,
    };
    let client = args.connect.client().await?;
    let policy = client.pause(&args.name, &asked).await?;
    progress_line(&format!(
        "cluster {} is paused until {}; end it with: linesman cluster resume {}",
        args.name,
        policy.paused_until.unwrap_or_default(),
        args.name
    ));
    super::stands(&client, &args.name, args.output.output).await
}

pub(in crate::cli) async fn resume(args: Resume) -> Result<()> {
    let client = args.connect.client().await?;
    client.resume(&args.name).await?;
    progress_line(&format!(
        "cluster {} is no longer paused; its agent mends what it finds",
        args.name
    ));
    super::stands(&client, &args.name, args.output.output).await
}
