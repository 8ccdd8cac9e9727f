//! `linesman audit tail`: the record's end, and what comes.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{FilterArgs, Seen, asked, each_behind, lines, look_behind, missing, say, seq};
use crate::cli::connect::Connect;
use crate::cli::output::{Closed, emit, progress_line};
use crate::client::{AuditFilter, AuditPlace, Client, Error};
use crate::wire::api::AuditView;

const EXAMPLES: &str = "\
With --follow it waits while the hub is away, be it from the start, and says so once. What ended goes on
behind the last record that it printed with --after.

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
    if !args.follow {
        let client = args.connect.client().await?;
        asked::of_cluster(&client, &filter).await;
        if args.after.is_some() {
            let take = |records: &[AuditView]| emit(&lines(records)?);
            let printed = each_behind(&client, &filter, args.after, take);
            return printed.await.map(drop);
        }
        return newest(&client, &filter, args.last).await.map(drop);
    }
    let client = args.connect.patient_client()?;
    let after = began(async || begin(&client, &filter, (args.after, args.last)).await).await?;
    let seen = Seen::behind(Some(after), &filter);
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

/// Between two questions of whoever waits for the hub.
const AGAIN: Duration = Duration::from_secs(1);

/// What the first answer of the hub gives, which is waited for as long as it is away.
async fn began<T>(ask: impl AsyncFn() -> Result<T>) -> Result<T> {
    let mut away = false;
    loop {
        let error = match ask().await {
            Ok(first) => {
                if away {
                    progress_line("the hub answers");
                }
                return Ok(first);
            }
            Err(error) => error,
        };
        let passing = error.downcast_ref::<Error>();
        let passing = passing.is_some_and(Error::is_passing);
        if !passing {
            return Err(error);
        }
        if !away {
            progress_line(&format!("{error}; asking again until it answers"));
        }
        away = true;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Prints the last records, or looks whether there is a record of the number to go on behind; gives the number.
async fn begin(
    client: &Client,
    filter: &AuditFilter,
    (after, count): (Option<i64>, usize),
) -> Result<i64> {
    let last = match after {
        Some(after) => Some(after),
        None => newest(client, filter, count).await?,
    };
    let last = match last {
        Some(last) => last,
        // Without a last record of this filter, from the present end on.
        None => asked::end(client).await?,
    };
    if after.is_some() {
        look_behind(client, &Seen::behind(after, filter)).await?;
        asked::behind(client, last).await?;
    }
    asked::of_cluster(client, filter).await;
    Ok(last)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use http::StatusCode;

    use super::*;

    fn away() -> anyhow::Error {
        let error = Error::Gateway {
            operation: "list audit records".to_owned(),
            hub: "https://hub".to_owned(),
            status: StatusCode::BAD_GATEWAY,
            body: String::new(),
        };
        error.into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_is_away_at_the_start_is_waited_for() {
        let (asked, since) = (Cell::new(0), tokio::time::Instant::now());
        let ask = async || {
            asked.set(asked.get() + 1);
            if asked.get() < 4 { Err(away()) } else { Ok(7) }
        };
        assert_eq!(began(ask).await.unwrap(), 7);
        assert_eq!((asked.get(), since.elapsed().as_secs()), (4, 3));
        // What does not pass by itself ends it.
        let refused = began(async || Err::<(), _>(anyhow::anyhow!("it is refused"))).await;
        assert_eq!(refused.unwrap_err().to_string(), "it is refused");
    }
}
