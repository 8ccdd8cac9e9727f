//! `linesman cluster add`, and what it shares with `readopt`: what the adoption YAML is made of.

mod give;

pub(super) use give::hand_out;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::proxy::Way;
use super::{Engine, Level};
use crate::cli::connect::{Access, Connect};
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::Format;
use crate::cli::session::Replacement;
use crate::manifests::{self, EngineNamespaces, scope};
use crate::wire::api::{AdoptionChanges, AdoptionOptions, GitRoute, NewCluster, ScopeOptions};
use crate::wire::id::{ClusterName, Digest};

const EXAMPLES: &str = "\
Examples:
  linesman cluster add eu1 --file adopt.yaml        # then, in the cluster: kubectl apply -f adopt.yaml
  linesman cluster add eu1 --wait | kubectl apply -f -
  linesman cluster add eu1 --label env=prod --access view --file adopt.yaml
  linesman cluster add us1 --engine argocd --engine-namespace gitops
  linesman cluster add shared3 --namespaces shop,shop-db --access edit
  linesman cluster add edge7 --git-over-line        # a site that reaches nothing but the hub
  linesman cluster add eu1 --agent-copy --file adopt.yaml    # a deleted agent comes back by the engine
  pass show proxy | linesman cluster add dmz2 --https-proxy-file - --no-proxy .corp.example
  linesman cluster add eu1 --print-url              # kubectl apply -f https://…, for a publicly trusted hub

The YAML holds a join token: single use, good for 24 h. Keep it like a password until it is applied.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name: a-z, 0-9 and '-', at most 40
    name: ClusterName,
    /// The GitOps engine to install
    #[arg(long, value_enum, default_value = "flux")]
    engine: Engine,
    /// The engine's bundle, sha256:…; without it, the newest imported one
    #[arg(long, value_name = "DIGEST")]
    bundle: Option<Digest>,
    /// Argo CD's namespace, where it is not to be argocd
    #[arg(long, value_name = "NAME", value_parser = manifests::engine_namespace)]
    engine_namespace: Option<String>,
    /// A label of the cluster; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Let the engine reach the Git host over the line: all that the cluster then reaches is the hub's HTTPS
    #[arg(long)]
    git_over_line: bool,
    /// Keep a copy of the agent in the catalog, from which the engine brings it back; see 'linesman cluster agent-copy --help'
    #[arg(long)]
    agent_copy: bool,
    #[command(flatten)]
    adoption: Adoption,
    #[command(flatten)]
    connect: Connect,
}

/// Which namespaces the YAML covers.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Covered {
    /// Cover these namespaces only, with commas between; see docs/operating.md
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// The agent reads the engine's namespace and its own only; people get at most view
    #[arg(long)]
    strict: bool,
}

impl Covered {
    /// None = nothing was said.
    pub(in crate::cli) fn options(&self) -> Result<Option<ScopeOptions>, Failure> {
        let options = ScopeOptions {
            namespaces: self
                .namespaces
                .iter()
                .map(|n| n.trim().to_owned())
                .collect(),
            strict: self.strict,
        };
        scope::check(&options, &EngineNamespaces::default()).map_err(|wrong| {
            let next = "correct --namespaces";
            Failure::new(Code::Usage, wrong.to_string(), next)
        })?;
        Ok(Some(options).filter(|options| !options.is_whole()))
    }
}

