//! The one way from a stream to the kube-apiserver: an HTTP client that holds the address, the CA and the
//! token of `linesman-line`, and never the installer's credential.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tower::{BoxError, Service, ServiceExt as _};

use crate::secret::Secret;

/// A body on its way to the API server or back.
pub type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// The token of `linesman-line`, or why there is none.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Not asked for yet.
    Starting,
    Missing {
        why: String,
    },
    /// The cluster's owner deleted the Secret that it was bound to, in this namespace.
    Withdrawn {
        namespace: String,
    },
    Token {
        /// As [`authorization`] makes it.
        bearer: Secret<HeaderValue>,
        serial: u64,
        /// The UID of the Secret that it is bound to.
        bound: String,
    },
}

type Sender = Arc<
    dyn Fn(Request<Body>) -> BoxFuture<'static, Result<Response<Incoming>, Error>> + Send + Sync,
>;

/// Where and as what requests from the line go. Cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    send: Sender,
    /// For a request that asks for another protocol, or whose body is taken late.
    late: Sender,
    server: Uri,
    credential: watch::Receiver<Credential>,
    /// Asks for a new token instead of the one with this serial.
    renew: mpsc::Sender<u64>,
}

/// Connections that stay open for the next request, and how long. Below the API server's own 90 s, so that
/// a request is not sent into a connection that it closes.
const IDLE: (usize, Duration) = (32, Duration::from_mins(1));
const DIAL: Duration = Duration::from_secs(10);
/// How long a connection takes at most, TLS with it.
const SECURED: Duration = Duration::from_secs(15);
/// A watch that is silent looks whether its API server is there so long after the last byte, so often, so many times: a node
/// that died is noticed within a minute.
const ALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);
/// How long bytes may stay unacknowledged. Not those of a session, nor of an upload to a Pod or Service: what runs there takes what
/// is sent when it likes, and `TCP_USER_TIMEOUT` counts a window that stays shut like a peer that is gone.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// How long a request waits for a token.
pub(super) const WAIT: Duration = Duration::from_secs(5);
/// Bytes of an answer's head.
const HEAD: usize = 64 << 10;
/// How long a review may take.
const REVIEWED: Duration = Duration::from_secs(10);
/// A review ends within this time, the wait for a token with it.
pub(super) const LONGEST: Duration = WAIT.saturating_add(REVIEWED);
/// Bytes of a review's answer.
const REVIEW: usize = 64 << 10;

impl Upstream {
    /// Takes address and CA of `config`, and nothing of its credentials.
    pub fn new(
        config: &kube::Config,
        credential: watch::Receiver<Credential>,
        renew: mpsc::Sender<u64>,
    ) -> Result<Self> {
        let mut bare = kube::Config::new(config.cluster_url.clone());
        bare.root_cert.clone_from(&config.root_cert);
        bare.root_cert_file.clone_from(&config.root_cert_file);
        bare.tls_server_name.clone_from(&config.tls_server_name);
        bare.accept_invalid_certs = config.accept_invalid_certs;
        Ok(Self {
            send: sender(&bare, Some(UNACKNOWLEDGED), IDLE.0)?,
            // A session's connection is its own from the answer on, and no other request begins on one that looks for nobody.
            late: sender(&bare, None, 0)?,
            server: bare.cluster_url,
            credential,
            renew,
        })
    }

    /// The token in force; waits a moment for the first one.
    pub async fn credential(&self) -> Credential {
        let mut credential = self.credential.clone();
        let known = credential.wait_for(|c| !matches!(c, Credential::Starting));
        match tokio::time::timeout(WAIT, known).await {
            Ok(Ok(found)) => found.clone(),
            _ => Credential::Missing {
                why: "the agent has no token for linesman-line yet".to_owned(),
            },
        }
    }

    /// Completes when the cluster's owner withdraws access from what went with a token that is bound to the Secret of the UID `began`,
    /// also where they gave it back before anybody saw that it was gone: by another Secret. The Secret in force when the answer begins
    /// may be that other one: who withholds an answer's head does not outlast it so.
    pub async fn withdrawn(&self, began: &str) {
        let mut credential = self.credential.clone();
        let gone = credential.wait_for(|now| match now {
            Credential::Withdrawn { .. } => true,
            Credential::Token { bound, .. } => bound != began,
            Credential::Starting | Credential::Missing { .. } => false,
        });
        if gone.await.is_err() {
            // Its keeper ends with the process: nobody withdraws any more.
            std::future::pending::<()>().await;
        }
    }

    /// Sends with `bearer`; the request's URI is path and query only.
    pub async fn send(
        &self,
        request: Request<Body>,
        bearer: &Secret<HeaderValue>,
    ) -> Result<Response<Incoming>, Error> {
        let switches = request.headers().contains_key(UPGRADE);
        let by = if switches { &self.late } else { &self.send };
        self.sent(by, request, bearer).await
    }

