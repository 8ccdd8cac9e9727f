//! `linesman audit verify`: the chain from its beginning or its last removal to its end.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::broken;
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::hub::database;
use crate::cli::output::{Format, Output, done, emit};
use crate::cli::progress::Ticker;
use crate::client::{AuditFilter, Client};
use crate::hub::audit::chain::{self, Broken, Follower, Hashed, Head};
use crate::hub::store::{Store, postgres::Postgres, sqlite::Sqlite};
use crate::hub::trust;
use crate::keys::{self, KeyPair, Public};

mod kept;

use kept::{Held, Kept};

const EXAMPLES: &str = "\
Every record holds the hash of the one before it, and the hub signs the chain's end every hour and where
retention removed records: a record that was changed, removed or put in is found, and an end that was cut off
while its signature was left. Whoever can write the database can cut the end off with its signatures: that is
found only beside something of the record that was kept elsewhere, by --anchor or --record. What was written
since then can still be cut off. Of a file every line is looked at, and the first that does not fit is named:
a record that was written anew and signed again holds the lines since then, and not those before. Ends with 1
where something does not fit, and with 2 where what was kept cannot be read.

Examples:
  linesman audit verify
  linesman audit verify --data /var/lib/linesman     # on the hub's machine, or a copy; the hub may run
  linesman audit verify --anchor audit.jsonl      # what --audit-file, --audit-webhook or 'audit export' wrote
  linesman audit verify --record 4711:9f86d081…      # what this command printed at its last run";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The hub's data directory or a copy of it: read the database itself, without the hub
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// With --data, of a hub that keeps its records in PostgreSQL: the file with the database's URL
    #[arg(long, value_name = "FILE", requires = "data")]
    database_url_file: Option<PathBuf>,
    /// Records or signatures as JSON lines, kept elsewhere: the record must hold each of them that retention left
    #[arg(long, value_name = "FILE")]
    anchor: Option<PathBuf>,
    /// Number and hash of a record, kept elsewhere: the record must hold it
    #[arg(long, value_name = "SEQ:HASH", value_parser = kept_record, conflicts_with = "anchor")]
    record: Option<Head>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// Records asked for at once.
const PAGE: usize = 2_000;
/// Pages that are read and hashed beside the one that is linked: one a core is not enough while some wait for the disk.
const AHEAD: usize = 6;

/// So often the chain is followed anew where retention has moved its beginning meanwhile.
const ANEW: usize = 3;

/// Where the records come from.
enum Source {
    Database {
        store: Store,
        hub_id: String,
        data: PathBuf,
    },
    Hub {
        client: Client,
        hub_id: String,
    },
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let (kept, record) = (args.anchor.as_deref(), args.record);
    let kept = kept.map(Kept::read).transpose()?;
    let source = match args.data {
        Some(data) => of_database(data, args.database_url_file.as_deref()).await?,
        None => of_hub(&args.connect).await?,
    };
    let source = Arc::new(source);
    let beginning = async || source.beginning(record).await;
    let Whole {
        end,
        records,
        anchors,
        held,
    } = checked(&source, kept.as_ref(), beginning).await?;
    let (seq, hash) = (end.seq, keys::hex(&end.hash));
    let format = args.output.output;
    if !matches!(format, Format::Table | Format::Wide) {
        let newest = kept.as_ref().map(Kept::newest);
        let newest = newest.or_else(|| record.map(|record| record.seq));
        let (lines, removed) = (held.map(|held| held.lines), held.map(|held| held.gone));
        let whole = json!({
            "records": records, "seq": seq, "hash": hash, "signatures": anchors, "held": newest, "lines": lines, "removed": removed,
        });
        return done(format, &format!("{seq}:{hash}"), &whole);
    }
    let held = match (held, record) {
        (Some(held), _) => format!(", {held}"),
        (None, Some(record)) => format!(", record {} is the one that was kept", record.seq),
        (None, None) => String::new(),
    };
    let signatures = match anchors {
        1 => "1 signature holds".to_owned(),
        _ => format!("{anchors} signatures hold"),
    };
    emit(&format!(
        "the audit is whole: {records} records up to {seq}, {signatures}{held}\n\
         kept elsewhere, this finds a cut later: --record {seq}:{hash}\n"
    ))
}

/// What is said of a chain that does not hold what was kept.
fn unlike(why: &Broken) -> anyhow::Error {
    match why {
        // Nothing is wrong with it.
        Broken::Removed { .. } => {
            let next = "give a newer record: this command without --anchor and --record prints the last one";
            Failure::new(Code::Failed, why.to_string(), next).into()
        }
        _ => broken(&why.to_string()),
    }
}

fn kept_record(text: &str) -> Result<Head, String> {
    let head = text.split_once(':').and_then(|(seq, hash)| {
        Some(Head {
            seq: seq.parse().ok()?,
            hash: keys::unhex(hash)?,
        })
    });
    head.ok_or_else(|| {
        format!("'{text}' is not a number and 64 hex digits, such as 'audit verify' prints")
    })
}

async fn of_hub(connect: &Connect) -> Result<Source> {
    let client = connect.client().await?;
    let hub_id = client.info().await?.hub_id;
    Ok(Source::Hub { client, hub_id })
}

async fn of_database(data: PathBuf, url: Option<&Path>) -> Result<Source> {
    let store = match url {
        Some(file) => Store::Postgres(Postgres::open_read_only(database::target(file)?).await?),
        None if data.join("hub.db").exists() => Store::Sqlite(Sqlite::open_read_only(&data)?),
        None => {
            let what = format!("{} holds no hub.db", data.display());
            let next = "name the hub's data directory, or a copy of it; where its records are in PostgreSQL, give --database-url-file too";
            return Err(Failure::new(Code::Usage, what, next).into());
        }
    };
    let hub_id = store.hub_id().await?;
    Ok(Source::Database {
        store,
        hub_id,
        data,
    })
}

