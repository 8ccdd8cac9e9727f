//! Engine bundles: import, list, fetch by digest.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderValue, StatusCode, header};

use super::problem::{Problem, Slug};
use super::{Caller, body};
use crate::bundle::{Bundle, Components};
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::{self, AgentPrincipal, Role};
use crate::hub::store::{NewBundle, patience};
use crate::wire::api::{BundleView, EngineKind, MAX_BUNDLE, Page, SIGNATURE_HEADER};
use crate::wire::id::Digest;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/bundles", get(list).post(import))
        .layer(DefaultBodyLimit::max(MAX_BUNDLE))
        .merge(serving())
}

/// The one route that agents use too.
pub fn serving() -> Router<Arc<Hub>> {
    Router::new().route("/v1/bundles/{digest}", get(serve))
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
) -> Result<Json<Page<BundleView>>, Problem> {
    caller.require(&hub, Role::Viewer, "bundle.list").await?;
    let items = hub.store.bundles().await?;
    Ok(Json(Page {
        items,
        cursor: None,
    }))
}

/// What the manifest has to be, and what of it is wanted.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    engine: Option<EngineKind>,
    version: Option<String>,
    /// Flux' controllers, with commas between them.
    components: Option<String>,
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
    let known = hub.store.bundle(&bundle.digest).await?.is_some();
    if !known {
        caller
            .record(&hub, "bundle.import", None, bundle.digest.as_str())
            .await?;
    }
    let new = NewBundle {
        digest: bundle.digest.clone(),
        engine: bundle.engine,
        version: bundle.version.clone(),
        objects: u32::try_from(bundle.objects.len()).unwrap_or(u32::MAX),
        images: bundle.images(),
        data,
        imported_by: caller.user.name.clone(),
    };
    let view = hub.store.add_bundle(new, clock::now()).await?;
    let status = if known {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(view)))
}

/// The bundle as it is stored (zstd). Its name is its content's digest, so it never changes.
async fn serve(
    State(hub): State<Arc<Hub>>,
    Path(digest): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    reader(&hub, request).await?;
    let digest: Digest = digest.parse().map_err(|_| unknown(&digest))?;
    let data = hub.store.bundle_data(&digest).await?;
    let data = data.ok_or_else(|| unknown(digest.as_str()))?;
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
    patience::judged();
    Ok(())
}

fn unknown(digest: &str) -> Problem {
    super::known(&parts.extensions);
    Problem::new(
        Slug::BundleUnknown,
        format!("there is no bundle {digest}"),
        "run: linesman engine list",
    )
}
