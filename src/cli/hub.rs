//! `linesman hub`: runs the hub.

use anyhow::{Result, bail};

#[derive(Debug, clap::Args)]
pub struct Args {}

#[expect(clippy::unused_async, reason = "the body is on its way")]
pub async fn run(_args: Args) -> Result<()> {
    bail!("the hub has not landed yet")
}
