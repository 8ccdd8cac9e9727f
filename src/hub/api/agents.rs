//! The agents' calls: signed over HTTPS, or proven already on the line.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::de::DeserializeOwned;
use time::OffsetDateTime;

use super::problem::{Problem, Slug};
use super::strangers::Place;
use super::{body, bundles, remote};
use crate::clock;
use crate::hub::auth::{self, AgentPrincipal};
use crate::hub::pace::Act;
use crate::hub::store::{Bell, Cluster, Stored, patience};
use crate::hub::{Hub, assignment, cut, gitline, login};
use crate::keys::{self, Public};
use crate::wire::api::{Assignment, MAX_BODY, Report, ReportAck, deploy_proof_input};
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, LaterConditions};

mod bounds;
mod deploy_keys;
mod diagnoses;
mod heals;
pub mod identity;
mod join;
pub(super) use join::invalid;
mod orders;
mod recover;

/// How a call came here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Https,
    Line,
}

pub fn routes(hub: Arc<Hub>) -> Router<Arc<Hub>> {
    Router::new()
        .merge(calls())
        .layer(middleware::from_fn_with_state(hub, signed))
        .route("/v1/join", post(join::join))
        .route("/v1/recover", post(recover::recover))
}

/// The same routes for a stream of kind `report`, whose agent the line has proven.
pub fn line_router(hub: Arc<Hub>, agent: AgentPrincipal) -> Router {
    Router::new()
        .merge(calls())
        .merge(bundles::serving())
        .fallback(async || Problem::not_found("such path on the line"))
        .layer(Extension(agent))
        .layer(Extension(Came::Line))
        .layer(middleware::from_fn_with_state(
            hub.clone(),
            super::outermost,
        ))
        .with_state(hub)
}

fn calls() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/clusters/{name}/assignment", get(show))
        .route("/v1/clusters/{name}/reports", post(report))
        .route("/v1/clusters/{name}/deploy-keys", post(deploy_keys::add))
        .route("/v1/clusters/{name}/identity", post(identity::change))
        .route("/v1/clusters/{name}/diagnoses", post(diagnoses::answer))
        .route("/v1/clusters/{name}/orders", get(orders::orders))
}

/// Proves who signed the call. The body is read whole, for it is signed too.
async fn signed(
    State(hub): State<Arc<Hub>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (parts, content) = request.into_parts();
    let (bytes, place) = signed_body(&hub, &parts, content).await?;
    let agent = auth::agent(&hub, &parts, &bytes).await?;
    drop(place);
    super::known(&parts.extensions);
    let mut request = Request::from_parts(parts, bytes.into());
    request.extensions_mut().insert(agent);
    request.extensions_mut().insert(Came::Https);
    Ok(next.run(request).await)
}

/// The body of a call that is said to be signed; what is not signed at all is not waited for.
async fn signed_body(
    hub: &Hub,
    parts: &Parts,
    content: Body,
) -> Result<(Bytes, Arc<Place>), Problem> {
    auth::is_signed(&parts.headers)?;
    let from = remote(parts);
    hub.strangers.read(&from, content, MAX_BODY).await
}

/// The caller's own cluster. Another's answers as one that does not exist.
async fn own(
    hub: &Hub,
    agent: &AgentPrincipal,
    name: &str,
    came: Came,
) -> Result<Cluster, Problem> {
    if agent.cluster.as_str() != name {
        tracing::warn!(agent = %agent.cluster, asked = cut(name, 60), "an agent asked for another cluster");
        return Err(Problem::not_found("such cluster for this key"));
    }
    let cluster = hub.store.cluster_by_id(&agent.cluster_id).await?;
    let cluster = cluster
        .filter(|c| c.removed_at.is_none())
        .ok_or_else(|| Problem::from(auth::AuthError::Removed))?;
    patience::judged();
    hub.presence
        .heard(&cluster.id, clock::now(), came == Came::Line);
    Ok(cluster)
}

