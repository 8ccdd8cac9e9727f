//! The hub's flags about its identity provider.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::audit::look_for_secret;
use crate::cli::exit::{Code, Failure};
use crate::cli::{connect, duration};
use crate::hub::auth::Role;
use crate::hub::oidc::claims::Mapping;
use crate::hub::oidc::discovery::is_issuer;
use crate::hub::oidc::{Config, Lifetimes, is_group};

/// A key set is fetched again for a key that it does not hold at most this often.
const KEYS_AGAIN: Duration = Duration::from_mins(1);
/// No session ends before its first token does.
const LEAST_SESSION: Duration = Duration::from_mins(15);
const LEAST_GROUPS: Duration = Duration::from_hours(2);
const DAY: Duration = Duration::from_hours(24);
/// What the hub itself sets in an authorization request.
const RESERVED: [&str; 9] = [
    "response_type",
    "response_mode",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
];

/// Who vouches for people. Register `<--url>/login/callback` as the redirect URI at the provider.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Login with an identity provider (OpenID Connect)")]
pub(super) struct OidcArgs {
    /// The provider's issuer URL, as its discovery document writes it
    #[arg(long, env = "LINESMAN_OIDC_ISSUER", value_name = "URL")]
    oidc_issuer: Option<String>,
    /// The hub's client id at the provider
    #[arg(
        long,
        env = "LINESMAN_OIDC_CLIENT_ID",
        value_name = "ID",
        default_value = "linesman"
    )]
    oidc_client_id: String,
    /// File with the client secret, read anew for each use; without it, the hub is a public client
    #[arg(
        long,
        env = "LINESMAN_OIDC_CLIENT_SECRET_FILE",
        value_name = "FILE",
        requires = "oidc_issuer"
    )]
    oidc_client_secret_file: Option<PathBuf>,
    /// Scopes to ask for, with commas; without it, what the provider has of
    /// `openid,profile,email,groups,offline_access`
    #[arg(
        long,
        env = "LINESMAN_OIDC_SCOPES",
        value_name = "SCOPES",
        value_delimiter = ',',
        requires = "oidc_issuer"
    )]
    oidc_scopes: Option<Vec<String>>,
    /// Parameter for the provider, such as `access_type=offline` for Google; may be given several times
    #[arg(
        long = "oidc-parameter",
        env = "LINESMAN_OIDC_PARAMETERS",
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        requires = "oidc_issuer"
    )]
    oidc_parameters: Vec<String>,
    /// The claim that names a user: one that people cannot choose themselves
    #[arg(
        long,
        env = "LINESMAN_OIDC_USERNAME_CLAIM",
        value_name = "CLAIM",
        default_value = "preferred_username"
    )]
    oidc_username_claim: String,
    /// Put before each user's name
    #[arg(
        long,
        env = "LINESMAN_OIDC_USERNAME_PREFIX",
        value_name = "TEXT",
        default_value = ""
    )]
    oidc_username_prefix: String,
    /// The claim that lists a user's groups
    #[arg(
        long,
        env = "LINESMAN_OIDC_GROUPS_CLAIM",
        value_name = "CLAIM",
        default_value = "groups"
    )]
    oidc_groups_claim: String,
    /// Put before each group's name
    #[arg(
        long,
        env = "LINESMAN_OIDC_GROUPS_PREFIX",
        value_name = "TEXT",
        default_value = ""
    )]
    oidc_groups_prefix: String,
    /// Role that a group gives at the hub, such as admin=platform; may be given several times
    #[arg(
        long = "oidc-role",
        env = "LINESMAN_OIDC_ROLES",
        value_name = "ROLE=GROUP",
        value_delimiter = ',',
        requires = "oidc_issuer"
    )]
    oidc_roles: Vec<String>,
    /// PEM file with the CA of the provider's certificate; without it, the system's roots
    #[arg(
        long,
        env = "LINESMAN_OIDC_CA",
        value_name = "FILE",
        requires = "oidc_issuer"
    )]
    oidc_ca: Option<PathBuf>,
    /// API tokens and SSH keys of a user hold for this long after the provider vouched for the user last, at a login or a
    /// session's renewal; 0 = to their own end, also for people who left
    #[arg(long, env = "LINESMAN_OIDC_VOUCHED_WITHIN", value_name = "TIME", default_value = "30d", value_parser = duration::parse)]
    oidc_vouched_within: Duration,
    /// Groups count for this long after the provider was heard on the user last. As long as the user has a session, the hub asks every
    /// 15 minutes; 2h at least, for it is noted to the hour
    #[arg(long, env = "LINESMAN_OIDC_GROUPS_WITHIN", value_name = "TIME", default_value = "12h", value_parser = groups)]
    oidc_groups_within: Duration,
    /// A session that is not used for this long ends; 15m at least
    #[arg(long, env = "LINESMAN_SESSION_IDLE", value_name = "TIME", default_value = "12h", value_parser = session)]
    session_idle: Duration,
    /// A session ends after this long at the latest; 15m at least
    #[arg(long, env = "LINESMAN_SESSION_LIFE", value_name = "TIME", default_value = "7d", value_parser = session)]
    session_life: Duration,
}

