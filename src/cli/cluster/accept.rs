//! `linesman cluster accept`: an agent whose key the hub does not know is let in.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Engine, add};
use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, Output, document, emit, progress_line};
use crate::wire::api::{AcceptRequest, Acceptance, EngineKind, UnknownAgentView};
use crate::wire::id::Digest;

const EXAMPLES: &str = "\
For agents of a hub that was restored from a backup older than they are: the key becomes the identity of the
cluster that the agent claims, which gets a record where the hub has none, and the agent is in within ten
seconds. Compare the fingerprint with the one that the agent's log names. Nothing is deleted, and the catalog
is not touched: see that it has the cluster's directory as it was. --engine, --bundle and --label are for a
cluster without a record; give the version that runs there, for another one is a request to change it.

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
        confirm(&question(agent, &args)?)?;
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

fn question<'a>(agent: Option<&'a UnknownAgentView>, args: &Args) -> Result<Question<'a>> {
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
    if args.engine.is_none() {
        let engine = EngineKind::Flux;
        means.push(format!(
            "Where the hub has no record of {name}, it is recorded with {engine}: no --engine was named."
        ));
    }
    means.push("Compare the fingerprint with what the agent's log says.".to_owned());
    Ok(Question {
        doing: format!("accepting {print}"),
        means,
        word: (name.as_str(), "the cluster's name"),
        unasked: unasked(args),
    })
}

/// All that was given: without the engine the cluster would be handed over to another one, without a reason none is on record.
fn unasked(args: &Args) -> String {
    let print = args.fingerprint.as_str();
    let mut words = ["cluster", "accept", print].map(str::to_owned).to_vec();
    let mut flag = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    if let Some(engine) = args.engine {
        flag("--engine", EngineKind::from(engine).to_string());
    }
    if let Some(bundle) = &args.bundle {
        flag("--bundle", bundle.to_string());
    }
    for (key, value) in &args.labels {
        flag("--label", format!("{key}={value}"));
    }
    if !args.reason.is_empty() {
        flag("--reason", args.reason.clone());
    }
    words.extend(args.replace.then(|| "--replace".to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    whole_command(&words, &args.connect, &args.output)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// What is to be typed, and as what an agent is recorded that nobody named an engine for.
    fn asked(line: &str) -> (String, Vec<String>) {
        let words = ["accept", "SHA256:new"].into_iter();
        let Line { args } = Line::parse_from(words.chain(line.split_whitespace()));
        let agent = UnknownAgentView {
            fingerprint: "SHA256:new".to_owned(),
            cluster: "eu1".parse().unwrap(),
            reason: "unknown-identity".to_owned(),
            address: "192.0.2.7:1".to_owned(),
            incarnation: None,
            first_seen: "2026-01-01T00:00:00Z".to_owned(),
            last_seen: "2026-01-01T00:00:00Z".to_owned(),
        };
        let question = question(Some(&agent), &args).unwrap();
        let means = question.means.into_iter();
        let recorded = means.filter(|line| line.contains("recorded")).collect();
        (question.unasked, recorded)
    }

    #[test]
    fn the_command_that_does_not_ask_is_the_whole_one() {
        let given = "--engine argocd --label env=prod --label team=a --reason restored --replace --hub hub.x -o json";
        let (unasked, recorded) = asked(given);
        let whole = format!("linesman cluster accept SHA256:new {given} --yes");
        assert_eq!((unasked, recorded), (whole, Vec::new()));
        let (unasked, recorded) = asked("");
        assert_eq!(unasked, "linesman cluster accept SHA256:new --yes");
        assert_eq!(
            recorded,
            [
                "Where the hub has no record of eu1, it is recorded with flux: no --engine was named."
            ]
        );
    }

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
