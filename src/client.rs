//! The typed HTTP client of the hub, for operators.
//!
//! A CA file given = those roots and no others; none = the system's. Calls that can be repeated without harm
//! are, on a refused connection or a busy hub; every other call is sent once. Each error says what was
//! attempted and [`Error::next`] names the next action.

mod access;
mod audit;
mod call;
mod calls;
mod diagnose;
mod error;
pub mod fetch;
mod githost;
mod https;
mod login;
mod proxy;
mod suggest;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde::de::DeserializeOwned;

pub use access::GrantFilter;
pub use audit::{AuditFilter, AuditPlace};
use call::Call;
pub use calls::{HealFilter, WantedBundle};
pub use diagnose::{Cause, cause};
pub use error::Error;
pub use https::{address, http, query_pairs, roots};
use https::{authorization, json_headers, retry_after, whatever};
pub use proxy::proxy;

use crate::backoff::Schedule;
use crate::clock;
use crate::secret::Secret;
use crate::wire::api::Problem;

const TIMEOUT: Duration = Duration::from_secs(30);
/// A bundle of 16 MiB over a slow link.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(5);
/// No answer of the API is larger; a peer that sends more is cut.
const MAX_ANSWER: usize = 16 << 20;
/// A call without an answer for this long is told of.
const SLOW: Duration = Duration::from_secs(2);
const TRIES: u32 = 3;
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(100),
    first: Duration::from_millis(300),
    cap: Duration::from_secs(3),
};

/// Gives the token for the next call, renewed where it has to be: a command may outlive it.
#[derive(Clone)]
pub struct Renewal(
    Arc<dyn Fn() -> BoxFuture<'static, Result<Secret<String>, Error>> + Send + Sync>,
);

impl Renewal {
    pub fn new<F>(token: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Secret<String>, Error>> + Send + 'static,
    {
        Self(Arc::new(move || token().boxed()))
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}

/// A hub and what we say to be let in.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Whether it trusts roots of its own, and none of the system's.
    own_roots: bool,
    base: Url,
    token: Option<Secret<String>>,
    renewal: Option<Renewal>,
    /// Tells whoever waits what is waited for.
    slow: Option<fn(&str)>,
}

impl Client {
    /// `ca` is PEM: these roots only. None: the system's roots.
    pub fn new(base: Url, ca: Option<&str>, token: Option<Secret<String>>) -> Result<Self, Error> {
        Ok(Self {
            http: http(ca)?,
            own_roots: ca.is_some(),
            base,
            token,
            renewal: None,
            slow: None,
        })
    }

    /// Tells of a call that is not answered soon, by its operation.
    #[must_use]
    pub fn telling(self, slow: fn(&str)) -> Self {
        Self {
            slow: Some(slow),
            ..self
        }
    }

    /// Asks for the token before each call.
    #[must_use]
    pub fn renewing(self, renewal: Renewal) -> Self {
        Self {
            renewal: Some(renewal),
            ..self
        }
    }

    pub fn base(&self) -> &Url {
        &self.base
    }

    /// The address as people write it, without the slash at the end.
    pub fn hub(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn get<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, Error> {
        let body = self.get_bytes(operation, path, query).await?;
        self.answer(operation, &body)
    }

    async fn get_bytes(
        &self,
        operation: &str,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Vec<u8>, Error> {
        let call = Call {
            operation,
            method: Method::GET,
            url: self.url(path, query),
            headers: HeaderMap::new(),
            body: None,
            timeout: TIMEOUT,
            repeatable: true,
        };
        self.send(call).await
    }

    /// A write. Its idempotency key makes the hub answer a repeated one from its record.
    async fn write<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &[&str],
        body: &impl serde::Serialize,
    ) -> Result<T, Error> {
        let body =
            serde_json::to_vec(body).map_err(|e| self.unexpected(operation, e.to_string()))?;
        let mut headers = json_headers();
        if let Ok(key) = HeaderValue::from_str(&crate::keys::hex(&clock::random::<16>())) {
            headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        let call = Call {
            operation,
            method: Method::POST,
            url: self.url(path, &[]),
            headers,
            body: Some(body),
            timeout: TIMEOUT,
            repeatable: false,
        };
        self.answer(operation, &self.send(call).await?)
    }

    /// A write that may be repeated as it is.
    async fn put<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &[&str],
        body: &impl serde::Serialize,
    ) -> Result<T, Error> {
        self.change(Method::PUT, operation, path, body).await
    }

    /// The same for a part of it.
    async fn patch<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &[&str],
        body: &impl serde::Serialize,
    ) -> Result<T, Error> {
        self.change(Method::PATCH, operation, path, body).await
    }

    async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        operation: &str,
        path: &[&str],
        body: &impl serde::Serialize,
    ) -> Result<T, Error> {
        let body =
            serde_json::to_vec(body).map_err(|e| self.unexpected(operation, e.to_string()))?;
        let call = Call {
            operation,
            method,
            url: self.url(path, &[]),
            headers: whatever(json_headers()),
            body: Some(body),
            timeout: TIMEOUT,
            repeatable: true,
        };
        self.answer(operation, &self.send(call).await?)
    }

