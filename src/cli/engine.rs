//! `linesman engine`: engine versions that the hub can give to clusters.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Column, Format, Output, ago, document, emit, list, progress_line};
use crate::wire::api::{BundleView, EngineKind, MAX_BUNDLE};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Upload an engine's install manifests to the hub
    Import(ImportArgs),
    /// List the engine versions that the hub holds
    List(ListArgs),
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  flux install --export | linesman engine import -
  linesman engine import flux-install.yaml.gz
  linesman engine import core-install.yaml          # Argo CD's, of the release's 'manifests' directory

The hub puts the objects into a normal form and names the bundle by its digest: importing the same
manifests twice changes nothing. New clusters get the newest version.";

#[derive(Debug, clap::Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(super) struct ImportArgs {
    /// Multi-document YAML, plain or gzip ('-' = stdin)
    file: PathBuf,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<BundleView>; 6] = [
    Column::new("ENGINE", |b, _| kind(b.engine).to_owned()),
    Column::new("VERSION", |b, _| b.version.clone()),
    Column::new("OBJECTS", |b, _| b.objects.to_string()),
    Column::new("IMPORTED", |b, now| ago(&b.imported_at, now)),
    Column::new("DIGEST", |b, _| b.digest.to_string()),
    Column::wide("IMAGES", |b, _| b.images.join(" ")),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Import(args) => import(args).await,
        Verb::List(args) => {
            let bundles = args.connect.client().await?.bundles().await?;
            let empty =
                "the hub holds no engine; run: flux install --export | linesman engine import -";
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

async fn import(args: ImportArgs) -> Result<()> {
    let client = args.connect.client().await?;
    let bundle = client.import_bundle(read(&args.file)?).await?;
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => emit(&document(format, &bundle)?),
        Format::Name => emit(&format!("{}\n", bundle.digest)),
        Format::Table | Format::Wide => {
            let BundleView {
                engine,
                version,
                objects,
                digest,
                ..
            } = &bundle;
            progress_line(&format!(
                "imported {} {version}: {objects} objects, {digest}",
                kind(*engine)
            ));
            Ok(())
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BUNDLE).unwrap_or(u64::MAX) + 1;
    if path == Path::new("-") {
        std::io::stdin()
            .take(limit)
            .read_to_end(&mut bytes)
            .context("read the manifests from stdin")?;
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
        file.take(limit)
            .read_to_end(&mut bytes)
            .with_context(|| format!("read {}", path.display()))?;
    }
    let refuse = |message: String, next: &str| Err(Failure::new(Code::Usage, message, next).into());
    if bytes.len() > MAX_BUNDLE {
        return refuse(
            format!("{} is larger than {} MiB", path.display(), MAX_BUNDLE >> 20),
            "give the engine's install manifests only; gzip is read as well",
        );
    }
    if bytes.is_empty() {
        return refuse(
            format!("{} is empty", path.display()),
            "give the engine's install manifests",
        );
    }
    Ok(bytes)
}

pub(super) fn kind(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Flux => "flux",
        EngineKind::Argocd => "argocd",
    }
}
