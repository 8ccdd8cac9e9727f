//! Which database, as its URL says.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Statements that a connection keeps prepared; the hub has fewer.
const STATEMENTS: usize = 256;

/// A database and how to get in. Shown without the password.
#[derive(Clone)]
pub struct Target(Arc<PgConnectOptions>);

impl Target {
    /// Of `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`. A server elsewhere has to show a certificate for its
    /// name, unless the URL says what else will do.
    pub fn parse(url: &str) -> Result<Self, String> {
        let url = url.trim();
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Err("it does not begin with postgres://".to_owned());
        }
        // The parser's own words may hold parts of the URL, and the password is one.
        let options: PgConnectOptions = url
            .parse()
            .map_err(|_| "it is no postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned())?;
        if options.get_database().is_none() {
            return Err("it names no database".to_owned());
        }
        let options = if says_sslmode(url) {
            options
        } else if is_here(&options) {
            options.ssl_mode(PgSslMode::Prefer)
        } else {
            options.ssl_mode(PgSslMode::VerifyFull)
        };
        let options = options
            .application_name("linesman hub")
            .statement_cache_capacity(STATEMENTS);
        Ok(Self(Arc::new(options)))
    }

    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.0
    }
}

fn says_sslmode(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query
        .split('&')
        .any(|pair| pair.starts_with("sslmode=") || pair.starts_with("ssl-mode="))
}

/// Whether no wire leads there.
fn is_here(options: &PgConnectOptions) -> bool {
    let host = options
        .get_host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    options.get_socket().is_some()
        || host == "localhost"
        || host.starts_with('/')
        || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (options, database) = (&self.0, self.0.get_database().unwrap_or_default());
        let user = options.get_username();
        match options.get_socket() {
            Some(socket) => write!(f, "{database} at {} as {user}", socket.display()),
            None => write!(
                f,
                "{database} at {}:{} as {user}",
                options.get_host(),
                options.get_port()
            ),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_shows_a_certificate_unless_the_url_says_otherwise() {
        let mode = |url: &str| {
            let mode = Target::parse(url).unwrap().0.get_ssl_mode();
            format!("{mode:?}")
        };
        assert_eq!(mode("postgres://l@db.example.org/hub"), "VerifyFull");
        assert_eq!(mode("postgresql://l@192.0.2.1/hub"), "VerifyFull");
        assert_eq!(
            mode("postgres://l@db.example.org/hub?sslmode=require"),
            "Require"
        );
        assert_eq!(
            mode("postgres://l@db.example.org/hub?sslrootcert=/ca&sslmode=verify-ca"),
            "VerifyCa"
        );
        for here in [
            "postgres://l@localhost/hub",
            "postgres://l@127.0.0.1:5433/hub",
            "postgres://l@[::1]/hub",
            "postgres://l@%2Frun%2Fpostgresql/hub",
        ] {
            assert_eq!(mode(here), "Prefer", "{here}");
        }
    }

    #[test]
    fn a_target_is_shown_without_its_password() {
        let target = Target::parse("postgres://linesman:hunter2@db.example.org:6432/hub").unwrap();
        assert_eq!(
            [target.to_string(), format!("{target:?}")],
            [
                "hub at db.example.org:6432 as linesman",
                "Target(hub at db.example.org:6432 as linesman)"
            ]
        );
    }

    #[test]
    fn what_is_no_database_is_refused_without_showing_it() {
        for (url, why) in [
            (
                "mysql://l:hunter2@h/hub",
                "it does not begin with postgres://",
            ),
            ("postgres://l:hunter2@h", "it names no database"),
            (
                "postgres://l:hunter2@h:port/hub",
                "it is no postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            ),
        ] {
            assert_eq!(Target::parse(url).unwrap_err(), why);
        }
    }
}
