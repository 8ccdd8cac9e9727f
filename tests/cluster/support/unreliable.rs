//! A proxy before the API server that answers half of the requests by itself, with errors, and ends every stream soon.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http_body_util::BodyExt as _;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use linesman::keys::sha256;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::seconds;

/// How long an answer may last while errors are given: a watch is asked for anew that often.
const STREAM: u64 = 3;

pub(crate) struct Unreliable {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    /// Of the API server, with no credentials of its own.
    client: kube::Client,
    fails: AtomicBool,
    /// The minor of Kubernetes that it says there is; 0 = the one that is.
    minor: AtomicUsize,
    requests: AtomicUsize,
    errors: AtomicUsize,
    /// Ends the streams that are open.
    cut: watch::Sender<()>,
}

impl Unreliable {
    /// One before the API server of this kubeconfig, on loopback. It passes all on until it is told to fail.
    pub(crate) fn before(kubeconfig: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (listener, client) = runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig).unwrap();
            let options = KubeConfigOptions::default();
            let mut config = Config::from_custom_kubeconfig(file, &options)
                .await
                .unwrap();
            config.auth_info = AuthInfo::default();
            config.default_retry = false;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            (listener, kube::Client::try_from(config).unwrap())
        });
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            client,
            fails: AtomicBool::new(false),
            minor: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            errors: AtomicUsize::new(0),
            cut: watch::Sender::new(()),
        });
        let app = Router::new().fallback(answer);
        let app = app.with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self {
            url,
            shared,
            _runtime: runtime,
        }
    }

    /// From now on, errors or none. Streams that are open end.
    pub(crate) fn fail(&self, on: bool) {
        self.shared.fails.store(on, Ordering::Relaxed);
        self.shared.cut.send_replace(());
    }

    /// From now on, it says that Kubernetes is 1.`minor`; 0 = what it is.
    pub(crate) fn pretend(&self, minor: usize) {
        self.shared.minor.store(minor, Ordering::Relaxed);
    }

    /// How many errors it gave so far.
    pub(crate) fn errors(&self) -> usize {
        self.shared.errors.load(Ordering::Relaxed)
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let number = shared.requests.fetch_add(1, Ordering::Relaxed);
    let mut cut = shared.cut.subscribe();
    let fails = shared.fails.load(Ordering::Relaxed);
    // The same errors at each run, in no rhythm that requests could have as well.
    let drawn = sha256(&number.to_be_bytes())[0];
    if fails && drawn.is_multiple_of(2) {
        shared.errors.fetch_add(1, Ordering::Relaxed);
        return error(drawn / 2);
    }
    let minor = shared.minor.load(Ordering::Relaxed);
    if minor > 0 && request.uri().path() == "/version" {
        return version(minor).into_response();
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let body = kube::client::Body::from(body.to_bytes());
    let request = http::Request::from_parts(parts, body);
    match shared.client.send(request).await {
        Ok(response) => response.map(|body| {
            let end = async move {
                let limit = if fails { STREAM } else { 3600 };
                let _ended = tokio::time::timeout(seconds(limit), cut.changed()).await;
            };
            Body::from_stream(body.into_data_stream().take_until(end))
        }),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// What an API server of that minor says of itself.
fn version(minor: usize) -> impl axum::response::IntoResponse {
    let told = json!({
        "major": "1", "minor": minor.to_string(), "gitVersion": format!("v1.{minor}.0"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "gc", "platform": "linux/amd64",
    });
    ([(CONTENT_TYPE, "application/json")], told.to_string())
}

/// What an API server says in trouble or under load, and what a load balancer says that has lost it.
fn error(drawn: u8) -> Response {
    let status = |code: u16, reason: &str, message: &str| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        let code = StatusCode::from_u16(code).unwrap();
        (
            code,
            [(CONTENT_TYPE, "application/json")],
            status.to_string(),
        )
    };
    match drawn % 3 {
        0 => status(500, "InternalError", "etcdserver: request timed out").into_response(),
        1 => {
            let busy = status(429, "TooManyRequests", "too many requests, try again later");
            ([(RETRY_AFTER, "1")], busy).into_response()
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, "no healthy upstream").into_response(),
    }
}
