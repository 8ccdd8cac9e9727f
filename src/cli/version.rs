//! `linesman version`: this program's version and protocol, and the hub's.

use std::sync::OnceLock;

use anyhow::Result;
use serde::Serialize;

use super::connect::Connect;
use super::output::{Format, Output, document, emit, progress_line, rows_text};
use crate::wire::{PROTOCOL, Protocol};

const EXAMPLES: &str = "\
Examples:
  linesman version
  linesman version --client -o json";

/// The commit that this was built from, where whoever built it said so. Nobody looks for it in a build, since each commit would have
/// the program built anew.
const COMMIT: Option<&str> = option_env!("LINESMAN_COMMIT");

/// What `--version` says: `0.1.0`, or `0.1.0 (3f2a9c1)` of a build that knows its commit.
pub(super) fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| named(env!("CARGO_PKG_VERSION"), COMMIT))
}

fn named(version: &str, commit: Option<&str>) -> String {
    match commit {
        Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
        Some(_) | None => version.to_owned(),
    }
}

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
    /// Of this program alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    protocol: Protocol,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let client = Side {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: COMMIT.filter(|commit| !commit.is_empty()),
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
                let version = named(&side.version, side.commit);
                Some(vec![name.to_owned(), version, protocol])
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
            commit: None,
            protocol: info.protocol,
        }),
        Err(e) => {
            progress_line(&format!("the hub's version is not known: {e:#}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_version_has_its_commit_where_the_build_was_told() {
        let told = [Some("3f2a9c1"), Some(""), None].map(|commit| named("0.1.0", commit));
        assert_eq!(told, ["0.1.0 (3f2a9c1)", "0.1.0", "0.1.0"]);
    }
}
