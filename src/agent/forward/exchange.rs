//! One HTTP exchange of one stream: cleaned once more, judged by the gate, sent to the API server as the
//! user it acts for, its answer streamed back.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant as TokioInstant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use super::running::running;
use super::send::{credential, send};
use super::subjects::{Name, Want};
use super::upstream::{Body, Upstream, full};
use crate::agent::gate::policy::Policy;
use crate::agent::gate::replay::Replay;
use crate::agent::gate::{self, Covered, Homes, Pass, Running, Session};
use crate::assertion::ApiMeta;
use crate::clock;
use crate::kubeapi::headers;
use crate::kubeapi::path::Upgrade;
use crate::kubeapi::status::{self, Hop, Refusal};
use crate::kubeapi::trace::{TRACEPARENT, TraceParent};
use crate::tunnel::switched::Ahead;
use crate::wire::api::HubKey;

mod switch;

use switch::{Output, end, finish};

/// What the exchanges of all streams share.
pub struct Shared {
    pub hub_id: String,
    pub cluster_id: String,
    /// The agent's.
    pub namespace: String,
    /// Argo CD's.
    pub argocd: String,
    pub upstream: Upstream,
    pub policy: watch::Receiver<Option<Policy>>,
    /// Where requests may lie.
    pub covered: watch::Receiver<Covered>,
    pub allowed: watch::Receiver<BTreeSet<Name>>,
    pub wants: mpsc::Sender<Want>,
    pub replay: Mutex<Replay>,
    /// Copies of switched protocols; they outlive the HTTP exchange.
    pub switched: TaskTracker,
    /// For what they read ahead of their users.
    pub ahead: Ahead,
}

/// What one stream says of itself.
#[derive(Clone)]
pub struct Exchange {
    pub meta: ApiMeta,
    /// The epoch of the line that the stream came on.
    pub epoch: u64,
    pub keyset: Vec<HubKey>,
    /// When the stream came, by the hub's clock.
    pub hub_now: OffsetDateTime,
    /// Asks for another line, because the clock of this one is wrong.
    pub renew: Arc<dyn Fn() + Send + Sync>,
    /// Fires when the stream is reset or its line is lost.
    pub cancelled: CancellationToken,
    /// Tells the hub that nothing more of the request is read.
    pub stop: Arc<dyn Fn() + Send + Sync>,
}

/// What kubectl prints beside a list (RFC 9111, obsolete, and what Kubernetes' clients read: KEP-1693).
const LEFT_OUT: &str = r#"299 linesman "Secrets with the cluster's private keys are left out""#;
/// Whom a request acts as (k8s.io/api/authentication/v1/types.go).
pub(super) const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
pub(super) const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// From the request's arrival, whatever it waits for before it is sent: below the hub's 75 s, so that the answer names the right hop.
const HEAD: Duration = Duration::from_secs(70);
const POLICY: Duration = Duration::from_secs(5);

/// Answers the request; never fails: what goes wrong is a `Status`. Tells `begun` where the answer goes on
/// without an end.
pub async fn answer(
    shared: Arc<Shared>,
    exchange: Exchange,
    mut request: Request<Incoming>,
    begun: watch::Sender<Option<Running>>,
) -> Response<Body> {
    let (id, by) = (exchange.meta.id.clone(), TokioInstant::now() + HEAD);
    let mut user_side = request.extensions_mut().remove::<OnUpgrade>();
    let discovery = status::asks_for_discovery(request.headers());
    let answered = attempt(&shared, &exchange, (request, by), &mut user_side).await;
    if let Some(user_side) = user_side {
        shared.switched.spawn(end(user_side));
    }
    match answered {
        Ok((response, running)) => {
            if running.info.long_running() {
                begun.send_replace(Some(running));
            }
            response
        }
        Err(refusal) => {
            info!(
                request = id,
                code = refusal.code.as_u16(),
                reason = refusal.reason,
                hop = refusal.hop.as_str(),
                "refused"
            );
            let mut answer = if discovery {
                refusal.words(&id)
            } else {
                refusal.response(&id)
            };
            let rule = HeaderValue::from_static(refusal.reason);
            answer.headers_mut().insert(status::REFUSED, rule);
            answer.map(full)
        }
    }
}

