//! `linesman whoami`: the user, roles and groups that the hub sees.

use anyhow::Result;

use super::connect::{Access, Connect};
use super::output::{Format, Output, document, emit, rows_text};
use super::session;
use crate::wire::api::WhoAmI;

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
        Format::Table | Format::Wide => {
            rows_text(None, rows(me, session_end(&access), client.hub()))
        }
    })
}

fn rows(me: WhoAmI, session_end: Option<String>, hub: String) -> Vec<Vec<String>> {
    let groups = match me.groups_lapsed {
        None => me.groups.join(", "),
        Some(why) => format!("none: {why}; run: linesman login {hub}"),
    };
    let scopes = if me.scopes.is_empty() {
        "all that the user may".to_owned()
    } else {
        me.scopes.join(", ")
    };
    let until = session_end.or(me.expires_at);
    let until = until.unwrap_or_else(|| "no end".to_owned());
    let vouched = me.vouched_until.map(|at| {
        let text =
            format!("{at}; the token ends then, before its own end, without: linesman login {hub}");
        ("vouched until", text)
    });
    let rows = [
        ("user", me.user),
        ("roles", me.roles.join(", ")),
        ("groups", groups),
        ("scopes", scopes),
        ("until", until),
    ];
    let rows = rows.into_iter().chain(vouched).chain([("hub", hub)]);
    rows.map(|(key, value)| vec![key.to_owned(), value])
        .collect()
}

/// When the session ends that renews the token, where one does: its tokens end every few minutes, and nobody has to care.
fn session_end(access: &Access) -> Option<String> {
    if !access.renews {
        return None;
    }
    let mut sessions = session::load(&session::directory().ok()?).ok()?;
    sessions.hubs.remove(&access.hub)?.ends_at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_ends_with_the_providers_word_says_so_beside_its_own_end() {
        let hub = "https://hub.example.org";
        let end = "2027-01-01T00:00:00.000Z".to_owned();
        let mut me = WhoAmI {
            user: "ada".to_owned(),
            roles: vec!["viewer".to_owned()],
            groups: vec!["sre".to_owned()],
            groups_lapsed: None,
            scopes: Vec::new(),
            expires_at: Some(end.clone()),
            vouched_until: None,
            hub: hub.to_owned(),
        };
        let shown = |me: &WhoAmI| rows(me.clone(), None, hub.to_owned());
        let row = |key: &str, value: &str| vec![key.to_owned(), value.to_owned()];
        let mut expected = vec![
            row("user", "ada"),
            row("roles", "viewer"),
            row("groups", "sre"),
            row("scopes", "all that the user may"),
            row("until", &end),
            row("hub", hub),
        ];
        assert_eq!(shown(&me), expected);
        me.vouched_until = Some("2026-02-01T00:00:00.000Z".to_owned());
        let text = "2026-02-01T00:00:00.000Z; the token ends then, before its own end, without: \
                    linesman login https://hub.example.org";
        expected.insert(5, row("vouched until", text));
        assert_eq!(shown(&me), expected);
    }
}
