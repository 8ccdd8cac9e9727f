//! `linesman engine import`: a release that its project publishes, verified here, or a file; checked and kept by the hub.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::super::connect::{Connect, read_ca};
use super::super::exit::{Code, Failure, unread};
use super::super::output::{Format, Output, document, emit, progress_line};
use crate::bundle::release::{self, Release, ReleaseError, Version};
use crate::client::WantedBundle;
use crate::client::fetch::{FetchError, Fetcher};
use crate::keys::sha256_hex;
use crate::wire::api::{BundleOrigin, EngineKind, MAX_BUNDLE, ToldBundle};

/// A list of checksums is refused above this many bytes.
const MAX_CHECKSUMS: usize = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  linesman engine import flux 2.9.4
  linesman engine import argocd 3.2.6                  # the core install
  linesman engine import argocd 3.2.6 --full           # with its API server and web interface
  linesman engine import flux 2.9.4 --from https://mirror.example.org/flux2 --ca-file mirror-ca.pem
  linesman engine import argocd 3.4.2 --sha256 HEX     # a version that is not in the list of this program
  linesman engine import flux 2.9.4 --components source-controller,kustomize-controller
  flux install --export | linesman engine import -
  linesman engine import core-install.yaml             # Argo CD's, of the release's 'manifests' directory

A version is fetched from the project's own release and refused unless its SHA-256 is vouched for: Flux
publishes a list, Argo CD none, so for it a list comes with this program, or you give --sha256, from a source
of your own: of the file in the release's tag, checked out by yourself, and not of what was fetched here. A
mirror has the files at the same paths below its address: v2.9.4/install.yaml and
v2.9.4/flux_2.9.4_checksums.txt, v3.2.6/manifests/core-install.yaml (or install.yaml). Its list of checksums
is the mirror's own word; --sha256 does without that.

The hub puts the objects into a normal form and names the bundle by its digest: importing the same
manifests twice changes nothing. New clusters get the newest version, whatever was imported last; of one
version the bundle that was, and a pre-release only where no release is imported.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// flux or argocd, with a VERSION; or a file of multi-document YAML, plain, .gz or .tar.gz ('-' = stdin)
    #[arg(value_name = "flux|argocd|FILE")]
    what: PathBuf,
    /// The release, such as 2.9.4
    version: Option<String>,
    /// Argo CD with its API server and web interface, instead of the core
    #[arg(long, requires = "version")]
    full: bool,
    /// A mirror of the releases, instead of the project itself
    #[arg(long, value_name = "URL", requires = "version")]
    from: Option<String>,
    /// PEM file with the CA of the mirror's certificate; these roots only
    #[arg(long, value_name = "FILE", requires = "from")]
    ca_file: Option<PathBuf>,
    /// What the manifest has to have; it takes the place of any published list
    #[arg(long, value_name = "HEX", value_parser = digest)]
    sha256: Option<String>,
    /// Flux' controllers that are kept, with commas between them [default: source-, kustomize-, helm- and
    /// notification-controller]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    components: Vec<String>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

fn digest(text: &str) -> Result<String, String> {
    if release::is_sha256(text) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a SHA-256 has 64 hex digits".to_owned())
    }
}

/// The manifest, and what is known of it.
struct Manifest {
    bytes: Vec<u8>,
    source: String,
    verified_by: &'static str,
    release: Option<(EngineKind, String)>,
}

/// What was imported, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Imported<'a> {
    #[serde(flatten)]
    bundle: &'a ToldBundle,
    /// Address or file.
    source: &'a str,
    /// Of the manifest as it was read, 64 hex digits.
    manifest_sha256: String,
    /// Empty = nothing vouched for it.
    verified_by: &'a str,
}

pub(super) async fn run(args: Args) -> Result<()> {
    args.connect.leaves_stdin_to(&args.what, "the manifests")?;
    let client = args.connect.client().await?;
    let manifest = match (engine(&args.what), &args.version) {
        (Some(engine), Some(version)) => fetch(&args, engine, version).await?,
        (Some(engine), None) => {
            let next = format!(
                "give it: linesman engine import {engine} VERSION; a file of that name is ./{engine}"
            );
            return Err(usage(format!("no version of {engine} is named"), next));
        }
        (None, Some(_)) => {
            let what = args.what.display();
            let next = "give flux or argocd with a version, or a file alone";
            return Err(usage(format!("'{what}' is no engine"), next.to_owned()));
        }
        (None, None) => of_file(&args)?,
    };
    let wanted = WantedBundle {
        release: manifest.release.clone(),
        components: args.components.clone(),
        origin: Some(BundleOrigin {
            source: manifest.source.clone(),
            verified_by: manifest.verified_by.to_owned(),
        }),
    };
    let sum = sha256_hex(&manifest.bytes);
    let bundle = client.import_bundle(manifest.bytes, &wanted).await?;
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => {
            let imported = Imported {
                bundle: &bundle,
                source: &manifest.source,
                manifest_sha256: sum,
                verified_by: manifest.verified_by,
            };
            emit(&document(format, &imported)?)
        }
        Format::Name => emit(&format!("{}\n", bundle.digest)),
        Format::Table | Format::Wide => {
            tell(&bundle, &manifest.source, &sum, manifest.verified_by);
            Ok(())
        }
    }
}

