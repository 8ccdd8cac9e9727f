//! What goes wrong with a record.

use sqlx::sqlite::SqliteError;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{0} already exists")]
    Exists(String),
    #[error("{doing} in the database")]
    Database {
        doing: &'static str,
        source: sqlx::Error,
    },
    #[error("{doing}: a record in the database cannot be read: {why}")]
    Corrupt { doing: &'static str, why: String },
    #[error("the hub has no bundle {0} any more")]
    NoBundle(String),
    /// A bound of the hub is reached.
    #[error("{0}")]
    Full(String),
    #[error("{0}")]
    Refused(String),
    /// The server did not answer in time: what was asked for may be done.
    #[error("{0}: the database does not answer")]
    Silent(&'static str),
    /// The same where it is known, and said, since when the server is away.
    #[error("the database is away since {since}")]
    Away { since: String, source: Box<Self> },
    /// It reads more than it has time for.
    #[error("{0}: there is too much to look through")]
    TooLong(&'static str),
    #[error("{0}: a text holds a NUL character")]
    Text(&'static str),
    /// The record does not end where this process left it: a server has lost what it had stored.
    #[error("{0}: the record ends elsewhere in the database than where they follow on")]
    OtherEnd(&'static str),
    /// The call took so long that its repetition began anew.
    #[error("{0}: the same call is carried out anew by now")]
    Overtaken(&'static str),
}

impl StoreError {
    /// Whether the disk of the hub's own database file is full, or cannot be read or written.
    pub fn is_of_disk(&self) -> bool {
        // <https://sqlite.org/rescode.html>; what stands above the lowest byte of a code says more of the same.
        const IOERR: u32 = 10;
        const FULL: u32 = 13;
        let Self::Database {
            source: sqlx::Error::Database(error),
            ..
        } = self
        else {
            return false;
        };
        let own = error.try_downcast_ref::<SqliteError>().is_some();
        let code = error.code().and_then(|code| code.parse::<u32>().ok());
        own && code.is_some_and(|code| matches!(code & 0xff, IOERR | FULL))
    }
}
