//! Kubernetes requests from users to a stream of the line: `https://hub/clusters/<name>/…`. Authenticated,
//! granted and on record before the first byte leaves; the answer streams back as it comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use http::StatusCode;
use http::request::Parts;
use hyper::upgrade::OnUpgrade;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::clock;
use crate::hub::Hub;
use crate::hub::access::{self, Asker, Denied, Impersonation, Place};
use crate::hub::api::{self, Hangup, Remote};
use crate::hub::audit::{AuditError, Entry};
use crate::hub::auth::{self, User};
use crate::hub::running::By;
use crate::hub::store::{Cluster, DRY_RUN};
use crate::kubeapi::path;
use crate::kubeapi::status::{self, Hop, Refusal};
use crate::kubeapi::trace::TraceParent;

mod answer;
pub mod exchange;
pub mod exit;
pub mod farewell;
mod inside;
pub mod limits;
pub mod record;
mod refusal;
pub mod rewrite;
mod send;
mod upload;

use inside::Inside;
use limits::Limits;
use record::Running;
use rewrite::{Outgoing, Target};

/// How long a request may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For a line that was up a moment ago.
    pub park: Duration,
    /// For the head of its answer, where the API server itself has a deadline (60 s). The agent gives up before that, and names
    /// the right hop.
    pub head: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            park: Duration::from_secs(10),
            head: Duration::from_secs(75),
        }
    }
}

/// Who asks, and whether they may, is looked up within this time, and the record of it stored.
const RECORDS: Duration = Duration::from_secs(5);

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

/// Records that do not answer let nothing pass.
async fn in_time<T>(hub: &Hub, asked: impl Future<Output = T>) -> Result<T, Refusal> {
    let answered = timeout(RECORDS, asked).await;
    answered.map_err(|_| refusal::store_silent(hub.store.away().as_deref()))
}

/// What a request may do: where to, as whom, as what.
struct Granted {
    cluster: Arc<Cluster>,
    subject: Impersonation,
    /// What lets it run, and with which it ends.
    by: By,
    /// The grant that ends first, where no token or session ends before.
    first: Option<String>,
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
    /// What the API server is told of the trace.
    trace: TraceParent,
    hangup: Option<Hangup>,
}

async fn handle(hub: Arc<Hub>, limits: Arc<Limits>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut user_side = parts.extensions.remove::<OnUpgrade>();
    let switches = user_side.is_some();
    let discovery = status::asks_for_discovery(&parts.headers);
    let ip = parts
        .extensions
        .get::<Remote>()
        .map(|remote| remote.0.ip().to_string());
    let trace = match TraceParent::of(&parts.headers) {
        Some(users) => users.child(clock::random()),
        None => TraceParent::begin(clock::random(), clock::random()),
    };
    let case = Case {
        trace,
        id: api::request_id(&parts),
        remote: api::remote(&parts),
        ip: ip.unwrap_or_default(),
        hangup: parts.extensions.remove(),
        hub,
    };
    let passed = case.pass(&limits, parts, body, &mut user_side).await;
    if let Some(user_side) = user_side {
        // No protocol was switched.
        case.hub.work.spawn(answer::end(user_side));
    }
    match passed {
        Ok(response) => response,
        Err(mut refusal) => {
            refusal.close |= switches;
            case.hub.metrics.refused(refusal.reason);
            debug!(
                request = case.id,
                trace = %case.trace.id(),
                code = refusal.code.as_u16(),
                reason = refusal.reason,
                "refused"
            );
            let answer = if discovery {
                refusal.words(&case.id)
            } else {
                refusal.response(&case.id)
            };
            answer.map(Body::from)
        }
    }
}

