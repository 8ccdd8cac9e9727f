//! What becomes of the agent's calls to the API server, for the gate: counted where they are sent, and `/readyz` beside them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use http::{Method, Request, Response};
use kube::client::Body;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};

use super::plan::server::{Call, Calls as Tally, Gate};
use crate::clock;

/// Between two questions to `/readyz`; where it said nothing good, the shorter one.
const ASK: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);

/// All calls of this process, of which the last half minute counts.
#[derive(Debug, Clone, Default)]
pub struct Calls(Arc<Mutex<Tally>>);

impl Calls {
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

/// Notes what each reading call comes to.
#[derive(Debug, Clone)]
pub struct Counted<S> {
    inner: S,
    calls: Calls,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let reads = request.method() == Method::GET;
        let waits = request.uri().query().is_some_and(|q| q.contains("watch="));
        let (calls, began) = (self.calls.clone(), Instant::now());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(response) = answer.as_ref()
                && reads
            {
                let took = (!waits).then(|| began.elapsed());
                calls.note(response.status().is_server_error(), took);
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use tower::service_fn;

    use super::*;

    /// A client whose API server answers with this code.
    fn client(calls: &Calls, code: u16) -> kube::Client {
        let server = service_fn(move |_: Request<Body>| async move {
            let answer = Response::builder()
                .status(code)
                .body(Body::from(b"not JSON".to_vec()));
            Ok::<_, tower::BoxError>(answer.unwrap())
        });
        kube::Client::new(calls.layer(server), "linesman")
    }

    async fn get(kube: &kube::Client, path: &str) {
        let request = Request::get(path).body(Vec::new()).unwrap();
        drop(kube.request_text(request).await);
    }

    /// F14, W25: errors shut the gate; a webhook's refusal of a write, and what is not found, do not.
    #[tokio::test]
    async fn the_errors_of_reads_shut_the_gate() {
        for (code, shut) in [(200, false), (404, false), (500, true), (503, true)] {
            let calls = Calls::default();
            let kube = client(&calls, code);
            for path in ["/api/v1/pods", "/api/v1/pods?watch=true", "/apis"] {
                get(&kube, path).await;
            }
            assert_eq!(calls.gate().is_shut(), shut, "{code}");
        }
        let calls = Calls::default();
        let kube = client(&calls, 500);
        for _ in 0..5 {
            let request = Request::post("/api/v1/pods").body(Vec::new()).unwrap();
            drop(kube.request_text(request).await);
        }
        assert_eq!(calls.gate(), Gate::Open);
        for _ in 0..3 {
            calls.wrote(false);
        }
        assert!(calls.gate().is_shut());
    }

    #[tokio::test]
    async fn readyz_is_believed_where_it_may_be_asked() {
        for (code, ready) in [
            (200, Some(true)),
            (500, Some(false)),
            (503, Some(false)),
            (401, None),
            (403, None),
            (404, None),
            (429, None),
        ] {
            let kube = client(&Calls::default(), code);
            assert_eq!(readyz(&kube).await, ready, "{code}");
        }
    }
}
