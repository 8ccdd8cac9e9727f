//! `linesman engine remove`: the hub lets go of a version that no cluster needs.

use anyhow::Result;
use serde::Serialize;

use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Output, done, progress_line};
use crate::wire::api::{EngineKind, ToldBundle};
use crate::wire::id::Digest;

const EXAMPLES: &str = "\
Refused, with the clusters that are in the way, for a version that a cluster is to run, that runs there still,
or that a change goes back to where it does not work. Clusters keep what they run in themselves, and go on
without the hub's copy of it. The same manifests come back under the same digest: linesman engine import.

Of one version there may be several bundles, such as Argo CD's core and full install: a digest names one.

Examples:
  linesman engine remove flux 2.9.4
  linesman engine remove sha256:4f1c…      # as 'engine list' shows it";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// flux or argocd, with a VERSION; or a bundle's digest, sha256:…
    #[arg(value_name = "flux|argocd|DIGEST")]
    what: String,
    /// The version, such as 2.9.4
    version: Option<String>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// What the hub is to let go of.
#[derive(Debug, PartialEq, Eq)]
enum Which {
    Release(EngineKind, String),
    Bundle(Digest),
}

/// What programs read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Removed<'a> {
    digest: &'a Digest,
    engine: String,
    version: &'a str,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let which = which(&args.what, args.version.as_deref())?;
    let client = args.connect.client().await?;
    let held = client.bundles().await?;
    let bundle = chosen(&held, &which)?.ok_or_else(|| missing(&which))?;
    let digest = &bundle.digest;
    client.remove_bundle(digest).await?;
    progress_line(&format!(
        "removed {} {} ({digest})",
        bundle.engine, bundle.version
    ));
    let removed = Removed {
        digest,
        engine: bundle.engine.to_string(),
        version: &bundle.version,
    };
    done(args.output.output, digest.as_str(), &removed)
}

fn which(what: &str, version: Option<&str>) -> Result<Which, Failure> {
    let usage = |message: String, next: &str| Err(Failure::new(Code::Usage, message, next));
    match (EngineKind::parse(what), version) {
        (Some(engine), Some(version)) => {
            let version = version.strip_prefix('v').unwrap_or(version);
            Ok(Which::Release(engine, version.to_owned()))
        }
        (Some(engine), None) => usage(
            format!("no version of {engine} is named"),
            "give it, or a digest instead; see: linesman engine list",
        ),
        (None, Some(_)) => usage(
            format!("'{what}' is no engine"),
            "give flux or argocd with a version, or a digest alone",
        ),
        (None, None) => match what.parse() {
            Ok(digest) => Ok(Which::Bundle(digest)),
            Err(_) => usage(
                format!("'{what}' is neither an engine nor a digest"),
                "give flux or argocd with a version, or sha256:… as 'linesman engine list' shows it",
            ),
        },
    }
}

/// The one of those that the hub holds; None = none of them is it.
fn chosen<'a>(held: &'a [ToldBundle], which: &Which) -> Result<Option<&'a ToldBundle>, Failure> {
    let fits = |bundle: &&ToldBundle| match which {
        Which::Release(engine, version) => bundle.engine == *engine && bundle.version == *version,
        Which::Bundle(digest) => bundle.digest == *digest,
    };
    let all: Vec<&ToldBundle> = held.iter().filter(fits).collect();
    match (all.as_slice(), which) {
        ([first, _, ..], Which::Release(engine, version)) => {
            let digests: Vec<&str> = all.iter().map(|b| b.digest.as_str()).collect();
            Err(Failure::new(
                Code::Usage,
                format!(
                    "the hub holds {} bundles of {engine} {version}: {}",
                    all.len(),
                    digests.join(", ")
                ),
                format!("name one: linesman engine remove {}", first.digest),
            ))
        }
        (some, _) => Ok(some.first().copied()),
    }
}

fn missing(which: &Which) -> Failure {
    let what = match which {
        Which::Release(engine, version) => format!("{engine} {version}"),
        Which::Bundle(digest) => format!("bundle {digest}"),
    };
    Failure::new(
        Code::NotFound,
        format!("the hub holds no {what}"),
        "see: linesman engine list",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(n: u8, engine: EngineKind, version: &str) -> ToldBundle {
        ToldBundle {
            digest: Digest::from_bytes([n; 32]),
            engine: engine.into(),
            version: version.to_owned(),
            objects: 31,
            images: Vec::new(),
            size: 3,
            kubernetes: None,
            imported_at: "2026-01-02T03:04:05.000Z".to_owned(),
            origin: None,
        }
    }

    #[test]
    fn an_engine_needs_its_version_and_a_digest_stands_alone() {
        let digest = Digest::from_bytes([1; 32]);
        for version in ["2.9.4", "v2.9.4"] {
            let release = Which::Release(EngineKind::Flux, "2.9.4".to_owned());
            assert_eq!(which("flux", Some(version)), Ok(release));
        }
        assert_eq!(
            which(digest.as_str(), None),
            Ok(Which::Bundle(digest.clone()))
        );
        for (what, version, says) in [
            ("argocd", None, "no version of argocd is named"),
            (digest.as_str(), Some("2.9.4"), "is no engine"),
            ("sha256:4f1c", None, "is neither an engine nor a digest"),
        ] {
            let failure = which(what, version).unwrap_err();
            assert_eq!(failure.code, Code::Usage);
            assert!(failure.message.contains(says), "{failure:?}");
            assert!(!failure.next.is_empty());
        }
    }

    #[test]
    fn of_several_bundles_of_a_version_none_is_guessed() {
        let held = [
            bundle(1, EngineKind::Argocd, "3.2.6"),
            bundle(2, EngineKind::Flux, "2.9.4"),
            bundle(3, EngineKind::Argocd, "3.2.6"),
        ];
        let of = |engine, version: &str| chosen(&held, &Which::Release(engine, version.to_owned()));
        assert_eq!(of(EngineKind::Flux, "2.9.4"), Ok(Some(&held[1])));
        assert_eq!(of(EngineKind::Flux, "3.2.6"), Ok(None));
        let [first, third] = [&held[0].digest, &held[2].digest];
        let several = Failure::new(
            Code::Usage,
            format!("the hub holds 2 bundles of argocd 3.2.6: {first}, {third}"),
            format!("name one: linesman engine remove {first}"),
        );
        assert_eq!(of(EngineKind::Argocd, "3.2.6"), Err(several));
        let by_digest = Which::Bundle(third.clone());
        assert_eq!(chosen(&held, &by_digest), Ok(Some(&held[2])));
        assert_eq!(
            chosen(&held, &Which::Bundle(Digest::from_bytes([9; 32]))),
            Ok(None)
        );
    }
}
