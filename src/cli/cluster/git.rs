//! `linesman cluster git`: which way a cluster reaches the catalog's Git host.

use anyhow::Result;
use clap::ValueEnum;

use crate::cli::connect::Connect;
use crate::cli::output::{Output, progress_line};
use crate::wire::api::{GitRoute, ToldGitRoute, Via};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
The agent proves the new way with its own SSH client first; until then the engine keeps the old one. 'auto' is the
direct way, until the agent, with its line up, finds no route time and again (and the hub was not started with
--git-over-line=asked). Choosing 'auto' again makes it try the direct way anew.

Examples:
  linesman cluster git edge7 line
  linesman cluster git edge7 auto";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// The way to the Git host
    #[arg(value_enum)]
    route: Route,
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
    progress_line(&format!(
        "cluster {} is to reach the Git host {}; see: linesman cluster show {}",
        args.name,
        words(&told),
        args.name
    ));
    super::stands(&client, &args.name, args.output.output).await
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
