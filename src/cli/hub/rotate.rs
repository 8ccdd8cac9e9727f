//! `linesman hub rotate`: another signing key or another CA for the hub whose data directory this is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::cli::confirm::{Question, Yes, command, confirm};
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, Output, document, emit, progress_line, rows_text};
use crate::clock;
use crate::hub::serve::renew;

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
    /// What is new is only told for so long; then it is used. At most 30d
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
    let used = clock::rfc3339(times.used);
    let (what, renewed, then) = match args.what {
        What::Key => (
            "signing key",
            renew::key(&data, times).await.map_err(|e| failed(&e))?,
            "a backup from before this has the old key".to_owned(),
        ),
        What::Ca => (
            "CA",
            renew::ca(&data, times).await.map_err(|e| failed(&e))?,
            format!(
                "until then people log in again: linesman login URL --ca {}",
                data.join("ca.crt").display()
            ),
        ),
    };
    emit(&match args.output.output {
        format @ (Format::Json | Format::Yaml) => document(format, &renewed)?,
        Format::Name => format!("{}\n", renewed.after),
        Format::Table | Format::Wide => rows_text(
            None,
            [(what, renewed.after), ("before", renewed.before)]
                .map(|(key, value)| vec![key.to_owned(), value]),
        ),
    })?;
    progress_line(&format!(
        "told from now on, used from {used}; the one before counts until {}",
        clock::rfc3339(times.ends)
    ));
    progress_line(&then);
    Ok(())
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
    let next = "run it on the hub's machine, as the hub's user, with the --data of 'linesman hub'";
    Failure::new(Code::Failed, format!("{error:#}"), next)
}
