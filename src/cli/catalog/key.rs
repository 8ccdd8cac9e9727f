//! `linesman catalog key`: the SSH keys by which people read the catalog and push to it.

use anyhow::Result;
use serde_json::json;

use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Column, Output, ago, done, list, progress_line};
use crate::wire::api::SshKeyView;

#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Verb {
    /// List the SSH keys that people have given to the hub, such as by 'catalog clone'
    List(ListArgs),
    /// Take an SSH key away: from then on nothing is fetched or pushed by it
    Remove(RemoveArgs),
}

const LIST: &str = "\
Examples:
  linesman catalog key list
  linesman catalog key list --all -o wide      # of everybody, for admins";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(in crate::cli) struct ListArgs {
    /// Of this user; without it, your own
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    user: Option<String>,
    /// Of all users
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const REMOVE: &str = "\
A key has no end of its own: it lets its user read and push for as long as their roles do, whatever became of
the token or session that it was given with. What runs by it ends within two seconds. Who has the private half
and the role operator gives it again: linesman catalog clone.

Examples:
  linesman catalog key remove SHA256:…
  linesman catalog key remove SHA256:… --user ada           # another's, for admins
  linesman catalog key remove SHA256:… --user ada --yes     # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = REMOVE)]
pub(in crate::cli) struct RemoveArgs {
    /// The key's fingerprint, SHA256:…
    fingerprint: String,
    /// Of this user; without it, your own
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    asks: Yes,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<SshKeyView>; 5] = [
    Column::new("FINGERPRINT", |k, _| k.fingerprint.clone()),
    Column::new("USER", |k, _| k.user.clone()),
    Column::new("TITLE", |k, _| k.title.clone()),
    Column::new("AGE", |k, now| ago(&k.created_at, now)),
    Column::wide("SINCE", |k, _| k.created_at.clone()),
];

pub(in crate::cli) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::List(args) => {
            let of = if args.all {
                Some("*".to_owned())
            } else {
                args.user
            };
            let keys = args.connect.client().await?.ssh_keys(of.as_deref()).await?;
            let name = |k: &SshKeyView| k.fingerprint.clone();
            let none = "no SSH keys; make one: linesman catalog clone";
            list(args.output.output, &keys, &COLUMNS, name, none)
        }
        Verb::Remove(args) => remove(args).await,
    }
}

async fn remove(args: RemoveArgs) -> Result<()> {
    let client = args.connect.client().await?;
    let keys = client.ssh_keys(args.user.as_deref()).await?;
    let Some(key) = keys.iter().find(|k| k.fingerprint == args.fingerprint) else {
        return Err(unknown(&args).into());
    };
    // One's own comes back by the next 'catalog clone'; another's does not by anything that an admin can do.
    if args.user.is_some() && !args.asks.yes {
        ask(key, &args)?;
    }
    client.remove_ssh_key(&key.id).await?;
    let (print, user) = (&key.fingerprint, &key.user);
    progress_line(&format!("SSH key {print} of {user} taken away"));
    let told = json!({"fingerprint": print, "user": user});
    done(args.output.output, print, &told)
}

fn unknown(args: &RemoveArgs) -> Failure {
    let print = &args.fingerprint;
    let (whose, next) = match &args.user {
        Some(user) => (user.as_str(), "linesman catalog key list --all"),
        None => (
            "you",
            "linesman catalog key list; another's needs --user NAME",
        ),
    };
    let text = format!("there is no SSH key {print} of {whose}");
    Failure::new(Code::NotFound, text, format!("see: {next}"))
}

fn ask(key: &SshKeyView, args: &RemoveArgs) -> Result<()> {
    let (print, user) = (&key.fingerprint, &key.user);
    confirm(&Question {
        doing: format!("taking away the SSH key {print}"),
        means: vec![
            format!("This takes the SSH key {print} of {user} away, '{}'.", key.title),
            "Whoever has its private half fetches and pushes nothing by it until they give it again, with the role operator."
                .to_owned(),
        ],
        word: (user, "the name of its user"),
        unasked: whole_command(
            &["catalog", "key", "remove", print, "--user", user],
            &args.connect,
            &args.output,
        ),
    })
}
