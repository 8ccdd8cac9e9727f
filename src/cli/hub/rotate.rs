//! `linesman hub rotate`: another signing key or another CA for the hub whose data directory this is.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::cli::confirm::{Question, Yes, command, confirm};
use crate::cli::duration;
use crate::cli::exit::{Code, Failure, of_system};
use crate::cli::output::{Format, Output, document, emit, progress_line, rows_text};
use crate::clock;
use crate::hub::serve::renew::{self, Renewed};

const EXAMPLES: &str = "\
Run it on the hub's machine, as the hub's user. A hub that runs, and each of its replicas, tells agents of the
new one within seconds, uses it after --in, and has the one before count for ten minutes more: nobody's
request fails, and nothing has to be started again; what is, goes on where the others are. Agents follow by
themselves, those that were away for months too: the key before vouches for the next one, and the file with
its private half is written over when that one is used.

  key  what agents believe requests and orders by. Adoption YAML that was not applied yet stays good.
  ca   what the hub's own certificate is issued by. DIR/ca.crt has both from now on: until --in is over,
       people log in again with --ca DIR/ca.crt and write their kubeconfigs again, or theirs end then. A
       hub that was given --tls-cert has none. With an --in below 10s nobody can know of it before it is
       used: it shows what that costs, and asks; --yes does not.

Examples:
  linesman hub rotate key --data /var/lib/linesman
  linesman hub rotate key --in 0      # the key was stolen: requests of the next seconds may fail
  linesman hub rotate ca --in 7d --data /var/lib/linesman      # people have a week to log in again
  linesman hub rotate ca --in 0 --yes      # the CA was stolen: everybody logs in again now";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What to replace
    #[arg(value_enum)]
    what: What,
    /// The hub's data directory
    #[arg(
        long,
        env = "LINESMAN_DATA",
        value_name = "DIR",
        default_value = "/var/lib/linesman"
    )]
    data: PathBuf,
    /// How long the new one is announced before it is used; 30d at most
    #[arg(long = "in", value_name = "TIME", value_parser = lead, default_value = "5m")]
    lead: Duration,
    #[command(flatten)]
    asks: Yes,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Key,
    Ca,
}

/// Longer than anybody needs, and far from where a leaf would have to be renewed by both.
const MOST_LEAD: Duration = Duration::from_hours(30 * 24);

/// Within this time agents are told of what is new; with less they are not.
const TOLD: Duration = Duration::from_secs(10);

fn lead(text: &str) -> Result<Duration, String> {
    let lead = duration::parse(text)?;
    if lead > MOST_LEAD {
        return Err(format!("more than {}", duration::show(MOST_LEAD)));
    }
    Ok(lead)
}

pub(super) async fn run(args: Args) -> Result<()> {
    let data = std::path::absolute(&args.data)?;
    if args.what == What::Ca && args.lead < TOLD && !args.asks.yes {
        confirm(&at_once(&data, args.lead))?;
    }
    let times = renew::times(clock::now(), args.lead.try_into()?);
    let (what, renewed) = match args.what {
        What::Key => ("signing key", renew::key(&data, times).await),
        What::Ca => ("CA", renew::ca(&data, times).await),
    };
    let renewed = renewed.map_err(|e| failed(&e))?;
    let told = Told {
        renewed,
        used_at: clock::rfc3339(times.used),
        ends_at: clock::rfc3339(times.ends),
    };
    emit(&match args.output.output {
        format @ (Format::Json | Format::Yaml) => document(format, &told)?,
        Format::Name => format!("{}\n", told.renewed.after),
        Format::Table | Format::Wide => rows_text(
            None,
            [
                (what, &told.renewed.after),
                ("before", &told.renewed.before),
            ]
            .map(|(key, value)| vec![key.to_owned(), value.clone()]),
        ),
    })?;
    for line in told.words(args.what, &data) {
        progress_line(&line);
    }
    Ok(())
}

/// What was made, and its times.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(flatten)]
    renewed: Renewed,
    used_at: String,
    ends_at: String,
}

impl Told {
    /// What comes of it, for people.
    fn words(&self, what: What, data: &Path) -> [String; 2] {
        let Self {
            renewed: _,
            used_at,
            ends_at,
        } = self;
        match what {
            What::Key => [
                format!(
                    "told from now on, used from {used_at}; the one before counts until {ends_at}"
                ),
                "a backup from before this has the old key".to_owned(),
            ],
            // The one before is told for a while yet, but no certificate is of it any more.
            What::Ca => [
                format!(
                    "told from now on, used from {used_at}: who has only the one before is refused from then on"
                ),
                format!(
                    "until {used_at} people log in again: linesman login URL --ca {}",
                    data.join("ca.crt").display()
                ),
            ],
        }
    }
}

/// Another CA in force before anybody can know of it.
fn at_once(data: &Path, lead: Duration) -> Question<'static> {
    let (data, lead) = (data.display().to_string(), duration::show(lead));
    let words = [
        "linesman", "hub", "rotate", "ca", "--in", &lead, "--data", &data, "--yes",
    ];
    Question {
        doing: "replacing the hub's CA at once".to_owned(),
        means: vec![
            format!("This replaces the CA of the hub of {data} with --in {lead}, so that nobody is told before it is used."),
            "Agents that have not learnt of it are cut off until they have asked the hub for its signed CA: requests to their clusters fail meanwhile."
                .to_owned(),
            format!(
                "People and programs are refused until they log in again with --ca {data}/ca.crt and write their kubeconfigs again."
            ),
            "Where the CA was not stolen, give them time: --in 7d".to_owned(),
        ],
        word: ("ca", "'ca'"),
        unasked: command(&words.map(str::to_owned)),
    }
}

fn failed(error: &anyhow::Error) -> Failure {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    let next = match causes.next().map(std::io::Error::kind) {
        Some(
            kind @ (ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem),
        ) => of_system(kind),
        _ => "run it on the hub's machine, as the hub's user, with the --data of 'linesman hub'",
    };
    Failure::new(Code::Failed, format!("{error:#}"), next)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    /// People had believed that they have until the CA before is told no longer.
    #[test]
    fn the_time_until_when_people_log_in_again_is_when_the_other_ca_is_used() {
        let told = Told {
            renewed: Renewed {
                before: "1".to_owned(),
                after: "2".to_owned(),
            },
            used_at: "15:27".to_owned(),
            ends_at: "15:37".to_owned(),
        };
        let [used, until] = told.words(What::Ca, Path::new("/d"));
        assert_eq!(
            used,
            "told from now on, used from 15:27: who has only the one before is refused from then on"
        );
        assert_eq!(
            until,
            "until 15:27 people log in again: linesman login URL --ca /d/ca.crt"
        );
        assert_eq!(
            serde_json::to_value(&told).unwrap(),
            serde_json::json!({"before": "1", "after": "2", "usedAt": "15:27", "endsAt": "15:37"})
        );
    }

    /// Who has a full disk was told to run it as another user.
    #[test]
    fn what_keeps_from_writing_says_what_helps_against_that() {
        let next = |kind: ErrorKind| {
            let error = Err::<(), _>(std::io::Error::from(kind)).context("write ca.next");
            failed(&error.unwrap_err()).next
        };
        assert_eq!(next(ErrorKind::StorageFull), "make room there");
        assert!(next(ErrorKind::NotFound).contains("as the hub's user"));
    }
}
