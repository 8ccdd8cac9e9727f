//! `linesman audit verify`: the chain from its beginning or its last removal to its end.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::broken;
use crate::cli::connect::Connect;
use crate::cli::output::emit;
use crate::client::AuditFilter;
use crate::hub::audit::chain::{self, Follower};
use crate::hub::store::{AuditRow, Store, sqlite::Sqlite};
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
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let (seq, records, anchors) = match args.data {
        Some(data) => of_database(&data).await?,
        None => of_hub(&args.connect).await?,
    };
    emit(&format!(
        "the audit is whole: {records} records up to {seq}, {anchors} signatures hold\n"
    ))
}

async fn of_hub(connect: &Connect) -> Result<(i64, usize, usize)> {
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
    let mut follower =
        Follower::new(&hub.hub_id, anchors, key).map_err(|e| broken(&e.to_string()))?;
    let mut records = 0;
    loop {
        let after = follower.seq();
        let page = client
            .audit_after(&AuditFilter::default(), after, Duration::ZERO)
            .await?;
        if page.is_empty() {
            break;
        }
        for view in page {
            let seq = view.seq;
            let row: AuditRow =
                chain::record(view).with_context(|| format!("read record {seq}"))?;
            follower.follow(&row).map_err(|e| broken(&e.to_string()))?;
            records += 1;
        }
    }
    let (seq, anchors) = follower.end().map_err(|e| broken(&e.to_string()))?;
    Ok((seq, records, anchors))
}

async fn of_database(data: &std::path::Path) -> Result<(i64, usize, usize)> {
    const PAGE: u32 = 2_000;
    if !data.join("hub.db").exists() {
        bail!("{} holds no hub.db", data.display());
    }
    let store = Store::Sqlite(Sqlite::open_read_only(data)?);
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
    let mut follower =
        Follower::new(&id, anchors, key.public()).map_err(|e| broken(&e.to_string()))?;
    let mut records = 0;
    loop {
        let rows = store.audit(follower.seq(), None, PAGE).await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            follower.follow(row).map_err(|e| broken(&e.to_string()))?;
        }
        records += rows.len();
    }
    let (seq, anchors) = follower.end().map_err(|e| broken(&e.to_string()))?;
    Ok((seq, records, anchors))
}
