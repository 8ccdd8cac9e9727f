//! Calls to the hub's agent routes: a `report` stream of the line where it is up, else HTTPS with a signature.
//!
//! A line call needs no signature: the stream belongs to the session that the identity key opened. Answers are
//! bounded, and each call has a deadline.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::agent::Joined;
use crate::agent::identity::{self, Identity, Signed};
use crate::agent::link::{LinkState, ProxyConfig};
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::tunnel::Line;
use crate::wire::api::{HubRef, Problem};
use crate::wire::id::ClusterName;

mod https;
mod stream;

pub use https::Https;
pub use stream::follow;
use stream::over_line;

const DEADLINE: Duration = Duration::from_secs(30);
/// Answers other than bundles are refused above this many bytes.
pub const MAX_ANSWER: usize = 1 << 20;

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    pub path: String,
    /// JSON; empty = no body.
    pub body: Bytes,
    /// Refuse a longer answer.
    pub limit: usize,
}

impl Call {
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: Bytes::new(),
            limit: MAX_ANSWER,
        }
    }

    pub fn post<T: serde::Serialize>(path: impl Into<String>, body: &T) -> Result<Self> {
        let body = serde_json::to_vec(body).context("write the request's JSON")?;
        Ok(Self {
            method: Method::POST,
            path: path.into(),
            body: body.into(),
            limit: MAX_ANSWER,
        })
    }
}

/// What the hub answered, whatever the status.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

