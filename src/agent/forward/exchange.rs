//! One HTTP exchange of one stream: cleaned once more, judged by the gate, sent to the API server as the
//! user it acts for, its answer streamed back.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::subjects::{Name, Want};
use super::upstream::{Body, Credential, Upstream, full, passing};
use crate::agent::gate::policy::Policy;
use crate::agent::gate::replay::Replay;
use crate::agent::gate::{self, Pass, Session};
use crate::assertion::ApiMeta;
use crate::clock;
use crate::kubeapi::headers;
use crate::kubeapi::path::Upgrade;
use crate::kubeapi::status::{Hop, Refusal};
use crate::wire::api::HubKey;

/// What the exchanges of all streams share.
pub struct Shared {
    pub hub_id: String,
    pub cluster_id: String,
    pub upstream: Upstream,
    pub policy: watch::Receiver<Option<Policy>>,
    pub allowed: watch::Receiver<BTreeSet<Name>>,
    pub wants: mpsc::Sender<Want>,
    pub replay: Mutex<Replay>,
    /// Copies of switched protocols; they outlive the HTTP exchange.
    pub switched: TaskTracker,
}

/// What one stream says of itself.
#[derive(Clone)]
pub struct Exchange {
    pub meta: ApiMeta,
    /// The epoch of the line that the stream came on.
    pub epoch: u64,
    pub keyset: Vec<HubKey>,
    pub hub_time_offset: time::Duration,
    /// Fires when the stream is reset or its line is lost.
    pub cancelled: CancellationToken,
}

/// Below the hub's 75 s, so that the answer names the right hop.
const HEAD: Duration = Duration::from_secs(70);
const IMPERSONATION: (u32, Duration) = (3, Duration::from_millis(100));
/// A refusal's body that is read to see whose it is.
const REFUSAL: usize = 64 << 10;

/// Answers the request; never fails: what goes wrong is a `Status`.
pub async fn answer(
    shared: Arc<Shared>,
    exchange: Exchange,
    request: Request<Incoming>,
) -> Response<Body> {
    let id = exchange.meta.id.clone();
    match attempt(&shared, &exchange, request).await {
        Ok(response) => response,
        Err(refusal) => {
            info!(
                request = id,
                code = refusal.code.as_u16(),
                reason = refusal.reason,
                hop = refusal.hop.as_str(),
                "refused"
            );
            refusal.response(&id).map(full)
        }
    }
}

async fn attempt(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let (mut parts, body) = request.into_parts();
    let refused = |e: headers::HeaderError| e.refusal(Hop::Agent);
    headers::framing(&parts.uri, &parts.headers).map_err(refused)?;
    let mut kept = headers::clean_request(&parts.headers).map_err(refused)?;
    let upgrade = headers::upgrade(&parts.headers).map_err(refused)?;
    let pass = judge(shared, exchange, &parts, upgrade)?;
    identify(&mut kept, &pass)?;
    if let Some(token) = upgrade {
        headers::set_upgrade(&mut kept, token);
    }
    impersonable(shared, &pass, false).await?;
    let user_side = upgrade
        .is_some()
        .then(|| parts.extensions.remove::<hyper::upgrade::OnUpgrade>())
        .flatten();
    parts.headers = kept;
    let sent = send(shared, &pass, parts, body);
    let response = if pass.info.long_running() {
        sent.await?
    } else {
        tokio::time::timeout(HEAD, sent).await.map_err(|_| {
            Refusal::new(
                Hop::ApiServer,
                StatusCode::GATEWAY_TIMEOUT,
                "NoAnswer",
                "no answer within 70 s",
            )
            .next("look whether it took effect before repeating it")
        })??
    };
    Ok(finish(shared, exchange, &pass, response, user_side))
}