    /// The same for a body that what stands behind the API server takes when it likes. No more of it waits here than the
    /// connection has room for.
    pub async fn send_to_late(
        &self,
        request: Request<Body>,
        bearer: &Secret<HeaderValue>,
    ) -> Result<Response<Incoming>, Error> {
        self.sent(&self.late, request, bearer).await
    }

    async fn sent(
        &self,
        by: &Sender,
        mut request: Request<Body>,
        bearer: &Secret<HeaderValue>,
    ) -> Result<Response<Incoming>, Error> {
        *request.uri_mut() = at(&self.server, request.uri());
        let value = bearer.expose().clone();
        request.headers_mut().insert(AUTHORIZATION, value);
        by(request).await
    }

    /// Waits for another token than `serial`, at most 5 s.
    pub async fn renewed(&self, serial: u64) -> Credential {
        // A full queue means that a renewal is asked for already.
        let _asked = self.renew.try_send(serial);
        let mut credential = self.credential.clone();
        let other = credential
            .wait_for(|c| !matches!(c, Credential::Token { serial: s, .. } if *s == serial));
        match tokio::time::timeout(WAIT, other).await {
            Ok(Ok(found)) => found.clone(),
            _ => Credential::Missing {
                why: "no new token within 5 s".to_owned(),
            },
        }
    }

    /// Whether the API server takes this token; also where it cannot say.
    pub async fn takes(&self, bearer: &Secret<HeaderValue>) -> bool {
        let version = json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}});
        let answer = self.review(bearer, &version).await;
        !matches!(answer, Ok((StatusCode::UNAUTHORIZED, _)))
    }

    /// Whether `linesman-line` may act as this user or group.
    pub async fn may_impersonate(
        &self,
        (verb, group): (&str, &str),
        resource: &str,
        name: &str,
    ) -> Result<bool> {
        let Credential::Token { bearer, .. } = self.credential().await else {
            anyhow::bail!("no token for linesman-line");
        };
        let attributes = json!({"verb": verb, "group": group, "resource": resource, "name": name});
        let asked = json!({"resourceAttributes": attributes});
        let (status, body) = self.review(&bearer, &asked).await?;
        anyhow::ensure!(
            status.is_success(),
            "the API server answered the review with {status}"
        );
        let answer: Value = serde_json::from_slice(&body).context("read the review")?;
        Ok(answer["status"]["allowed"] == Value::Bool(true))
    }

    /// The `SelfSubjectAccessReview` of `linesman-line`, the only request that it makes as itself.
    async fn review(
        &self,
        bearer: &Secret<HeaderValue>,
        asked: &Value,
    ) -> Result<(StatusCode, Bytes)> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": asked,
        });
        let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("content-type", "application/json")
            .body(full(review.to_string()))?;
        let answer = async {
            let response = self.send(request, bearer).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), REVIEW).collect().await;
            let body = body.map_err(|e| anyhow::anyhow!("read the answer: {e}"))?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let answer = tokio::time::timeout(REVIEWED, answer).await;
        answer
            .unwrap_or_else(|_| anyhow::bail!("the API server did not answer in 10 s"))
            .context("review the rights of linesman-line")
    }
}

/// What a request carries of a token. An error where no header takes it: whoever gave it may have written anything.
pub fn authorization(token: &str) -> Result<Secret<HeaderValue>> {
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.context("the token is none that a header takes")?;
    value.set_sensitive(true);
    Ok(Secret::new(value))
}

/// Connects as `tls` does. What takes a connection and says nothing is not waited for: no other deadline meets a watch's first.
async fn secured<S>(tls: S, server: Uri) -> Result<S::Response, BoxError>
where
    S: Service<Uri, Error = BoxError>,
{
    let connected = tokio::time::timeout(SECURED, tls.oneshot(server));
    connected.await.unwrap_or_else(|_| {
        let text = format!("no TLS connection after {} s", SECURED.as_secs());
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text).into())
    })
}

/// A client whose bytes may stay unacknowledged for so long, and that keeps so many connections for the next request.
fn sender(config: &kube::Config, unacknowledged: Option<Duration>, idle: usize) -> Result<Sender> {
    let tls = config
        .rustls_https_connector_with_connector(tcp(unacknowledged))
        .context("set up TLS to the API server")?;
    let tls = tower::service_fn(move |uri| Box::pin(secured(tls.clone(), uri)));
    let client: Client<_, Body> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE.1)
        .pool_max_idle_per_host(idle)
        .http1_max_buf_size(HEAD)
        .build(tls);
    Ok(Arc::new(move |request| Box::pin(client.request(request))))
}

/// Connects to the API server.
fn tcp(unacknowledged: Option<Duration>) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(DIAL));
    let (idle, between, times) = ALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(between));
    tcp.set_keepalive_retries(Some(times));
    tcp.set_tcp_user_timeout(unacknowledged);
    tcp
}

