//! `linesman logout`: ends and forgets a session. A token that was given by file stays valid at the hub.

use std::time::Duration;

use anyhow::Result;
use tokio::time::timeout;

use super::connect::{canonical, client_to};
use super::output::progress_line;
use super::session::{self, Session};
use crate::wire::api::EndSession;

/// A hub that is away does not keep anyone from logging out.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
The hub ends the session; one that is away is waited for 5s, and the session ends there by itself. A token
that was given by --token-file is forgotten here and stays valid: linesman token revoke ID.

Examples:
  linesman logout
  linesman logout --all";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The hub to log out of; without it, the hub of the last login
    hub: Option<String>,
    /// Forget the sessions of all hubs
    #[arg(long, conflicts_with = "hub")]
    all: bool,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let directory = session::directory()?;
    let named = args.hub.as_deref().map(canonical).transpose()?;
    let mut gone: Vec<(String, Session)> = Vec::new();
    session::change(&directory, |sessions| {
        let leaves: Vec<String> = if args.all {
            sessions.hubs.keys().cloned().collect()
        } else {
            named
                .clone()
                .or_else(|| sessions.current.clone())
                .into_iter()
                .collect()
        };
        for hub in leaves {
            gone.extend(sessions.hubs.remove_entry(&hub));
            if sessions.current.as_ref() == Some(&hub) {
                sessions.current = None;
            }
        }
    })?;
    if gone.is_empty() {
        progress_line("no session was kept");
        return Ok(());
    }
    let hubs: Vec<&str> = gone.iter().map(|(hub, _)| hub.as_str()).collect();
    progress_line(&format!("logged out of {}", hubs.join(", ")));
    for (hub, session) in &gone {
        if let Some(refresh) = &session.refresh
            && let Err(why) = end(hub, session, refresh).await
        {
            progress_line(&format!(
                "{hub} was not told, its session ends by itself: {why:#}"
            ));
        }
    }
    Ok(())
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
