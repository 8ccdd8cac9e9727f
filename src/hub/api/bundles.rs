//! Engine bundles: import, list, fetch by digest, remove.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::precondition::Part;
use super::problem::{Problem, Slug};
use super::{Caller, body, precondition};
use crate::bundle::{Bundle, Components};
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::{self, AgentPrincipal, Role};
use crate::hub::store::{BundleUse, NewBundle, StoreError, patience};
use crate::wire::api::{BundleOrigin, BundleView, EngineKind, MAX_BUNDLE, Page, SIGNATURE_HEADER};
use crate::wire::id::{ClusterName, Digest};

/// Bytes of an address, and of what vouched.
const MAX_ORIGIN: usize = 300;
/// Clusters that a refusal names.
const NAMED: usize = 10;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/bundles", get(list).post(import))
        .layer(DefaultBodyLimit::max(MAX_BUNDLE))
        .route("/v1/bundles/{digest}", delete(remove))
        .merge(serving())
}

/// The one route that agents use too.
pub fn serving() -> Router<Arc<Hub>> {
    Router::new().route("/v1/bundles/{digest}", get(serve))
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(part): Query<Part>,
) -> Result<Json<Page<BundleView>>, Problem> {
    caller.require(&hub, Role::Viewer, "bundle.list").await?;
    let bundles = hub.store.bundles().await?;
    Ok(Json(precondition::page(bundles, &part, newest_first)?))
}

/// What puts bundles in order, the newest first: the moment of its import with each digit turned round, and the digest.
fn newest_first(bundle: &BundleView) -> String {
    let turned = |c: char| {
        let digit = c.to_digit(10).and_then(|n| char::from_digit(9 - n, 10));
        digit.unwrap_or(c)
    };
    let at: String = bundle.imported_at.chars().map(turned).collect();
    format!("{at} {}", bundle.digest)
}

/// What the manifest has to be, and what of it is wanted.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    engine: Option<EngineKind>,
    version: Option<String>,
    /// Flux' controllers, with commas between them.
    components: Option<String>,
    /// Where the importing program has it from.
    source: Option<String>,
    /// What vouched for it there; empty = nothing did.
    #[serde(rename = "verifiedBy")]
    verified_by: Option<String>,
}

impl Wanted {
    fn check(&self, bundle: &Bundle) -> Result<(), Problem> {
        let engine = self.engine.is_none_or(|engine| engine == bundle.engine);
        let version = self.version.as_ref().is_none_or(|v| *v == bundle.version);
        if engine && version {
            return Ok(());
        }
        let detail = format!(
            "the manifest is of {} {}, which is not what was asked for",
            bundle.engine, bundle.version
        );
        let next = "give that engine and version, or the manifest of the other";
        Err(Problem::new(Slug::BundleInvalid, detail, next))
    }

    /// As it goes on record.
    fn origin(&self) -> Option<BundleOrigin> {
        let kept = |text: &String| {
            let one_line = text.replace(char::is_control, "\u{fffd}");
            crate::hub::cut(&one_line, MAX_ORIGIN).to_owned()
        };
        Some(BundleOrigin {
            source: kept(self.source.as_ref()?),
            verified_by: kept(self.verified_by.as_ref()?),
        })
    }
}

/// Takes an engine's install manifest: YAML, `.gz` or `.tar.gz`. The same content again changes nothing.
async fn import(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    request: Request,
) -> Result<(StatusCode, Json<BundleView>), Problem> {
    caller
        .require(&hub, Role::Operator, "bundle.import")
        .await?;
    let invalid = |error: &dyn std::error::Error| {
        let text = crate::hub::chain_of(error);
        let next = "give the engine's release manifest, unchanged";
        Problem::new(Slug::BundleInvalid, format!("the bundle: {text}"), next)
    };
    let components = wanted.components.as_deref().map(str::parse::<Components>);
    let components = components.transpose().map_err(|error| invalid(&error))?;
    let bytes = body(request.into_body(), MAX_BUNDLE).await?;
    // Reading and compressing megabytes is no work for a thread that serves others.
    let parsed = tokio::task::spawn_blocking(move || {
        Bundle::import(&bytes, components.as_ref()).map(|bundle| {
            let data = bundle.pack();
            (bundle, data)
        })
    })
    .await
    .map_err(anyhow::Error::from)?;
    let (bundle, data) = parsed.map_err(|error| invalid(&error))?;
    wanted.check(&bundle)?;
    let origin = wanted.origin();
    let before = hub.store.bundle(&bundle.digest).await?;
    let known = before.is_some();
    if is_news(before.as_ref(), origin.as_ref()) {
        let target = format!(
            "{} {} {}{}",
            bundle.engine,
            bundle.version,
            bundle.digest,
            described(origin.as_ref())
        );
        caller.record(&hub, "bundle.import", None, &target).await?;
    }
    let new = NewBundle {
        digest: bundle.digest.clone(),
        engine: bundle.engine,
        version: bundle.version.clone(),
        objects: u32::try_from(bundle.objects.len()).unwrap_or(u32::MAX),
        images: bundle.images(),
        data,
        imported_by: caller.user.name.clone(),
        origin,
    };
    let view = hub.store.add_bundle(new, clock::now()).await?;
    let status = if known {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(view)))
}

