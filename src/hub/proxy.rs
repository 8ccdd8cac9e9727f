//! Kubernetes requests from users to a stream of the line: `https://hub/clusters/<name>/…`. Authenticated,
//! granted and on record before the first byte leaves; the answer streams back as it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tracing::{debug, warn};

use crate::assertion::Mode;
use crate::clock;
use crate::hub::access::{self, Impersonation};
use crate::hub::api::{self, Remote};
use crate::hub::assertion::{self, Subject};
use crate::hub::audit::{Entry, Verdict};
use crate::hub::auth::{self, AuthError, User};
use crate::hub::store::Cluster;
use crate::hub::{Hub, chain_of};
use crate::kubeapi::status::{Hop, Refusal};
use crate::tunnel::{Line, LineError, Stream};
use crate::wire::frame::{Class, Code, Kind};
use crate::wire::id::ClusterName;

pub mod exchange;
pub mod limits;
pub mod record;
pub mod rewrite;

use exchange::{Answer, Failed};
use limits::Limits;
use record::{Counted, Recorded, Running};
use rewrite::{Outgoing, Target};

/// How long a request waits for a line that was up a moment ago.
const PARK: Duration = Duration::from_secs(10);
/// How long the answer's head may take where the API server itself has a deadline (60 s).
const HEAD: Duration = Duration::from_secs(75);
/// Buffer of a switched protocol, each way.
const COPY: usize = 16 << 10;

/// The routes below `/clusters/`.
pub fn routes() -> Router<Arc<Hub>> {
    let limits = Arc::new(Limits::default());
    let handler =
        move |State(hub): State<Arc<Hub>>, request: Request| handle(hub, limits.clone(), request);
    Router::new()
        .route("/clusters/{name}", any(handler.clone()))
        .route("/clusters/{name}/", any(handler.clone()))
        .route("/clusters/{name}/{*rest}", any(handler))
}

/// What a request may do: where to, as whom, as what.
struct Granted {
    cluster: Cluster,
    subject: Impersonation,
    outgoing: Outgoing,
}

/// One request with what is known of it.
struct Case {
    hub: Arc<Hub>,
    /// In the hub's audit, in the agent's log, in the API server's audit.
    id: String,
    /// The user's address and port.
    remote: String,
    ip: String,
}

async fn handle(hub: Arc<Hub>, limits: Arc<Limits>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let ip = parts
        .extensions
        .get::<Remote>()
        .map(|remote| remote.0.ip().to_string());
    let case = Case {
        id: api::request_id(&parts),
        remote: api::remote(&parts),
        ip: ip.unwrap_or_default(),
        hub,
    };
    match case.pass(&limits, parts, body).await {
        Ok(response) => response,
        Err(refusal) => {
            debug!(
                request = case.id,
                code = refusal.code.as_u16(),
                reason = refusal.reason,
                "refused"
            );
            refusal.response(&case.id).map(Body::from)
        }
    }
}

impl Case {
    async fn pass(
        &self,
        limits: &Arc<Limits>,
        mut parts: Parts,
        body: Body,
    ) -> Result<Response, Refusal> {
        rewrite::framing(&parts)?;
        let target = rewrite::target(&parts.uri).ok_or_else(|| {
            Refusal::new(
                Hop::Hub,
                StatusCode::NOT_FOUND,
                "UnknownPath",
                "the path names no cluster",
            )
            .next("use https://<hub>/clusters/<name>/")
        })?;
        let user = auth::user(&self.hub, &parts.headers)
            .await
            .map_err(|e| unauthenticated(&e))?;
        let entry = self.entry(&user, &target, &parts);
        let judged = self.judge(&user, &target, &parts).await;
        let granted = match judged {
            Ok(judged) => judged,
            Err(refusal) => return Err(self.denied(entry, refusal).await),
        };
        let entry = Entry {
            action: action(&granted.outgoing),
            ..entry
        };
        let place = match limits.enter(&user.name, &target.name) {
            Ok(place) => place,
            Err(refusal) => return Err(self.denied(entry, refusal).await),
        };
        let opened = self.hub.audit.open(entry).await.map_err(|_| unrecorded())?;
        let running = Running {
            opened,
            place,
            since: Instant::now(),
        };
        let user_side = parts.extensions.remove::<OnUpgrade>();
        match self.exchange(&granted, body).await {
            Ok(response) => self.answer(response, &granted.outgoing, running, user_side),
            Err(refusal) => {
                running.close(refusal.code.as_u16(), 0);
                Err(refusal)
            }
        }
    }

