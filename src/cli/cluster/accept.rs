//! `linesman cluster accept`: an agent whose key the hub does not know is let in.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Engine, add};
use crate::cli::confirm::{Question, Yes, confirm};
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, Output, document, emit, progress_line};
use crate::wire::api::{AcceptRequest, Acceptance, UnknownAgentView};
use crate::wire::id::Digest;

const EXAMPLES: &str = "\
For agents of a hub that was restored from a backup older than they are: the key becomes the identity of the
cluster that the agent claims, which gets a record where the hub has none, and the agent is in within ten
seconds. Compare the fingerprint with the one that the agent's log names. Nothing is deleted, and the catalog
is not touched: see that it has the cluster's directory as it was. --engine, --bundle and --label are for a
cluster without a record; give the version that runs there, for another one is a wish to change it.

Examples:
  linesman cluster list --unknown
  linesman cluster accept SHA256:dGhlIGZpbmdlcnByaW50IG9mIGEga2V5 --engine flux --reason 'restored the hub'
  linesman cluster accept SHA256:dGhlIGZpbmdlcnByaW50IG9mIGEga2V5 --replace --yes    # its older key ends";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Of the agent's identity key, as 'linesman cluster list --unknown' has it
    fingerprint: String,
    /// Why, for the audit
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    /// End another identity key that the cluster has
    #[arg(long)]
    replace: bool,
    /// The engine that the cluster runs; without it, flux
    #[arg(long)]
    engine: Option<Engine>,
    /// The bundle of the engine's version there (sha256:…); without it, the newest imported one
    #[arg(long, value_name = "DIGEST")]
    bundle: Option<Digest>,
    /// A label of the cluster; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = add::label)]
    labels: Vec<(String, String)>,
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
        let agents = client.unknown_agents().await?;
        let agent = agents.iter().find(|a| a.fingerprint == args.fingerprint);
        ask(agent, &args)?;
    }
    let asked = AcceptRequest {
        fingerprint: args.fingerprint,
        reason: args.reason,
        replace: args.replace,
        engine: args.engine.map(Into::into),
        bundle: args.bundle,
        labels: args.labels.into_iter().collect::<BTreeMap<_, _>>(),
    };
    let accepted = client.accept(&asked).await?;
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => emit(&document(format, &accepted)?)?,
        Format::Name => emit(&format!("{}\n", accepted.cluster))?,
        Format::Table | Format::Wide => {}
    }
    for line in told(&accepted) {
        progress_line(&line);
    }
    Ok(())
}

fn told(accepted: &Acceptance) -> Vec<String> {
    let name = &accepted.cluster;
    let mut lines = vec![if accepted.already {
        format!("cluster {name} has this key already")
    } else {
        format!("cluster {name} accepted; see it come: linesman cluster wait {name}")
    }];
    lines.extend(
        accepted
            .ended
            .iter()
            .map(|old| format!("its key {old} ended")),
    );
    if !accepted.catalog {
        lines.push(format!(
            "the catalog has no clusters/{name}: put it back as it was; the engine there keeps what it has until then"
        ));
    }
    lines
}

fn ask(agent: Option<&UnknownAgentView>, args: &Args) -> Result<()> {
    let print = &args.fingerprint;
    let Some(agent) = agent else {
        return Err(Failure::new(
            Code::NotFound,
            format!("no agent with the key {print} is listed"),
            "see: linesman cluster list --unknown; an agent is listed when it has come",
        )
        .into());
    };
    let name = &agent.cluster;
    let mut means = vec![format!(
        "An agent at {} claims to be cluster {name}, with the key {print}.",
        agent.address
    )];
    if args.replace {
        means.push(format!("Other identity keys of {name} end."));
    }
    means.push("Compare the fingerprint with what the agent's log says.".to_owned());
    confirm(&Question {
        doing: format!("accepting {print}"),
        means,
        word: (name.as_str(), "the cluster's name"),
        unasked: format!("linesman cluster accept {print} --yes"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acceptance_says_what_ended_and_what_the_catalog_lacks() {
        let accepted = Acceptance {
            cluster: "eu1".parse().unwrap(),
            created: true,
            already: false,
            ended: vec!["SHA256:old".to_owned()],
            catalog: false,
        };
        assert_eq!(
            told(&accepted),
            [
                "cluster eu1 accepted; see it come: linesman cluster wait eu1",
                "its key SHA256:old ended",
                "the catalog has no clusters/eu1: put it back as it was; the engine there keeps what it has until then",
            ]
        );
        let again = Acceptance {
            already: true,
            ended: Vec::new(),
            catalog: true,
            ..accepted
        };
        assert_eq!(told(&again), ["cluster eu1 has this key already"]);
    }
}