fn judge(
    shared: &Shared,
    exchange: &Exchange,
    parts: &http::request::Parts,
    upgrade: Option<Upgrade>,
) -> Result<Pass, Refusal> {
    let policy = shared.policy.borrow().clone().ok_or_else(|| {
        Refusal::new(
            Hop::Agent,
            StatusCode::SERVICE_UNAVAILABLE,
            "Starting",
            "the agent has not read linesman-policy yet",
        )
        .next("repeat it in some seconds")
    })?;
    let hub_now: OffsetDateTime = clock::now() + exchange.hub_time_offset;
    let session = Session {
        hub: &shared.hub_id,
        cluster: &shared.cluster_id,
        epoch: exchange.epoch,
        keyset: &exchange.keyset,
        hub_now,
    };
    let request = gate::Request {
        method: &parts.method,
        uri: &parts.uri,
        meta: &exchange.meta,
        upgrade,
    };
    let mut replay = shared.replay.lock().unwrap_or_else(PoisonError::into_inner);
    gate::check(&policy, &session, &request, &mut replay)
}

/// Sets who the request acts as; the token is added last, by [`Upstream`].
fn identify(kept: &mut HeaderMap, pass: &Pass) -> Result<(), Refusal> {
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| {
            Refusal::new(
                Hop::Agent,
                StatusCode::FORBIDDEN,
                "Name",
                "a name that no header can carry",
            )
            .next("rename it")
        })
    };
    kept.insert(
        HeaderName::from_static("impersonate-user"),
        value(&pass.claims.sub)?,
    );
    for group in &pass.claims.grp {
        kept.append(HeaderName::from_static("impersonate-group"), value(group)?);
    }
    kept.insert(
        HeaderName::from_static("audit-id"),
        value(pass.claims.request_id())?,
    );
    if let Ok(ip) = pass.claims.ip.parse::<std::net::IpAddr>() {
        kept.insert(
            HeaderName::from_static("x-forwarded-for"),
            value(&ip.to_string())?,
        );
    }
    Ok(())
}

/// Waits until the role lets `linesman-line` act as these names.
async fn impersonable(shared: &Shared, pass: &Pass, again: bool) -> Result<(), Refusal> {
    let user = std::iter::once(Name::User(pass.claims.sub.clone()));
    let names: Vec<Name> = user
        .chain(pass.claims.grp.iter().cloned().map(Name::Group))
        .collect();
    if !again
        && names
            .iter()
            .all(|name| shared.allowed.borrow().contains(name))
    {
        return Ok(());
    }
    let refused = |code, what: String| {
        Refusal::new(Hop::Agent, code, "Impersonation", what)
            .next("run 'linesman doctor', or apply the adoption YAML again")
    };
    let (done, answered) = oneshot::channel();
    let busy = || {
        refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many first uses of names at once".to_owned(),
        )
    };
    shared
        .wants
        .try_send(Want { names, again, done })
        .map_err(|_| busy())?;
    match tokio::time::timeout(Duration::from_secs(10), answered).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(why))) => Err(refused(StatusCode::BAD_GATEWAY, why)),
        Ok(Err(_)) | Err(_) => Err(refused(
            StatusCode::GATEWAY_TIMEOUT,
            "ClusterRole linesman-line-subjects was not extended in time".to_owned(),
        )),
    }
}

/// Sends, and once more where nothing was executed: after a refused token or a role not seen yet, and only
/// without a body.
async fn send(
    shared: &Shared,
    pass: &Pass,
    parts: http::request::Parts,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let repeatable = body.is_end_stream();
    let mut body = Some(body);
    let (mut renewed, mut tries) = (false, 0);
    loop {
        let Credential::Token { bearer, serial } = shared.upstream.credential() else {
            return Err(no_token(&shared.upstream.credential()));
        };
        let sent = match body.take() {
            Some(body) => passing(body),
            None => full(Bytes::new()),
        };
        let mut request = Request::new(sent);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        let response = shared
            .upstream
            .send(request, &bearer)
            .await
            .map_err(|e| unreachable_server(&e))?;
        match response.status() {
            StatusCode::UNAUTHORIZED => {
                let next = shared.upstream.renewed(serial).await;
                if renewed || !repeatable || matches!(next, Credential::Missing { .. }) {
                    return Err(no_token(&next));
                }
                renewed = true;
            }
            StatusCode::FORBIDDEN => {
                let (response, impersonation) = read_refusal(response).await;
                if !impersonation {
                    return Ok(response);
                }
                if !repeatable || tries == IMPERSONATION.0 {
                    let what = "the API server does not let linesman-line act as you";
                    return Err(Refusal::new(
                        Hop::Agent,
                        StatusCode::FORBIDDEN,
                        "Impersonation",
                        what,
                    )
                    .next("repeat it; if it stays, apply the adoption YAML again"));
                }
                tries += 1;
                tokio::time::sleep(IMPERSONATION.1).await;
                impersonable(shared, pass, true).await?;
            }
            _ => return Ok(response.map(passing)),
        }
    }
}