/// The keys by which the hub of this data directory signs and has signed.
fn own_keys(data: &Path) -> Result<Vec<Public>> {
    let file = data.join("hub.key");
    let key = std::fs::read_to_string(&file).with_context(|| {
        format!(
            "read {}: signatures are checked with the hub's key",
            file.display()
        )
    })?;
    let key = KeyPair::from_openssh(&key).context("read the hub's key")?;
    let all = trust::keys(data, &key)?.all();
    read_keys(all.iter().map(String::as_str))
}

fn read_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<Vec<Public>> {
    let read = keys.into_iter().map(Public::from_base64);
    read.collect::<Result<_, _>>()
        .context("read the hub's keys")
}

impl Source {
    /// Where the chain begins, and what is signed of it, as it is now.
    async fn beginning(&self, record: Option<Head>) -> Result<Follower> {
        let (hub_id, anchors, keys) = match self {
            Self::Database {
                store,
                hub_id,
                data,
            } => {
                let anchors = store.audit_anchors().await?;
                (hub_id, anchors, own_keys(data)?)
            }
            Self::Hub { client, hub_id } => {
                let views = client.audit_anchors().await?;
                let mut keys: Vec<&str> = views.iter().map(|view| view.key.as_str()).collect();
                keys.sort_unstable();
                keys.dedup();
                let anchors: Option<Vec<_>> = views.iter().map(chain::anchor).collect();
                let anchors = anchors.context("read the hub's signatures")?;
                (hub_id, anchors, read_keys(keys)?)
            }
        };
        let follower = Follower::new(hub_id, anchors, &keys);
        let follower = follower.map_err(|e| broken(&e.to_string()))?;
        match record {
            Some(record) => follower.with(record).map_err(|e| unlike(&e)),
            None => Ok(follower),
        }
    }

    /// The number of the last record, as far as that is known.
    async fn last(&self) -> Option<i64> {
        match self {
            Self::Database { store, .. } => store.audit_head().await.ok()?.map(|row| row.seq),
            Self::Hub { client, .. } => {
                let newest = client.audit(&AuditFilter::default(), 1).await.ok()?;
                newest.first().map(|record| record.seq)
            }
        }
    }

    async fn lines(&self, after: i64, limit: u32) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Database { store, .. } => store.audit_lines(after, limit).await?,
            Self::Hub { client, .. } => client.audit_lines(after, limit).await?,
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

/// A chain that holds: its last record, how many there are, how many signatures held, and what it held of the file beside it.
#[derive(Debug)]
struct Whole {
    end: Head,
    records: usize,
    anchors: usize,
    held: Option<Held>,
}

/// Follows the chain from its beginning to its end. Retention may remove records after its beginning was read: where that is
/// signed by now, the chain is followed from where it begins then.
async fn checked(
    source: &Arc<Source>,
    kept: Option<&Kept>,
    beginning: impl AsyncFn() -> Result<Follower>,
) -> Result<Whole> {
    let mut follower = beginning().await?;
    for _ in 0..=ANEW {
        let why = match whole(source, kept, follower).await? {
            Ok(whole) => return Ok(whole),
            Err(why) => why,
        };
        let Broken::Gap { found, .. } = why else {
            return Err(broken(&why.to_string()));
        };
        follower = beginning().await?;
        if follower.seq() < found - 1 {
            return Err(broken(&why.to_string()));
        }
    }
    Err(Failure::new(
        Code::Failed,
        "nothing is said of the audit: the hub's retention removes records while they are read",
        "run it again in a few minutes",
    )
    .into())
}

async fn whole(
    source: &Arc<Source>,
    kept: Option<&Kept>,
    mut follower: Follower,
) -> Result<Result<Whole, Broken>> {
    let beside = kept.map(|kept| kept.beside(follower.head()));
    let mut beside = beside.transpose()?;
    let (mut reading, mut records) = (Reading::default(), 0);
    let (mut ticker, mut last) = (Ticker::start(Instant::now()), None);
    loop {
        let page = reading.next(source, follower.seq()).await?;
        if page.is_empty() {
            break;
        }
        if let Err(why) = follower.follow_all(&page) {
            return Ok(Err(why));
        }
        if let Some(beside) = &mut beside {
            beside.meets(page.heads())?;
        }
        records += page.len();
        if ticker.is_due(Instant::now()) {
            // Asked for once, and only where it is shown: the hub puts the question on record.
            if last.is_none() {
                last = Some(source.last().await);
            }
            ticker.say(&reached(follower.seq(), last.flatten()));
        }
        if page.len() < PAGE {
            // The end was there; what came since is read from here on.
            reading = Reading::default();
        }
    }
    let (end, anchors) = match follower.end() {
        Ok(end) => end,
        Err(why) => return Ok(Err(why)),
    };
    let held = beside.map(|beside| beside.end(end.seq)).transpose()?;
    Ok(Ok(Whole {
        end,
        records,
        anchors,
        held,
    }))
}

/// How far the chain was followed. Records that came meanwhile are behind the last one that was asked for.
fn reached(seq: i64, last: Option<i64>) -> String {
    match last.filter(|last| seq <= *last) {
        Some(last) => format!("record {seq} of {last}"),
        None => format!("record {seq}"),
    }
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

#[cfg(test)]
mod tests;
