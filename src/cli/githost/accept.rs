//! `linesman githost accept-host-key`: an operator's word that a Git host's new key is right.

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{BUILTIN, print};
use crate::cli::confirm::{self, Question};
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure, unread};
use crate::cli::output::{Output, progress_line};
use crate::wire::api::{AcceptHostKey, HostKeyView, OfferedKey, ToldGitHost};

/// As much as the hub reads of one.
const MAX_FILE: u64 = 256 << 10;

const EXAMPLES: &str = "\
The hub never asks the Git host for its key: the new one is a key that clusters met, named by its fingerprint,
or comes from a file. Every cluster is told at once; the old keys stay beside it, so that clusters which still
meet them go on, until drop-host-key, or go at once with --replace, which asks. All of it is in the audit.

Examples:
  linesman githost accept-host-key                                  # shows old and new, and asks
  linesman githost accept-host-key builtin --fingerprint SHA256:…
  linesman githost accept-host-key builtin --known-hosts new.txt --replace
  linesman githost accept-host-key builtin --known-hosts new.txt --replace --yes    # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The Git host's name
    #[arg(default_value = BUILTIN)]
    name: String,
    /// The key to trust, as clusters met it
    #[arg(long, value_name = "SHA256:…", conflicts_with = "known_hosts")]
    fingerprint: Option<String>,
    /// Trust the host's keys in this known_hosts file
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Drop the old keys at once: they may be in wrong hands
    #[arg(long)]
    replace: bool,
    /// Do not ask whether the old keys may go
    #[arg(long, short, requires = "replace")]
    yes: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let mut asked = AcceptHostKey {
        replace: args.replace,
        ..AcceptHostKey::default()
    };
    if let Some(named) = named(&args).filter(|_| args.replace && !args.yes) {
        ask(&client.githost(&args.name).await?, &args, &named)?;
    }
    match (args.fingerprint, &args.known_hosts) {
        (Some(fingerprint), _) => asked.fingerprint = Some(fingerprint),
        (None, Some(path)) => asked.known_hosts = Some(read(path)?),
        (None, None) => {
            let host = client.githost(&args.name).await?;
            let offered = the_one(&host)?;
            let print = offered.fingerprint.as_str();
            let key = [host.name.as_str(), "--fingerprint", print];
            let command = unasked(key, args.replace, (&args.connect, &args.output));
            confirm(&host, offered, args.replace, &command)?;
            asked.fingerprint = Some(offered.fingerprint.clone());
        }
    }
    let host = client.accept_host_key(&args.name, &asked).await?;
    progress_line(
        "accepted; clusters are told now, and their engines fetch again when they have it",
    );
    print(args.output.output, &host)
}

/// How the command line names the new key; None = it is to be compared and confirmed here, with what goes.
fn named(args: &Args) -> Option<[String; 2]> {
    let file = args.known_hosts.as_ref();
    match &args.fingerprint {
        Some(print) => Some(["--fingerprint".to_owned(), print.clone()]),
        None => file.map(|path| ["--known-hosts".to_owned(), path.display().to_string()]),
    }
}

/// About the keys that go.
fn ask(host: &ToldGitHost, args: &Args, [flag, key]: &[String; 2]) -> Result<()> {
    let name = &host.name;
    let mut means = vec![format!(
        "Clusters forget at once all keys of Git host {name} ({}) but the new one:",
        host.url
    )];
    means.extend(host.keys.iter().map(known));
    confirm::confirm(&Question {
        doing: format!("replacing the keys of Git host {name}"),
        means,
        word: (name, "the Git host's name"),
        unasked: unasked([name, flag, key], true, (&args.connect, &args.output)),
    })
}

/// The command for where nobody is asked, with the key named and all that was given.
fn unasked(
    [name, flag, key]: [&str; 3],
    replace: bool,
    (connect, output): (&Connect, &Output),
) -> String {
    let words = ["githost", "accept-host-key", name, flag, key];
    if replace {
        let words = [&words[..], &["--replace"]].concat();
        return confirm::whole_command(&words, connect, output);
    }
    confirm::plain_command(&words, connect, output)
}

