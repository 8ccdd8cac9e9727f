//! `linesman user`: the hub's local users.

mod remove;

use std::path::PathBuf;

use super::connect::Connect;
use super::once::{self, Made};
use super::output::{Column, Output, done, list, progress_line};
use crate::wire::api::{NewUser, UserChange, UserView};
use anyhow::Result;
use serde_json::json;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Add a user; give it a token with `token create` and clusters with `grant add`
    Add(AddArgs),
    /// Change what a user may: roles at once, groups for what the user runs as well
    Set(SetArgs),
    /// List users with their roles, groups and number of tokens
    List(ListArgs),
    /// Make a code that a local user logs in with, once and within ten minutes
    LoginCode(LoginCodeArgs),
    /// End all sessions of a user, and cut what runs by them
    EndSessions(EndSessionsArgs),
    /// Remove a user: its tokens, SSH keys and own grants end, and what it runs through the hub is cut
    Remove(remove::Args),
}

/// The words of the hub's roles.
const ROLES: [&str; 5] = ["viewer", "operator", "access", "auditor", "admin"];

const ADD: &str = "\
Roles: viewer sees clusters and heals; operator sees them too, adds and removes clusters, pushes to the
catalog, and chooses engines and the agent's image, so it is as good as root in every cluster; access gives
grants; auditor reads the audit; admin does all of it and manages users. Reaching a cluster's API is a grant,
not a role.

Example:
  linesman user add ada --role operator --group sre
  linesman token create --user ada --title laptop --for 90d --file ada.token";

#[derive(Debug, clap::Args)]
#[command(after_help = ADD)]
pub(super) struct AddArgs {
    /// The user's name
    name: String,
    /// What the user may do at the hub; may be given several times
    #[arg(long = "role", value_name = "ROLE", value_parser = ROLES)]
    roles: Vec<String>,
    /// Group that grants can name; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const SET: &str = "\
What is given replaces what is on record; what is not given stays. Groups of users who log in with the
identity provider are changed there.

Example:
  linesman user set ada --role viewer --group sre --group oncall";

#[derive(Debug, clap::Args)]
#[command(after_help = SET)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub(super) struct SetArgs {
    /// The user's name
    name: String,
    /// What the user may do at the hub; may be given several times
    #[arg(long = "role", value_name = "ROLE", group = "change", value_parser = ROLES)]
    roles: Vec<String>,
    /// No role at all
    #[arg(long, group = "change", conflicts_with = "roles")]
    no_roles: bool,
    /// Group that grants can name; may be given several times
    #[arg(long = "group", value_name = "GROUP", group = "change")]
    groups: Vec<String>,
    /// No group at all
    #[arg(long, group = "change", conflicts_with = "groups")]
    no_groups: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const LIST: &str = "\
A role that a group of the identity provider gives (--oidc-role of the hub) stands with that group; 'not in
force' is one whose user the provider was not heard on for too long: it counts again from the next login on.

Examples:
  linesman user list -o wide      # also whom an identity provider vouches for";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(super) struct ListArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const LOGIN_CODE: &str = "\
The code is shown once. A new one ends the one before. What its user gets is a session as from an identity
provider, which ends by itself; a program is better off with a token (`token create`).

Examples:
  linesman user login-code ada --file ada.code      # give her the file, or what it holds
  linesman login hub.example.org --code-file ada.code";

#[derive(Debug, clap::Args)]
#[command(after_help = LOGIN_CODE)]
pub(super) struct LoginCodeArgs {
    /// The user's name
    name: String,
    /// Write the code to this file (0600) instead of stdout
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const END_SESSIONS: &str = "\
For a machine that is lost, or in somebody else's hands: whatever session it has is over, as all others of the
user are. Without a name they are your own, this one among them. Tokens and SSH keys are no sessions, and go
on: linesman token list and linesman catalog key list, with --user NAME. Who can log in does so again.

Examples:
  linesman user end-sessions ada";

#[derive(Debug, clap::Args)]
#[command(after_help = END_SESSIONS)]
pub(super) struct EndSessionsArgs {
    /// Whose; without it, your own. Others' are for admins
    name: Option<String>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<UserView>; 5] = [
    Column::new("NAME", |u, _| u.name.clone()),
    Column::new("ROLES", |u, _| roles(u).join(",")),
    Column::new("GROUPS", |u, _| u.groups.join(",")),
    Column::new("TOKENS", |u, _| u.tokens.to_string()),
    Column::wide("FROM", |u, _| {
        u.provider.clone().unwrap_or_else(|| "local".to_owned())
    }),
];

/// The user's own, and those of groups with what gives them.
fn roles(user: &UserView) -> Vec<String> {
    let given = user.roles_by_group.iter().map(|given| {
        let lapsed = if given.in_force { "" } else { ", not in force" };
        format!("{} (by {}{lapsed})", given.role, given.group)
    });
    user.roles.iter().cloned().chain(given).collect()
}

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Add(args) => {
            let new = NewUser {
                name: args.name,
                roles: args.roles.into_iter().collect(),
                groups: args.groups.into_iter().collect(),
            };
            let user = args.connect.client().await?.add_user(&new).await?;
            list(
                args.output.output,
                &[user],
                &COLUMNS,
                |u| u.name.clone(),
                "",
            )
        }
        Verb::Set(args) => set(args).await,
        Verb::List(args) => {
            let users = args.connect.client().await?.users().await?;
            list(
                args.output.output,
                &users,
                &COLUMNS,
                |u| u.name.clone(),
                "no users",
            )
        }
        Verb::LoginCode(args) => login_code(args).await,
        Verb::EndSessions(args) => end_sessions(args).await,
        Verb::Remove(args) => remove::run(args).await,
    }
}

async fn login_code(args: LoginCodeArgs) -> Result<()> {
    let format = args.output.output;
    let file = once::place("code", args.file.as_deref(), format)?;
    let client = args.connect.client().await?;
    let made = client.make_login_code(&args.name).await?;
    progress_line(&format!(
        "{} logs in with it once, until {}: linesman login {} --code-file FILE",
        made.user,
        made.expires_at,
        client.hub()
    ));
    let made = Made {
        name: &made.user,
        secret: &made.code,
        whole: &made,
        rest: &json!({ "user": made.user, "expiresAt": made.expires_at }),
        lost: "make another one, which ends this one",
    };
    once::give(&made, file, format)
}

async fn end_sessions(args: EndSessionsArgs) -> Result<()> {
    let client = args.connect.client().await?;
    let name = match args.name {
        Some(name) => name,
        None => client.whoami().await?.user,
    };
    client.end_sessions(&name).await?;
    progress_line(&format!(
        "all sessions of {name} have ended; what goes on: linesman token list --user {name}, linesman catalog key list --user {name}"
    ));
    done(args.output.output, &name, &json!({ "name": name }))
}

async fn set(args: SetArgs) -> Result<()> {
    let list = |given: Vec<String>, none: bool| {
        (none || !given.is_empty()).then(|| given.into_iter().collect())
    };
    let change = UserChange {
        roles: list(args.roles, args.no_roles),
        groups: list(args.groups, args.no_groups),
    };
    let client = args.connect.client().await?;
    let rev = client.user(&args.name).await?.rev;
    let user = client.set_user(&args.name, rev, &change).await?;
    super::output::list(
        args.output.output,
        &[user],
        &COLUMNS,
        |u| u.name.clone(),
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::ROLES;
    use crate::hub::auth::Role;

    #[test]
    fn the_words_are_the_hubs() {
        for word in ROLES {
            assert!(Role::parse(word).is_some(), "{word}");
        }
    }
}
