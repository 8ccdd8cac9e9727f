//! HTTP routes: extract, call, answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, OriginalUri, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Extensions, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::clock;
use crate::hub::Hub;
use crate::kubeapi::status::{Hop, Refusal};
use crate::wire::api::MAX_BODY;
use problem::{Problem, Slug};

pub mod adopt;
pub mod agents;
pub mod audit;
pub mod bundles;
mod caller;
pub mod catalog;
pub mod clusters;
pub mod githosts;
pub mod grants;
pub mod heals;
pub mod health;
pub mod hub;
pub mod login;
mod once;
pub mod openapi;
pub mod precondition;
pub mod problem;
mod silence;
pub mod strangers;
pub mod tunnel;
pub mod unknown;
pub mod users;

pub use caller::Caller;

/// What a body may take to arrive, and the slowest way, in bytes a second, that one may come over beyond that.
const BODY: Duration = Duration::from_secs(30);
const SLOWEST: usize = 16 << 10;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The caller's address.
#[derive(Debug, Clone, Copy)]
pub struct Remote(pub SocketAddr);

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.port() {
            // A proxy told the address alone.
            0 => self.0.ip().fmt(f),
            _ => self.0.fmt(f),
        }
    }
}

/// Ends the connection that a request came on, of HTTP/2 its stream alone, whatever its client takes in.
#[derive(Debug, Clone, Default)]
pub struct Hangup(pub CancellationToken);

/// Hears that it is known who asks on a connection: until then that takes no user's place.
#[derive(Clone)]
pub struct Newcomer(pub Arc<dyn Fn() + Send + Sync>);

/// It is known who asks.
pub(crate) fn known(extensions: &Extensions) {
    if let Some(Newcomer(hears)) = extensions.get::<Newcomer>() {
        hears();
    }
}

/// Refused already: it could not be parsed, or there is no room for it.
#[derive(Debug, Clone)]
pub struct Refused(pub Refusal);

/// A request's id: made by the hub, in its answer, in the audit and in the API server's audit.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// Everything that the HTTPS port serves.
pub fn router(hub: Arc<Hub>) -> Router {
    Router::new()
        .merge(hub::routes())
        .merge(clusters::routes())
        .merge(bundles::routes())
        .merge(grants::routes())
        .merge(unknown::routes())
        .merge(users::routes())
        .merge(login::routes())
        .merge(heals::routes())
        .merge(audit::routes())
        .merge(catalog::routes())
        .merge(githosts::routes())
        .merge(adopt::routes())
        .merge(openapi::routes())
        .merge(tunnel::routes())
        .merge(agents::routes(hub.clone()))
        .merge(crate::hub::proxy::routes())
        .fallback(no_such_path)
        .method_not_allowed_fallback(async || {
            Problem::new(
                Slug::MethodNotAllowed,
                "the path exists, the method does not",
                "see /openapi.json",
            )
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(hub.clone(), once::by_key))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(hub.clone(), outermost))
        .with_state(hub)
}

/// Paths of an API server, and what is below them.
const API_SERVERS: [&str; 8] = [
    "/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi", "/readyz", "/version",
];

