//! A granted request onto the cluster's line: finds it, opens a stream with a fresh assertion, waits for the
//! answer's head.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::exchange::{self, Answer};
use super::upload::Upload;
use super::{Case, Granted, in_time, refusal};
use crate::hub::assertion::{self, Subject};
use crate::hub::directory::{self, Route};
use crate::hub::replica::lines;
use crate::hub::store::Cluster;
use crate::hub::tunnels::NoLine;
use crate::kubeapi::status::Refusal;
use crate::tunnel::{Line, LineError};
use crate::wire::frame::{Class, Code, Kind};
use crate::wire::id::ClusterName;

/// How often a request looks for the next line after one that took nothing of it.
const MOVES: u32 = 2;
/// Before the replica that has the line, and did not answer, is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// The epoch that the line of the next try has to be above. Where what was `lost` is a line to another replica, the agent's line
/// behind it may be as well as before: the next one that leads there takes the request to it.
fn above(route: &Route, lost: &Line, before: Option<u64>) -> Option<u64> {
    match route {
        Route::There(_) if lost.is_over() => before,
        Route::Here(_) | Route::There(_) => Some(route.epoch()),
    }
}

impl Case {
    /// Finds the line, sends, and sends once more on a new line where nothing can happen twice.
    pub(super) async fn exchange(
        &self,
        granted: &Granted,
        body: Body,
    ) -> Result<http::Response<Answer>, Refusal> {
        let outgoing = &granted.outgoing;
        let bare = body.is_end_stream();
        let repeatable = outgoing.repeatable() && bare;
        let mut body = Some(body);
        let (mut attempt, mut moves, mut repeated, mut last_epoch) = (0, 0, false, None);
        let patience = self.hub.config.bounds.patience;
        let (mut until, mut unopened) = (Instant::now() + patience.park, None);
        loop {
            let route = match self.line(&granted.cluster, last_epoch, until).await {
                Ok(route) => route,
                Err(refusal) => return Err(unopened.unwrap_or(refusal)),
            };
            let epoch = route.epoch();
            let meta = self.assertion(&route, granted, attempt)?;
            let stream = match route.open(Kind::Api, Class::Normal, meta).await {
                Ok(stream) => stream,
                // Its replica does not answer: the same line may be reached yet, or be elsewhere in a moment.
                Err(error) if error.code == Code::Unavailable && Instant::now() + AGAIN < until => {
                    attempt += 1;
                    unopened = Some(refusal::not_opened(&error, None));
                    sleep(AGAIN).await;
                    continue;
                }
                // Nothing left: any request may try the next line.
                Err(error) if moves < MOVES && refusal::moved(error.code) => {
                    (attempt, moves) = (attempt + 1, moves + 1);
                    (unopened, last_epoch) = (None, Some(epoch));
                    continue;
                }
                Err(error) => {
                    return Err(refusal::not_opened(&error, route.owner().as_deref()));
                }
            };
            let line = stream.line();
            let upload = Upload {
                body: body.take().unwrap_or_else(Body::empty),
                muted: Box::new(stream.muted()),
            };
            let request = outgoing.request(Body::new(upload));
            let head = (!outgoing.info.long_running()).then_some(patience.head);
            match exchange::send(stream, request, head).await {
                Ok(response) => return Ok(response),
                // Nothing left here either, but what was taken of a body is gone.
                Err(failed) if bare && moves < MOVES && refusal::unsent(&failed) => {
                    (attempt, moves) = (attempt + 1, moves + 1);
                    (unopened, last_epoch) = (None, Some(epoch));
                    until = until.max(Instant::now() + patience.park);
                }
                Err(failed)
                    if repeatable && !repeated && refusal::lost(&failed, line.takes_streams()) =>
                {
                    debug!(
                        request = self.id,
                        epoch, "line lost before an answer; sent once more"
                    );
                    (repeated, last_epoch) = (true, above(&route, &line, last_epoch));
                    (attempt, until) = (attempt + 1, Instant::now() + patience.park);
                }
                Err(failed) => {
                    let owner = route.owner();
                    return Err(refusal::no_head(&failed, outgoing, owner.as_deref()));
                }
            }
        }
    }

    /// A line newer than `after`; waits a moment where one was there just now.
    async fn line(
        &self,
        cluster: &Cluster,
        after: Option<u64>,
        until: Instant,
    ) -> Result<Route, Refusal> {
        let limit = until.saturating_duration_since(Instant::now());
        let name = &cluster.name;
        match directory::wait(&self.hub, cluster, after, limit).await {
            Ok(route) => Ok(route),
            // Nothing was sent, so the client may come again.
            Err(NoLine::InVain) => Err(self.offline(name).await.retry_after(1)),
            Err(NoLine::Full) => Err(refusal::no_place(name)),
            Err(NoLine::Offline) => Err(self.offline(name).await),
        }
    }

    /// Why there is no line, as far as the hub knows.
    async fn offline(&self, cluster: &ClusterName) -> Refusal {
        let record = in_time(&self.hub, self.hub.lookups.cluster(cluster)).await;
        let record = record.ok().and_then(Result::ok).flatten();
        // One that was removed may have had the name before.
        let view = record.as_ref().map_or_else(
            || self.hub.tunnels.view(cluster),
            |record| self.hub.tunnels.view_of(cluster, &record.id),
        );
        // Without the record other replicas may have had any.
        let epoch = record.as_ref().map_or(u64::MAX, |record| record.epoch);
        let counted = lines::counted(&self.hub, epoch);
        let heard =
            record.and_then(|record| self.hub.presence.last(&record.id).0.max(record.last_seen));
        refusal::offline(cluster, &view.standing(counted, heard))
    }

    /// What says on the line who asks for what: good for this line and this request.
    fn assertion(&self, route: &Route, granted: &Granted, attempt: u32) -> Result<Bytes, Refusal> {
        let Granted {
            cluster,
            subject,
            outgoing,
            by: _,
            first: _,
        } = granted;
        let request = assertion::Request {
            hub_id: &self.hub.id,
            cluster_id: &cluster.id,
            epoch: route.epoch(),
            id: &self.id,
            attempt,
            method: &outgoing.method,
            target: outgoing.rest.as_str(),
            ip: &self.ip,
            trace: self.trace,
        };
        let subject = Subject {
            user: &subject.user,
            groups: &subject.groups,
            actor: subject.actor.as_deref(),
            mode: subject.mode,
            namespaces: subject.namespaces.as_ref(),
        };
        let said = self.hub.says();
        let keys = &said.keys;
        let sign = |input: &[u8]| keys.sign(input);
        let meta = assertion::issue(&request, &subject, route.hub_now(), keys.kid(), sign)
            .map_err(|error| {
                refusal::not_asserted(&error, subject.namespaces.map_or(0, BTreeSet::len))
            })?;
        let meta = serde_json::to_vec(&meta)
            .map_err(|e| LineError::new(Code::Internal, e.to_string()))
            .map_err(|error| refusal::not_opened(&error, None))?;
        Ok(Bytes::from(meta))
    }
}
