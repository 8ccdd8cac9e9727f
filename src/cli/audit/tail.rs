//! `linesman audit tail`: the record's end, and what comes.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{FilterArgs, Seen, asked, each_behind, lines, look_behind, missing, say, seq};
use crate::cli::connect::Connect;
use crate::cli::output::{Closed, emit, progress_line};
use crate::client::{AuditFilter, AuditPlace, Client};
use crate::wire::api::AuditView;

const EXAMPLES: &str = "\
With --follow it goes on while the hub is away, and says so once. What ended goes on behind the last record
that it printed with --after.

Examples:
  linesman audit tail --follow
  linesman audit tail --follow --after 4711 >> audit.jsonl
  linesman audit tail --last 100 --user ada | jq .action";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    filter: FilterArgs,
    /// How many of the last records
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: usize,
    /// All behind this record's number instead
    #[arg(long, value_name = "SEQ", value_parser = seq(), conflicts_with = "last")]
    after: Option<i64>,
    /// Go on with those that come
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let filter = args.filter.filter()?;
    let client = args.connect.client().await?;
    asked::of_cluster(&client, &filter).await;
    let last = match args.after {
        Some(after) if args.follow => Some(after),
        Some(_) => {
            let take = |records: &[AuditView]| emit(&lines(records)?);
            let printed = each_behind(&client, &filter, args.after, take);
            return printed.await.map(drop);
        }
        None => newest(&client, &filter, args.last).await?,
    };
    if !args.follow {
        return Ok(());
    }
    let after = match last {
        Some(last) => last,
        // Without a last record of this filter, from the present end on.
        None => asked::end(&client).await?,
    };
    let seen = Seen::behind(Some(after), &filter);
    if args.after.is_some() {
        look_behind(&client, &seen).await?;
        asked::behind(&client, after).await?;
    }
    let mut follower = Follower {
        client,
        place: AuditPlace::After(after),
        seen,
        filter,
        away: false,
    };
    let Err(error) = follower.go_on().await;
    if !error.is::<Closed>() {
        let last = follower.seen.last.unwrap_or(after);
        progress_line(&format!(
            "to go on behind the last record: linesman audit tail --follow --after {last}"
        ));
    }
    Err(error)
}

/// Prints the last records; gives the number of the last one.
async fn newest(client: &Client, filter: &AuditFilter, count: usize) -> Result<Option<i64>> {
    let mut records = client.audit(filter, count).await?;
    records.reverse();
    emit(&lines(&records)?)?;
    Ok(records.last().map(|record| record.seq))
}

struct Follower {
    client: Client,
    filter: AuditFilter,
    place: AuditPlace,
    seen: Seen,
    /// The hub did not answer when it was last asked.
    away: bool,
}

impl Follower {
    /// Prints what comes, until something is wrong that does not pass by itself.
    async fn go_on(&mut self) -> Result<std::convert::Infallible> {
        /// The hub answers a waiting call by then.
        const WAIT: Duration = Duration::from_secs(20);
        const AGAIN: Duration = Duration::from_secs(1);
        loop {
            let asked = Instant::now();
            let idle = match self
                .client
                .audit_after(&self.filter, &self.place, WAIT)
                .await
            {
                Ok((records, next)) => {
                    if std::mem::take(&mut self.away) {
                        progress_line("the hub answers again");
                    }
                    self.print(&records)?;
                    self.place = next;
                    records.is_empty()
                }
                Err(error) if error.is_passing() => {
                    if !self.away {
                        progress_line(&format!("{error}; asking again until it answers"));
                    }
                    self.away = true;
                    true
                }
                Err(error) => return Err(error.into()),
            };
            if idle {
                // A hub of before, or one that stops, does not wait.
                tokio::time::sleep(AGAIN.saturating_sub(asked.elapsed())).await;
            }
        }
    }

    fn print(&mut self, records: &[AuditView]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let text = lines(records)?;
        if let Some(numbers) = self.seen.take(records) {
            say(&missing(numbers));
        }
        emit(&text)
    }
}
