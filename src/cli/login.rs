//! `linesman login`: by the hub's identity provider, with a browser here or elsewhere, by a code from an admin, or by a token.

mod browser;
mod device;

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::connect::{
    Access, Connect, Environment, client_to, named, read_ca, read_code, read_token,
};
use super::exit::{self, Code, Failure};
use super::output::progress_line;
use super::session::{self, Session};
use crate::client::Client;
use crate::wire::api::{SessionAnswer, TokenRequest};

const EXAMPLES: &str = "\
Examples:
  linesman login hub.example.org                 # opens a browser; without a display, as --device
  linesman login hub.example.org --device        # shows a code to type in a browser on any machine
  linesman login hub.example.org --code-file -   # a local user, with what 'user login-code' printed
  linesman login https://hub.example.org:8443 --token-file admin.token --ca ca.crt
  pass show linesman | linesman login hub.example.org --token-file -

The session is kept in $XDG_STATE_HOME/linesman, ~/.local/state/linesman where that is not set (0600), and
renewed by itself until it ends. LINESMAN_HUB, LINESMAN_TOKEN_FILE and LINESMAN_CA_FILE take its place where
they are set; beside a LINESMAN_HUB that is another hub than the one that is asked, token and CA of the
environment are not used. Where the hub has no identity provider, --ca alone leaves the session as it is and
gives it another CA.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    environment: Environment,
    /// The hub's address, `https://HOST[:PORT]`; without it, that of `LINESMAN_HUB`
    hub: Option<String>,
    /// The same, as other verbs take it
    #[arg(long = "hub", value_name = "URL", conflicts_with = "hub")]
    flag: Option<String>,
    /// Show a code to type in a browser on any machine, instead of opening one here
    #[arg(long, conflicts_with = "no_browser")]
    device: bool,
    /// Log in with a browser on this machine, but only print the address to open
    #[arg(long)]
    no_browser: bool,
    /// Log in with the code in this file that an admin made ('-' = stdin)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "no_browser"])]
    code_file: Option<PathBuf>,
    /// Log in with the token in this file ('-' = stdin)
    #[arg(
        long,
        env = "LINESMAN_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    token_file: Option<PathBuf>,
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
    let hub = named(args.hub.as_deref(), args.flag.as_deref())?.ok_or_else(|| {
        let next = "name it: linesman login https://HUB";
        Failure::new(Code::Usage, "no hub to log in to is named", next)
    })?;
    let directory = session::directory()?;
    let (token_file, given) = (args.token_file.as_ref(), args.ca.as_ref());
    let (token_file, given) = args.environment.for_hub(&hub, token_file, given);
    let ca = match given {
        Some(path) => Some(read_ca(path)?),
        None => session::load(&directory)?
            .hubs
            .get(&hub)
            .and_then(|s| s.ca.clone()),
    };
    let session = match (&args.code_file, token_file) {
        (Some(file), _) => of_answer(by_code(&hub, ca.as_deref(), file).await?, ca),
        (None, Some(file)) if !args.device && !args.no_browser => by_token(&hub, ca, file).await?,
        _ => {
            let client = client_to(&hub, ca.as_deref(), None)?;
            if !client.info().await?.oidc {
                let given = given.map(PathBuf::as_path);
                let refused = no_provider(&hub, given);
                let anew = args.device || args.no_browser;
                let (Some(file), Some(ca), false) = (given, ca, anew) else {
                    return Err(refused.into());
                };
                return go_on((&directory, &hub), (file, &ca), refused).await;
            }
            of_answer(by_provider(&args, &client).await?, ca)
        }
    };
    let until = session.ends_at.as_ref().or(session.expires_at.as_ref());
    let until = until.map(|at| format!(", until {at}")).unwrap_or_default();
    let user = session.user.clone();
    session::change(&directory, |sessions| {
        sessions.hubs.insert(hub.clone(), session);
        sessions.current = Some(hub.clone());
    })
    .await?;
    progress_line(&format!("logged in to {hub} as {user}{until}"));
    Ok(())
}

fn of_answer(answer: SessionAnswer, ca: Option<String>) -> Session {
    Session {
        token: answer.access_token.into(),
        refresh: Some(answer.refresh_token.into()),
        ca,
        user: answer.user,
        expires_at: Some(answer.access_expires_at),
        ends_at: Some(answer.expires_at),
    }
}

async fn by_provider(args: &Args, client: &Client) -> Result<SessionAnswer> {
    if args.device || !(args.no_browser || browser::has_display()) {
        device::log_in(client).await
    } else {
        browser::log_in(client, !args.no_browser).await
    }
}

fn no_provider(hub: &str, ca: Option<&Path>) -> Failure {
    let ca = ca.map(|file| format!(" --ca {}", file.display()));
    let ca = ca.unwrap_or_default();
    Failure::new(
        Code::Denied,
        format!("{hub} has no identity provider to log in with"),
        format!(
            "run: linesman login {hub}{ca} --token-file FILE, or --code-file FILE with a code from an admin; its operator finds the first token in <data>/admin.token"
        ),
    )
}

/// The session that is kept, with the CA that the hub has just answered by: nobody has to log in anew for that.
async fn go_on(
    (directory, hub): (&Path, &str),
    (file, ca): (&Path, &str),
    refused: Failure,
) -> Result<()> {
    if !session::load(directory)?.hubs.contains_key(hub) {
        return Err(refused.into());
    }
    // Nothing else of it: another process may renew it in this moment.
    session::change(directory, |sessions| {
        if let Some(session) = sessions.hubs.get_mut(hub) {
            session.ca = Some(ca.to_owned());
        }
    })
    .await?;
    let connect = Connect {
        hub: Some(hub.to_owned()),
        ..Connect::default()
    };
    let asked = async { anyhow::Ok(connect.client().await?.whoami().await?) };
    let me = match asked.await {
        Ok(me) => me,
        Err(error) if exit::code(&error) == Code::Denied => return Err(refused.into()),
        Err(error) => return Err(error),
    };
    session::change(directory, |sessions| {
        sessions.current = Some(hub.to_owned());
    })
    .await?;
    progress_line(&format!(
        "the session of {hub} goes on as {}, with the CA of {}",
        me.user,
        file.display()
    ));
    Ok(())
}

async fn by_code(hub: &str, ca: Option<&str>, file: &Path) -> Result<SessionAnswer> {
    let code = read_code(file)?;
    let client = client_to(hub, ca, None)?;
    let asked = TokenRequest::LoginCode {
        login_code: code.into_inner(),
    };
    client
        .session_token("log in with the code", &asked)
        .await
        .map_err(|error| {
            if error.slug() == Some("expired-token") {
                let next = "ask a hub admin for another: linesman user login-code NAME";
                return Failure::new(Code::Denied, error.to_string(), next).into();
            }
            error.into()
        })
}

async fn by_token(hub: &str, ca: Option<String>, file: &Path) -> Result<Session> {
    let token = read_token(file)?;
    let access = Access {
        hub: hub.to_owned(),
        ca: ca.clone(),
        token: Some(token.clone()),
        expires_at: None,
        token_file: None,
        renewable: false,
        renews: false,
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
                    file.display()
                ),
            )),
            _ => e.into(),
        })?;
    Ok(Session {
        token,
        refresh: None,
        ca,
        user: me.user,
        expires_at: me.expires_at,
        ends_at: None,
    })
}
