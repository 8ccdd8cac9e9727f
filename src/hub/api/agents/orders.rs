//! `GET /v1/clusters/{name}/orders`: NDJSON that stays open. It begins with the present state, and begins so again
//! for an agent that fell behind: no order is ever needed twice or missed for good.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::super::problem::{Problem, Slug};
use super::{Came, own};
use crate::clock;
use crate::hub::auth::{AgentPrincipal, AuthError};
use crate::hub::store::{Cluster, ClusterKey};
use crate::hub::{Hub, Orders, assignment, git, grants, registration};
use crate::wire::api::Order;

/// How often a silent stream shows that it lives.
const BEAT: Duration = Duration::from_secs(15);
/// A state that takes longer to be read ends the stream: the agent asks again.
const STATE: Duration = Duration::from_secs(10);

pub(super) async fn orders(
    State(hub): State<Arc<Hub>>,
    Extension(agent): Extension<AgentPrincipal>,
    Extension(came): Extension<Came>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let cluster = own(&hub, &agent, &name, came).await?;
    // A stream on a line ends with that.
    let key = (came == Came::Https).then_some(agent.key.as_str());
    // Subscribed before the state is read: what changes in between comes as an order.
    let orders = hub.orders.subscribe(&cluster.name, key);
    let orders = orders.ok_or_else(crowded)?;
    // Who was let in a moment before it was revoked, or its key replaced, shall not listen for good.
    let keys = hub.store.cluster_keys(&cluster.id).await?;
    let is_over = |of: &ClusterKey| key == Some(of.fingerprint.as_str()) && !of.state.is_valid();
    if registration::is_revoked(&keys) || keys.iter().any(is_over) {
        return Err(AuthError::Revoked.into());
    }
    let waiting = present(&hub, &cluster.id).await?;
    let state = Stream {
        hub,
        cluster,
        came,
        orders,
        waiting,
        subjects: None,
        over: false,
    };
    let body = Body::from_stream(stream::unfold(state, next));
    let kind = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((kind, body).into_response())
}

fn crowded() -> Problem {
    let text = format!(
        "{} streams of orders of this cluster are open",
        Orders::STREAMS
    );
    Problem::new(Slug::Busy, text, "read one of them, or end some").retry_after(15)
}

struct Stream {
    hub: Arc<Hub>,
    cluster: Cluster,
    came: Came,
    orders: Receiver<Order>,
    waiting: VecDeque<Order>,
    /// The names that it was told last.
    subjects: Option<Order>,
    over: bool,
}

async fn next(mut state: Stream) -> Option<(Result<Bytes, Infallible>, Stream)> {
    if state.over {
        return None;
    }
    let order = match state.waiting.pop_front() {
        Some(order) => order,
        None => state.wait().await?,
    };
    let order = state.unless_known(order);
    state.over = order == Order::Removed;
    let mut line = serde_json::to_vec(&order).expect("an order has string keys");
    line.push(b'\n');
    Some((Ok(line.into()), state))
}

impl Stream {
    /// All names of a cluster may be long, and whatever changes anywhere has all agents told: who knows them gets a beat.
    fn unless_known(&mut self, order: Order) -> Order {
        if !matches!(order, Order::Subjects { .. }) {
            return order;
        }
        if self.subjects.as_ref() == Some(&order) {
            return Order::Beat;
        }
        self.subjects = Some(order.clone());
        order
    }

    /// The next order, a beat where there is none, the end where the hub stops.
    async fn wait(&mut self) -> Option<Order> {
        let received = tokio::select! {
            () = self.hub.stop.cancelled() => return None,
            received = timeout(BEAT, self.orders.recv()) => received,
        };
        match received {
            Ok(Ok(order)) => Some(order),
            Ok(Err(RecvError::Lagged(_))) => {
                let present = present(&self.hub, &self.cluster.id);
                self.waiting = timeout(STATE, present).await.ok()?.ok()?;
                self.waiting.pop_front()
            }
            Ok(Err(RecvError::Closed)) => None,
            Err(_) => {
                // An open stream over HTTPS is a sign of life as long as its beats are taken.
                let line = self.came == Came::Line;
                self.hub
                    .presence
                    .heard(&self.cluster.id, clock::now(), line);
                Some(Order::Beat)
            }
        }
    }
}

/// All that an agent has to know when it begins to listen, by the record as it is now: one that was read before may have other
/// labels.
async fn present(hub: &Hub, id: &str) -> Result<VecDeque<Order>, Problem> {
    let cluster = hub.store.cluster_by_id(id).await?;
    let Some(cluster) = cluster.filter(|c| c.removed_at.is_none()) else {
        return Ok(VecDeque::from([Order::Removed]));
    };
    let assignment = assignment::of(hub, &cluster).await?;
    let mut orders = VecDeque::from([
        Order::Beat,
        Order::Assignment {
            revision: assignment.revision,
        },
        grants::subjects(hub, &cluster).await?,
    ]);
    match git::head(&hub.catalog.repo, &hub.catalog.branch).await {
        Ok(Some(revision)) => orders.push_back(Order::CatalogHead { revision }),
        Ok(None) => {}
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "read the catalog's head");
        }
    }
    Ok(orders)
}