fn tell(bundle: &ToldBundle, source: &str, sum: &str, verified_by: &str) {
    let vouched = match verified_by {
        "" => "not verified".to_owned(),
        by => format!("verified by {by}"),
    };
    let needs = match &bundle.kubernetes {
        Some(version) => format!("Kubernetes {version} or later"),
        None => "not known".to_owned(),
    };
    progress_line(&format!(
        "imported {} {}: {} objects, {}",
        bundle.engine, bundle.version, bundle.objects, bundle.digest
    ));
    progress_line(&format!("  from    {source}"));
    progress_line(&format!("  sha256  {sum}, {vouched}"));
    progress_line(&format!("  needs   {needs}"));
    for image in &bundle.images {
        progress_line(&format!("  image   {image}"));
    }
}

fn engine(what: &Path) -> Option<EngineKind> {
    [EngineKind::Flux, EngineKind::Argocd]
        .into_iter()
        .find(|engine| what == Path::new(engine.as_str()))
}

async fn fetch(args: &Args, engine: EngineKind, version: &str) -> Result<Manifest> {
    let next = if Path::new(version).exists() {
        format!("for a file, name it alone: linesman engine import {version}")
    } else {
        "correct it".to_owned()
    };
    let wrong = |error: ReleaseError| usage(error.to_string(), next.clone());
    let version: Version = version.parse().map_err(wrong)?;
    let mut release = Release::new(engine, version, args.from.as_deref()).map_err(wrong)?;
    if args.full {
        release = release.full().map_err(wrong)?;
    }
    let ca = args.ca_file.as_deref().map(read_ca).transpose()?;
    let fetcher = Fetcher::new(ca.as_deref()).map_err(|e| unfetched(&e))?;
    progress_line(&format!("fetching {}", release.manifest));
    let list = match (&release.checksums, &args.sha256) {
        (Some(url), None) => {
            let list = fetcher
                .fetch(url, MAX_CHECKSUMS)
                .await
                .map_err(|e| unfetched(&e))?;
            Some(String::from_utf8_lossy(&list).into_owned())
        }
        (Some(_) | None, _) => None,
    };
    let bytes = fetcher.fetch(&release.manifest, MAX_BUNDLE).await;
    let bytes = bytes.map_err(|e| unfetched(&e))?;
    let expected = release.expected(args.sha256.as_deref(), list.as_deref());
    let by = expected.and_then(|expected| release::verify(&release.manifest, &bytes, expected));
    let by = by.map_err(|error| unverified(&error, Some(&release)))?;
    Ok(Manifest {
        bytes,
        source: release.manifest,
        verified_by: by.as_str(),
        release: Some((engine, release.version.to_string())),
    })
}

fn of_file(args: &Args) -> Result<Manifest> {
    let bytes = read(&args.what)?;
    let source = args.what.display().to_string();
    let verified_by = match &args.sha256 {
        None => "",
        Some(given) => {
            let expected = Some((given.clone(), release::VerifiedBy::Given));
            let by = release::verify(&source, &bytes, expected);
            by.map_err(|error| unverified(&error, None))?.as_str()
        }
    };
    Ok(Manifest {
        bytes,
        source,
        verified_by,
        release: None,
    })
}

fn usage(message: String, next: String) -> anyhow::Error {
    Failure::new(Code::Usage, message, next).into()
}

fn unfetched(error: &FetchError) -> anyhow::Error {
    let code = match error {
        FetchError::Ca(_) | FetchError::Tls(_) => Code::Usage,
        FetchError::Status { status, .. } if status.as_u16() == 404 => Code::NotFound,
        FetchError::Unreachable { .. }
        | FetchError::Redirects { .. }
        | FetchError::Downgrade { .. }
        | FetchError::Status { .. }
        | FetchError::TooLarge { .. } => Code::Unreachable,
    };
    let next = error.next();
    Failure::new(code, error.to_string(), next).into()
}

/// Nothing was stored: the hub has not even seen it. What has to be checked is no word for itself, so what was found is not
/// offered as what to give.
fn unverified(error: &ReleaseError, release: Option<&Release>) -> anyhow::Error {
    let next = match error {
        ReleaseError::Unverified { .. } => {
            let tag = release.map_or_else(
                || "check out the release's tag".to_owned(),
                Release::at_its_tag,
            );
            format!(
                "take the digest from a source of your own, not from what was fetched: {tag}; then give that: --sha256 HEX"
            )
        }
        ReleaseError::Altered { .. } => {
            "fetch it again, from the project itself; do not use this one".to_owned()
        }
        ReleaseError::Unlisted(_)
        | ReleaseError::Version(_)
        | ReleaseError::Base(_)
        | ReleaseError::OneManifest => {
            "check the release, or give the manifest's digest with --sha256".to_owned()
        }
    };
    Failure::new(Code::Failed, format!("not imported: {error}"), next).into()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BUNDLE).unwrap_or(u64::MAX) + 1;
    let (read, what) = if path == Path::new("-") {
        let read = std::io::stdin().take(limit).read_to_end(&mut bytes);
        (read, "the manifests from stdin".to_owned())
    } else {
        let file = std::fs::File::open(path);
        let read = file.and_then(|file| file.take(limit).read_to_end(&mut bytes));
        (read, path.display().to_string())
    };
    read.map_err(|e| unread(&format!("read {what}"), &e))?;
    if bytes.len() > MAX_BUNDLE {
        let next = "give the engine's install manifests only; gzip is read as well".to_owned();
        let text = format!("{} is larger than {} MiB", path.display(), MAX_BUNDLE >> 20);
        return Err(usage(text, next));
    }
    if bytes.is_empty() {
        let next = "give the engine's install manifests".to_owned();
        return Err(usage(format!("{} is empty", path.display()), next));
    }
    Ok(bytes)
}