impl OidcArgs {
    pub(super) fn sessions(&self) -> Lifetimes {
        Lifetimes {
            idle: self.session_idle,
            whole: self.session_life,
            ..Lifetimes::default()
        }
    }

    pub(super) fn config(self) -> Result<Option<Config>> {
        let sessions = self.sessions();
        let Some(issuer) = self.oidc_issuer else {
            return Ok(None);
        };
        if !is_issuer(&issuer) {
            return Err(usage(
                format!("--oidc-issuer {issuer} is not an https URL without query and user"),
                "copy the member 'issuer' of the provider's /.well-known/openid-configuration",
            ));
        }
        if self
            .oidc_scopes
            .as_ref()
            .is_some_and(|s| !s.iter().any(|s| s == "openid"))
        {
            return Err(usage(
                "--oidc-scopes leaves out 'openid', without which nobody is named".to_owned(),
                "add openid",
            ));
        }
        let within = self.oidc_vouched_within;
        if !within.is_zero() && within < DAY {
            return Err(usage(
                "--oidc-vouched-within is shorter than a day".to_owned(),
                "choose 0 or a day at least: logins are noted to the hour",
            ));
        }
        let parameters = self.oidc_parameters.iter().map(|text| parameter(text));
        let roles = self.oidc_roles.iter().map(|text| role(text));
        if let Some(path) = &self.oidc_client_secret_file {
            look_for_secret("--oidc-client-secret-file", path);
        }
        let ca = self.oidc_ca.as_deref();
        let ca = ca.map(|path| connect::read_roots("--oidc-ca", path));
        Ok(Some(Config {
            issuer,
            client_id: self.oidc_client_id,
            client_secret_file: self.oidc_client_secret_file,
            scopes: self.oidc_scopes,
            parameters: parameters.collect::<Result<_>>()?,
            mapping: Mapping {
                username_claim: self.oidc_username_claim,
                username_prefix: self.oidc_username_prefix,
                groups_claim: self.oidc_groups_claim,
                groups_prefix: self.oidc_groups_prefix,
            },
            roles: roles.collect::<Result<_>>()?,
            ca: ca.transpose()?,
            sessions,
            vouched_within: self.oidc_vouched_within,
            groups_within: self.oidc_groups_within,
            keys_again: KEYS_AGAIN,
        }))
    }
}

fn groups(text: &str) -> Result<Duration, String> {
    let why = "when the provider was heard is noted to the hour";
    duration::at_least(text, LEAST_GROUPS, why)
}

fn session(text: &str) -> Result<Duration, String> {
    let why = "people would have to log in again before their first token ends";
    duration::at_least(text, LEAST_SESSION, why)
}

fn usage(what: String, next: &str) -> anyhow::Error {
    Failure::new(Code::Usage, what, next).into()
}

