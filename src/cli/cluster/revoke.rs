//! `linesman cluster revoke`: the hub takes nothing from a cluster any more.

use anyhow::Result;

use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::output::{Format, Output, document, emit, phase, progress_line};
use crate::wire::api::{Revocation, RevokeRequest, ToldCluster};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
For a cluster whose keys may be in somebody else's hands. Its line ends, and within two seconds every replica
of the hub refuses its identity key and its deploy key, at the built-in Git host too. Record, history and
grants stay; in the cluster nothing is deleted: the agent goes on healing by itself, and its log says why the
hub refuses it. The way back is new YAML, for which the agent makes new keys: linesman cluster readopt NAME.

Examples:
  linesman cluster revoke eu1 --reason 'a node was broken into'
  linesman cluster revoke eu1 --yes -o json       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Why, for the audit and for those who look at the cluster
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    #[command(flatten)]
    asks: Yes,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    if !args.asks.yes {
        ask(&client.cluster(&args.name).await?, &args)?;
    }
    let asked = RevokeRequest {
        reason: args.reason,
    };
    let revoked = client.revoke(&args.name, &asked).await?;
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => emit(&document(format, &revoked)?)?,
        Format::Name => emit(&format!("{}\n", revoked.cluster))?,
        Format::Table | Format::Wide => {}
    }
    progress_line(&told(&revoked));
    Ok(())
}

fn told(revoked: &Revocation) -> String {
    let Revocation {
        cluster,
        keys,
        already,
        next,
    } = revoked;
    if *already {
        return format!("cluster {cluster} was revoked before; the way back: {next}");
    }
    format!(
        "cluster {cluster} revoked, {} keys with it; its agent goes on healing alone; the way back: {next}",
        keys.len()
    )
}

fn ask(cluster: &ToldCluster, args: &Args) -> Result<()> {
    let name = &cluster.name;
    confirm(&Question {
        doing: format!("revoking cluster {name}"),
        means: vec![
            format!(
                "This ends the line of cluster {name} ({}), and the hub takes nothing from it any more.",
                phase(&cluster.phase)
            ),
            format!("It comes back by new YAML only: linesman cluster readopt {name}"),
        ],
        word: (name.as_str(), "the cluster's name"),
        unasked: unasked(args),
    })
}

/// All that was given: a reason that is left out is on no record.
fn unasked(args: &Args) -> String {
    let mut words = vec!["cluster", "revoke", args.name.as_str()];
    if !args.reason.is_empty() {
        words.extend(["--reason", &args.reason]);
    }
    whole_command(&words, &args.connect, &args.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_answers_name_the_way_back() {
        let mut revoked = Revocation {
            cluster: "eu1".parse().unwrap(),
            keys: vec!["SHA256:a".to_owned(), "SHA256:b".to_owned()],
            already: false,
            next: "linesman cluster readopt eu1".to_owned(),
        };
        assert_eq!(
            told(&revoked),
            "cluster eu1 revoked, 2 keys with it; its agent goes on healing alone; the way back: linesman cluster readopt eu1"
        );
        (revoked.keys, revoked.already) = (Vec::new(), true);
        assert_eq!(
            told(&revoked),
            "cluster eu1 was revoked before; the way back: linesman cluster readopt eu1"
        );
    }
}
