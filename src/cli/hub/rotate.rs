//! `linesman hub rotate`: another signing key or another CA for the hub whose data directory this is.

use std::path::PathBuf;

use anyhow::Result;

use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, Output, document, emit, progress_line, rows_text};
use crate::clock;
use crate::hub::serve::renew::{self, OVERLAP};

const EXAMPLES: &str = "\
Run it on the hub's machine, as the hub's user; the hub may run. Nothing changes before the hub starts again (each of its
replicas). Agents then follow by themselves, those that were away for months too: the key before vouches for the next one,
and its private half is destroyed at once.

  key  what agents believe requests and orders by. Adoption YAML that was not applied yet stays good.
  ca   what the hub's own certificate is issued by. People log in again with --ca DIR/ca.crt. A hub that was given --tls-cert
       has none.

Examples:
  linesman hub rotate key --data /var/lib/linesman && systemctl restart linesman-hub
  linesman hub rotate ca --data /var/lib/linesman";

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
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Key,
    Ca,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let data = std::path::absolute(&args.data)?;
    let now = clock::now();
    let (what, renewed, then) = match args.what {
        What::Key => (
            "signing key",
            renew::key(&data, now).await.map_err(|e| failed(&e))?,
            format!(
                "replicas that are started within {} min keep their lines until then; a backup from before this has the old key",
                OVERLAP.whole_minutes()
            ),
        ),
        What::Ca => (
            "CA",
            renew::ca(&data, now).await.map_err(|e| failed(&e))?,
            format!(
                "then people log in again: linesman login URL --ca {}",
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
    progress_line("in force when the hub starts again: restart it, and each of its replicas");
    progress_line(&then);
    Ok(())
}

fn failed(error: &anyhow::Error) -> Failure {
    let next = "run it on the hub's machine, as the hub's user, with the --data of 'linesman hub'";
    Failure::new(Code::Failed, format!("{error:#}"), next)
}
