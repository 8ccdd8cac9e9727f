//! `linesman cluster engine`: which engine a cluster runs, and why it keeps it.

use anyhow::Result;

use super::Engine;
use crate::cli::connect::Connect;
use crate::cli::output::progress_line;
use crate::wire::api::{EngineKind, EngineRequest};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
A cluster keeps the engine that it was added with: its path in the catalog is written for that one, and two engines that
follow one path prune each other's work. Another engine is refused, with what to do instead. Versions of the same engine
change with 'linesman engine set'.

Examples:
  linesman cluster engine eu1
  linesman cluster engine eu1 argocd";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// The engine that it shall have
    #[arg(value_enum)]
    engine: Option<Engine>,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let cluster = client.cluster(&args.name).await?;
    let wanted = args.engine.map(EngineKind::from);
    if let Some(engine) = wanted.filter(|engine| *engine != cluster.engine) {
        let asked = EngineRequest {
            engine,
            version: None,
            bundle: None,
            within: 300,
        };
        // The hub says why not.
        client.set_engine(&args.name, &asked).await?;
    }
    let (name, engine, version) = (&cluster.name, cluster.engine, &cluster.engine_version);
    progress_line(&format!("cluster {name} is assigned {engine} {version}"));
    Ok(())
}
