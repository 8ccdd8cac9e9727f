//! `linesman manifests`: what a cluster owner is asked to apply, to be read before there is a hub or a token.

use anyhow::Result;

use super::cluster::{Covered, Engine, Level};
use super::output::emit;
use crate::manifests::scope::Scope;
use crate::manifests::{self, AdoptionValues, EngineNamespaces, adoption, to_yaml};

const EXAMPLES: &str = "\
The YAML of 'linesman cluster add' is this, with the hub's address, key and CA, and a join token. It meets Pod
Security 'restricted'; its roles name what they allow, none holds a '*'.

Examples:
  linesman manifests | less
  linesman manifests --namespaces shop,shop-db | less
  linesman manifests --access view | kubectl diff -f -";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The GitOps engine. The roles are for both; with --strict alone it says whose namespace is covered
    #[arg(long, value_enum, default_value = "flux")]
    engine: Engine,
    /// Argo CD's namespace, where it is not to be argocd
    #[arg(long, value_name = "NAME", value_parser = manifests::engine_namespace)]
    engine_namespace: Option<String>,
    /// The highest access group that is bound in the cluster; those above it get nothing there
    #[arg(long, value_enum, default_value = "admin")]
    access: Level,
    #[command(flatten)]
    covered: Covered,
    /// The agent's image [default: IMAGE, to be replaced]
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// Secret of the namespace `linesman` to pull the image with
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let (engine, access) = (args.engine.into(), args.access.into());
    let mut values = AdoptionValues {
        engine,
        access,
        image_pull_secret: args.image_pull_secret.clone().unwrap_or_default(),
        ..AdoptionValues::placeholders()
    };
    if let Some(namespace) = &args.engine_namespace {
        values.engines = EngineNamespaces::new(namespace.clone());
    }
    if let Some(asked) = args.covered.options()? {
        values.scope = Scope::of(&asked, access, values.engines.of(engine));
    }
    if let Some(image) = &args.image {
        values.image.clone_from(image);
    }
    emit(&to_yaml(&adoption(&values)))
}
