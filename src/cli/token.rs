//! `linesman token`: tokens of people and programs.

mod revoke;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::connect::Connect;
use super::duration;
use super::once::{self, Made};
use super::output::{Column, Output, list, progress_line};
use crate::wire::api::{ApiTokenView, NewApiToken};
use crate::wire::id::ClusterName;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Make a token; it is shown this once
    Create(CreateArgs),
    /// List tokens in force
    List(ListArgs),
    /// End a token: new requests are refused at once, watches and sessions that run by it are cut
    Revoke(revoke::Args),
}

/// The words of the hub's scopes.
const SCOPES: [&str; 7] = [
    "kube",
    "kube-read",
    "viewer",
    "operator",
    "access",
    "auditor",
    "admin",
];

const CREATE: &str = "\
Scopes: kube reaches clusters as the user's grants allow, kube-read does so reading only, and each role
(viewer, operator, access, auditor, admin) uses that role of the user. Without a scope the token may all that
the user may.

Examples:
  linesman token create --title laptop --file laptop.token
  linesman token create --user ci --title deploy --for 30d --scope kube --cluster eu1 --file ci.token";

#[derive(Debug, clap::Args)]
#[command(after_help = CREATE)]
pub(super) struct CreateArgs {
    /// Whose token; without it, your own
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    title: String,
    /// How long it lives, 366d at most
    #[arg(long = "for", value_name = "TIME", default_value = "90d", value_parser = duration::parse)]
    lasts: Duration,
    /// What it may be used for; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", value_parser = SCOPES)]
    scopes: Vec<String>,
    /// Cluster that it reaches, with the scope kube or kube-read; may be given several times
    #[arg(long = "cluster", value_name = "NAME")]
    clusters: Vec<ClusterName>,
    /// Write the token to this file (0600) instead of stdout
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const LIST: &str = "\
VOUCHED UNTIL is when a token ends before UNTIL, unless the identity provider vouches for its user anew, as at
a login (linesman hub --oidc-vouched-within).

Examples:
  linesman token list
  linesman token list --all -o wide      # of everybody, for admins";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(super) struct ListArgs {
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

const COLUMNS: [Column<ApiTokenView>; 9] = [
    Column::new("ID", |t, _| t.id.clone()),
    Column::new("USER", |t, _| t.user.clone()),
    Column::new("TITLE", |t, _| t.title.clone()),
    Column::new("SCOPES", |t, _| t.scopes.join(",")),
    Column::new("CLUSTERS", |t, _| clusters(t.clusters.as_ref())),
    Column::new("UNTIL", |t, _| until(t)),
    Column::new("VOUCHED UNTIL", |t, _| vouched(t)),
    Column::wide("BY", |t, _| t.created_by.clone()),
    Column::wide("SINCE", |t, _| t.created_at.clone()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Create(args) => create(args).await,
        Verb::List(args) => {
            let of = if args.all {
                Some("*".to_owned())
            } else {
                args.user
            };
            let tokens = args.connect.client().await?.tokens(of.as_deref()).await?;
            list(
                args.output.output,
                &tokens,
                &COLUMNS,
                |t| t.id.clone(),
                "no tokens",
            )
        }
        Verb::Revoke(args) => revoke::run(args).await,
    }
}

fn clusters(names: Option<&BTreeSet<ClusterName>>) -> String {
    let Some(names) = names else {
        return "all".to_owned();
    };
    let names: Vec<&str> = names.iter().map(ClusterName::as_str).collect();
    names.join(",")
}

fn until(token: &ApiTokenView) -> String {
    let end = token.expires_at.clone();
    end.unwrap_or_else(|| "no end".to_owned())
}

/// When it ends before that, unless the identity provider vouches for its user anew.
fn vouched(token: &ApiTokenView) -> String {
    token.vouched_until.clone().unwrap_or_default()
}

async fn create(args: CreateArgs) -> Result<()> {
    let new = NewApiToken {
        user: args.user,
        title: args.title,
        lasts: args.lasts.as_secs(),
        scopes: args.scopes.into_iter().collect(),
        clusters: (!args.clusters.is_empty()).then(|| args.clusters.into_iter().collect()),
    };
    let format = args.output.output;
    let file = once::place("token", args.file.as_deref(), format)?;
    let client = args.connect.client().await?;
    let made = client.create_token(&new).await?;
    let until = made.view.expires_at.clone().unwrap_or_default();
    progress_line(&format!(
        "token {} of {} until {until}; it is shown this once",
        made.view.id, made.view.user
    ));
    let made = Made {
        name: &made.view.id,
        secret: &made.token,
        whole: &made,
        rest: &made.view,
        lost: &format!(
            "end it: linesman token revoke {}; then make another one",
            made.view.id
        ),
    };
    once::give(&made, file, format)
}

#[cfg(test)]
mod tests {
    use super::SCOPES;
    use crate::hub::auth::Scope;

    #[test]
    fn the_words_are_the_hubs() {
        for word in SCOPES {
            assert!(Scope::parse(word).is_some(), "{word}");
        }
    }
}
