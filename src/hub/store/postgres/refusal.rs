//! What helps against what keeps a process from its server, as the end of the refusal: `…; stop it first`.

use sqlx::migrate::MigrateError;

/// Where nobody answers.
pub(super) const UNREACHED: &str =
    "; see that PostgreSQL runs there, and that this machine reaches it";
/// Where the server, the database or the role has as many connections as it may have.
const FULL: &str = "; end what holds its connections, or allow more (max_connections, CONNECTION LIMIT): a hub takes 12, a replica 14";

/// What was restored without owners has tables of another role.
const OWNER: &str = "; make the hub's role the owner of the database (ALTER DATABASE NAME OWNER TO ROLE), and of the tables in it";

/// What the server said, without the line of its own source that the library adds, and what helps.
pub(super) fn said(error: &sqlx::Error) -> String {
    let why = match error {
        sqlx::Error::Database(refusal) => refusal.message().to_owned(),
        other => other.to_string(),
    };
    format!("{why}{}", helps(error))
}

/// Where the role may make no tables, which since PostgreSQL 15 is for a database's owner alone; None = it is something else.
pub(super) fn forbidden(error: &MigrateError) -> Option<String> {
    let (MigrateError::Execute(sqlx::Error::Database(refusal))
    | MigrateError::ExecuteMigration(sqlx::Error::Database(refusal), _)) = error
    else {
        return None;
    };
    let forbidden = refusal.code().is_some_and(|code| code == "42501");
    forbidden.then(|| format!("{}{OWNER}", refusal.message()))
}

/// Nothing where it is not known.
fn helps(error: &sqlx::Error) -> &'static str {
    match error {
        sqlx::Error::Io(_) => UNREACHED,
        // <https://www.postgresql.org/docs/current/errcodes-appendix.html>
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some("28000" | "28P01") => "; correct user and password in --database-url-file",
            Some("3D000") => "; make the database, or correct its name in --database-url-file",
            Some("53300") => FULL,
            _ => "",
        },
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::error::Error as StdError;
    use std::fmt;

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::*;

    /// A refusal by the server as the library has it: its text ends with a line of the server's source.
    #[derive(Debug)]
    struct Refusal(&'static str);

    impl fmt::Display for Refusal {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} at line 886", self.message())
        }
    }

    impl StdError for Refusal {}

    impl DatabaseError for Refusal {
        fn message(&self) -> &'static str {
            "no"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(Cow::Borrowed(self.0))
        }

        fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words_with_what_helps() {
        let told = |code| said(&sqlx::Error::Database(Box::new(Refusal(code))));
        assert_eq!(told("53300"), format!("no{FULL}"));
        assert_eq!(told("XX000"), "no");
    }

    #[test]
    fn a_role_that_may_make_no_tables_is_to_own_the_database() {
        let told = |code| {
            let refused = sqlx::Error::Database(Box::new(Refusal(code)));
            forbidden(&MigrateError::Execute(refused))
        };
        assert_eq!(told("42501"), Some(format!("no{OWNER}")));
        assert_eq!(told("XX000"), None);
        assert_eq!(forbidden(&MigrateError::VersionMissing(1)), None);
    }

    #[test]
    fn who_finds_no_server_is_told_to_look_for_one() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(helps(&sqlx::Error::Io(refused)), UNREACHED);
        assert_eq!(helps(&sqlx::Error::PoolTimedOut), "");
    }
}