fn no_token(credential: &Credential) -> Refusal {
    let why = match credential {
        Credential::Missing { why } => why.clone(),
        Credential::Token { .. } => "the API server refuses the token of linesman-line".to_owned(),
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

/// Reads a 403 to see whether it refuses the impersonation itself, and gives it back whole.
async fn read_refusal(response: Response<Incoming>) -> (Response<Body>, bool) {
    let (mut parts, body) = response.into_parts();
    let small = body
        .size_hint()
        .upper()
        .is_some_and(|size| size <= REFUSAL as u64);
    let json = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|v| v.as_bytes().starts_with(b"application/json"));
    if !small || !json {
        return (Response::from_parts(parts, passing(body)), false);
    }
    let read = tokio::time::timeout(
        Duration::from_secs(5),
        Limited::new(body, REFUSAL).collect(),
    )
    .await;
    let Ok(Ok(read)) = read else {
        parts.headers.remove(header::CONTENT_LENGTH);
        return (Response::from_parts(parts, full(Bytes::new())), false);
    };
    let bytes = read.to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    let impersonation =
        text.contains("cannot impersonate resource") && text.contains("system:serviceaccount:");
    (Response::from_parts(parts, full(bytes)), impersonation)
}

/// The answer's head without what is of this connection; a switched protocol is copied from here on.
fn finish(
    shared: &Shared,
    exchange: &Exchange,
    pass: &Pass,
    mut response: Response<Body>,
    user_side: Option<hyper::upgrade::OnUpgrade>,
) -> Response<Body> {
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let protocol = response.headers().get(header::UPGRADE).cloned();
    let proxied = pass.info.subresource == "proxy" || pass.info.verb == "proxy";
    let kept = headers::clean_response(response.headers(), proxied);
    *response.headers_mut() = kept;
    let server_side = response
        .extensions_mut()
        .remove::<hyper::upgrade::OnUpgrade>();
    if !switched {
        return response;
    }
    let (Some(user_side), Some(server_side), Some(protocol)) = (user_side, server_side, protocol)
    else {
        let what = "a switch of protocol that nobody asked for";
        return Refusal::new(Hop::ApiServer, StatusCode::BAD_GATEWAY, "BadAnswer", what)
            .next("check what stands between the agent and its API server")
            .response(&exchange.meta.id)
            .map(full);
    };
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(header::UPGRADE, protocol);
    let cancelled = exchange.cancelled.clone();
    shared.switched.spawn(async move {
        match cancelled
            .run_until_cancelled(copy(user_side, server_side))
            .await
        {
            Some(Ok((to, from))) => debug!(to, from, "switched protocol ended"),
            Some(Err(error)) => debug!(error = format!("{error:#}"), "switched protocol broke"),
            None => debug!("switched protocol cancelled"),
        }
    });
    response
}

async fn copy(
    one: hyper::upgrade::OnUpgrade,
    other: hyper::upgrade::OnUpgrade,
) -> anyhow::Result<(u64, u64)> {
    let (one, other) = tokio::try_join!(one, other)?;
    let (mut one, mut other) = (TokioIo::new(one), TokioIo::new(other));
    Ok(tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, 16 << 10, 16 << 10).await?)
}
