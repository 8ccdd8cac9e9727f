//! `linesman login`: proves the token to the hub and keeps it.

use std::path::PathBuf;

use anyhow::Result;

use super::connect::{Access, canonical, read_ca, read_token};
use super::exit::{Code, Failure};
use super::output::progress_line;
use super::session::{self, Session};

const EXAMPLES: &str = "\
Examples:
  linesman login https://hub.example.org:8443 --token-file admin.token --ca ca.crt
  pass show linesman | linesman login hub.example.org --token-file -

The session is kept in $XDG_STATE_HOME/linesman (0600). LINESMAN_HUB, LINESMAN_TOKEN_FILE and
LINESMAN_CA_FILE take its place where they are set.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The hub's address, `https://HOST[:PORT]`
    #[arg(env = "LINESMAN_HUB", hide_env_values = true)]
    hub: String,
    /// File that holds the token ('-' = stdin)
    #[arg(
        long,
        env = "LINESMAN_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    token_file: PathBuf,
    /// PEM file with the CA of the hub's certificate; without it, the system's roots (and the CA of an earlier login)
    #[arg(
        long,
        env = "LINESMAN_CA_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    ca: Option<PathBuf>,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let hub = canonical(&args.hub)?;
    let directory = session::directory()?;
    let ca = match &args.ca {
        Some(path) => Some(read_ca(path)?),
        None => session::load(&directory)?
            .hubs
            .get(&hub)
            .and_then(|s| s.ca.clone()),
    };
    let token = read_token(&args.token_file)?;
    let access = Access {
        hub: hub.clone(),
        ca: ca.clone(),
        token: Some(token.clone()),
        expires_at: None,
        token_file: None,
    };
    let me = access
        .client()?
        .whoami()
        .await
        .map_err(|e| match e.status() {
            Some(status) if status.as_u16() == 401 => anyhow::Error::from(Failure::new(
                Code::Denied,
                format!("{hub} does not know this token, or it has expired"),
                format!(
                    "check {}; the hub keeps its first token in <data>/admin.token",
                    args.token_file.display()
                ),
            )),
            _ => e.into(),
        })?;
    let session = Session {
        token: token.into_inner(),
        ca,
        user: me.user.clone(),
        expires_at: me.expires_at.clone(),
    };
    session::change(&directory, |sessions| {
        sessions.hubs.insert(hub.clone(), session);
        sessions.current = Some(hub.clone());
    })?;
    let until = me
        .expires_at
        .map(|at| format!(", until {at}"))
        .unwrap_or_default();
    progress_line(&format!("logged in to {hub} as {}{until}", me.user));
    Ok(())
}
