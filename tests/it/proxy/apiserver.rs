//! A stand-in API server on loopback: records what it is asked, answers by path.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::world::{PATIENCE, STILL};

mod lasting;
mod raw;

use lasting::{broken, endless, events, exec, promised};
use raw::raw;
pub(super) use raw::{DEAF, HELD, REFUSALS, Refused};

pub(super) const FORBIDDEN: &str = r#"{"kind":"Status","message":"pods is forbidden: User \"linesman:ada\" cannot list","code":403}"#;
pub(super) const NOT_FOUND: &str =
    r#"{"kind":"Status","message":"pods \"none\" not found","code":404}"#;

/// The words of a refusal to let the line's account act as somebody.
pub(super) const NOT_ACTING: &str = r#"{"kind":"Status","message":"users \"linesman:ada\" is forbidden: User \"system:serviceaccount:linesman:linesman-line\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope","details":{"name":"linesman:ada","kind":"users"},"code":403}"#;

/// Where nobody may read Pods.
pub(super) const CLOSED: &str = "/api/v1/namespaces/closed/pods/";

fn decoded(name: &str) -> String {
    name.replace("%20", " ").replace("%22", "\"")
}

/// The words in which one of them is refused, with its name in quotes.
pub(super) fn not_read(name: &str) -> String {
    let message = format!(
        "pods {name:?} is forbidden: User \"linesman:ada\" cannot get resource \"pods\" in API group \"\" in the namespace \"closed\""
    );
    let details = json!({"name": name, "kind": "pods"});
    json!({"kind": "Status", "message": message, "details": details, "code": 403}).to_string()
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    /// Of bodies that are echoed.
    pub(super) trailers: Option<HeaderMap>,
}

struct State {
    seen: watch::Sender<Vec<Seen>>,
    events: broadcast::Sender<Bytes>,
    open: watch::Sender<usize>,
    produced: Arc<AtomicUsize>,
    token: Mutex<Option<String>>,
    unseen_role: AtomicUsize,
    /// Whether answers that take their time are given.
    released: watch::Sender<bool>,
}

pub(super) struct ApiServer {
    state: Arc<State>,
    authority: String,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

/// Counts a request for as long as its answer is wanted.
struct Open(watch::Sender<usize>);

impl Open {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|open| *open += 1);
        Self(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl ApiServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State {
            seen: watch::Sender::default(),
            events: broadcast::channel(16).0,
            open: watch::Sender::default(),
            produced: Arc::default(),
            token: Mutex::default(),
            unseen_role: AtomicUsize::new(0),
            released: watch::Sender::new(false),
        });
        let mut tasks = JoinSet::new();
        let shared = state.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let state = shared.clone();
                connections.spawn(async move {
                    let mut head = [0; 128];
                    let n = socket.peek(&mut head).await.unwrap_or_default();
                    let head = String::from_utf8_lossy(&head[..n]).into_owned();
                    if let Some((_, what)) = head.split_once("/raw/") {
                        return raw(socket, what, &state).await;
                    }
                    let service = service_fn(move |request| {
                        let state = state.clone();
                        async move { Ok::<_, Infallible>(answer(&state, request).await) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service);
                    // A client that leaves is part of the test.
                    drop(connection.with_upgrades().await);
                });
            }
        });
        Self {
            state,
            authority,
            tasks: tokio::sync::Mutex::new(tasks),
        }
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.seen.borrow().clone()
    }

    /// How often a target that ends so was asked for.
    pub(super) fn asked(&self, end: &str) -> usize {
        of(&self.state.seen.borrow(), end)
    }

    /// Waits until it was asked for so often.
    pub(super) async fn asked_for(&self, end: &str, times: usize) {
        let mut seen = self.state.seen.subscribe();
        let asked = seen.wait_for(|seen| of(seen, end) >= times);
        drop(timeout(PATIENCE, asked).await.expect("it is asked for"));
    }

    /// Lets go of the answers that take their time: `slow`, `slowly`, `exec` in `late`, the rest of `broken`, and the command at [`DEAF`].
    pub(super) fn release(&self) {
        self.state.released.send_replace(true);
    }

    /// Waits until an endless answer stands still: nothing more was taken in while `other` ran so often, and for so long.
    pub(super) async fn settled(&self, mut other: impl AsyncFnMut()) -> usize {
        let (mut taken, mut still, mut since) = (self.produced(), 0, Instant::now());
        while still < 20 || since.elapsed() < STILL {
            other().await;
            let now = self.produced();
            if now == taken {
                still += 1;
            } else {
                (taken, still, since) = (now, 0, Instant::now());
            }
            assert!(taken < 64 << 20, "{taken} bytes were taken in");
        }
        taken
    }

    pub(super) fn event(&self, text: &str) {
        // Waits for nobody: the test reads what it sends.
        drop(self.state.events.send(Bytes::from(text.to_owned())));
    }

    pub(super) fn watches(&self) -> usize {
        *self.state.open.borrow()
    }

    pub(super) fn produced(&self) -> usize {
        self.state.produced.load(Ordering::SeqCst)
    }

    pub(super) fn accept_only(&self, authorization: &str) {
        *self.state.token.lock().unwrap() = Some(authorization.to_owned());
    }

    /// Refuses the impersonation itself, so many times.
    pub(super) fn refuse_impersonation(&self, times: usize) {
        self.state.unseen_role.store(times, Ordering::SeqCst);
    }

    pub(super) async fn no_watches(&self) {
        let mut open = self.state.open.subscribe();
        let gone = timeout(PATIENCE, open.wait_for(|open| *open == 0));
        drop(gone.await.expect("the request upstream ends"));
    }

    #[expect(
        clippy::await_holding_invalid_type,
        reason = "nobody else has the tasks while they end"
    )]
    pub(super) async fn stop(&self) {
        self.tasks.lock().await.shutdown().await;
    }
}

