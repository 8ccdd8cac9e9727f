//! Sends a judged request to the API server, and says what it means when no answer comes.

use std::time::Duration;

use bytes::Bytes;
use http::header;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use tracing::debug;

use super::exchange::{IMPERSONATE_GROUP, IMPERSONATE_USER, Shared, impersonable};
use super::refused::{self, Form};
use super::running::{self, over};
use super::upload::{may_be_late, upload};
use super::upstream::{Body, Credential, full, passing};
use crate::agent::gate::Pass;
use crate::kubeapi::headers;
use crate::kubeapi::status::{Hop, Refusal};
use crate::secret::Secret;

/// How often a role that was not seen yet is waited for, and how long each time.
const IMPERSONATION: (u32, Duration) = (3, Duration::from_millis(100));
/// How long the API server may take to say whether it lets the line act as somebody.
const ACTS: Duration = Duration::from_secs(10);
/// A refusal's body that is read to see whose it is.
const REFUSAL: usize = 64 << 10;

/// Sends, and once more where nothing was executed: after a refused token or a role not seen yet, and only
/// without a body. With the answer, the UID of the Secret that the token is bound to with which it went.
pub(super) async fn send(
    shared: &Shared,
    pass: &Pass,
    parts: http::request::Parts,
    body: Incoming,
    stop: &(dyn Fn() + Send + Sync),
) -> Result<(Response<Body>, String), Refusal> {
    let repeatable = body.is_end_stream();
    let mut body = Some(body);
    let (mut renewed, mut tries) = (false, 0);
    loop {
        let (bearer, serial, bound) = credential(shared).await?;
        let (sent, answered) = match body.take().map(upload) {
            Some((upload, answered)) => (upload.boxed_unsync(), Some(answered)),
            None => (full(Bytes::new()), None),
        };
        let heed = |response: Response<Body>| match answered {
            Some(answered) => answered.heed(response, stop),
            None => response,
        };
        let mut request = Request::new(sent);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        headers::set_chunked(&mut request);
        let response = pass_on(shared, pass, request, (&bearer, &bound)).await?;
        match response.status() {
            // What stands behind the API server says so, too, and has looked at the request: a Pod behind `…/proxy/`, a kubelet,
            // an aggregated API.
            StatusCode::UNAUTHORIZED if shared.upstream.takes(&bearer).await => {
                return Ok((heed(response.map(passing)), bound));
            }
            StatusCode::UNAUTHORIZED => {
                let next = shared.upstream.renewed(serial).await;
                if renewed || !matches!(next, Credential::Token { .. }) {
                    return Err(no_token(&next));
                }
                if !repeatable {
                    return Err(again("the token of linesman-line was renewed just now"));
                }
                renewed = true;
            }
            StatusCode::FORBIDDEN => {
                let (response, impersonation) = read_refusal(shared, response).await?;
                // A Pod behind `…/proxy/` may say that, too, and has looked at the request.
                if !impersonation
                    || pass.info.proxied() && acts(shared, &parts.headers, &bearer).await
                {
                    return Ok((heed(response), bound));
                }
                if tries == IMPERSONATION.0 {
                    return Err(not_impersonable());
                }
                tries += 1;
                tokio::time::sleep(IMPERSONATION.1).await;
                impersonable(shared, pass, true).await?;
                if !repeatable {
                    return Err(again("ClusterRole linesman-line-subjects was written anew"));
                }
            }
            _ => return Ok((heed(response.map(passing)), bound)),
        }
    }
}

/// Sends by a connection that waits for as long as what takes the body may, and the cluster's owner lets it: before there is an
/// answer nothing else ends it.
async fn pass_on(
    shared: &Shared,
    pass: &Pass,
    request: Request<Body>,
    (bearer, bound): (&Secret<HeaderValue>, &str),
) -> Result<Response<Incoming>, Refusal> {
    let answer = if may_be_late(&pass.info, request.body().size_hint().upper()) {
        let runs = running::running(pass, request.uri(), bound.to_owned());
        tokio::select! {
            answer = shared.upstream.send_to_late(request, bearer) => answer,
            () = Box::pin(over(runs, shared)) => return Err(cut()),
        }
    } else {
        shared.upstream.send(request, bearer).await
    };
    answer.map_err(|e| unreachable_server(&e))
}

/// The token in force, its serial, and the UID of the Secret that it is bound to.
pub(super) async fn credential(
    shared: &Shared,
) -> Result<(Secret<HeaderValue>, u64, String), Refusal> {
    match shared.upstream.credential().await {
        Credential::Token {
            bearer,
            serial,
            bound,
        } => Ok((bearer, serial, bound)),
        other => Err(no_token(&other)),
    }
}

