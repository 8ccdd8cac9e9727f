//! `linesman catalog signer`: whose signature the catalog's head has to carry.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure, unread};
use crate::cli::output::{
    Column, Format, Output, ago, counted, document, emit, list, progress_line,
};
use crate::wire::api::{DropSigner, NewSigner, SignerView, SignersView};
use crate::wire::id::ClusterName;

/// As much as the hub takes of one key.
const MAX_FILE: u64 = 16 << 10;

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Verb {
    /// List the keys of which one has to have signed the head
    List(ListArgs),
    /// Verify the head with this key, too; with the first key every cluster begins to verify
    Add(AddArgs),
    /// Verify with this key no longer; without the last one nothing is verified
    Remove(RemoveArgs),
}

const LIST: &str = "\
Examples:
  linesman catalog signer list -o wide      # with subkeys and who added them";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const ADD: &str = "\
Clusters then apply the catalog's head only if one of the keys signed that commit; otherwise they keep what
they have, and say so. The hub has no such key: files of a new cluster wait on a branch for somebody to sign
them. Argo CD verifies all that Applications of its project default read, also from other repositories.
With SSH keys Flux 2.9 and later verifies, and Argo CD does not: what only such a key signed it refuses.

Examples:
  gpg --armor --export ada@example.org | linesman catalog signer add -
  linesman catalog signer add ada.asc
  linesman catalog signer add ~/.ssh/id_ed25519.pub";

#[derive(Debug, clap::Args)]
#[command(after_help = ADD)]
pub(in crate::cli) struct AddArgs {
    /// An armored OpenPGP public key, or an SSH one as ssh-keygen writes it; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also where clusters would refuse the head that there is now, or what the key signs
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const REMOVE: &str = "\
Commits that only this key signed are applied no more. It comes back with its file:
linesman catalog signer add FILE.

Examples:
  linesman catalog signer remove A8E973778FA2D35F068A767EC3EE2C3325042763
  linesman catalog signer remove A8E973778FA2D35F068A767EC3EE2C3325042763 --yes       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = REMOVE)]
pub(in crate::cli) struct RemoveArgs {
    /// The key's fingerprint, 40 hex digits or SHA256:…
    fingerprint: String,
    /// Also where clusters would refuse the head that there is now, or what the other keys sign
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    asks: Yes,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<SignerView>; 5] = [
    Column::new("FINGERPRINT", |s, _| s.fingerprint.clone()),
    Column::new("USER", |s, _| s.user.clone()),
    Column::new("AGE", |s, now| ago(&s.added_at, now)),
    Column::wide("BY", |s, _| s.added_by.clone()),
    Column::wide("SUBKEYS", |s, _| s.subkeys.join(",")),
];

pub(in crate::cli) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::List(args) => {
            let signers = args.connect.client().await?.signers().await?;
            print(args.output.output, &signers)
        }
        Verb::Add(args) => {
            args.connect.leaves_stdin_to(&args.file, "the key")?;
            let public_key = read(&args.file)?;
            let client = args.connect.client().await?;
            let new = NewSigner {
                public_key,
                force: args.force,
            };
            let signers = client.add_signer(&new).await?;
            progress_line("clusters are told; from then on they verify the catalog's head");
            print(args.output.output, &signers)
        }
        Verb::Remove(args) => {
            let client = args.connect.client().await?;
            if !args.asks.yes {
                ask(&client.signers().await?, &args)?;
            }
            let gone = DropSigner {
                fingerprint: args.fingerprint,
                force: args.force,
            };
            let signers = client.drop_signer(&gone).await?;
            progress_line(if signers.keys.is_empty() {
                "clusters are told; nothing is verified any more"
            } else {
                "clusters are told"
            });
            print(args.output.output, &signers)
        }
    }
}

/// What is not there the hub refuses, in its words.
fn ask(signers: &SignersView, args: &RemoveArgs) -> Result<()> {
    let print = &args.fingerprint;
    let Some(key) = signers
        .keys
        .iter()
        .find(|k| k.fingerprint.eq_ignore_ascii_case(print))
    else {
        return Ok(());
    };
    // All of it nobody types.
    let at = key.fingerprint.len().saturating_sub(8);
    let end = key.fingerprint.get(at..).unwrap_or(&key.fingerprint);
    let mut words = vec!["catalog", "signer", "remove", print];
    words.extend(args.force.then_some("--force"));
    confirm(&Question {
        doing: format!("removing the signer {print}"),
        means: means(signers, key),
        word: (end, "the last eight characters of the key's fingerprint"),
        unasked: whole_command(&words, &args.connect, &args.output),
    })
}