fn is_api_servers(path: &str) -> bool {
    API_SERVERS
        .into_iter()
        .filter_map(|begin| path.strip_prefix(begin))
        .any(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `kubectl get --raw` asks for its path alone, whatever is the cluster's in the kubeconfig, and shows nothing of what is no `Status`.
async fn no_such_path(request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path();
    if !is_api_servers(path) {
        return Problem::not_found("such path").into_response();
    }
    let path = crate::hub::cut(path, 200);
    let what = format!("{path} names no cluster");
    let refusal = Refusal::new(Hop::Hub, StatusCode::NOT_FOUND, "NoCluster", what).next(format!(
        "kubectl --raw leaves it out: ask for /clusters/NAME{path}"
    ));
    let answer = refusal.response(&request_id(&parts));
    answer.map(axum::body::Body::from)
}

/// Gives each request its id, renders problems with it, and counts the answer.
async fn outermost(State(hub): State<Arc<Hub>>, mut request: Request, next: Next) -> Response {
    let id = clock::id();
    request.extensions_mut().insert(RequestId(id.clone()));
    let refused = request.extensions_mut().remove::<Refused>();
    let mut response = match refused {
        Some(Refused(refusal)) => refuse(&hub, &refusal, &id),
        None if changes(&request) => finished(&hub, request, next).await,
        None => silence::bounded(&hub, request, next).await,
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem.render(&id);
    }
    hub.metrics.answered(response.status().as_u16());
    let value = HeaderValue::from_str(&id).expect("a UUID is a header value");
    response.headers_mut().insert(REQUEST_ID, value);
    response
}

/// Whether it may change what is on record. What it is at an API server is not ours to finish.
fn changes(request: &Request) -> bool {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    !reads && !request.uri().path().starts_with("/clusters/")
}

/// Carries it out to its end, although the caller goes away: of a change that is stored the rest must not be left undone, as the
/// end of what runs by a token that was revoked.
async fn finished(hub: &Arc<Hub>, request: Request, next: Next) -> Response {
    let own = Arc::clone(hub);
    let work = async move { silence::bounded(&own, request, next).await };
    match hub.work.spawn(work.in_current_span()).await {
        Ok(response) => response,
        Err(_) => Problem::new(
            Slug::Internal,
            "the hub stopped while it carried the request out",
            "look whether it is done before you repeat it",
        )
        .into_response(),
    }
}

/// What it was for, nobody can tell: kubectl is who understands least besides its own form.
fn refuse(hub: &Hub, refusal: &Refusal, id: &str) -> Response {
    hub.metrics.refused(refusal.reason);
    tracing::debug!(request = id, %refusal, "refused");
    refusal.response(id).map(axum::body::Body::from)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "tower-http's ResponseForPanic takes the box"
)]
fn panicked(what: Box<dyn std::any::Any + Send>) -> Response {
    let text = what
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| what.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(panic = text, "a handler panicked");
    Problem::new(
        Slug::Internal,
        "the hub failed to carry the request out",
        "look for the request's id in the hub's log",
    )
    .into_response()
}

/// Why a change that was allowed is not made.
const LOST: &str = "not made: somebody else's change came first";

/// What the caller wrote, which a nested router has cut.
pub(crate) fn path_and_query(parts: &Parts) -> &str {
    let original = parts.extensions.get::<OriginalUri>();
    let uri = original.map_or(&parts.uri, |o| &o.0);
    uri.path_and_query().map_or("/", |p| p.as_str())
}

pub(crate) fn request_id(parts: &Parts) -> String {
    parts
        .extensions
        .get::<RequestId>()
        .map(|id| id.0.clone())
        .unwrap_or_default()
}

pub(crate) fn remote(parts: &Parts) -> String {
    parts
        .extensions
        .get::<Remote>()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// A person's JSON body: unknown fields are refused by name, an empty body reads as `{}`.
pub struct UserBody<T>(pub T);

impl<T: DeserializeOwned> axum::extract::FromRequest<Arc<Hub>> for UserBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _hub: &Arc<Hub>) -> Result<Self, Problem> {
        read_json(&body(request.into_body(), MAX_BODY).await?).map(Self)
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| {
        let text = error.to_string();
        let (slug, next) = if text.starts_with("unknown field") {
            (
                Slug::UnknownField,
                "remove the field; /openapi.json lists those there are",
            )
        } else {
            (Slug::BadRequest, "see /openapi.json for the body's shape")
        };
        Problem::new(slug, format!("the body: {text}"), next)
    })
}

/// Reads a whole body of at most `max` bytes, while it comes. That of somebody who is not known yet is read by
/// [`strangers::Strangers::read`].
pub(crate) async fn body(body: axum::body::Body, max: usize) -> Result<Bytes, Problem> {
    let slow = u64::try_from(max / SLOWEST).unwrap_or(u64::MAX);
    let limit = BODY.saturating_add(Duration::from_secs(slow));
    let read = tokio::time::timeout(limit, whole(body, max)).await;
    read.map_err(|_| {
        let text = format!("the body did not come within {} s", limit.as_secs());
        Problem::new(Slug::BadRequest, text, "send it again")
    })?
}

/// Each piece is copied: it may be one byte, and would keep all that was read with it.
async fn whole(mut body: axum::body::Body, max: usize) -> Result<Bytes, Problem> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            let text = "the body ended before it was complete";
            Problem::new(Slug::BadRequest, text, "send it again")
        })?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        if piece.len() > max - whole.len() {
            let text = format!("the body has more than {max} bytes");
            return Err(Problem::new(Slug::BodyTooLarge, text, "send less").with("limit", &max));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a person sees it who asks with `kubectl get --raw`.
    #[tokio::test]
    async fn a_path_of_an_api_server_is_answered_as_one_would_and_names_the_way() {
        let ask = async |path: &str| {
            let mut request = Request::new(axum::body::Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            let id = RequestId("r1".to_owned());
            request.extensions_mut().insert(id);
            let response = no_such_path(request).await;
            let code = response.status().as_u16();
            (code, body(response.into_body(), MAX_BODY).await.unwrap())
        };
        for path in ["/healthz", "/readyz/ping", "/api/v1/nodes"] {
            let (code, said) = ask(path).await;
            let status: serde_json::Value = serde_json::from_slice(&said).unwrap();
            let message = format!(
                "hub: {path} names no cluster; kubectl --raw leaves it out: ask for /clusters/NAME{path} (request r1)"
            );
            let wanted: [serde_json::Value; 2] = ["Status".into(), message.into()];
            let told = [&status["kind"], &status["message"]];
            assert_eq!((code, told), (404, wanted.each_ref()));
        }
        for other in ["/", "/apiserver", "/openapi.json", "/v1/nothing"] {
            assert_eq!(ask(other).await, (404, Bytes::new()), "{other}");
        }
    }

    /// L40
    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_not_waited_for() {
        let began = tokio::time::Instant::now();
        let drops = futures_util::stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, std::io::Error>("x"), ()))
        });
        let drops = axum::body::Body::from_stream(drops);
        let problem = body(drops, MAX_BODY).await.unwrap_err();
        assert_eq!(problem.slug, Slug::BadRequest);
        assert!(began.elapsed() < Duration::from_mins(2));
    }
}
