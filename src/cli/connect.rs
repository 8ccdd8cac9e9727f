//! Which hub, as whom: flags, then environment, then the session that `login` kept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use super::exit::{Code, Failure};
use super::progress;
use super::session::{self, Session, Sessions, renew};
use crate::client::{self, Client};
use crate::clock;
use crate::secret::Secret;

mod files;

pub(super) use files::{read_ca, read_code, read_proxy, read_roots, read_token};

/// The flags of every verb that speaks to the hub.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Connect {
    #[command(flatten)]
    pub environment: Environment,
    /// The hub's address; without it, the hub of the last login
    #[arg(
        long,
        help_heading = "Hub",
        env = "LINESMAN_HUB",
        value_name = "URL",
        hide_env_values = true
    )]
    pub hub: Option<String>,
    /// File that holds the token ('-' = stdin); without it, the session of the login
    #[arg(
        long,
        help_heading = "Hub",
        env = "LINESMAN_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// PEM file with the CA of the hub's certificate; these roots only
    #[arg(
        long,
        help_heading = "Hub",
        env = "LINESMAN_CA_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub ca: Option<PathBuf>,
}

/// Which flags the environment gave. What it gives is for the hub that it names: kubectl's plugin is asked for the hub of each
/// kubeconfig, and must not show one hub's token to another.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Environment {
    hub: bool,
    token_file: bool,
    ca: bool,
}

