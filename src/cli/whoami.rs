//! `linesman whoami`: the user, roles and groups that the hub sees.

use anyhow::Result;

use super::connect::{Access, Connect};
use super::output::{Format, Output, document, emit, rows_text};
use super::session;

const EXAMPLES: &str = "\
Examples:
  linesman whoami
  linesman whoami -o json      # roles, groups and scopes for a program";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let access = args.connect.access().await?;
    let client = access.user_client()?;
    let me = client.whoami().await?;
    emit(&match args.output.output {
        Format::Json | Format::Yaml => document(args.output.output, &me)?,
        Format::Name => format!("{}\n", me.user),
        Format::Table | Format::Wide => rows_text(
            None,
            [
                ("user", me.user),
                ("roles", me.roles.join(", ")),
                (
                    "groups",
                    match me.groups_lapsed {
                        None => me.groups.join(", "),
                        Some(why) => {
                            format!("none: {why}; run: linesman login {}", client.hub())
                        }
                    },
                ),
                (
                    "scopes",
                    if me.scopes.is_empty() {
                        "all that the user may".to_owned()
                    } else {
                        me.scopes.join(", ")
                    },
                ),
                (
                    "until",
                    session_end(&access)
                        .or(me.expires_at)
                        .unwrap_or_else(|| "no end".to_owned()),
                ),
                ("hub", client.hub()),
            ]
            .map(|(key, value)| vec![key.to_owned(), value]),
        ),
    })
}

/// When the session ends that renews the token, where one does: its tokens end every few minutes, and nobody has to care.
fn session_end(access: &Access) -> Option<String> {
    if !access.renews {
        return None;
    }
    let mut sessions = session::load(&session::directory().ok()?).ok()?;
    sessions.hubs.remove(&access.hub)?.ends_at
}