async fn attempt(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    (request, by): (Request<Incoming>, TokioInstant),
    user_side: &mut Option<OnUpgrade>,
) -> Result<(Response<Body>, Running), Refusal> {
    let (mut parts, body) = request.into_parts();
    let refused = |e: headers::HeaderError| e.refusal(Hop::Agent);
    headers::framing(&parts.uri, &parts.headers).map_err(refused)?;
    let mut kept = headers::clean_request(&parts.headers).map_err(refused)?;
    let upgrade = headers::upgrade(&parts.headers).map_err(refused)?;
    let policy = policy(shared).await?;
    let pass = judge(shared, exchange, &policy, &parts, upgrade)?;
    if let Some(actor) = &pass.claims.act {
        let claims = &pass.claims;
        info!(
            request = claims.request_id(),
            user = actor.sub,
            acts_as = claims.sub,
            "acts as someone else"
        );
    }
    identify(&mut kept, &pass)?;
    traced(&mut kept, &exchange.meta);
    if let Some(token) = upgrade {
        headers::set_upgrade(&mut kept, token);
    }
    // A first use of a name asks with this token too.
    credential(shared).await?;
    impersonable(shared, &pass, false).await?;
    parts.headers = kept;
    if let Some(query) = &pass.query {
        parts.uri = queried(&parts.uri, query)?;
    }
    let uri = parts.uri.clone();
    let sent = send(shared, &pass, parts, body, &*exchange.stop);
    let (response, bound) = if pass.info.long_running() {
        sent.await?
    } else {
        tokio::time::timeout_at(by, sent).await.map_err(|_| {
            Refusal::new(
                Hop::ApiServer,
                StatusCode::GATEWAY_TIMEOUT,
                "NoAnswer",
                "no answer within 70 s",
            )
            .next("look whether it took effect before repeating it")
        })??
    };
    let runs = running(&pass, &uri, bound);
    let output = Output::of(&pass.info, uri.query());
    let mut response = finish(shared, exchange, (&runs, output), response, user_side);
    if pass.query.is_some() {
        let told = HeaderValue::from_static(LEFT_OUT);
        response.headers_mut().append(header::WARNING, told);
    }
    Ok((response, runs))
}

/// The same with another query.
fn queried(uri: &http::Uri, query: &str) -> Result<http::Uri, Refusal> {
    let mut parts = uri.clone().into_parts();
    let target = format!("{}?{query}", uri.path());
    parts.path_and_query = target.parse().ok();
    let whole = parts.path_and_query.is_some();
    let made = http::Uri::from_parts(parts).ok().filter(|_| whole);
    made.ok_or_else(|| {
        let what = "a query that nothing can be added to";
        Refusal::new(Hop::Agent, StatusCode::BAD_REQUEST, "Query", what)
            .next("ask for less at once")
    })
}

/// The owner's policy; waits a moment until it and the covered namespaces were read for the first time.
async fn policy(shared: &Shared) -> Result<Policy, Refusal> {
    let mut policy = shared.policy.clone();
    let read = tokio::time::timeout(POLICY, policy.wait_for(Option::is_some)).await;
    let known = read
        .ok()
        .and_then(|read| read.ok().and_then(|policy| policy.clone()));
    let policy =
        known.ok_or_else(|| unread("the agent could not read ConfigMap linesman-policy yet"))?;
    let mut covered = shared.covered.clone();
    let read = covered.wait_for(|covered| *covered != Covered::Unread);
    match tokio::time::timeout(POLICY, read).await {
        Ok(Ok(_)) => Ok(policy),
        Ok(Err(_)) | Err(_) => Err(unread(
            "the agent could not read ConfigMap linesman-scope yet",
        )),
    }
}

fn unread(what: &str) -> Refusal {
    Refusal::new(
        Hop::Agent,
        StatusCode::SERVICE_UNAVAILABLE,
        "Starting",
        what,
    )
    .next("repeat it in some seconds; if it stays, apply the adoption YAML again")
}

fn judge(
    shared: &Shared,
    exchange: &Exchange,
    policy: &Policy,
    parts: &http::request::Parts,
    upgrade: Option<Upgrade>,
) -> Result<Pass, Refusal> {
    let covered = shared.covered.borrow().clone();
    let session = Session {
        hub: &shared.hub_id,
        cluster: &shared.cluster_id,
        homes: Homes {
            agent: &shared.namespace,
            argocd: &shared.argocd,
        },
        epoch: exchange.epoch,
        keyset: &exchange.keyset,
        hub_now: exchange.hub_now,
        own_now: clock::now(),
        at: Instant::now(),
        covered: &covered,
    };
    let request = gate::Request {
        method: &parts.method,
        uri: &parts.uri,
        meta: &exchange.meta,
        upgrade,
    };
    let mut replay = shared.replay.lock().unwrap_or_else(PoisonError::into_inner);
    let judged = gate::check(policy, &session, &request, &mut replay);
    if judged
        .as_ref()
        .is_err_and(|refusal| refusal.reason == gate::CLOCK)
    {
        (exchange.renew)();
    }
    judged
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
    kept.insert(IMPERSONATE_USER, value(&pass.claims.sub)?);
    for group in &pass.claims.grp {
        kept.append(IMPERSONATE_GROUP, value(group)?);
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

/// Sets where the request is in its trace, by the hub's word alone: what came beside it was removed.
fn traced(kept: &mut HeaderMap, meta: &ApiMeta) {
    let said = meta.traceparent.as_deref();
    if let Some(trace) = said.and_then(|text| text.parse::<TraceParent>().ok())
        && let Ok(value) = HeaderValue::from_str(&trace.to_string())
    {
        kept.insert(HeaderName::from_static(TRACEPARENT), value);
    }
}

/// Waits until the role lets `linesman-line` act as these names.
pub(super) async fn impersonable(shared: &Shared, pass: &Pass, again: bool) -> Result<(), Refusal> {
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