fn parameter(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, _)) if RESERVED.contains(&name) => Err(usage(
            format!("--oidc-parameter {name} is set by the hub itself"),
            "leave it out",
        )),
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(usage(
            format!("--oidc-parameter {text} is not NAME=VALUE"),
            "write it as access_type=offline",
        )),
    }
}

fn role(text: &str) -> Result<(Role, String)> {
    let read = text.split_once('=').and_then(|(role, group)| {
        Some((Role::parse(role)?, group.to_owned())).filter(|_| is_group(group))
    });
    read.ok_or_else(|| {
        usage(
            format!("--oidc-role {text} is not ROLE=GROUP with a role viewer, operator, access, auditor or admin"),
            "write it as operator=platform-team, the group with its prefix",
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: OidcArgs,
    }

    fn parsed(flags: &[&str]) -> Result<Option<Config>> {
        let line = ["hub"].iter().chain(flags);
        Line::try_parse_from(line)?.args.config()
    }

    #[test]
    fn without_an_issuer_there_is_no_provider() {
        assert!(parsed(&[]).unwrap().is_none());
        assert!(parsed(&["--oidc-role", "admin=x"]).is_err());
    }

    #[test]
    fn flags_become_the_configuration() {
        let config = parsed(&[
            "--oidc-issuer",
            "https://id.example/realms/x",
            "--oidc-role",
            "admin=idp:ops",
            "--oidc-role",
            "viewer=idp:all",
            "--oidc-parameter",
            "access_type=offline",
            "--oidc-scopes",
            "openid,email",
            "--session-life",
            "1d",
        ]);
        let config = config.unwrap().unwrap();
        assert_eq!(
            config.roles,
            [
                (Role::Admin, "idp:ops".to_owned()),
                (Role::Viewer, "idp:all".to_owned())
            ]
        );
        assert_eq!(
            config.parameters,
            [("access_type".to_owned(), "offline".to_owned())]
        );
        assert_eq!(
            config.scopes.as_deref(),
            Some(&["openid".to_owned(), "email".to_owned()][..])
        );
        assert_eq!(config.sessions.whole, Duration::from_hours(24));
        assert_eq!(config.mapping, Mapping::default());
    }

    #[test]
    fn the_providers_word_holds_for_ever_or_a_day_at_least() {
        let within = |text| {
            let flags = [
                "--oidc-issuer",
                "https://id.example",
                "--oidc-vouched-within",
                text,
            ];
            parsed(&flags).map(|config| config.unwrap().vouched_within)
        };
        assert_eq!(within("0").unwrap(), Duration::ZERO);
        assert_eq!(within("1d").unwrap(), DAY);
        assert!(within("23h").is_err());
    }

    #[test]
    fn groups_count_longer_than_the_hub_notes_exactly() {
        let within = |text| {
            let flags = [
                "--oidc-issuer",
                "https://id.example",
                "--oidc-groups-within",
                text,
            ];
            parsed(&flags).map(|config| config.unwrap().groups_within)
        };
        assert_eq!(within("2h").unwrap(), LEAST_GROUPS);
        assert!(within("119m").is_err());
    }

    #[test]
    fn flags_that_cannot_work_are_refused() {
        for flags in [
            &["--oidc-issuer", "http://id.example"][..],
            &["--oidc-issuer", "https://i", "--oidc-role", "root=x"],
            &["--oidc-issuer", "https://i", "--oidc-role", "admin"],
            &[
                "--oidc-issuer",
                "https://i",
                "--oidc-role",
                "admin=two words",
            ],
            &["--oidc-issuer", "https://i", "--oidc-scopes", "email"],
            &["--oidc-issuer", "https://i", "--oidc-parameter", "state=x"],
            &["--oidc-issuer", "https://i", "--oidc-parameter", "x"],
            &["--oidc-issuer", "https://i", "--oidc-ca", "/dev/null"],
            &["--oidc-issuer", "https://i", "--session-life", "0"],
            &["--oidc-issuer", "https://i", "--session-life", "7"],
            &["--oidc-issuer", "https://i", "--session-idle", "14m"],
        ] {
            assert!(parsed(flags).is_err(), "{flags:?}");
        }
    }
}
