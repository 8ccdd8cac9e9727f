//! `linesman logout`: forgets a session. The token itself stays valid at the hub.

use anyhow::Result;

use super::connect::canonical;
use super::output::progress_line;
use super::session;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The hub to log out of; without it, the hub of the last login
    hub: Option<String>,
    /// Forget the sessions of all hubs
    #[arg(long, conflicts_with = "hub")]
    all: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let directory = session::directory()?;
    let named = args.hub.as_deref().map(canonical).transpose()?;
    let mut gone = Vec::new();
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
            if sessions.hubs.remove(&hub).is_some() {
                gone.push(hub.clone());
            }
            if sessions.current.as_ref() == Some(&hub) {
                sessions.current = None;
            }
        }
    })?;
    match gone.as_slice() {
        [] => progress_line("no session was kept"),
        hubs => progress_line(&format!("logged out of {}", hubs.join(", "))),
    }
    Ok(())
}
