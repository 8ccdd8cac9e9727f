use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::broadcast;

use super::*;
use crate::agent::forward::upstream::Upstream;
use crate::lifetime::hearts::Hearts;

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// As much of an API server as the keeper asks.
#[derive(Clone)]
struct Server {
    state: Arc<Mutex<State>>,
    events: broadcast::Sender<String>,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is read by itself, and any of them may go with any other"
)]
#[derive(Default)]
struct State {
    /// The Secret's UID.
    secret: Option<String>,
    marked: bool,
    /// The UIDs that tokens were bound to.
    tokens: Vec<String>,
    /// Its tokens have a byte that no header takes.
    garbled: bool,
    /// Takes each request, and says nothing.
    silent: bool,
    /// Lists that it takes and does not answer.
    unanswered: u32,
    /// Its watches tell of nothing.
    deaf: bool,
}

fn secret(uid: &str) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": BIND_SECRET, "namespace": "ns", "uid": uid, "resourceVersion": "2"},
    })
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

impl Server {
    fn new(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            events: broadcast::channel(8).0,
        }
    }

    /// Makes or deletes the Secret, as the owner does, and tells who watches.
    fn set(&self, uid: Option<&str>) {
        let old = std::mem::replace(
            &mut self.state.lock().unwrap().secret,
            uid.map(str::to_owned),
        );
        let (kind, of) = match uid {
            Some(uid) => ("ADDED", uid.to_owned()),
            None => ("DELETED", old.unwrap()),
        };
        let event = json!({"type": kind, "object": secret(&of)});
        self.events.send(format!("{event}\n")).unwrap();
    }

    async fn handle(self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default();
        if query.contains("watch=true") && self.state.lock().unwrap().deaf {
            return Response::new(StreamBody::new(stream::pending()).boxed_unsync());
        }
        if query.contains("watch=true") {
            let events = stream::unfold(self.events.subscribe(), |mut events| async move {
                let event = events.recv().await.ok()?;
                Some((Ok(Frame::data(Bytes::from(event))), events))
            });
            return Response::new(StreamBody::new(events).boxed_unsync());
        }
        let hangs = {
            let mut state = self.state.lock().unwrap();
            let list = parts.method == Method::GET && parts.uri.path().ends_with("/secrets");
            let unanswered = list && state.unanswered > 0;
            state.unanswered -= u32::from(unanswered);
            state.silent || unanswered
        };
        if hangs {
            return std::future::pending().await;
        }
        let sent = body.collect().await.unwrap().to_bytes();
        let mut state = self.state.lock().unwrap();
        let last = parts.uri.path().rsplit('/').next().unwrap();
        match (parts.method, last) {
            (Method::GET, "secrets") => {
                let items: Vec<Value> = state.secret.iter().map(|uid| secret(uid)).collect();
                answer(
                    200,
                    &json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": {"resourceVersion": "1"}, "items": items}),
                )
            }
            (Method::GET, BIND_SECRET) if state.secret.is_some() => {
                answer(200, &secret(state.secret.as_deref().unwrap()))
            }
            (Method::POST, "secrets") => {
                state.secret = Some("first".to_owned());
                answer(201, &json!({"metadata": {"uid": "first"}}))
            }
            (Method::GET, MARK) if state.marked => answer(200, &json!({"metadata": {}})),
            (Method::POST, "configmaps") => {
                state.marked = true;
                answer(201, &json!({"metadata": {}}))
            }
            (Method::POST, "token") => {
                let asked: Value = serde_json::from_slice(&sent).unwrap();
                let uid = asked["spec"]["boundObjectRef"]["uid"].as_str().unwrap();
                state.tokens.push(uid.to_owned());
                let end = if state.garbled { "\n" } else { "" };
                answer(
                    201,
                    &json!({"metadata": {}, "spec": {"audiences": []},
                    "status": {"token": format!("for {uid}{end}"), "expirationTimestamp": "2030-01-01T00:00:00Z"}}),
                )
            }
            _ => answer(
                404,
                &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "NotFound", "code": 404, "message": "not found"}),
            ),
        }
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let answer = server.clone().handle(request);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        kube::Client::new(service, "ns")
    }
}

/// The keeper against that server.
struct Kept {
    server: Server,
    credential: watch::Receiver<Credential>,
    renew: mpsc::Sender<u64>,
    hearts: Hearts,
    stop: CancellationToken,
    keeper: tokio::task::JoinSet<Result<()>>,
}

impl Kept {
    fn new(state: State) -> Self {
        let server = Server::new(state);
        let (publish, credential) = watch::channel(Credential::Starting);
        let (renew, renewals) = mpsc::channel(1);
        let mut keeper = tokio::task::JoinSet::new();
        let stop = CancellationToken::new();
        let hearts = Hearts::default();
        let of = Keeper {
            kube: server.client(),
            namespace: "ns".to_owned(),
            publish,
            heart: hearts.heart("line token", Duration::from_secs(30)),
        };
        keeper.spawn(keep(of, renewals, stop.clone()));
        Self {
            server,
            credential,
            renew,
            hearts,
            stop,
            keeper,
        }
    }

    /// The next credential in words; far sooner than any retry by time.
    async fn next(&mut self) -> String {
        self.within(Duration::from_secs(5)).await
    }

    async fn within(&mut self, limit: Duration) -> String {
        let changed = self.credential.changed();
        timeout(limit, changed)
            .await
            .expect("the credential changes")
            .unwrap();
        match &*self.credential.borrow_and_update() {
            Credential::Starting => "starting".to_owned(),
            Credential::Missing { why } => format!("missing: {why}"),
            Credential::Withdrawn { namespace } => format!("withdrawn in {namespace}"),
            Credential::Token { bearer, serial, .. } => {
                let token = bearer.expose().to_str().unwrap();
                let token = token.strip_prefix("Bearer ").unwrap();
                format!("{serial}: {token}")
            }
        }
    }
}

