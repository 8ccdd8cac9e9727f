//! `linesman engine`: engine versions that the hub can give to clusters.

use anyhow::Result;

use super::connect::Connect;
use super::output::{Column, Output, ago, list};
use crate::wire::api::ToldBundle;

mod import;
mod mirror;
mod remove;
mod set;

pub(super) use mirror::whence;
pub(super) use set::follow;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Give the hub an engine's version: a release, fetched and verified, or a file
    Import(import::Args),
    /// List the engine versions that the hub holds
    List(ListArgs),
    /// Change a cluster's engine to another version; it comes back where the new one does not work
    Set(set::Args),
    /// Take the engines' images from a registry of yours
    Mirror(mirror::Args),
    /// Let the hub forget an engine's version that no cluster needs
    Remove(remove::Args),
}

const LIST: &str = "\
VERIFIED says whether anything vouched for the manifest when it was imported: 'no' is a file without --sha256,
'-' one that was imported before this was on record; -o wide says what vouched, and where it is from.

Examples:
  linesman engine list
  linesman engine list -o wide      # with the images to copy into a registry of yours";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(super) struct ListArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<ToldBundle>; 10] = [
    Column::new("ENGINE", |b, _| b.engine.to_string()),
    Column::new("VERSION", |b, _| b.version.clone()),
    Column::new("OBJECTS", |b, _| b.objects.to_string()),
    Column::new("IMPORTED", |b, now| ago(&b.imported_at, now)),
    Column::new("VERIFIED", |b, _| verified(b).to_owned()),
    Column::new("DIGEST", |b, _| b.digest.to_string()),
    Column::wide("KUBERNETES", |b, _| {
        b.kubernetes
            .as_ref()
            .map_or_else(String::new, |k| format!("{k}+"))
    }),
    Column::wide("VERIFIED BY", |b, _| {
        let origin = b.origin.as_ref();
        origin.map_or_else(String::new, |origin| origin.verified_by.clone())
    }),
    Column::wide("FROM", |b, _| {
        let origin = b.origin.as_ref();
        origin.map_or_else(String::new, |origin| origin.source.clone())
    }),
    Column::wide("IMAGES", |b, _| b.images.join(" ")),
];

/// Whether anything vouched for the manifest, as far as that is on record.
fn verified(bundle: &ToldBundle) -> &'static str {
    match &bundle.origin {
        None => "-",
        Some(origin) if origin.is_verified() => "yes",
        Some(_) => "no",
    }
}

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Import(args) => import::run(args).await,
        Verb::Set(args) => set::run(args).await,
        Verb::Mirror(args) => mirror::run(args).await,
        Verb::Remove(args) => remove::run(args).await,
        Verb::List(args) => {
            let bundles = args.connect.client().await?.bundles().await?;
            let empty = "the hub holds no engine; run: linesman engine import flux VERSION, or argocd VERSION";
            list(
                args.output.output,
                &bundles,
                &COLUMNS,
                |b| b.digest.to_string(),
                empty,
            )
        }
    }
}
