//! `linesman logout`: ends and forgets a session. A token that was given by file stays valid at the hub.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tokio::time::timeout;

use super::connect::{client_to, named};
use super::output::progress_line;
use super::session::{self, Session};
use crate::wire::api::EndSession;

/// A hub that is away does not keep anyone from logging out.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
The hub ends the session; one that is away is waited for 5s, and the session ends there by itself. A token
that was given by --token-file is forgotten here and stays valid: linesman token revoke ID. --all forgets
what cannot be read, too.

Examples:
  linesman logout
  linesman logout --all";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The hub to log out of; without it, that of `LINESMAN_HUB`, or of the last login
    hub: Option<String>,
    /// The same, as other verbs take it
    #[arg(long = "hub", value_name = "URL", conflicts_with = "hub")]
    flag: Option<String>,
    /// Forget the sessions of all hubs
    #[arg(long, conflicts_with_all = ["hub", "flag"])]
    all: bool,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let directory = session::directory()?;
    let gone: Vec<(String, Session)> = if args.all {
        let Some(sessions) = session::forget(&directory).await? else {
            progress_line(
                "what was kept could not be read and is forgotten; at the hubs it ends by itself",
            );
            return Ok(());
        };
        sessions.hubs.into_iter().collect()
    } else {
        let hub = named(args.hub.as_deref(), args.flag.as_deref())?;
        leave(&directory, hub).await?.into_iter().collect()
    };
    if gone.is_empty() {
        progress_line("no session was kept");
        return Ok(());
    }
    let hubs: Vec<&str> = gone.iter().map(|(hub, _)| hub.as_str()).collect();
    progress_line(&format!("logged out of {}", hubs.join(", ")));
    for (hub, session) in &gone {
        if let Some(refresh) = &session.refresh
            && let Err(why) = end(hub, session, refresh.expose()).await
        {
            progress_line(&format!(
                "{hub} was not told, its session ends by itself: {why:#}"
            ));
        }
    }
    Ok(())
}

/// Forgets the session of this hub, or of the last login's.
async fn leave(directory: &Path, hub: Option<String>) -> Result<Option<(String, Session)>> {
    let mut gone = None;
    session::change(directory, |sessions| {
        let Some(hub) = hub.or_else(|| sessions.current.clone()) else {
            return;
        };
        gone = sessions.hubs.remove_entry(&hub);
        if sessions.current.as_ref() == Some(&hub) {
            sessions.current = None;
        }
    })
    .await?;
    Ok(gone)
}

async fn end(hub: &str, session: &Session, refresh: &str) -> Result<()> {
    let client = client_to(hub, session.ca.as_deref(), None)?;
    let end = EndSession {
        refresh_token: refresh.to_owned(),
    };
    match timeout(PATIENCE, client.end_session(&end)).await {
        Ok(ended) => Ok(ended?),
        Err(_) => anyhow::bail!("no answer within 5 s"),
    }
}
