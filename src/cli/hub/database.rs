//! The hub's flag about its database.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cli::exit::{Code, Failure, unread};
use crate::hub::store::Records;
use crate::hub::store::postgres::Target;

/// Where the records are.
#[derive(Debug, clap::Args)]
pub(super) struct DatabaseArgs {
    /// File with the URL of a PostgreSQL database for the hub's records, `postgres://USER:PASSWORD@HOST/DATABASE`;
    /// without it, SQLite in the data directory. Keys, certificates and the catalog are in the data directory either way
    #[arg(long, env = "LINESMAN_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
}

impl DatabaseArgs {
    /// Of a hub that may be one of several replicas.
    pub(super) fn config(&self, several: bool) -> Result<Records> {
        match &self.database_url_file {
            Some(file) => Ok(Records::Server(target(file)?)),
            None if several => {
                let text = "--peer-listen makes the hub one of several replicas, and its records are in SQLite";
                let next =
                    "give --database-url-file with a PostgreSQL database that all replicas use";
                Err(Failure::new(Code::Usage, text, next).into())
            }
            None => Ok(Records::File),
        }
    }
}

/// Reads the file that names a database and has its password, and so is not shown.
pub(in crate::cli) fn target(file: &Path) -> Result<Target> {
    let doing = || format!("read the database's URL from {}", file.display());
    let url = std::fs::read_to_string(file).map_err(|e| unread(&doing(), &e))?;
    Target::parse(&url).map_err(|why| {
        let text = format!("the database's URL in {}: {why}", file.display());
        let next =
            "write postgres://USER:PASSWORD@HOST:PORT/DATABASE into it, special characters as %XX";
        Failure::new(Code::Usage, text, next).into()
    })
}