/// Nothing was executed, but the body is gone.
fn again(what: &str) -> Refusal {
    let code = StatusCode::SERVICE_UNAVAILABLE;
    Refusal::new(Hop::Agent, code, "Renewed", what).next("nothing was executed; repeat it")
}

/// The owner took away what it went by, and some of it may have been read.
fn cut() -> Refusal {
    let what = "the cluster's owner ended access while the upload was under way";
    Refusal::new(Hop::Agent, StatusCode::BAD_GATEWAY, "Withdrawn", what)
        .next("look whether it took effect before repeating it")
}

fn not_impersonable() -> Refusal {
    let what = "the API server does not let linesman-line act as you";
    Refusal::new(Hop::Agent, StatusCode::FORBIDDEN, "Impersonation", what)
        .next("repeat it; if it stays, apply the adoption YAML again")
}

fn no_token(credential: &Credential) -> Refusal {
    let why = match credential {
        Credential::Withdrawn { namespace } => {
            let what = "the cluster's owner ended access through the line: Secret linesman-line-bind was deleted";
            return Refusal::new(Hop::Agent, StatusCode::BAD_GATEWAY, "Withdrawn", what).next(format!(
                "to allow it again: kubectl -n {namespace} create secret generic linesman-line-bind"
            ));
        }
        Credential::Missing { why } => why.clone(),
        Credential::Starting | Credential::Token { .. } => {
            "the API server refuses the token of linesman-line".to_owned()
        }
    };
    Refusal::new(Hop::ApiServer, StatusCode::BAD_GATEWAY, "Token", why)
        .next("check Secret linesman-line-bind in the agent's namespace")
}

fn unreachable_server(error: &hyper_util::client::legacy::Error) -> Refusal {
    debug!(error = ?error, "request to the API server");
    let what = if error.is_connect() {
        format!("the agent cannot connect to it: {}", chain(error))
    } else {
        format!("the connection broke before an answer: {}", chain(error))
    };
    let next = if error.is_connect() {
        "check the API server's health"
    } else {
        "look whether it took effect before repeating it"
    };
    Refusal::new(Hop::ApiServer, StatusCode::BAD_GATEWAY, "Unreachable", what).next(next)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Whether the API server lets `linesman-line` act as who stands in these headers, by what it answers to `GET /version`.
async fn acts(shared: &Shared, headers: &HeaderMap, bearer: &Secret<HeaderValue>) -> bool {
    let asked = async {
        let mut request = Request::new(full(Bytes::new()));
        *request.uri_mut() = Uri::from_static("/version");
        for name in [IMPERSONATE_USER, IMPERSONATE_GROUP] {
            for value in headers.get_all(&name) {
                request.headers_mut().append(&name, value.clone());
            }
        }
        let answer = shared.upstream.send(request, bearer).await.ok()?;
        let status = answer.status();
        if status != StatusCode::FORBIDDEN {
            return Some(status.is_success());
        }
        let (_, impersonation) = read_refusal(shared, answer).await.ok()?;
        Some(!impersonation)
    };
    let answered = tokio::time::timeout(ACTS, asked).await;
    matches!(answered, Ok(Some(true)))
}

/// Reads a 403 to see whether it refuses the impersonation itself, and gives it back whole.
async fn read_refusal(
    shared: &Shared,
    response: Response<Incoming>,
) -> Result<(Response<Body>, bool), Refusal> {
    let (parts, body) = response.into_parts();
    let small = body
        .size_hint()
        .upper()
        .is_some_and(|size| size <= REFUSAL as u64);
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let form = kind.and_then(|kind| Form::of(kind.as_bytes()));
    let Some(form) = form.filter(|_| small) else {
        return Ok((Response::from_parts(parts, passing(body)), false));
    };
    let read = tokio::time::timeout(
        Duration::from_secs(5),
        Limited::new(body, REFUSAL).collect(),
    )
    .await;
    let Ok(Ok(read)) = read else {
        // Without the rest nobody knows who refused what, and the part would look like the whole.
        let what = "it refused the request, and the connection broke before it had said why";
        let code = StatusCode::BAD_GATEWAY;
        return Err(Refusal::new(Hop::ApiServer, code, "BadAnswer", what).next(
            "repeat it; if it stays, check what stands between the agent and its API server",
        ));
    };
    let bytes = read.to_bytes();
    let impersonation = refused::is_of_acting(form, &bytes, &shared.namespace);
    Ok((Response::from_parts(parts, full(bytes)), impersonation))
}
