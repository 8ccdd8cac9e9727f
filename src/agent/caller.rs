//! Calls to the hub's agent routes: a `report` stream of the line where it is up, else HTTPS with a signature.
//!
//! A line call needs no signature: the stream belongs to the session that the identity key opened. Answers are
//! bounded, and each call has a deadline.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::agent::Joined;
use crate::agent::identity::{self, Identity, Signed};
use crate::agent::link::bypass::bypassed;
use crate::agent::link::{LinkState, ProxyConfig, is_old_tls};
use crate::clock;
use crate::tunnel::{Line, Stream};
use crate::wire::api::{HubRef, Problem, SIGNATURE_HEADER};
use crate::wire::frame::{Class, Kind};
use crate::wire::id::ClusterName;

const DEADLINE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);
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

/// HTTPS to the hub, with its CA and the cluster's proxy.
#[derive(Debug, Clone)]
pub struct Https {
    client: reqwest::Client,
    urls: Vec<String>,
}

impl Https {
    /// `ca` is PEM: where it is not empty, its roots are the only ones.
    pub fn new(urls: &[String], ca: &str, proxy: Option<&ProxyConfig>) -> Result<Self> {
        let mut builder = builder();
        if !ca.trim().is_empty() {
            let roots = reqwest::Certificate::from_pem_bundle(ca.as_bytes())
                .context("the hub's ca.crt is not PEM")?;
            // As the line does.
            builder = builder
                .tls_certs_only(roots)
                .tls_version_min(reqwest::tls::Version::TLS_1_3);
        }
        Self::with(builder, urls, proxy)
    }

    /// Takes whatever certificate there is: for questions that give nothing away, of whose answers nothing is believed but
    /// what the hub signed.
    pub fn unverified(urls: &[String], proxy: Option<&ProxyConfig>) -> Result<Self> {
        Self::with(builder().tls_danger_accept_invalid_certs(true), urls, proxy)
    }

    fn with(
        mut builder: reqwest::ClientBuilder,
        urls: &[String],
        proxy: Option<&ProxyConfig>,
    ) -> Result<Self> {
        if let Some(proxy) = proxy {
            builder = builder.proxy(through(proxy)?);
        }
        let client = builder.build().context("prepare HTTPS to the hub")?;
        let urls = urls
            .iter()
            .map(|u| u.trim_end_matches('/').to_owned())
            .collect();
        Ok(Self { client, urls })
    }

    /// Sends to the first URL that can be reached.
    pub async fn send(&self, call: &Call, signature: Option<String>) -> Result<Answer> {
        let mut last = anyhow!("no URL of the hub is known");
        for url in &self.urls {
            match self.send_to(url, call, signature.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn send_to(&self, url: &str, call: &Call, signature: Option<String>) -> Result<Answer> {
        let mut request = self
            .client
            .request(call.method.clone(), format!("{url}{}", call.path));
        if !call.body.is_empty() {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(call.body.clone());
        }
        if let Some(signature) = signature {
            request = request.header(SIGNATURE_HEADER, signature);
        }
        let sent = request.send().await;
        let mut response = sent.map_err(|error| anyhow!("reach {url}: {}", root(&error)))?;
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.context("read the hub's answer")? {
            if body.len() + chunk.len() > call.limit {
                bail!("the hub's answer is longer than {} bytes", call.limit);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer {
            status: response.status(),
            retry_after: retry_after(response.headers()),
            body: body.freeze(),
        })
    }
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .timeout(DEADLINE)
        .https_only(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
}

/// The cause below the layers of the HTTP client, which all say the same.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    if is_old_tls(error) {
        return "it speaks no TLS 1.3; turn that on at what stands before the hub".to_owned();
    }
    cause.to_string()
}

fn through(config: &ProxyConfig) -> Result<reqwest::Proxy> {
    let address: reqwest::Url = format!("http://{}", config.address)
        .parse()
        .context("the proxy's address is not host:port")?;
    let rules = config.bypass.clone();
    let mut proxy = reqwest::Proxy::custom(move |url| {
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        (!bypassed(&rules, host, port)).then(|| address.clone())
    });
    if let Some(credentials) = &config.credentials {
        let text = credentials.expose();
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        proxy = proxy.basic_auth(user, password);
    }
    Ok(proxy)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(u64::min(seconds, 900)))
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
    https: Mutex<Option<(HubRef, Https)>>,
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
        if let Some((made_for, https)) = &*held
            && made_for == hub
        {
            return Ok(https.clone());
        }
        let https = Https::new(&hub.urls, &hub.ca, proxy.as_ref())?;
        *held = Some((hub.clone(), https.clone()));
        Ok(https)
    }
}

/// One exchange on a stream of the line.
async fn over_line(line: &Line, call: &Call) -> Result<Answer> {
    let (mut sender, connection) = connect(line).await?;
    let exchange = async {
        let response = sender
            .send_request(request(call)?)
            .await
            .context("send on the line")?;
        let (head, body) = response.into_parts();
        let body = http_body_util::Limited::new(body, call.limit)
            .collect()
            .await
            .map_err(|e| anyhow!("read from the line: {e}"))?;
        Ok(Answer {
            status: head.status,
            retry_after: retry_after(&head.headers),
            body: body.to_bytes(),
        })
    };
    drive(connection, exchange).await
}

/// Reads a body of lines that has no end; `line` gets each. Ends with the stream, or when it is silent for
/// `silence`.
pub async fn follow(
    line: &Line,
    call: &Call,
    silence: Duration,
    mut on_line: impl FnMut(&[u8]),
) -> Result<()> {
    let (mut sender, connection) = connect(line).await?;
    let exchange = async {
        let response = timeout(silence, sender.send_request(request(call)?))
            .await
            .context("no answer")?
            .context("send on the line")?;
        if !response.status().is_success() {
            bail!("hub answered {}", response.status());
        }
        let mut body = response.into_body();
        let mut held = BytesMut::new();
        while let Some(frame) = timeout(silence, body.frame()).await.context("silent")? {
            let Ok(data) = frame.context("read from the line")?.into_data() else {
                continue;
            };
            held.extend_from_slice(&data);
            while let Some(end) = held.iter().position(|b| *b == b'\n') {
                on_line(&held.split_to(end + 1));
            }
            if held.len() > call.limit {
                bail!("a line of more than {} bytes", call.limit);
            }
        }
        Ok(())
    };
    drive(connection, exchange).await
}

type Connection = hyper::client::conn::http1::Connection<TokioIo<Stream>, Full<Bytes>>;
type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

async fn connect(line: &Line) -> Result<(Sender, Connection)> {
    let stream = line
        .open(Kind::Report, Class::Normal, Bytes::new())
        .await
        .context("open a stream on the line")?;
    hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .context("start HTTP on the line")
}

fn request(call: &Call) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(&call.path)
        .header(HOST, "hub");
    if !call.body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request
        .body(Full::new(call.body.clone()))
        .context("make the request")
}

/// Polls the connection beside the exchange, in one task.
async fn drive<T>(connection: Connection, exchange: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::pin!(connection, exchange);
    tokio::select! {
        biased;
        result = &mut exchange => result,
        ended = &mut connection => match ended {
            // What was received before the end is still to be read.
            Ok(()) => exchange.await,
            Err(error) => Err(error).context("the line's stream failed"),
        },
    }
}
