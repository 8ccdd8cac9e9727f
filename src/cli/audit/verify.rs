//! `linesman audit verify`: the chain from its beginning or its last removal to its end.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::broken;
use crate::cli::connect::Connect;
use crate::cli::hub::database;
use crate::cli::output::emit;
use crate::client::Client;
use crate::hub::audit::chain::{self, Follower, Hashed};
use crate::hub::store::{Store, postgres::Postgres, sqlite::Sqlite};
use crate::keys::{KeyPair, Public};

const EXAMPLES: &str = "\
Every record holds the hash of the one before it, and the hub signs the chain's end every hour and where
retention removed records: a record that was changed, removed or put in, and an end that was cut off behind a
signature, are found. What was written since the last signature can be cut off unseen; a SIEM sink closes that.

Examples:
  linesman audit verify
  linesman audit verify --data /var/lib/linesman     # on the hub's machine, or a copy; the hub may run";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The hub's data directory or a copy of it: read the database itself, without the hub
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// With --data, of a hub that keeps its records in PostgreSQL: the file with the database's URL
    #[arg(long, value_name = "FILE", requires = "data")]
    database_url_file: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

/// Records asked for at once.
const PAGE: usize = 2_000;
/// Pages that are read and hashed beside the one that is linked: one a core is not enough while some wait for the disk.
const AHEAD: usize = 6;

/// Where the records come from.
enum Source {
    Database(Store),
    Hub(Client),
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let (source, follower) = match args.data {
        Some(data) => of_database(&data, args.database_url_file.as_deref()).await?,
        None => of_hub(&args.connect).await?,
    };
    let (seq, records, anchors) = whole(Arc::new(source), follower).await?;
    emit(&format!(
        "the audit is whole: {records} records up to {seq}, {anchors} signatures hold\n"
    ))
}

async fn of_hub(connect: &Connect) -> Result<(Source, Follower)> {
    let client = connect.client().await?;
    let hub = client.info().await?;
    let views = client.audit_anchors().await?;
    let key = match views.first() {
        Some(view) => Public::from_base64(&view.key).context("read the hub's key")?,
        // Nothing is signed yet.
        None => Public([0; 32]),
    };
    let anchors: Option<Vec<_>> = views.iter().map(chain::anchor).collect();
    let anchors = anchors.context("read the hub's signatures")?;
    let follower = Follower::new(&hub.hub_id, anchors, key).map_err(|e| broken(&e.to_string()))?;
    Ok((Source::Hub(client), follower))
}

async fn of_database(data: &Path, url: Option<&Path>) -> Result<(Source, Follower)> {
    let store = match url {
        Some(file) => Store::Postgres(Postgres::open_read_only(database::target(file)?).await?),
        None if data.join("hub.db").exists() => Store::Sqlite(Sqlite::open_read_only(data)?),
        None => bail!(
            "{} holds no hub.db; where the hub's records are in PostgreSQL, give --database-url-file too",
            data.display()
        ),
    };
    let id = store.hub_id().await?;
    let file = data.join("hub.key");
    let key = std::fs::read_to_string(&file).with_context(|| {
        format!(
            "read {}: signatures are checked with the hub's key",
            file.display()
        )
    })?;
    let key = KeyPair::from_openssh(&key).context("read the hub's key")?;
    let anchors = store.audit_anchors().await?;
    let follower = Follower::new(&id, anchors, key.public()).map_err(|e| broken(&e.to_string()))?;
    Ok((Source::Database(store), follower))
}

impl Source {
    async fn lines(&self, after: i64, limit: u32) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Database(store) => store.audit_lines(after, limit).await?,
            Self::Hub(client) => client.audit_lines(after, limit).await?,
        })
    }

    /// The next records behind `after`, their hashes looked at: a whole page but at the end of the chain.
    async fn page(&self, after: i64) -> Result<Hashed> {
        let mut page = Hashed::default();
        while page.len() < PAGE {
            let after = page.last().unwrap_or(after);
            // Long records come in several answers.
            let lines = self.lines(after, u32::try_from(PAGE - page.len())?).await?;
            if lines.is_empty() {
                break;
            }
            let next = Hashed::read(&lines)
                .with_context(|| format!("read the audit behind record {after}"))?;
            page.append(next);
        }
        Ok(page)
    }
}

/// Follows the chain to its end: the number of the last record, how many there are, and how many signatures held.
async fn whole(source: Arc<Source>, mut follower: Follower) -> Result<(i64, usize, usize)> {
    let (mut reading, mut records) = (Reading::default(), 0);
    loop {
        let page = reading.next(&source, follower.seq()).await?;
        if page.is_empty() {
            break;
        }
        follower
            .follow_all(&page)
            .map_err(|e| broken(&e.to_string()))?;
        records += page.len();
        if page.len() < PAGE {
            // The end was there; what came since is read from here on.
            reading = Reading::default();
        }
    }
    let (seq, anchors) = follower.end().map_err(|e| broken(&e.to_string()))?;
    Ok((seq, records, anchors))
}

/// Pages read ahead, in order. Numbers have no gaps, so each page's beginning is known before the one below is there.
#[derive(Default)]
struct Reading {
    tasks: JoinSet<()>,
    pages: VecDeque<oneshot::Receiver<Result<Hashed>>>,
}

impl Reading {
    /// The page behind `after`, which is where the last one ended.
    async fn next(&mut self, source: &Arc<Source>, after: i64) -> Result<Hashed> {
        while self.tasks.try_join_next().is_some() {}
        while self.pages.len() < AHEAD {
            let begin = after + i64::try_from(self.pages.len() * PAGE)?;
            let (done, page) = oneshot::channel();
            let source = source.clone();
            self.tasks.spawn(async move {
                // Nobody waits for it where the chain broke below it.
                let _gone = done.send(source.page(begin).await);
            });
            self.pages.push_back(page);
        }
        let page = self.pages.pop_front().context("no page was asked for")?;
        page.await.context("a page was not read")?
    }
}