fn means(signers: &SignersView, gone: &SignerView) -> Vec<String> {
    let SignerView {
        fingerprint, user, ..
    } = gone;
    let left = signers.keys.len().saturating_sub(1);
    let then = if left == 0 {
        "It is the last one: clusters then apply whatever is pushed, signed or not.".to_owned()
    } else {
        format!(
            "Clusters then apply what one of {} signed.",
            counted(left, "other key")
        )
    };
    vec![
        format!("This removes the key {fingerprint} of {user}."),
        then,
    ]
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        io::stdin().take(MAX_FILE + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
    };
    let read = read.map_err(|e| unread(&format!("read {}", path.display()), &e))?;
    if read as u64 > MAX_FILE {
        let text = format!("{} has more than {MAX_FILE} bytes", path.display());
        let next = "export the key alone: gpg --armor --export-options export-minimal --export FINGERPRINT";
        return Err(Failure::new(Code::Usage, text, next).into());
    }
    Ok(text)
}

fn print(format: Format, signers: &SignersView) -> Result<()> {
    if matches!(format, Format::Json | Format::Yaml) {
        return emit(&document(format, signers)?);
    }
    let name = |s: &SignerView| s.fingerprint.clone();
    let none = "nothing is verified; begin: linesman catalog signer add FILE";
    list(format, &signers.keys, &COLUMNS, name, none)?;
    for line in remarks(signers) {
        progress_line(&line);
    }
    Ok(())
}

/// What people have to know beside the keys.
fn remarks(signers: &SignersView) -> Vec<String> {
    if signers.keys.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if let (Some(head), None) = (&signers.head, &signers.head_signed_by) {
        let short: String = head.chars().take(10).collect();
        lines.push(format!(
            "the head {short} names none of these keys as its signer: clusters keep the revision they have until a signed \
             commit is pushed"
        ));
    }
    if !signers.not_verifying.is_empty() {
        let names: Vec<&str> = signers
            .not_verifying
            .iter()
            .map(ClusterName::as_str)
            .collect();
        lines.push(format!(
            "these clusters do not verify, because their agent does not say that Argo CD does (it is older, or \
             ARGOCD_GPG_ENABLED switches that off there): {}",
            names.join(", ")
        ));
    }
    if !signers.ssh_unread.is_empty() {
        let names: Vec<&str> = signers.ssh_unread.iter().map(ClusterName::as_str).collect();
        lines.push(format!(
            "these clusters refuse what only an SSH key signed, because they have Argo CD, or their agent does not say that Flux \
             verifies with such keys (one of the two is older): {}",
            names.join(", ")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_verified_is_said() {
        let key = SignerView {
            fingerprint: "A8".repeat(20),
            subkeys: Vec::new(),
            user: "Ada".to_owned(),
            public_key: String::new(),
            added_by: "admin".to_owned(),
            added_at: "2026-01-01T00:00:00Z".to_owned(),
        };
        let mut signers = SignersView {
            keys: vec![key],
            head: Some("0123456789abcdef".to_owned()),
            head_signed_by: Some("A8".repeat(20)),
            not_verifying: Vec::new(),
            ssh_unread: Vec::new(),
        };
        assert_eq!(remarks(&signers), Vec::<String>::new());
        assert_eq!(
            means(&signers, &signers.keys[0])[1],
            "It is the last one: clusters then apply whatever is pushed, signed or not."
        );
        signers.head_signed_by = None;
        signers.not_verifying = vec!["us1".parse().unwrap()];
        let lines = remarks(&signers);
        assert!(lines[0].contains("0123456789 names none"), "{lines:?}");
        assert!(lines[1].ends_with("off there): us1"), "{lines:?}");
        signers.ssh_unread = vec!["us2".parse().unwrap()];
        let lines = remarks(&signers);
        assert!(lines[2].ends_with("is older): us2"), "{lines:?}");
        signers.keys.clear();
        assert_eq!(remarks(&signers), Vec::<String>::new());
    }
}
