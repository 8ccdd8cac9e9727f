//! `linesman githost drop-host-key`: clusters forget a key of a Git host.

use anyhow::Result;

use super::{BUILTIN, print};
use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::output::{Output, counted, progress_line};
use crate::wire::api::{HostKeyView, ToldGitHost};

const EXAMPLES: &str = "\
A cluster to which the host still shows that key offers it no credential any more, and fetches nothing. The
key that the hub's own Git server shows, and the last one that is current, are not dropped.

Examples:
  linesman githost drop-host-key builtin --fingerprint SHA256:…
  linesman githost drop-host-key builtin --fingerprint SHA256:… --yes       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The Git host's name
    #[arg(default_value = BUILTIN)]
    name: String,
    /// The key that goes
    #[arg(long, value_name = "SHA256:…")]
    fingerprint: String,
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
        let host = client.githost(&args.name).await?;
        // What is not there the hub refuses, in its words.
        if let Some(key) = host.keys.iter().find(|k| k.fingerprint == args.fingerprint) {
            ask(&host, key, &args)?;
        }
    }
    let host = client.drop_host_key(&args.name, &args.fingerprint).await?;
    progress_line("clusters are told; they forget the key when they have fetched that");
    print(args.output.output, &host)
}

fn ask(host: &ToldGitHost, key: &HostKeyView, args: &Args) -> Result<()> {
    let (name, print) = (&host.name, &key.fingerprint);
    confirm(&Question {
        doing: format!("dropping the host key {print}"),
        means: means(host, key),
        word: (name, "the Git host's name"),
        unasked: whole_command(
            &["githost", "drop-host-key", name, "--fingerprint", print],
            &args.connect,
            &args.output,
        ),
    })
}

fn means(host: &ToldGitHost, key: &HostKeyView) -> Vec<String> {
    let HostKeyView {
        kind,
        fingerprint,
        state,
        ..
    } = key;
    let mut lines = vec![format!(
        "Clusters forget the key {fingerprint} ({kind}, {state}) of Git host {} ({}).",
        host.name, host.url
    )];
    let alone = host
        .clusters
        .iter()
        .filter(|c| c.trusted == [fingerprint.as_str()]);
    match alone.count() {
        0 => {}
        some => lines.push(format!(
            "{} knew no other key when it was heard last, and fetches nothing until it has one.",
            counted(some, "cluster")
        )),
    }
    lines.push(
        "It comes back by a file only: linesman githost accept-host-key --known-hosts FILE"
            .to_owned(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::super::tests::host;
    use super::*;

    #[test]
    fn clusters_that_know_no_other_key_are_counted() {
        let mut host = host();
        let key = host.keys[0].clone();
        let lines = means(&host, &key);
        assert_eq!(
            lines[..2],
            [
                "Clusters forget the key SHA256:known (ssh-ed25519, current) of Git host builtin (ssh://git@hub:2222/catalog.git).",
                "1 cluster knew no other key when it was heard last, and fetches nothing until it has one.",
            ]
        );
        host.clusters[0].trusted.push("SHA256:other".to_owned());
        assert_eq!(means(&host, &key).len(), 2);
    }
}