impl Answer {
    /// The problem's slug, `token-invalid` of `urn:linesman:problem:token-invalid`; empty where there is none.
    pub fn slug(&self) -> String {
        self.problem()
            .and_then(|p| p.kind.rsplit(':').next().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Whether the hub says that it removed the cluster. A page of whoever answers in its place says nothing.
    pub fn is_removed(&self) -> bool {
        self.status == StatusCode::GONE && self.slug() == "removed"
    }

    pub fn problem(&self) -> Option<Problem> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The JSON of a 2xx answer; anything else is an error that says what the hub said.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        if !self.status.is_success() {
            bail!("{}", self.refusal());
        }
        serde_json::from_slice(&self.body).context("read the hub's answer")
    }

    /// The refusal in words.
    pub fn refusal(&self) -> String {
        match self.problem() {
            Some(p) if p.next.is_empty() => format!("hub: {} ({})", p.detail, self.status),
            Some(p) => format!("hub: {}; {} ({})", p.detail, p.next, self.status),
            None => format!("hub answered {}", self.status),
        }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(RETRY_AFTER)?.to_str().ok()?;
    clock::retry_after(asked, clock::now())
}

/// The hub, and as which cluster it is called.
#[derive(Debug, Clone)]
pub struct Reach {
    pub cluster: ClusterName,
    pub hub: HubRef,
    pub proxy: Option<ProxyConfig>,
}

/// Calls as the joined cluster.
#[derive(Clone)]
pub struct Caller {
    inner: Arc<Inner>,
    /// Of the task that calls, where it has one.
    heart: Option<Heart>,
}

struct Inner {
    keys: watch::Receiver<Identity>,
    joined: watch::Receiver<Option<Joined>>,
    link: watch::Receiver<LinkState>,
    /// A hub that took the cluster in, while what it told is not followed.
    met: Mutex<Option<Reach>>,
    /// Seconds to be added to this host's clock to get the hub's.
    offset: AtomicI64,
    /// The client, and what it was made for.
    https: Mutex<Option<(HubRef, Option<ProxyConfig>, Https)>>,
}

impl Caller {
    pub fn new(
        keys: watch::Receiver<Identity>,
        joined: watch::Receiver<Option<Joined>>,
        link: watch::Receiver<LinkState>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                keys,
                joined,
                link,
                met: Mutex::new(None),
                offset: AtomicI64::new(0),
                https: Mutex::new(None),
            }),
            heart: None,
        }
    }

    /// The same for a task with this heart, which knows how long an answer may take.
    #[must_use]
    pub fn of(&self, heart: &Heart) -> Self {
        Self {
            inner: self.inner.clone(),
            heart: Some(heart.clone()),
        }
    }

    /// The line, where there is one now.
    pub fn line(&self) -> Option<Line> {
        match &*self.inner.link.borrow() {
            LinkState::Up { line, .. } => Some(line.clone()),
            LinkState::Down { .. } => None,
        }
    }

    /// Whether there is a line, and why not.
    pub fn link(&self) -> watch::Receiver<LinkState> {
        self.inner.link.clone()
    }

    /// Over the line, else by HTTPS. `path` comes after `/v1/clusters/<name>`.
    pub async fn cluster(&self, build: impl FnOnce(String) -> Result<Call>) -> Result<Answer> {
        let name = self.reach()?.cluster;
        let call = build(format!("/v1/clusters/{name}"))?;
        self.call(&call).await
    }

    pub async fn call(&self, call: &Call) -> Result<Answer> {
        if let Some(line) = self.line() {
            let _wait = self.heart.as_ref().map(|heart| heart.wait(DEADLINE));
            match timeout(DEADLINE, over_line(&line, call)).await {
                Ok(Ok(answer)) => return Ok(answer),
                // The line may be dying; what it carries can be repeated.
                Ok(Err(error)) => tracing::debug!(error = format!("{error:#}"), "line call failed"),
                Err(_) => tracing::debug!("line call: no answer in 30 s"),
            }
        }
        self.signed(call).await
    }

    async fn signed(&self, call: &Call) -> Result<Answer> {
        let reach = self.reach()?;
        let https = self.https(&reach)?;
        let used = self.inner.keys.borrow().identity.public();
        let answer = https.send(call, Some(self.sign(&reach.hub, call))).await?;
        let renewed = || self.inner.keys.borrow().identity.public() != used;
        if answer.status == StatusCode::FORBIDDEN && answer.slug() == "revoked" && renewed() {
            // The key was replaced while the call was under way.
            return https.send(call, Some(self.sign(&reach.hub, call))).await;
        }
        if answer.status != StatusCode::UNAUTHORIZED || answer.slug() != "stale-signature" {
            return Ok(answer);
        }
        let now = answer
            .problem()
            .and_then(|p| p.more.get("now")?.parse().ok());
        let Some(now) = now else { return Ok(answer) };
        self.set_hub_time(now);
        https.send(call, Some(self.sign(&reach.hub, call))).await
    }

    fn sign(&self, hub: &HubRef, call: &Call) -> String {
        let offset = self.inner.offset.load(Ordering::Relaxed);
        let signed = Signed {
            hub_id: &hub.id,
            method: call.method.as_str(),
            path_and_query: &call.path,
            time: clock::now().unix_timestamp() + offset,
            body: &call.body,
        };
        identity::signature(&self.inner.keys.borrow().identity, signed)
    }

    /// The hub's clock, unix seconds, as it said just now.
    pub fn set_hub_time(&self, now: i64) {
        let offset = now - clock::now().unix_timestamp();
        self.inner.offset.store(offset, Ordering::Relaxed);
    }

    /// The hub knows the cluster by its keys: it can be called, though nothing that it told is in force.
    pub fn introduce(&self, reach: Reach) {
        *self.met() = Some(reach);
    }

    fn met(&self) -> MutexGuard<'_, Option<Reach>> {
        self.inner
            .met
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self) -> Result<Reach> {
        let of = |joined: &Joined| Reach {
            cluster: joined.assignment.cluster.name.clone(),
            hub: joined.assignment.hub.clone(),
            proxy: joined.proxy.clone(),
        };
        let joined = self.inner.joined.borrow().as_ref().map(of);
        joined
            .or_else(|| self.met().clone())
            .context("not joined yet")
    }

    fn https(&self, reach: &Reach) -> Result<Https> {
        let mut held = self
            .inner
            .https
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Reach { hub, proxy, .. } = reach;
        if let Some((made_for, way, https)) = &*held
            && (made_for, way) == (hub, proxy)
        {
            return Ok(https.of(self.heart.as_ref()));
        }
        let https = Https::new(&hub.urls, &hub.ca, proxy.as_ref())?;
        let own = https.of(self.heart.as_ref());
        *held = Some((hub.clone(), proxy.clone(), https));
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A bundle may be removed from the hub between the word to fetch it and the call.
    #[test]
    fn a_refusal_is_told_with_what_to_do() {
        let body = json!({
            "type": "urn:linesman:problem:bundle-unknown", "title": "t", "status": 404, "detail": "the bundle was removed",
            "hop": "hub", "next": "import it again", "requestId": "r",
        });
        let answer = |body: String| Answer {
            status: StatusCode::NOT_FOUND,
            retry_after: None,
            body: body.into(),
        };
        assert_eq!(
            answer(body.to_string()).refusal(),
            "hub: the bundle was removed; import it again (404 Not Found)"
        );
        assert_eq!(
            answer(String::new()).refusal(),
            "hub answered 404 Not Found"
        );
    }

    /// What stands before the hub may write a date; this one is long over.
    #[test]
    fn a_wait_may_be_asked_for_by_a_date() {
        let over = http::HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        let headers = HeaderMap::from_iter([(RETRY_AFTER, over)]);
        assert_eq!(retry_after(&headers), Some(Duration::ZERO));
    }

    /// The agent takes itself away then.
    #[test]
    fn only_the_hub_says_that_a_cluster_was_removed() {
        let problem = |slug: &str| {
            let kind = format!("urn:linesman:problem:{slug}");
            let said = json!({
                "type": kind, "title": "t", "status": 410, "detail": "d", "hop": "hub", "next": "n", "requestId": "r",
            });
            said.to_string()
        };
        for (status, body, removed) in [
            (410, problem("removed"), true),
            (410, problem("revoked"), false),
            (410, String::new(), false),
            (
                410,
                "<html>This domain is for sale</html>".to_owned(),
                false,
            ),
            (403, problem("removed"), false),
        ] {
            let answer = Answer {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after: None,
                body: body.clone().into(),
            };
            assert_eq!(answer.is_removed(), removed, "{status} {body}");
        }
    }
}