/// Whether an import changes what is on record: the bundle comes, or somebody vouches for it by now.
fn is_news(before: Option<&BundleView>, origin: Option<&BundleOrigin>) -> bool {
    let vouched = |origin: Option<&BundleOrigin>| origin.is_some_and(BundleOrigin::is_verified);
    before.is_none_or(|before| vouched(origin) && !vouched(before.origin.as_ref()))
}

fn described(origin: Option<&BundleOrigin>) -> String {
    let Some(BundleOrigin {
        source,
        verified_by,
    }) = origin
    else {
        return String::new();
    };
    match verified_by.as_str() {
        "" => format!(", not verified, from {source}"),
        by => format!(", verified by {by}, from {source}"),
    }
}

/// The bundle as it is stored (zstd). Its name is its content's digest, so it never changes.
async fn serve(
    State(hub): State<Arc<Hub>>,
    Path(digest): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    reader(&hub, request).await?;
    let digest: Digest = digest.parse().map_err(|_| unknown(&digest))?;
    let Some(data) = hub.store.bundle_data(&digest).await? else {
        return Err(absent(&hub, &digest).await?);
    };
    let mut response = data.into_response();
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, "application/zstd"),
        (
            header::CACHE_CONTROL,
            "private, max-age=31536000, immutable",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{digest}\"")) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Agents and people may read bundles.
async fn reader(hub: &Hub, request: Request) -> Result<(), Problem> {
    let (parts, _) = request.into_parts();
    if parts.extensions.get::<AgentPrincipal>().is_some() {
        // The line has proven it.
    } else if parts.headers.contains_key(SIGNATURE_HEADER) {
        auth::agent(hub, &parts, b"").await?;
    } else {
        auth::user(hub, &parts.headers).await?;
    }
    super::known(&parts.extensions);
    patience::judged();
    Ok(())
}

/// Takes a bundle away that no cluster needs.
async fn remove(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(digest): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller
        .require(&hub, Role::Operator, "bundle.remove")
        .await?;
    let what = format!("bundle {}", crate::hub::cut(&digest, 80));
    precondition::matches_name(&headers, &digest, &what)?;
    let digest: Digest = digest.parse().map_err(|_| unknown(&digest))?;
    // A cluster that is given it between look and removal keeps it.
    let removed = precondition::written((&hub, &caller), &what, || async {
        let Some(bundle) = hub.store.bundle(&digest).await? else {
            return Err(unknown(digest.as_str()));
        };
        if let Some(problem) = needed(&bundle, &hub.store.bundle_use(&digest).await?) {
            return Err(problem);
        }
        let record = format!("{} {} {digest}", bundle.engine, bundle.version);
        caller.record(&hub, "bundle.remove", None, &record).await?;
        let removed = hub.store.remove_bundle(&digest, clock::now()).await?;
        Ok(removed.then_some(()))
    });
    removed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Why it stays; None = no cluster needs it.
fn needed(bundle: &BundleView, by: &BundleUse) -> Option<Problem> {
    let wished = (!by.wished.is_empty()).then(|| format!("{} shall run it", listed(&by.wished)));
    let kept = (!by.kept.is_empty()).then(|| {
        let names = listed(&by.kept);
        format!("it is in force, or what was before a change, in {names}")
    });
    let next = match (&wished, &kept) {
        (None, None) => return None,
        (Some(_), _) => format!(
            "let them run another version first: linesman engine set NAME {} VERSION --wait",
            bundle.engine
        ),
        (None, Some(_)) => "see what their change waits for: linesman cluster show NAME; it needs \
             the bundle no more when what they shall run works"
            .to_owned(),
    };
    let why: Vec<String> = wished.into_iter().chain(kept).collect();
    let (engine, version, digest) = (bundle.engine, &bundle.version, bundle.digest.short());
    let detail = format!(
        "the bundle of {engine} {version} ({digest}…) stays: {}",
        why.join("; ")
    );
    Some(Problem::new(Slug::BundleInUse, detail, next))
}

/// `eu1, eu2 (+3 more)`
fn listed(clusters: &[ClusterName]) -> String {
    let named = clusters.iter().take(NAMED).map(ClusterName::as_str);
    let named = named.collect::<Vec<_>>().join(", ");
    match clusters.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} (+{more} more)"),
    }
}