impl Case {
    async fn pass(
        &self,
        limits: &Arc<Limits>,
        parts: Parts,
        body: Body,
        user_side: &mut Option<OnUpgrade>,
    ) -> Result<Response, Refusal> {
        if let Err(refusal) = rewrite::framing(&parts) {
            return Err(self.unknown(&parts, refusal).await);
        }
        let target = rewrite::target(&parts.uri).ok_or_else(|| {
            Refusal::new(
                Hop::Hub,
                StatusCode::NOT_FOUND,
                "UnknownPath",
                "the path names no cluster",
            )
            .next("use https://<hub>/clusters/<name>/")
        })?;
        // Before anything is looked up that may be taken away meanwhile.
        let judged_at = self.hub.requests.now();
        let user = self.user(&parts).await?;
        let entry = self.entry(&user, &target, &parts);
        // Before it is judged: those of one user that are refused take no more at once than those that are not.
        let most = self.hub.config.bounds.requests;
        let asks = match limits.ask(most, &user.name) {
            Ok(asks) => asks,
            Err(refusal) => return Err(self.denied(entry, refusal).await),
        };
        let judged = in_time(&self.hub, self.judge(&user, &target, &parts)).await?;
        let mut granted = match judged {
            Ok(judged) => judged,
            Err(refusal) => return Err(self.denied(entry, refusal).await),
        };
        let entry = self.let_through(entry, &granted);
        let slot = match asks.enter(&target.name) {
            Ok(slot) => slot,
            Err(refusal) => return Err(self.denied(entry, refusal).await),
        };
        let opened = in_time(&self.hub, self.hub.audit.open(entry))
            .await?
            .map_err(|_| refusal::unrecorded(self.hub.store.place()))?;
        debug!(request = self.id, trace = %self.trace.id(), "let through");
        let mut running = Running {
            opened,
            slot,
            since: Instant::now(),
            seat: self.hub.requests.enter(granted.by.clone(), judged_at),
            first: granted.first.take(),
        };
        let exchanged = tokio::select! {
            biased;
            () = running.seat.over() => {
                return Err(refusal::access_ended(&running.cut(0)));
            }
            exchanged = self.exchange(&granted, body) => exchanged,
        };
        match exchanged {
            Ok(response) => {
                if let Some(rule) = status::agents_rule(response.headers()) {
                    self.hub.metrics.refused(rule);
                    self.hub.tunnels.denied(&granted.cluster.name, rule);
                    running.opened.refused(rule, response.status());
                }
                self.answer(response, &granted.outgoing, running, user_side)
            }
            Err(refusal) => {
                running.close(refusal.code.as_u16(), 0);
                self.hub
                    .tunnels
                    .denied(&granted.cluster.name, refusal.reason);
                Err(refusal)
            }
        }
    }

    async fn user(&self, parts: &Parts) -> Result<User, Refusal> {
        match in_time(&self.hub, auth::user(&self.hub, &parts.headers)).await? {
            Ok(user) => {
                api::known(&parts.extensions);
                Ok(user)
            }
            Err(error) => {
                let refusal = refusal::unauthenticated(&error);
                Err(self.unknown(parts, refusal).await)
            }
        }
    }

    fn entry(&self, user: &User, target: &Target, parts: &Parts) -> Entry {
        Entry {
            actor: format!("user:{}", user.name),
            action: action(parts, Some(target)),
            cluster: Some(target.name.clone()),
            // Without the query, which may hold anything: of what is let through, fields say what it runs and reaches.
            target: path::normal(target.rest.path()).chars().take(500).collect(),
            request_id: self.id.clone(),
            remote: self.remote.clone(),
            ..Entry::default()
        }
    }

    /// The entry of a request that may do what it asks for.
    fn let_through(&self, entry: Entry, granted: &Granted) -> Entry {
        let outgoing = &granted.outgoing;
        let (query, commands) = (outgoing.rest.query(), self.hub.config.audit.commands);
        let Inside {
            container,
            command,
            ports,
        } = inside::inside(&outgoing.info, query, commands);
        let dry = path::dry_run(&outgoing.info, query);
        Entry {
            acted_as: acted_as(&granted.subject),
            reason: dry.then(|| DRY_RUN.to_owned()),
            container,
            command,
            ports,
            ..entry
        }
    }

    /// Cluster, grant, path and headers. An unknown cluster reads like one without a grant.
    async fn judge(&self, user: &User, target: &Target, parts: &Parts) -> Result<Granted, Refusal> {
        let lookups = &self.hub.lookups;
        let refuse = |denied: Denied| {
            let denied = user.told(denied);
            Refusal::new(Hop::Hub, StatusCode::FORBIDDEN, denied.rule, denied.reason)
                .next(denied.next)
        };
        // Before any look-up: the answer is the same, be the cluster there or not.
        if !user.reaches(target.cluster.as_ref()) {
            return Err(refuse(access::not_for(&target.name)));
        }
        let found = match &target.cluster {
            Some(name) => lookups.cluster(name).await,
            None => Ok(None),
        };
        let asker = user.asker();
        let Some(cluster) = found.map_err(|e| refusal::store_away(&e))? else {
            return Err(refuse(self.no_grant(&asker, target).await));
        };
        let grants = lookups.grants_of(asker.subjects()).await;
        let grants = grants.map_err(|e| refusal::store_away(&e))?;
        let place = Place {
            name: &cluster.name,
            labels: &cluster.labels,
        };
        let Ok(held) = access::reaching(&grants, &asker, &place, clock::now()) else {
            return Err(refuse(self.no_grant(&asker, target).await));
        };
        let outgoing = rewrite::outgoing(parts, target, rewrite::below(&self.hub.config.url))?;
        let allowed = access::decide(&asker, &held, &outgoing.info, outgoing.acting.as_ref())
            .and_then(|allowed| access::narrow(allowed, user.kube(), &outgoing.info))
            .map_err(refuse)?;
        let until = allowed.until.into_iter().chain(user.runs_until).min();
        let first = until.and_then(|_| {
            let mut ending = held.iter().filter(|grant| grant.expires_at == until);
            ending.find(|grant| allowed.by.contains(&grant.id))
        });
        Ok(Granted {
            first: first.map(|grant| grant.id.clone()),
            by: By {
                user_id: user.id.clone(),
                token_id: user.token_id.clone(),
                cluster_id: Some(cluster.id.clone()),
                grants: allowed.by,
                until,
            },
            cluster,
            subject: allowed.subject,
            outgoing,
        })
    }

