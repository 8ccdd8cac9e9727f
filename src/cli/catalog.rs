//! `linesman catalog`: start a catalog, clone the hub's, check one before it is pushed, say whose keys push and who signs it.

mod clone;
mod init;
mod key;
mod lint;
mod signer;

use anyhow::Result;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Write a catalog to start from into a directory
    Init(init::Args),
    /// Clone the hub's catalog, ready to push
    Clone(clone::Args),
    /// Check a catalog: what would fail in a cluster, found before the push
    Lint(lint::Args),
    /// By which SSH keys people read it and push
    #[command(subcommand)]
    Key(key::Verb),
    /// Whose signature the head has to carry
    #[command(subcommand)]
    Signer(signer::Verb),
}

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Init(args) => init::run(&args),
        Verb::Clone(args) => clone::run(args).await,
        Verb::Lint(args) => lint::run(&args),
        Verb::Key(verb) => key::run(verb).await,
        Verb::Signer(verb) => signer::run(verb).await,
    }
}
