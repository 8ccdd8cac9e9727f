//! What helps against what keeps a process from its server, as the end of the refusal: `…; stop it first`.

/// Where nobody answers.
pub(super) const UNREACHED: &str =
    "; see that PostgreSQL runs there, and that this machine reaches it";

/// Nothing where it is not known.
pub(super) fn helps(error: &sqlx::Error) -> &'static str {
    match error {
        sqlx::Error::Io(_) => UNREACHED,
        // <https://www.postgresql.org/docs/current/errcodes-appendix.html>
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some("28000" | "28P01") => "; correct user and password in --database-url-file",
            Some("3D000") => "; make the database, or correct its name in --database-url-file",
            _ => "",
        },
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_server_is_told_to_look_for_one() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(helps(&sqlx::Error::Io(refused)), UNREACHED);
        assert_eq!(helps(&sqlx::Error::PoolTimedOut), "");
    }
}