/// What `add` and `readopt` have in common.
#[derive(Debug, clap::Args)]
pub(super) struct Adoption {
    /// The highest access group that is bound in the cluster; those above it get nothing there [default: admin, or as it was]
    #[arg(long, value_enum)]
    access: Option<Level>,
    #[command(flatten)]
    covered: Covered,
    /// How long the join token lives: 5m to 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = token_ttl)]
    token_ttl: Duration,
    /// The agent's image [default: the hub's, or as it was]
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// Secret of the namespace `linesman` to pull the image with
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Option<String>,
    #[command(flatten)]
    pub(super) way: Way,
    /// Write the YAML to this file (0600) instead of stdout
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the kubectl line with the hub's URL of the YAML instead of the YAML
    #[arg(long, conflicts_with = "file")]
    print_url: bool,
    /// Then wait until the cluster is adopted, telling each step: 5m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "5m", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Print the hub's answer in this form: the YAML is in it, or in the file of --file alone
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Adoption {
    /// What was said; `proxy` is the [`Way::url`].
    pub(super) fn changes(&self, proxy: Option<String>) -> Result<AdoptionChanges, Failure> {
        Ok(AdoptionChanges {
            image: self.image.clone(),
            access: self.access.map(Into::into),
            scope: self.covered.options()?,
            // The parser bounds it by seven days.
            token_ttl: Some(u32::try_from(self.token_ttl.as_secs()).unwrap_or(u32::MAX)),
            image_pull_secret: self.image_pull_secret.clone(),
            https_proxy: proxy,
            no_proxy: self.way.no_proxy.clone(),
            engine_namespace: None,
        })
    }
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let proxy = args.adoption.way.url(&args.connect)?;
    let access = args.connect.access().await?;
    let client = access.user_client()?;
    args.adoption.check(&access)?;
    let file = args.adoption.open()?;
    let adoption = AdoptionChanges {
        engine_namespace: args.engine_namespace,
        ..args.adoption.changes(proxy)?
    };
    let new = NewCluster {
        name: args.name,
        engine: args.engine.into(),
        bundle: args.bundle,
        labels: args.labels.into_iter().collect(),
        git_route: if args.git_over_line {
            GitRoute::Line
        } else {
            GitRoute::Auto
        },
        agent_copy: args.agent_copy,
        adoption: adoption.of(&AdoptionOptions::default()),
    };
    let answer = client.add_cluster(&new).await?;
    let ca = args.connect.ca.as_deref();
    let done = ("added", None);
    hand_out(&answer, (&args.adoption, file), (&access, ca), done).await
}

impl Adoption {
    /// Refuses what cannot work before the hub changes anything.
    pub(super) fn check(&self, access: &Access) -> Result<(), Failure> {
        if self.print_url && access.ca.is_some() {
            return Err(Failure::new(
                Code::Usage,
                "kubectl trusts the system's CAs only, and this hub has its own",
                "write the YAML to a file instead: --file adopt.yaml",
            ));
        }
        if self.output == Some(Format::Name) && self.file.is_none() {
            return Err(Failure::new(
                Code::Usage,
                "-o name prints the name alone, and the YAML with its join token would be lost",
                "say where the YAML is to go: --file adopt.yaml",
            ));
        }
        Ok(())
    }

    /// The file for the YAML, opened: what cannot be written is known before the hub changes anything.
    pub(super) fn open(&self) -> Result<Option<Replacement>> {
        self.file.as_deref().map(Replacement::open).transpose()
    }
}

pub(super) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not a label; write KEY=VALUE")),
    }
}

fn token_ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text)?;
    let bounds = Duration::from_mins(5)..=Duration::from_hours(7 * 24);
    if bounds.contains(&ttl) {
        Ok(ttl)
    } else {
        Err("a join token lives between 5m and 7d".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_between_namespaces_are_no_part_of_their_names() {
        let covered = |list: &[&str]| Covered {
            namespaces: list.iter().map(|name| (*name).to_owned()).collect(),
            strict: false,
        };
        let options = ScopeOptions {
            namespaces: ["shop", "mail"].map(str::to_owned).to_vec(),
            strict: false,
        };
        assert_eq!(covered(&["shop", " mail "]).options(), Ok(Some(options)));
        assert!(covered(&["shop", " "]).options().is_err());
    }

    #[test]
    fn labels_and_token_lives_are_checked_before_the_hub_is_asked() {
        assert_eq!(
            label("env=prod=eu"),
            Ok(("env".to_owned(), "prod=eu".to_owned()))
        );
        assert!(label("env").is_err() && label("=x").is_err());
        assert!(token_ttl("5m").is_ok() && token_ttl("7d").is_ok());
        assert!(token_ttl("4m").is_err() && token_ttl("8d").is_err());
    }
}