    fn entry(&self, user: &User, target: &Target, parts: &Parts) -> Entry {
        Entry {
            actor: format!("user:{}", user.name),
            action: format!("kube.{}", parts.method.as_str().to_ascii_lowercase()),
            cluster: Some(target.name.clone()),
            // Without the query: it may hold what a user types into a container.
            target: target.rest.path().chars().take(500).collect(),
            request_id: self.id.clone(),
            verdict: Verdict::Allow,
            reason: None,
            remote: self.remote.clone(),
        }
    }

    /// Cluster, grant, path and headers. An unknown cluster reads like one without a grant.
    async fn judge(&self, user: &User, target: &Target, parts: &Parts) -> Result<Granted, Refusal> {
        let found = match &target.cluster {
            Some(name) => self.hub.store.cluster(name).await.map_err(|e| {
                warn!(error = chain_of(&e), "look up a cluster");
                Refusal::new(
                    Hop::Hub,
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Store",
                    "the hub's store does not answer",
                )
                .next("repeat it; if it stays, look at the hub's log")
                .retry_after(1)
            })?,
            None => None,
        };
        let no_grant = || {
            let what = format!("{} has no grant on cluster {}", user.name, target.name);
            Refusal::new(Hop::Hub, StatusCode::FORBIDDEN, "NoGrant", what)
                .next("check the name with 'linesman cluster list', or ask a hub admin for a grant")
        };
        let cluster = found.ok_or_else(no_grant)?;
        let subject = access::decide(user, &cluster.name).map_err(|denied| {
            if user.groups.is_empty() {
                return no_grant();
            }
            Refusal::new(Hop::Hub, StatusCode::FORBIDDEN, "NoGrant", denied.reason)
                .next(denied.next)
        })?;
        let outgoing = rewrite::outgoing(parts, target)?;
        Ok(Granted {
            cluster,
            subject,
            outgoing,
        })
    }

    /// Records a refusal; the answer does not wait on whether that succeeded.
    async fn denied(&self, entry: Entry, refusal: Refusal) -> Refusal {
        let entry = Entry {
            verdict: Verdict::Deny,
            reason: Some(refusal.what.clone()),
            ..entry
        };
        if let Err(error) = self.hub.audit.event(entry).await {
            warn!(request = self.id, %error, "refusal not recorded");
        }
        refusal
    }

    /// Finds the line, sends, and sends once more on a new line where nothing can happen twice.
    async fn exchange(
        &self,
        granted: &Granted,
        body: Body,
    ) -> Result<http::Response<Answer>, Refusal> {
        let outgoing = &granted.outgoing;
        let repeatable = outgoing.repeatable() && body.is_end_stream();
        let mut body = Some(body);
        let (mut attempt, mut last_epoch) = (0, None);
        loop {
            let line = self.line(&granted.cluster.name, last_epoch).await?;
            let epoch = line.facts().epoch;
            let sent = self.open(&line, granted, attempt).await;
            let stream = match sent {
                Ok(stream) => stream,
                // Nothing left: any request may try the next line, once.
                Err(error) if attempt == 0 && moved(error.code) => {
                    (attempt, last_epoch) = (1, Some(epoch));
                    continue;
                }
                Err(error) => return Err(not_opened(&error)),
            };
            let request = outgoing.request(body.take().unwrap_or_else(Body::empty));
            let head = (!outgoing.info.long_running()).then_some(HEAD);
            match exchange::send(stream, request, head).await {
                Ok(response) => return Ok(response),
                Err(failed) if repeatable && attempt == 0 && lost(&failed) => {
                    debug!(
                        request = self.id,
                        epoch, "line lost before an answer; sent once more"
                    );
                    (attempt, last_epoch) = (1, Some(epoch));
                }
                Err(failed) => return Err(no_head(&failed, outgoing)),
            }
        }
    }