    /// The denial of who has no grant on a cluster, be it there or not. What the store does not say of grants that ended is left out.
    async fn no_grant(&self, asker: &Asker<'_>, target: &Target) -> Denied {
        let lookups = &self.hub.lookups;
        let subjects = asker.subjects();
        let live = lookups.grants_of(subjects.clone()).await;
        let revoked = lookups.revoked_grants_of(subjects).await;
        let (live, revoked) = (live.unwrap_or_default(), revoked.unwrap_or_default());
        let own = live.iter().chain(revoked.iter());
        let cluster = target.cluster.as_ref();
        let ended = cluster.and_then(|name| access::ended(asker, name, own, clock::now()));
        ended.unwrap_or_else(|| access::no_grant(asker.name, &target.name))
    }

    /// Records that someone was refused of whom nothing is known; what the store could not say is no refusal.
    async fn unknown(&self, parts: &Parts, refusal: Refusal) -> Refusal {
        if refusal.code.is_server_error() {
            return refusal;
        }
        let target = rewrite::target(&parts.uri);
        let entry = Entry {
            actor: "anyone".to_owned(),
            action: action(parts, target.as_ref()),
            cluster: target
                .and_then(|target| target.cluster)
                .map(|name| name.to_string()),
            request_id: self.id.clone(),
            reason: Some(refusal.what.clone()),
            code: Some(refusal.code.as_u16()),
            remote: self.remote.clone(),
            ..Entry::default()
        };
        self.told(self.hub.audit.refused(entry), refusal).await
    }

    /// A refusal that cannot be put on record is no answer either; that something does not work is.
    async fn told(
        &self,
        record: impl Future<Output = Result<(), AuditError>>,
        refusal: Refusal,
    ) -> Refusal {
        match timeout(RECORDS, record).await {
            Ok(Ok(())) => return refusal,
            Ok(Err(error)) => warn!(request = self.id, %error, "refusal not recorded"),
            Err(_) => warn!(request = self.id, "refusal not recorded in time"),
        }
        if refusal.code.is_server_error() {
            return refusal;
        }
        Refusal {
            close: refusal.close,
            ..refusal::unrecorded(self.hub.store.place())
        }
    }

    /// Records that a user was refused, and gives what is answered then.
    async fn denied(&self, entry: Entry, refusal: Refusal) -> Refusal {
        if let Some(Ok(name)) = entry.cluster.as_deref().map(str::parse) {
            self.hub.tunnels.denied(&name, refusal.reason);
        }
        let entry = Entry {
            reason: Some(refusal.what.clone()),
            code: Some(refusal.code.as_u16()),
            ..entry
        };
        self.told(self.hub.audit.denied(entry), refusal).await
    }
}

/// `linesman:bob in linesman:edit`, where the request goes as someone else.
fn acted_as(subject: &Impersonation) -> Option<String> {
    subject.actor.as_ref()?;
    Some(if subject.groups.is_empty() {
        subject.user.clone()
    } else {
        format!("{} in {}", subject.user, subject.groups.join(","))
    })
}

/// `kube.list`, `kube.create`, `kube.exec` …, be it let through or refused; the method where that is all that is known of it.
fn action(parts: &Parts, target: Option<&Target>) -> String {
    let asked = target.and_then(|target| {
        let (path, query) = (target.rest.path(), target.rest.query());
        path::classify(&parts.method, path, query).ok()
    });
    match asked {
        Some(info) if info.interactive() && !info.subresource.is_empty() => {
            format!("kube.{}", info.subresource)
        }
        Some(info) if !info.verb.is_empty() => format!("kube.{}", info.verb),
        _ => format!("kube.{}", parts.method.as_str().to_ascii_lowercase()),
    }
}