fn full(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = Response::new(
        Full::new(Bytes::from(body.to_owned()))
            .map_err(|n| match n {})
            .boxed_unsync(),
    );
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    response
}

/// A watch, in the form that it was asked for.
fn watched(state: &State, request: &Request<Incoming>) -> Response<Body> {
    let mut response = events(state);
    if let Some(kind) = request.headers().get("accept") {
        response.headers_mut().insert("content-type", kind.clone());
    }
    response
}

async fn answer(state: &State, request: Request<Incoming>) -> Response<Body> {
    let seen = Seen {
        method: request.method().to_string(),
        target: request.uri().to_string(),
        headers: request.headers().clone(),
        trailers: None,
    };
    state.seen.send_modify(|all| all.push(seen));
    let token = state.token.lock().unwrap().clone();
    if token.is_some_and(|token| {
        request
            .headers()
            .get("authorization")
            .is_none_or(|v| v.as_bytes() != token.as_bytes())
    }) {
        return full(StatusCode::UNAUTHORIZED, "{}");
    }
    let refuse = |n: usize| n.checked_sub(1);
    if state
        .unseen_role
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse)
        .is_ok()
    {
        return full(StatusCode::FORBIDDEN, NOT_ACTING);
    }
    let path = request.uri().path().to_owned();
    if request.uri().query().is_some_and(|q| q.contains("watch=1")) {
        return watched(state, &request);
    }
    if let Some(name) = path.strip_prefix(CLOSED) {
        return full(StatusCode::FORBIDDEN, &not_read(&decoded(name)));
    }
    match path.rsplit('/').next().unwrap() {
        "echo" => {
            let body = request.into_body().collect().await.unwrap();
            let trailers = body.trailers().cloned();
            let last = |all: &mut Vec<Seen>| all.last_mut().unwrap().trailers = trailers;
            state.seen.send_modify(last);
            let bytes = body.to_bytes();
            let mut response =
                Response::new(Full::new(bytes).map_err(|n| match n {}).boxed_unsync());
            *response.status_mut() = StatusCode::CREATED;
            response
        }
        "stuck" => {
            let _open = Open::new(&state.open);
            std::future::pending().await
        }
        "slow" | "slowly" => {
            released(state).await;
            full(StatusCode::OK, "{}")
        }
        "endless" => endless(state),
        "promised" => promised(state),
        "broken" => broken(state),
        "lying" => full(StatusCode::FORBIDDEN, NOT_ACTING),
        "forbidden" => full(StatusCode::FORBIDDEN, FORBIDDEN),
        "evil" => evil(),
        "exec" if path.contains("/sick/") => full(StatusCode::INTERNAL_SERVER_ERROR, "{}"),
        "exec" if path.contains("/none/") => full(StatusCode::NOT_FOUND, NOT_FOUND),
        "exec" if path.contains("/late/") => {
            released(state).await;
            exec(state, request)
        }
        "exec" => exec(state, request),
        other => super::http::answer(other).unwrap_or_else(|| full(StatusCode::OK, "{}")),
    }
}

fn of(seen: &[Seen], end: &str) -> usize {
    seen.iter()
        .filter(|seen| seen.target.ends_with(end))
        .count()
}

async fn released(state: &State) {
    let mut released = state.released.subscribe();
    drop(released.wait_for(|released| *released).await);
}

fn evil() -> Response<Body> {
    let mut response = full(StatusCode::FOUND, "<script>");
    for (name, value) in [
        ("set-cookie", "a=b"),
        ("strict-transport-security", "max-age=1"),
        ("alt-svc", "h3"),
        ("access-control-allow-origin", "*"),
        ("location", "https://evil/"),
        ("content-type", "text/html"),
    ] {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}