    /// A line newer than `after`; waits a moment where one was there just now.
    async fn line(&self, cluster: &ClusterName, after: Option<u64>) -> Result<Line, Refusal> {
        let newer = |line: &Line| after.is_none_or(|epoch| line.facts().epoch > epoch);
        if let Some(line) = self.hub.tunnels.get(cluster).filter(newer) {
            return Ok(line);
        }
        let until = Instant::now() + PARK;
        loop {
            let left = || until.saturating_duration_since(Instant::now());
            match self.hub.tunnels.park(cluster, left()).await {
                Some(line) if newer(&line) => return Ok(line),
                Some(_) if !left().is_zero() => tokio::time::sleep(Duration::from_millis(50)).await,
                // It waited in vain: nothing was sent, so the client may come again.
                _ if left().is_zero() => return Err(self.offline(cluster).await.retry_after(1)),
                _ => return Err(self.offline(cluster).await),
            }
        }
    }

    /// Why there is no line, as far as the hub knows.
    async fn offline(&self, cluster: &ClusterName) -> Refusal {
        let view = self.hub.tunnels.view(cluster);
        let record = self.hub.store.cluster(cluster).await.ok().flatten();
        let heard =
            record.and_then(|record| self.hub.presence.last(&record.id).0.or(record.last_seen));
        let since = match (view.down_since.or(heard), view.last_cause) {
            (Some(at), Some(cause)) => format!("offline since {}: {cause}", clock::rfc3339(at)),
            (Some(at), None) => format!("offline, last heard at {}", clock::rfc3339(at)),
            (None, _) => "offline, it has not connected yet".to_owned(),
        };
        Refusal::new(Hop::Line, StatusCode::SERVICE_UNAVAILABLE, "Offline", format!("cluster {cluster} is {since}"))
            .next(format!("see 'linesman cluster show {cluster}', and in the cluster 'kubectl -n linesman logs deploy/linesman-agent'"))
    }

    async fn open(
        &self,
        line: &Line,
        granted: &Granted,
        attempt: u32,
    ) -> Result<Stream, LineError> {
        let Granted {
            cluster,
            subject,
            outgoing,
        } = granted;
        let request = assertion::Request {
            hub_id: &self.hub.id,
            cluster_id: &cluster.id,
            epoch: line.facts().epoch,
            id: &self.id,
            attempt,
            method: &outgoing.method,
            target: outgoing.rest.as_str(),
            ip: &self.ip,
        };
        let mode = match subject.mode {
            access::Mode::Full => Mode::Full,
            access::Mode::Read => Mode::Read,
        };
        let subject = Subject {
            user: &subject.user,
            groups: &subject.groups,
            mode,
        };
        let keys = &self.hub.keys;
        let meta = assertion::issue(&request, &subject, clock::now(), keys.kid(), |input| {
            keys.sign(input)
        })
        .map_err(|e| LineError::new(Code::Limit, e.to_string()))?;
        let meta =
            serde_json::to_vec(&meta).map_err(|e| LineError::new(Code::Internal, e.to_string()))?;
        line.open(Kind::Api, Class::Normal, Bytes::from(meta)).await
    }

    fn answer(
        &self,
        response: http::Response<Answer>,
        outgoing: &Outgoing,
        running: Running,
        user_side: Option<OnUpgrade>,
    ) -> Result<Response, Refusal> {
        let (mut parts, answer) = response.into_parts();
        let line_side = parts.extensions.remove::<OnUpgrade>();
        if let Err(refusal) = rewrite::answer(&mut parts, outgoing) {
            running.close(refusal.code.as_u16(), 0);
            return Err(refusal);
        }
        let code = parts.status.as_u16();
        if parts.status != StatusCode::SWITCHING_PROTOCOLS {
            let body = Recorded {
                answer,
                running: Some(running),
                code,
                bytes: 0,
            };
            return Ok(Response::from_parts(parts, Body::new(body)));
        }
        let (Some(user_side), Some(line_side)) = (user_side, line_side) else {
            running.close(StatusCode::BAD_REQUEST.as_u16(), 0);
            return Err(Refusal::new(
                Hop::Hub,
                StatusCode::BAD_REQUEST,
                "Upgrade",
                "this connection cannot switch its protocol",
            )
            .next("use HTTP/1.1 for exec, attach and port-forward")
            .close());
        };
        // It goes on while the hub drains.
        self.hub.work.spawn(async move {
            let bytes = Arc::new(AtomicU64::new(0));
            if let Err(error) = copy(user_side, line_side, bytes.clone()).await {
                debug!(error = format!("{error:#}"), "switched protocol broke");
            }
            running.close(code, bytes.load(Ordering::Relaxed));
        });
        Ok(Response::from_parts(parts, Body::empty()))
    }
}

