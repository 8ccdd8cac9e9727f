//! `linesman engine mirror`: engines' images from another registry.

use std::time::Duration;

use anyhow::Result;

use super::set;
use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::output::{Format, Output, done, emit, progress_line};
use crate::wire::api::{RegistryRequest, RegistryView};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Each image keeps its path below the registry: with registry.example.org:5000/mirror, the image
ghcr.io/fluxcd/source-controller:v1.8.0 is pulled as
registry.example.org:5000/mirror/fluxcd/source-controller:v1.8.0 ('linesman engine list -o wide' names the
images to copy). The bundle and its digest stay as they are. The agent changes a cluster's engine as
'engine set' does: where it does not work within 5 minutes, the previous registry comes back.

A registry that asks who pulls needs --pull-secret: the name of a Secret that you make in the engine's
namespace of each cluster (type kubernetes.io/dockerconfigjson). Neither hub nor agent keeps or uses what is
in it. It goes with the registry, and with --none with the images' own: said again without it, there is none.

Without a registry it says which one is in force.

Examples:
  linesman engine mirror                                             # what the hub says for all
  linesman engine mirror --cluster edge7                             # what is in force for one
  linesman engine mirror registry.example.org:5000/mirror            # all clusters without one of their own
  linesman engine mirror registry.edge7.lan:5000 --cluster edge7 --wait
  linesman engine mirror registry.example.org:5000/mirror --pull-secret regcred
  linesman engine mirror --none --cluster eu1                        # the images' own registries
  linesman engine mirror --default --cluster edge7                   # the hub's, again";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("whence").args(["registry", "none", "default"]))]
pub(in crate::cli) struct Args {
    /// HOST[:PORT][/PATH], without a scheme; without it, what is in force is shown
    #[arg(value_parser = duration::other)]
    registry: Option<String>,
    /// The registries that the images themselves name
    #[arg(long)]
    none: bool,
    /// What the hub says for all clusters
    #[arg(long, requires = "cluster")]
    default: bool,
    /// Only this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// The Secret of the engine's namespace, in each cluster, that the images are pulled with
    #[arg(
        long,
        value_name = "NAME",
        requires = "whence",
        conflicts_with = "default"
    )]
    pull_secret: Option<String>,
    /// With --cluster: then wait until the engine works with it: 10m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m", value_parser = duration::parse, requires = "cluster", requires = "whence")]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let cluster = args.cluster.as_ref();
    let format = args.output.output;
    let registry = match (args.registry, args.none, args.default) {
        (Some(registry), _, _) => Some(registry),
        (None, true, _) => Some(String::new()),
        (None, false, true) => None,
        (None, false, false) => return show(format, &client.registry(cluster).await?),
    };
    let asked = RegistryRequest {
        registry,
        pull_secret: args.pull_secret,
    };
    let set = client.set_registry(cluster, &asked).await?;
    let from = whence(&set);
    let Some(name) = cluster else {
        progress_line(&format!(
            "engines get their images from {from}, where a cluster has no registry of its own"
        ));
        return done(format, &set.registry, &set);
    };
    progress_line(&format!(
        "the engine of cluster {name} is to get its images from {from}"
    ));
    set::follow(&client, name, set.change, args.wait).await?;
    done(format, name.as_str(), &set)
}

fn show(format: Format, view: &RegistryView) -> Result<()> {
    match format {
        Format::Table | Format::Wide => emit(&format!("{}\n", whence(view))),
        Format::Json | Format::Yaml | Format::Name => done(format, &view.registry, view),
    }
}

/// In words.
pub(in crate::cli) fn whence(view: &RegistryView) -> String {
    let from = match view.registry.as_str() {
        "" => "the registries that they name",
        registry => registry,
    };
    match &view.pull_secret {
        Some(secret) => format!("{from}, with Secret {secret}"),
        None => from.to_owned(),
    }
}