async fn show(
    State(hub): State<Arc<Hub>>,
    Extension(agent): Extension<AgentPrincipal>,
    Extension(came): Extension<Came>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let cluster = own(&hub, &agent, &name, came).await?;
    let assignment = assignment::of(&hub, &cluster).await?;
    let tag = HeaderValue::from_str(&format!("\"{}\"", assignment.revision))
        .expect("a number is a header value");
    if headers.get(header::IF_NONE_MATCH) == Some(&tag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    Ok(answer(&assignment, tag))
}

fn answer(assignment: &Assignment, tag: HeaderValue) -> Response {
    ([(header::ETAG, tag)], Json(assignment)).into_response()
}

async fn report(
    State(hub): State<Arc<Hub>>,
    Extension(agent): Extension<AgentPrincipal>,
    Extension(came): Extension<Came>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<ReportAck>, Problem> {
    let cluster = own(&hub, &agent, &name, came).await?;
    paced(&hub, &cluster.id, Act::Report)?;
    let bytes = body(request.into_body(), MAX_BODY).await?;
    let mut report: Report = read(&bytes)?;
    let later: LaterConditions = read(&bytes)?;
    hub.metrics.reported();
    take(&hub, &cluster.name, &mut report.heals, clock::now());
    let reported = bounds::bounded(report, later);
    let conditions = reported.conditions.clone();
    let mut heals: Vec<String> = reported.heals.iter().map(|heal| heal.id.clone()).collect();
    let of_host_keys = reported.host_keys.is_some();
    let Stored { ended, left_out } = hub
        .store
        .report(&cluster.id, reported, clock::now())
        .await?;
    no_room(&hub, &cluster.name, &left_out);
    // An honest agent keeps what is not acknowledged.
    heals.retain(|id| !left_out.contains(id));
    tell_ended(&hub, &cluster.name, &ended);
    if of_host_keys {
        hub.git_keys.ring();
    }
    let cluster = if gitline::heed(&hub, &cluster, conditions.as_deref()).await? {
        own(&hub, &agent, &name, came).await?
    } else {
        cluster
    };
    let assignment = assignment::of(&hub, &cluster).await?;
    Ok(Json(ReportAck {
        heals,
        assignment_revision: assignment.revision,
    }))
}

/// Counts heals that ended, and hands them to who tells people.
fn tell_ended(hub: &Hub, cluster: &ClusterName, ended: &[HealRecord]) {
    for heal in ended {
        hub.metrics.heals().ended(heal);
    }
    if hub.config.notify.sinks.is_empty() {
        return;
    }
    match hub.replica.as_ref().filter(|own| !own.leads()) {
        None => hub.notices.add(cluster, ended),
        // The replica that leads tells people.
        Some(own) => {
            for heal in ended {
                own.ring(Bell::Healed(heal.id.clone()));
            }
        }
    }
}

/// Refuses what an agent does more often than it may.
fn paced(hub: &Hub, cluster_id: &str, act: Act) -> Result<(), Problem> {
    let taken = hub.paces.take(cluster_id, act, Instant::now());
    taken.map_err(|wait| {
        let what = match act {
            Act::Report => "reports",
            Act::Key => "new keys",
            Act::Takeover => "lines",
        };
        let text = format!("the cluster's agent has sent more {what} than the hub takes in");
        let seconds = login::seconds(wait);
        Problem::new(Slug::Busy, text, "send less often").retry_after(seconds)
    })
}

/// An agent's JSON body: fields that this hub does not know are ignored.
async fn parsed<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    read(&body(request.into_body(), MAX_BODY).await?)
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        Problem::new(
            Slug::BadRequest,
            format!("the body: {error}"),
            "agent and hub may be too far apart in version; see docs/protocol.md",
        )
    })
}

/// Leaves heals out that are not taken. They are not acknowledged: an honest agent keeps its own, and tells them again
/// at its next line and once an hour.
fn take(hub: &Hub, cluster: &ClusterName, told: &mut Vec<HealRecord>, now: OffsetDateTime) {
    let mut refused = Vec::new();
    told.retain(|heal| match heals::refusal(heal, now) {
        Some(why) => {
            hub.metrics.heal_refused(why.label());
            refused.push((cut(&heal.id, 60).to_owned(), why.words()));
            false
        }
        None => true,
    });
    if let Some((id, why)) = refused.first() {
        let heals = refused.len();
        tracing::warn!(%cluster, heals, id, why, "heals are not taken; the agent keeps them and offers them again, look at its clock and this one");
    }
}

/// The same of those for which there is no room: the cluster's condition `HealsTaken` says so.
fn no_room(hub: &Hub, cluster: &ClusterName, left_out: &[String]) {
    for _ in left_out {
        hub.metrics.heal_refused("room");
    }
    if let Some(id) = left_out.first() {
        let heals = left_out.len();
        tracing::warn!(%cluster, heals, id, "heals are not taken: the cluster has as many open ones as are kept; the agent keeps these and offers them again");
    }
}

fn deploy_public(line: &str) -> Result<Public, Problem> {
    Public::from_openssh(line).map_err(|error| {
        Problem::new(
            Slug::BadRequest,
            format!("the deploy key: {error}"),
            "send an Ed25519 key as one line of OpenSSH",
        )
    })
}

/// Whether the deploy key's holder has signed for this cluster and identity.
fn proves(hub_id: &str, cluster: &str, identity: Public, deploy: Public, proof: &str) -> bool {
    let input = deploy_proof_input(hub_id, cluster, &identity.to_base64());
    keys::decode(proof).is_some_and(|sig| deploy.verify(input.as_bytes(), &sig))
}

fn unproven() -> Problem {
    Problem::new(
        Slug::BadSignature,
        "the proof is not the deploy key's signature for this cluster and identity key",
        "sign the deploy key's proof again",
    )
}