/// Of a command that takes a hub, `--token-file` and `--ca`, read before they are taken from its matches.
impl clap::FromArgMatches for Environment {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let gave = |id| matches.value_source(id) == Some(ValueSource::EnvVariable);
        Ok(Self {
            hub: gave("hub"),
            token_file: gave("token_file"),
            ca: gave("ca"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Environment {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl Environment {
    /// What of this is for the hub: all that flags gave, and what the environment gave if it names no other.
    pub(super) fn for_hub<'a>(
        self,
        hub: &str,
        token_file: Option<&'a PathBuf>,
        ca: Option<&'a PathBuf>,
    ) -> (Option<&'a PathBuf>, Option<&'a PathBuf>) {
        let named = hub_of_environment();
        // One that cannot be read is no other hub's, either.
        let same = |named: &str| canonical(named).is_ok_and(|named| named == hub);
        let other = named.is_some_and(|named| !named.to_str().is_some_and(same));
        (
            token_file.filter(|_| !(other && self.token_file)),
            ca.filter(|_| !(other && self.ca)),
        )
    }
}

fn hub_of_environment() -> Option<OsString> {
    std::env::var_os("LINESMAN_HUB").filter(|named| !named.is_empty())
}

/// The hub that `login` and `logout` are about: their argument, the flag that other verbs take, or what the environment names.
pub(super) fn named(argument: Option<&str>, flag: Option<&str>) -> Result<Option<String>> {
    let set = hub_of_environment().map(|named| named.to_string_lossy().into_owned());
    let named = argument.or(flag).or(set.as_deref());
    named.map(canonical).transpose()
}

/// A hub with what is needed to speak to it.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// As the session names it, without a slash at the end.
    pub hub: String,
    pub ca: Option<String>,
    pub token: Option<Secret<String>>,
    /// RFC 3339; known for sessions only.
    pub expires_at: Option<String>,
    /// Where the token came from, if from a file; `-` for stdin, which is read by now.
    pub token_file: Option<PathBuf>,
    /// The session has to be renewed before it is used.
    pub renewable: bool,
    /// The session can be renewed while it is used.
    pub renews: bool,
}

impl Connect {
    /// The hub with a token that is still good: a session is renewed where it has to be.
    pub(super) async fn access(&self) -> Result<Access> {
        self.found()?.renewed().await
    }

    /// Puts the hub, its CA and the token together as they are; needs no network.
    pub(super) fn found(&self) -> Result<Access> {
        let sessions = match session::directory().map(|directory| session::load(&directory)) {
            Ok(Ok(sessions)) => sessions,
            // Flags and environment may be all that is needed, as in a container without a home.
            Err(_) if self.hub.is_some() => Sessions::default(),
            // Or beside a file that is damaged.
            Ok(Err(_)) if self.hub.is_some() && self.token_file.is_some() => Sessions::default(),
            Ok(Err(e)) | Err(e) => return Err(e),
        };
        let hub = match self.hub.as_ref().or(sessions.current.as_ref()) {
            Some(hub) => canonical(hub)?,
            None => return Err(no_hub(&sessions).into()),
        };
        let session: Option<&Session> = sessions.hubs.get(&hub);
        let (token_file, ca) = (self.token_file.as_ref(), self.ca.as_ref());
        let (own, ca) = self.environment.for_hub(&hub, token_file, ca);
        if own.is_none() && token_file.is_some() && session.is_none() {
            return Err(of_another(&hub).into());
        }
        let ca = match ca {
            Some(path) => Some(read_ca(path)?),
            None => session.and_then(|s| s.ca.clone()),
        };
        Ok(match own {
            Some(path) => Access {
                hub,
                ca,
                token: Some(read_token(path)?),
                expires_at: None,
                token_file: Some(whole(path)),
                renewable: false,
                renews: false,
            },
            None => Access {
                hub,
                ca,
                token: session.map(|s| s.token.clone()),
                expires_at: session.and_then(|s| s.expires_at.clone()),
                token_file: None,
                renewable: session.is_some_and(|s| renew::is_due(s, clock::now())),
                renews: session.is_some_and(|s| s.refresh.is_some()),
            },
        })
    }

    /// A client that may speak for the user.
    pub(super) async fn client(&self) -> Result<Client> {
        self.access().await?.user_client()
    }

    /// The same for a verb that waits for the hub: a session that is due is renewed with the first call, which waits as those behind
    /// it do.
    pub(super) fn patient_client(&self) -> Result<Client> {
        let access = Access {
            renewable: false,
            ..self.found()?
        };
        access.user_client()
    }

    /// These flags as they were given. What the environment gave, it gives again.
    pub(super) fn typed(&self) -> Vec<String> {
        let shown = |path: &PathBuf| path.display().to_string();
        let flags = [
            ("--hub", self.hub.clone(), self.environment.hub),
            (
                "--token-file",
                self.token_file.as_ref().map(shown),
                self.environment.token_file,
            ),
            ("--ca", self.ca.as_ref().map(shown), self.environment.ca),
        ];
        flags
            .into_iter()
            .filter(|(_, _, environment)| !environment)
            .filter_map(|(flag, value, _)| Some([flag.to_owned(), value?]))
            .flatten()
            .collect()
    }

    /// Refuses a command line that would read stdin twice: `flag` names the input beside the token.
    pub(super) fn leaves_stdin_to(&self, path: &Path, flag: &str) -> Result<(), Failure> {
        if !is_stdin(path) || !self.token_file.as_deref().is_some_and(is_stdin) {
            return Ok(());
        }
        Err(Failure::new(
            Code::Usage,
            format!("the token and {flag} cannot both come from stdin"),
            "put one of them into a file, or log in: linesman login",
        ))
    }
}

impl Access {
    /// With a session that is still good.
    pub(super) async fn renewed(self) -> Result<Self> {
        if !self.renewable {
            return Ok(self);
        }
        let session = renew::renew(&self.hub).await?;
        Ok(Self {
            token: Some(session.token),
            expires_at: session.expires_at,
            renewable: false,
            ..self
        })
    }

    /// A client that may speak for the user.
    pub(super) fn user_client(&self) -> Result<Client> {
        if self.token.is_none() {
            return Err(not_logged_in(&self.hub).into());
        }
        self.client()
    }

    /// A client whose session renews itself, however long the command runs.
    pub(super) fn client(&self) -> Result<Client> {
        let client = client_to(&self.hub, self.ca.as_deref(), self.token.clone())?;
        Ok(match &self.token {
            // One that is due is the caller's to renew, who tells how that went.
            Some(token) if self.renews && !self.renewable => {
                let held = (token.clone(), self.expires_at.clone());
                client.renewing(renew::as_it_ends(&self.hub, held))
            }
            _ => client,
        })
    }
}

/// A client of a hub, as every verb has it: it tells whoever waits of a call that is not answered soon.
pub(super) fn client_to(
    hub: &str,
    ca: Option<&str>,
    token: Option<Secret<String>>,
) -> Result<Client> {
    let client = Client::new(client::address(hub)?, ca, token)?;
    Ok(client.telling(progress::slow))
}

/// One spelling for one hub.
fn canonical(hub: &str) -> Result<String> {
    Ok(client::address(hub)?
        .as_str()
        .trim_end_matches('/')
        .to_owned())
}

pub(super) fn not_logged_in(hub: &str) -> Failure {
    Failure::new(
        Code::Denied,
        format!("no session for {hub}"),
        format!("run: linesman login {hub}"),
    )
}

fn of_another(hub: &str) -> Failure {
    Failure::new(
        Code::Denied,
        format!(
            "no session for {hub}, and LINESMAN_TOKEN_FILE is for the hub that LINESMAN_HUB names"
        ),
        format!("run: linesman login {hub}, or name the file of its token: --token-file FILE"),
    )
}

fn no_hub(sessions: &Sessions) -> Failure {
    let kept: Vec<&str> = sessions.hubs.keys().map(String::as_str).collect();
    let Some(one) = kept.first() else {
        return Failure::new(
            Code::Usage,
            "no hub is named and no session is kept",
            "run: linesman login https://HUB, or set LINESMAN_HUB and LINESMAN_TOKEN_FILE",
        );
    };
    // Whoever logged out of the last one has the others' still.
    Failure::new(
        Code::Usage,
        format!(
            "no hub is named, and the last one was logged out of; sessions are kept for {}",
            kept.join(", ")
        ),
        format!("name the hub: --hub {one}"),
    )
}

pub(super) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The same file from any directory; stdin has none.
fn whole(path: &Path) -> PathBuf {
    if is_stdin(path) {
        return path.to_owned();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