    fn answer<T: DeserializeOwned>(&self, operation: &str, body: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(body).map_err(|e| self.unexpected(operation, e.to_string()))
    }

    fn unexpected(&self, operation: &str, found: String) -> Error {
        Error::Answer {
            operation: operation.to_owned(),
            hub: self.hub(),
            found,
        }
    }

    async fn send(&self, call: Call<'_>) -> Result<Vec<u8>, Error> {
        match self.told(&call).await {
            Ok(body) => Ok(body),
            Err(error) => Err(self.suggesting(&call, error).await),
        }
    }

    async fn told(&self, call: &Call<'_>) -> Result<Vec<u8>, Error> {
        let mut answer = std::pin::pin!(self.tried(call));
        if let Some(tell) = self.slow.filter(|_| !call.is_poll()) {
            match tokio::time::timeout(SLOW, &mut answer).await {
                Ok(answered) => return answered,
                Err(_) => tell(call.operation),
            }
        }
        answer.await
    }

    async fn tried(&self, call: &Call<'_>) -> Result<Vec<u8>, Error> {
        let mut attempt = 0;
        loop {
            let (error, wait) = match self.send_once(call).await {
                Ok(body) => return Ok(body),
                Err(failed) => failed,
            };
            // A connection that was never made carried nothing, so even a write may go again.
            let unsent =
                matches!(&error, Error::Unreachable { cause, .. } if cause.is_before_sending());
            // Whoever asks has waited long enough.
            let late =
                matches!(&error, Error::Unreachable { cause, .. } if *cause == Cause::Timeout);
            attempt += 1;
            if late || attempt >= TRIES || !error.is_passing() || !(call.repeatable || unsent) {
                return Err(error);
            }
            let pause = wait.unwrap_or_else(|| RETRY.full_jitter(attempt - 1, clock::unit()));
            tokio::time::sleep(pause.min(RETRY.cap)).await;
        }
    }

    /// The body of a good answer, or the error and how long the hub asks to wait.
    async fn send_once(&self, call: &Call<'_>) -> Result<Vec<u8>, (Error, Option<Duration>)> {
        let mut request = self
            .http
            .request(call.method.clone(), call.url.clone())
            .headers(call.headers.clone())
            .timeout(call.timeout);
        let token = match &self.renewal {
            Some(Renewal(token)) => Some(token().await.map_err(|e| (e, None))?),
            None => self.token.clone(),
        };
        if let Some(value) = token.as_ref().and_then(authorization) {
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(body) = &call.body {
            request = request.body(body.clone());
        }
        let unreachable = |e: &reqwest::Error| Error::Unreachable {
            operation: call.operation.to_owned(),
            hub: self.hub(),
            cause: if self.own_roots {
                cause(e).by_own_roots()
            } else {
                cause(e)
            },
        };
        let mut response = request.send().await.map_err(|e| (unreachable(&e), None))?;
        let status = response.status();
        let wait = retry_after(response.headers());
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|e| (unreachable(&e), None))?
        {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err((
                    self.unexpected(call.operation, format!("more than {MAX_ANSWER} bytes")),
                    None,
                ));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            Ok(body)
        } else {
            Err((self.refusal(call.operation, status, &body), wait))
        }
    }

    fn refusal(&self, operation: &str, status: StatusCode, body: &[u8]) -> Error {
        let operation = operation.to_owned();
        if let Ok(mut problem) = serde_json::from_slice::<Problem>(body) {
            // By which name it is reached this program knows.
            let login = format!("linesman login {}", self.hub());
            problem.next = problem.next.replace("linesman login HUB", &login);
            return Error::Refused {
                operation,
                problem: Box::new(problem),
            };
        }
        if let Some(problem) = of_status(body) {
            return Error::Refused {
                operation,
                problem: Box::new(problem),
            };
        }
        let body = String::from_utf8_lossy(body)
            .trim()
            .chars()
            .take(200)
            .collect();
        Error::Gateway {
            operation,
            hub: self.hub(),
            status,
            body,
        }
    }
}

/// Below `/clusters/` the hub, the agent and the API server answer with a Kubernetes `Status`, whose message reads
/// `<hop>: <reason>; <next action>`. Where one of our hops refused, the `Status` has it and its rule.
fn of_status(body: &[u8]) -> Option<Problem> {
    let status: serde_json::Value = serde_json::from_slice(body).ok()?;
    if status["kind"] != "Status" {
        return None;
    }
    let cause = &status["details"]["causes"][0];
    let what = cause["message"].as_str().unwrap_or_default();
    let (detail, next) = error::parted(status["message"].as_str()?, what);
    let rule = cause["reason"].as_str();
    Some(Problem {
        kind: error::OF_STATUS.to_owned(),
        title: status["reason"].as_str().unwrap_or_default().to_owned(),
        status: u16::try_from(status["code"].as_u64()?).ok()?,
        detail: detail.to_owned(),
        hop: cause["field"].as_str().unwrap_or_default().to_owned(),
        next: next.to_owned(),
        request_id: String::new(),
        more: rule
            .map(|rule| (error::RULE.to_owned(), rule.to_owned()))
            .into_iter()
            .collect(),
    })
}

#[cfg(test)]
mod tests;