/// The server's scheme, authority and path prefix before the request's path and query, bytes kept. What is too long for a URI so
/// becomes one without an authority, which the client refuses: never the request's own.
fn at(server: &Uri, request: &Uri) -> Uri {
    let rest = request
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let prefix = server.path().trim_end_matches('/');
    let mut parts = server.clone().into_parts();
    parts.path_and_query = format!("{prefix}{rest}").parse().ok();
    Uri::from_parts(parts).unwrap_or_default()
}

/// A body that is at hand.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that is passed on as it comes.
pub fn passing(body: Incoming) -> Body {
    body.boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// L11: it takes the connection, and no byte of TLS comes.
    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_never_speaks_tls_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let config = kube::Config::new(url.parse().unwrap());
        let (_publish, credential) = watch::channel(Credential::Starting);
        let upstream = Upstream::new(&config, credential, mpsc::channel(1).0).unwrap();
        let bearer = authorization("token").unwrap();
        let began = tokio::time::Instant::now();
        let request = Request::get("/api/v1/pods?watch=1").body(full("")).unwrap();
        let error = upstream.send(request, &bearer).await.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
        assert_eq!(began.elapsed().as_secs(), SECURED.as_secs());
        // Who cannot be asked has not refused it.
        assert!(upstream.takes(&bearer).await);
    }

    /// A node that dies says nothing: without these a watch would wait for the kernel's two hours, or a quarter of one. What runs in a
    /// Pod may take nothing for longer than that, and is not gone.
    #[tokio::test]
    async fn a_connection_to_the_api_server_looks_whether_it_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        for unacknowledged in [Some(UNACKNOWLEDGED), None] {
            let connecting = tcp(unacknowledged).oneshot(url.parse().unwrap());
            let connection = connecting.await.unwrap();
            let socket = socket2::SockRef::from(connection.inner());
            assert!(socket.keepalive().unwrap());
            let found = (
                socket.tcp_keepalive_time().unwrap(),
                socket.tcp_keepalive_interval().unwrap(),
                socket.tcp_keepalive_retries().unwrap(),
            );
            assert_eq!(found, ALIVE);
            let patience = socket.tcp_user_timeout().unwrap();
            assert_eq!(patience, unacknowledged);
        }
    }

    /// L4: a command that read nothing of its input for half a minute lost its session.
    #[test]
    fn a_session_has_a_connection_whose_window_may_stay_shut() {
        let used = Arc::new(Mutex::new(Vec::new()));
        let sender = |name: &'static str| -> Sender {
            let used = used.clone();
            Arc::new(move |_: Request<Body>| {
                used.lock().unwrap().push(name);
                std::future::pending::<Result<Response<Incoming>, Error>>().boxed()
            })
        };
        let upstream = Upstream {
            send: sender("send"),
            late: sender("late"),
            server: Uri::from_static("https://10.0.0.1:6443/"),
            credential: watch::channel(Credential::Starting).1,
            renew: mpsc::channel(1).0,
        };
        let bearer = authorization("token").unwrap();
        for request in [
            Request::get("/api/v1/pods?watch=1"),
            Request::post("/api/v1/namespaces/a/pods/b/exec").header(UPGRADE, "SPDY/3.1"),
            Request::get("/api/v1/namespaces/a/pods/b/exec").header(UPGRADE, "websocket"),
        ] {
            let request = request.body(full("")).unwrap();
            let sent = upstream.send(request, &bearer).now_or_never();
            assert!(sent.is_none());
        }
        let upload = Request::post("/api/v1/namespaces/a/services/b/proxy/");
        let upload = upload.body(full("x")).unwrap();
        let sent = upstream.send_to_late(upload, &bearer).now_or_never();
        assert!(sent.is_none());
        assert_eq!(*used.lock().unwrap(), ["send", "late", "late", "late"]);
    }

    /// L44
    #[test]
    fn no_request_names_its_own_server() {
        let server = format!("https://rancher/k8s/clusters/{}", "c".repeat(40));
        let (server, long) = (server.parse().unwrap(), "y".repeat(65_490));
        for (request, host) in [
            ("http://169.254.169.254/latest".to_owned(), Some("rancher")),
            ("http://169.254.169.254?x".to_owned(), Some("rancher")),
            ("http://169.254.169.254".to_owned(), Some("rancher")),
            ("*".to_owned(), Some("rancher")),
            // Too long with the prefix: nobody is asked.
            (format!("http://169.254.169.254/{long}"), None),
            (format!("/{long}"), None),
        ] {
            let found = at(&server, &request.parse().unwrap());
            assert_eq!(found.host(), host, "{request:.40}");
        }
    }

    #[test]
    fn the_target_is_kept_by_bytes() {
        for (server, target, whole) in [
            (
                "https://10.0.0.1:6443/",
                "/api/v1/x?a=%2F&b",
                "https://10.0.0.1:6443/api/v1/x?a=%2F&b",
            ),
            (
                "https://rancher/k8s/clusters/c1",
                "/api",
                "https://rancher/k8s/clusters/c1/api",
            ),
        ] {
            assert_eq!(
                at(&server.parse().unwrap(), &target.parse().unwrap()).to_string(),
                whole
            );
        }
    }
}