fn known(key: &HostKeyView) -> String {
    let HostKeyView {
        kind,
        fingerprint,
        state,
        ..
    } = key;
    format!("  known  {kind} {fingerprint} ({state})")
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    let read = read.map_err(|e| unread(&format!("read {}", path.display()), &e))?;
    if read as u64 > MAX_FILE {
        let text = format!("{} has more than {MAX_FILE} bytes", path.display());
        let next = "give a file with the lines of this host alone";
        return Err(Failure::new(Code::Usage, text, next).into());
    }
    Ok(text)
}

/// The one key there is to decide about.
fn the_one(host: &ToldGitHost) -> Result<&OfferedKey, Failure> {
    let name = &host.name;
    match host.offered.as_slice() {
        [one] => Ok(one),
        [] => Err(Failure::new(
            Code::NotFound,
            format!("no cluster of Git host {name} meets a key that it does not know"),
            "to announce a key beforehand, give it by a file: --known-hosts FILE",
        )),
        several => {
            let prints: Vec<&str> = several.iter().map(|o| o.fingerprint.as_str()).collect();
            Err(Failure::new(
                Code::Conflict,
                format!("clusters meet more than one key: {}", prints.join(", ")),
                format!(
                    "someone may stand between; see who meets which: linesman githost show {name}; then choose: \
                     --fingerprint"
                ),
            ))
        }
    }
}

fn confirm(host: &ToldGitHost, offered: &OfferedKey, replace: bool, command: &str) -> Result<()> {
    let OfferedKey {
        kind, fingerprint, ..
    } = offered;
    if !io::stdin().is_terminal() {
        let text = format!(
            "the key {fingerprint} needs someone who has compared it, and nobody is here to ask"
        );
        let next = format!("compare it, then run: {command}");
        return Err(Failure::new(Code::Usage, text, next).into());
    }
    progress_line(&format!("Git host {} ({})", host.name, host.url));
    for key in &host.keys {
        progress_line(&known(key));
    }
    progress_line(&format!(
        "  shown  {kind} {fingerprint}, to {}",
        offered.seen_by.join(", ")
    ));
    if replace {
        progress_line("The known keys go at once.");
    }
    progress_line("Compare the shown one with the Git host's own word. Type 'yes' to trust it:");
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("read the answer")?;
    if answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::new(Code::Failed, "not confirmed; nothing was changed", "").into())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::tests::host;
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// It left out `--replace`, the hub and the form: what was run then was another command.
    #[test]
    fn the_command_that_names_the_key_is_the_whole_one() {
        for (given, beyond) in [
            ("", ""),
            ("--hub hub.x --token-file a.token --ca ca.crt -o json", ""),
            ("--replace", " --yes"),
            ("--replace --hub hub.x -o json", " --yes"),
        ] {
            let words = ["accept-host-key"].into_iter();
            let Line { args } = Line::parse_from(words.chain(given.split_whitespace()));
            let key = ["builtin", "--fingerprint", "SHA256:new"];
            let line = unasked(key, args.replace, (&args.connect, &args.output));
            let whole = format!(
                "linesman githost accept-host-key {} {given}{beyond}",
                key.join(" ")
            );
            assert_eq!(line, whole.trim_end());
        }
    }

    #[test]
    fn without_a_fingerprint_there_must_be_one_key_to_decide_about() {
        let mut host = host();
        assert_eq!(the_one(&host), Ok(&host.offered[0]));
        let mut another = host.offered[0].clone();
        another.fingerprint = "SHA256:third".to_owned();
        host.offered.push(another);
        let several = the_one(&host).unwrap_err();
        assert_eq!(several.code, Code::Conflict);
        assert!(several.message.contains("SHA256:other, SHA256:third"));
        host.offered.clear();
        assert_eq!(the_one(&host).unwrap_err().code, Code::NotFound);
    }
}
