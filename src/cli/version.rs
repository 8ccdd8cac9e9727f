//! `linesman version`: this program's version and protocol, and the hub's.

use anyhow::Result;
use serde::Serialize;

use super::connect::Connect;
use super::output::{Format, Output, document, emit, progress_line, rows_text};
use crate::wire::{PROTOCOL, Protocol};

const EXAMPLES: &str = "\
Examples:
  linesman version
  linesman version --client -o json";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Ask no hub
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Versions {
    client: Side,
    #[serde(skip_serializing_if = "Option::is_none")]
    hub: Option<Side>,
}

#[derive(Debug, Serialize)]
struct Side {
    version: String,
    protocol: Protocol,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let client = Side {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL,
    };
    let versions = Versions {
        client,
        hub: if args.client {
            None
        } else {
            hub(&args.connect).await
        },
    };
    emit(&match args.output.output {
        Format::Json | Format::Yaml => document(args.output.output, &versions)?,
        Format::Name => format!("{}\n", versions.client.version),
        Format::Table | Format::Wide => {
            let sides = [("client", Some(versions.client)), ("hub", versions.hub)];
            let rows = sides.into_iter().filter_map(|(name, side)| {
                let side = side?;
                let protocol = format!("{}-{}", side.protocol.min, side.protocol.max);
                Some(vec![name.to_owned(), side.version, protocol])
            });
            rows_text(
                Some(["", "VERSION", "PROTOCOL"].map(str::to_owned).to_vec()),
                rows,
            )
        }
    })
}

/// A hub that does not answer is no reason to hide our own version.
async fn hub(connect: &Connect) -> Option<Side> {
    let access = connect.found().ok()?;
    let answer = async { anyhow::Ok(access.client()?.info().await?) }.await;
    match answer {
        Ok(info) => Some(Side {
            version: info.version,
            protocol: info.protocol,
        }),
        Err(e) => {
            progress_line(&format!("the hub's version is not known: {e:#}"));
            None
        }
    }
}