/// What is said of a bundle that is not there: whoever was told to fetch it is to know whether it ever was.
async fn absent(hub: &Hub, digest: &Digest) -> Result<Problem, StoreError> {
    let Some(before) = hub.store.removed_bundle(digest).await? else {
        return Ok(unknown(digest.as_str()));
    };
    let (engine, version) = (before.engine, before.version);
    Ok(Problem::new(
        Slug::BundleUnknown,
        format!("the bundle {digest} of {engine} {version} was removed from the hub"),
        format!(
            "let the cluster run another version: linesman engine set NAME {engine} VERSION; or import this one again: \
             linesman engine import {engine} {version}"
        ),
    ))
}

fn unknown(digest: &str) -> Problem {
    Problem::new(
        Slug::BundleUnknown,
        format!("there is no bundle {digest}"),
        "run: linesman engine list",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> BundleView {
        BundleView {
            digest: Digest::from_bytes([0xab; 32]),
            engine: EngineKind::Flux,
            version: "2.9.4".to_owned(),
            objects: 31,
            images: Vec::new(),
            size: 3,
            kubernetes: None,
            imported_at: "2026-01-02T03:04:05.000Z".to_owned(),
            origin: None,
        }
    }

    #[test]
    fn an_import_is_on_record_with_what_vouched_for_it_and_again_when_somebody_does() {
        let by = |verified_by: &str| {
            let wanted = Wanted {
                engine: None,
                version: None,
                components: None,
                source: Some("a\n.yaml".to_owned()),
                verified_by: Some(verified_by.to_owned()),
            };
            wanted.origin()
        };
        let (nobody, given) = (by(""), by("--sha256"));
        let (nobody, given) = (nobody.as_ref(), given.as_ref());
        let said = [None, nobody, given].map(described);
        let expected = [
            "",
            ", not verified, from a\u{fffd}.yaml",
            ", verified by --sha256, from a\u{fffd}.yaml",
        ];
        assert_eq!(said, expected);
        for (before, now, news) in [
            (None, None, false),
            (None, nobody, false),
            (None, given, true),
            (nobody, given, true),
            (given, given, false),
            (given, nobody, false),
        ] {
            let before = BundleView {
                origin: before.cloned(),
                ..bundle()
            };
            assert!(is_news(None, now));
            assert_eq!(is_news(Some(&before), now), news, "{before:?} {now:?}");
        }
    }

    fn clusters(count: usize) -> Vec<ClusterName> {
        (1..=count)
            .map(|n| format!("eu{n}").parse().unwrap())
            .collect()
    }

    #[test]
    fn a_bundle_that_clusters_need_stays_and_some_of_them_are_named() {
        let said = |wished, kept| {
            let by = BundleUse {
                wished: clusters(wished),
                kept: clusters(kept),
            };
            needed(&bundle(), &by).map(|p| (p.slug, p.detail, p.next))
        };
        let other =
            "let them run another version first: linesman engine set NAME flux VERSION --wait";
        let waits = "see what their change waits for: linesman cluster show NAME; it needs the bundle no more when what they \
                     shall run works";
        let told = |why: &str, next: &str| {
            let detail = format!("the bundle of flux 2.9.4 (sha256:abababababab…) stays: {why}");
            Some((Slug::BundleInUse, detail, next.to_owned()))
        };
        assert_eq!(said(0, 0), None);
        assert_eq!(said(2, 0), told("eu1, eu2 shall run it", other));
        let kept = "it is in force, or what was before a change, in eu1";
        assert_eq!(said(0, 1), told(kept, waits));
        let many = "eu1, eu2, eu3, eu4, eu5, eu6, eu7, eu8, eu9, eu10 (+2 more) shall run it";
        assert_eq!(said(12, 1), told(&format!("{many}; {kept}"), other));
    }
}