async fn copy(user: OnUpgrade, line: OnUpgrade, bytes: Arc<AtomicU64>) -> anyhow::Result<()> {
    let (user, line) = tokio::try_join!(user, line)?;
    let mut user = Counted {
        io: TokioIo::new(user),
        bytes,
    };
    let mut line = TokioIo::new(line);
    tokio::io::copy_bidirectional_with_sizes(&mut user, &mut line, COPY, COPY).await?;
    Ok(())
}

/// `kube.list`, `kube.create`, `kube.exec` …
fn action(outgoing: &Outgoing) -> String {
    let info = &outgoing.info;
    if info.interactive() && !info.subresource.is_empty() {
        return format!("kube.{}", info.subresource);
    }
    format!("kube.{}", info.verb)
}

fn unauthenticated(error: &AuthError) -> Refusal {
    match error {
        AuthError::Store(_) => Refusal::new(
            Hop::Hub,
            StatusCode::SERVICE_UNAVAILABLE,
            "Store",
            "the hub's store does not answer",
        )
        .next("repeat it; if it stays, look at the hub's log")
        .retry_after(1),
        _ => Refusal::new(
            Hop::Hub,
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            error.to_string(),
        )
        .next("run 'linesman login'"),
    }
}

fn unrecorded() -> Refusal {
    Refusal::new(
        Hop::Hub,
        StatusCode::SERVICE_UNAVAILABLE,
        "Audit",
        "the request could not be put on record",
    )
    .next("repeat it; if it stays, look at the hub's disk and log")
    .retry_after(1)
}

/// Whether the line went away rather than refused.
fn moved(code: Code) -> bool {
    matches!(
        code,
        Code::LineLost
            | Code::Draining
            | Code::Superseded
            | Code::Ids
            | Code::Cancelled
            | Code::None
    )
}

fn lost(failed: &Failed) -> bool {
    match failed {
        Failed::Timeout => false,
        Failed::Stream(error) => line_error(error).is_none_or(|error| moved(error.code)),
    }
}

/// What the line says below hyper's error.
fn line_error(error: &hyper::Error) -> Option<LineError> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<LineError>())
                .cloned();
        }
        next = error.source();
    }
    None
}

fn not_opened(error: &LineError) -> Refusal {
    let code = match error.code {
        Code::Limit | Code::OverBudget | Code::Busy => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Refusal::new(
        Hop::Line,
        code,
        "NotSent",
        format!("the line takes no request now: {error}"),
    )
    .next("repeat it in some seconds")
    .retry_after(1)
}

/// Bytes may have reached the cluster: nothing here asks the client to repeat.
fn no_head(failed: &Failed, outgoing: &Outgoing) -> Refusal {
    let careful = if outgoing.bodyless {
        "repeat it"
    } else {
        "look whether it took effect before repeating it"
    };
    match failed {
        Failed::Timeout => Refusal::new(
            Hop::Line,
            StatusCode::GATEWAY_TIMEOUT,
            "NoAnswer",
            "no answer within 75 s",
        )
        .next(careful),
        Failed::Stream(error) => {
            let line = line_error(error);
            let why = line
                .as_ref()
                .map_or_else(|| chain_of(error), ToString::to_string);
            let code = match line.map(|line| line.code) {
                Some(Code::Limit | Code::OverBudget | Code::Busy) => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::BAD_GATEWAY,
            };
            Refusal::new(
                Hop::Line,
                code,
                "LineLost",
                format!("the line was lost before an answer, outcome unknown: {why}"),
            )
            .next(careful)
        }
    }
}
