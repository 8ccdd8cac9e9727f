//! The agent's calls to the API server: each with a deadline, repeated for less than a second, and what becomes of them, for the
//! gate: counted where they are sent, and `/readyz` beside them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder, retry::RetryPolicy};
use tokio::time::{Instant, Sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::buffer::BufferLayer;
use tower::retry::{Policy, RetryLayer};
use tower::{BoxError, Layer, Service};

use super::plan::server::{Call, Calls as Tally, Gate};
use crate::clock;

mod refused;
mod timely;
mod watches;

pub(super) use refused::{AtMost, CALL, Refused, lacks_right};
pub(super) use timely::LIMIT;
use timely::{Late, Timely};
pub(super) use watches::{named, object, watched};

/// Between two questions to `/readyz`; where it said nothing good, the shorter one.
const ASK: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);

/// A call that is answered with 429, 503 or 504 is repeated so often, after about so long, doubled each time. Together it is less
/// than a second: a server that is away for longer is told of, not waited for. kube's own policy goes on until the caller's deadline.
const AGAIN: u32 = 3;
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(300);
/// Calls that wait for their turn at the connection.
const QUEUE: usize = 256;

/// All calls of this process, of which the last half minute counts.
#[derive(Debug, Clone, Default)]
pub struct Calls(Arc<Mutex<Tally>>);

impl Calls {
    /// A client of this API server, whose calls are repeated and counted here.
    pub fn client(&self, mut server: kube::Config) -> Result<kube::Client> {
        server.default_retry = false;
        let stack = ClientBuilder::try_from(server).context("prepare calls to the API server")?;
        self.around(stack)
    }

    fn around<S, B>(&self, stack: ClientBuilder<S>) -> Result<kube::Client>
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError> + Send + Sync + 'static,
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // No Retry-After is waited for: what a server may write there has no bound. The caller comes again in its own time.
        let again = RetryPolicy::new(FIRST, LONGEST, AGAIN, false);
        let again = again.context("prepare the repetition of calls to the API server")?;
        Ok(stack
            .with_layer(self)
            .with_layer(&BufferLayer::new(QUEUE))
            .with_layer(&RetryLayer::new(Repeats(again)))
            .build())
    }

    pub fn gate(&self) -> Gate {
        self.tally(|tally| tally.gate(clock::now()))
    }

    /// What a write came to, of which a code alone does not tell: an admission webhook's trouble is a 500, too.
    pub fn wrote(&self, served: bool) {
        self.note(!served, None);
    }

    fn note(&self, failed: bool, took: Option<Duration>) {
        let took = took.and_then(|took| took.try_into().ok());
        let at = clock::now();
        self.tally(|tally| tally.note(Call { at, failed, took }));
    }

    fn tally<T>(&self, with: impl FnOnce(&mut Tally) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for `/readyz` until `stop`.
    pub async fn ask(self, kube: kube::Client, stop: CancellationToken) -> Result<()> {
        loop {
            let Some(ready) = stop.run_until_cancelled(readyz(&kube)).await else {
                return Ok(());
            };
            self.tally(|tally| tally.readyz(ready));
            let wait = if ready == Some(false) { ASK_AGAIN } else { ASK };
            if stop
                .run_until_cancelled(tokio::time::sleep(wait))
                .await
                .is_none()
            {
                return Ok(());
            }
        }
    }
}

/// None where it says nothing of its health: somebody may have taken the right to ask.
async fn readyz(kube: &kube::Client) -> Option<bool> {
    let request = Request::get("/readyz").body(Vec::new()).ok()?;
    match timeout(ANSWER, kube.request_text(request)).await {
        Ok(Ok(_)) => Some(true),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403 | 404 | 429) => None,
        Ok(Err(_)) | Err(_) => Some(false),
    }
}

impl<S> Layer<S> for Calls {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            calls: self.clone(),
        }
    }
}

/// Whether it is a watch, whose answer lasts.
pub(super) fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query();
    query.is_some_and(|query| query.contains("watch="))
}

/// kube's policy, whose repetitions are known as such.
#[derive(Clone)]
struct Repeats(RetryPolicy);

/// Of a request that is sent once more: when it was sent first. All its tries share one time.
#[derive(Debug, Clone, Copy)]
struct Repeated(Instant);

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Repeats {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Sleep> {
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let policy: &mut dyn Policy<Request<Body>, Response<B>, BoxError, Future = Sleep> =
            &mut self.0;
        let mut again = policy.clone_request(request)?;
        let first = request.extensions().get::<Repeated>().copied();
        let first = first.unwrap_or_else(|| Repeated(Instant::now()));
        again.extensions_mut().insert(first);
        Some(again)
    }
}

/// Gives each call its deadline, of a watch for the beginning of its answer alone, and notes what each reading call comes to at its first
/// try: a repetition says nothing new of the server, and one that passes does not make it well.
#[derive(Debug, Clone)]
pub struct Counted<S> {
    inner: S,
    calls: Calls,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<Timely<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let before = request.extensions().get::<Repeated>().copied();
        let reads = request.method() == Method::GET && before.is_none();
        let waits = is_watch(&request);
        let (calls, began) = (self.calls.clone(), Instant::now());
        let end = before.map_or(began, |first| first.0) + LIMIT;
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = timeout_at(end, answer).await;
            if reads {
                let failed = match &answer {
                    Ok(Ok(response)) => Some(response.status().is_server_error()),
                    Ok(Err(_)) => None,
                    Err(_) => Some(true),
                };
                let took = (!waits).then(|| began.elapsed());
                if let Some(failed) = failed {
                    calls.note(failed, took);
                }
            }
            let answer = answer.map_err(|_| Late)?.map_err(Into::into)?;
            let end = (!waits).then_some(end);
            Ok(answer.map(|body| Timely::new(body, end)))
        })
    }
}

#[cfg(test)]
mod tests;