/// L47
#[tokio::test]
async fn deleting_the_secret_withdraws_access_at_once_and_making_it_gives_it_back() {
    let mut kept = Kept::new(State::default());
    assert_eq!(kept.next().await, "1: for first");
    // Its watch begins with what is there.
    while kept.server.events.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    kept.server.set(None);
    assert_eq!(kept.next().await, "withdrawn in ns");
    kept.server.set(Some("second"));
    assert_eq!(kept.next().await, "2: for second");
    assert_eq!(
        kept.server.state.lock().unwrap().tokens,
        ["first", "second"]
    );
}

/// L47: who throws all out deletes the Secret and makes it again in one line, and the watch may tell of the second alone.
#[tokio::test]
async fn what_runs_ends_with_its_secret_also_where_another_is_there_at_once() {
    let mut kept = Kept::new(State::default());
    assert_eq!(kept.next().await, "1: for first");
    let config = kube::Config::new("http://127.0.0.1:1/".parse().unwrap());
    let upstream = Upstream::new(&config, kept.credential.clone(), kept.renew.clone()).unwrap();
    let withdrawn = upstream.withdrawn("first");
    tokio::pin!(withdrawn);
    assert_eq!(withdrawn.as_mut().now_or_never(), None);
    // Another token of the same Secret ends nothing.
    kept.renew.send(1).await.unwrap();
    assert_eq!(kept.next().await, "2: for first");
    assert_eq!(withdrawn.as_mut().now_or_never(), None);
    while kept.server.events.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    kept.server.set(Some("second"));
    assert_eq!(kept.next().await, "3: for second");
    assert_eq!(withdrawn.as_mut().now_or_never(), Some(()));
    // What went since then goes on, and what went before does not, although its answer begins only now.
    assert_eq!(upstream.withdrawn("second").now_or_never(), None);
    assert_eq!(upstream.withdrawn("first").now_or_never(), Some(()));
}

/// L47, L54: over a connection that is dead no watch ends by itself, and no list is answered.
#[tokio::test(start_paused = true)]
async fn a_watch_that_says_nothing_is_begun_anew() {
    for (deaf, unanswered, limit) in [(true, 0, QUIET), (true, 2, FIRST * 2), (false, 1, FIRST)] {
        let mut kept = Kept::new(State {
            unanswered,
            deaf,
            ..State::default()
        });
        assert_eq!(kept.next().await, "1: for first");
        tokio::time::sleep(Duration::from_secs(1)).await;
        kept.server.state.lock().unwrap().secret = None;
        let withdrawn = kept.within(limit + Duration::from_secs(2)).await;
        assert_eq!(withdrawn, "withdrawn in ns", "{deaf} {unanswered}");
        kept.server.state.lock().unwrap().secret = Some("second".to_owned());
        let given = kept.within(QUIET + Duration::from_secs(2)).await;
        assert_eq!(given, "2: for second", "{deaf} {unanswered}");
    }
}

#[tokio::test]
async fn a_deleted_secret_stays_deleted_over_a_restart() {
    let mut kept = Kept::new(State {
        marked: true,
        ..State::default()
    });
    assert_eq!(kept.next().await, "withdrawn in ns");
    assert_eq!(kept.server.state.lock().unwrap().secret, None);
}

#[tokio::test]
async fn a_refused_token_is_asked_for_anew_and_an_older_refusal_is_not_heard() {
    let mut kept = Kept::new(State::default());
    assert_eq!(kept.next().await, "1: for first");
    kept.renew.send(1).await.unwrap();
    assert_eq!(kept.next().await, "2: for first");
    kept.renew.send(1).await.unwrap();
    kept.renew.send(2).await.unwrap();
    assert_eq!(kept.next().await, "3: for first");
}

/// What an API server gives as a token is not believed to be one: no part of the agent ends for it.
#[tokio::test(start_paused = true)]
async fn a_token_that_no_header_takes_is_none() {
    let mut kept = Kept::new(State {
        garbled: true,
        ..State::default()
    });
    assert_eq!(
        kept.next().await,
        "missing: use the token of ServiceAccount linesman-line: the token is none that a header takes: failed to parse header value"
    );
    kept.server.state.lock().unwrap().garbled = false;
    assert_eq!(kept.within(RETRY.cap).await, "1: for first");
}

/// L54: an API server that takes a request and falls silent keeps the keeper ten seconds, and not for ever.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_says_nothing_is_asked_again() {
    let mut kept = Kept::new(State {
        silent: true,
        ..State::default()
    });
    assert_eq!(
        kept.within(Duration::from_secs(11)).await,
        "missing: read Secret linesman-line-bind: the API server did not answer in 10 s: deadline has elapsed"
    );
    kept.server.state.lock().unwrap().silent = false;
    // The call that is on its way by then, and the pause after it.
    let limit = Duration::from_secs(10) + RETRY.cap;
    assert_eq!(kept.within(limit).await, "1: for first");
    // Nothing to do for three quarters of an hour is no fault.
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(kept.hearts.stuck(), []);
    kept.server.state.lock().unwrap().silent = true;
    kept.renew.send(1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    kept.stop.cancel();
    let ended = timeout(Duration::from_secs(1), kept.keeper.join_next()).await;
    let ended = ended.expect("stop cuts the call").unwrap();
    ended.unwrap().unwrap();
}
