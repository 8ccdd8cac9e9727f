//! An API server with one role, and the keeper of that.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::agent::forward::upstream::{Credential, authorization};
use crate::lifetime::hearts::Hearts;

pub(super) const ROLE: &str =
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/linesman-line-subjects";

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What the API server answers to the probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mood {
    Takes,
    /// Knows no constrained impersonation: rules of the verb `impersonate` count, and no others.
    Classic,
    Busy,
    /// Takes each request, and says nothing.
    Silent,
}

/// An API server with one role.
pub(super) struct State {
    pub(super) mood: Mood,
    pub(super) role: Option<Value>,
    /// The rules of each write.
    pub(super) written: Vec<Value>,
    /// Reviews of these names get no answer.
    pub(super) mute: BTreeSet<String>,
}

impl State {
    /// Whether a classic rule names this user.
    fn lets(&self, user: &str) -> bool {
        let rules = self
            .role
            .iter()
            .flat_map(|role| role["rules"].as_array().unwrap());
        let mut classic = rules
            .filter(|rule| rule["verbs"] == json!(["impersonate"]))
            .filter(|rule| rule["resources"] == json!(["users"]));
        classic.any(|rule| {
            rule["resourceNames"]
                .as_array()
                .unwrap()
                .contains(&json!(user))
        })
    }
}

#[derive(Clone)]
pub(super) struct Server(Arc<Mutex<State>>);

impl Server {
    pub(super) fn new(mood: Mood, role: Option<Value>) -> Self {
        Self(Arc::new(Mutex::new(State {
            mood,
            role,
            written: Vec::new(),
            mute: BTreeSet::new(),
        })))
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Verbs that any write since the last call gave to act as somebody.
    pub(super) fn verbs(&self) -> BTreeSet<String> {
        let written = std::mem::take(&mut self.state().written);
        let rules = written
            .iter()
            .flat_map(|rules| rules.as_array().unwrap().clone());
        let whom = rules.filter(|rule| rule.get("resourceNames").is_some());
        whom.map(|rule| rule["verbs"][0].as_str().unwrap().to_owned())
            .collect()
    }

    async fn answer(self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let sent = body.collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&sent).unwrap_or_default();
        let name = review["spec"]["resourceAttributes"]["name"].as_str();
        let mute = name.is_some_and(|name| self.state().mute.contains(name));
        if mute || self.state().mood == Mood::Silent {
            return std::future::pending().await;
        }
        let mut state = self.state();
        let answer = |code: u16, body: &Value| {
            let body = Full::new(Bytes::from(body.to_string()));
            Response::builder().status(code).body(body).unwrap()
        };
        let probe = parts.headers.get("impersonate-user");
        let probe = probe.map(|name| name.to_str().unwrap().to_owned());
        match (parts.method.as_str(), parts.uri.path()) {
            ("GET", "/version") if probe.is_some() && state.mood == Mood::Busy => {
                answer(503, &json!({}))
            }
            ("GET", "/version")
                if state.mood == Mood::Classic && probe.iter().any(|name| !state.lets(name)) =>
            {
                let account = "system:serviceaccount:linesman:linesman-line";
                let message = format!(
                    "users {:?} is forbidden: User {account:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                    probe.unwrap_or_default()
                );
                let status = json!({"kind": "Status", "code": 403, "message": message});
                answer(403, &status)
            }
            ("GET", "/version") => answer(
                200,
                &json!({"major": "1", "minor": "36", "gitVersion": "v1.36.1", "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            ),
            ("GET", ROLE) => match &state.role {
                Some(role) => answer(200, role),
                None => answer(
                    404,
                    &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "reason": "NotFound", "code": 404, "message": "not found"}),
                ),
            },
            ("PATCH", ROLE) => {
                let role: Value = serde_json::from_slice(&sent).unwrap();
                state.written.push(role["rules"].clone());
                state.role = Some(role.clone());
                answer(200, &role)
            }
            ("GET", path @ ("/api" | "/apis")) => {
                let pods = json!({"resource": "pods", "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
                    "scope": "Namespaced", "singularResource": "pod", "verbs": ["get", "list", "watch"]});
                let core = json!({"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [pods]}]});
                let items = if path == "/api" {
                    vec![core]
                } else {
                    Vec::new()
                };
                let kind = "APIGroupDiscoveryList";
                answer(
                    200,
                    &json!({"kind": kind, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}),
                )
            }
            ("POST", REVIEWS) => answer(201, &json!({"status": {"allowed": true}})),
            other => panic!("not expected: {other:?}"),
        }
    }
}

/// The keeper of that server's role, with one grant.
pub(super) struct Kept {
    pub(super) keeper: Keeper,
    pub(super) book: Book,
    pub(super) reviews: Reviews,
    pub(super) policy: watch::Sender<Option<Policy>>,
    pub(super) hearts: Hearts,
    pub(super) _credential: watch::Sender<Credential>,
    pub(super) _tasks: JoinSet<()>,
}

impl Kept {
    pub(super) async fn new(server: &Server) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let config = kube::Config::new(url.parse().unwrap());
        let (server, mut tasks) = (server.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let server = server.clone();
                let service = service_fn(move |request| {
                    let answer = server.clone().answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let connection = http.serve_connection(TokioIo::new(socket), service);
                open.spawn(async move { drop(connection.await) });
            }
        });
        let token = Credential::Token {
            bearer: authorization("line-token").unwrap(),
            serial: 1,
            bound: "uid".to_owned(),
        };
        let (credential, credentials) = watch::channel(token);
        let hearts = Hearts::default();
        let (policy, policies) = watch::channel(Some(Policy::default()));
        let keeper = Keeper {
            kube: kube::Client::try_from(config.clone()).unwrap(),
            upstream: Upstream::new(&config, credentials, mpsc::channel(1).0).unwrap(),
            granted: watch::channel(Subjects::default()).1,
            policy: policies,
            allowed: watch::channel(BTreeSet::new()).0,
            heart: hearts.heart("line subjects", Duration::from_secs(30)),
        };
        let mut book = Book {
            granted: true,
            ..Book::default()
        };
        book.grant(&subjects(&["ada"], &["admin"]));
        Self {
            reviews: keeper.reviews(),
            keeper,
            book,
            policy,
            hearts,
            _credential: credential,
            _tasks: tasks,
        }
    }

    /// One round, and when the next one is.
    pub(super) async fn look(&mut self) -> Duration {
        self.book.stale = true;
        self.keeper.serve(&mut self.book, Vec::new()).await.unwrap();
        self.book.wait()
    }

    /// Serves a batch, and has its names reviewed; gives when the next round is.
    pub(super) async fn round(&mut self, batch: Vec<Want>) -> Duration {
        let (book, reviews) = (&mut self.book, &mut self.reviews);
        let mut wants = mpsc::channel(1).1;
        self.keeper.round(book, reviews, &mut wants, batch).await
    }

    /// What is told to who waits for this.
    pub(super) async fn told(
        &mut self,
        mut answer: oneshot::Receiver<Result<(), String>>,
    ) -> Result<(), String> {
        loop {
            tokio::select! {
                biased;
                told = &mut answer => return told.unwrap(),
                () = self.reviews.step() => {}
            }
        }
    }

    /// Makes known what was told; whether a review failed.
    pub(super) fn learn(&mut self) -> bool {
        self.keeper.learn(&self.book, &mut self.reviews)
    }
}

/// Whom the role lets `linesman-line` act as.
pub(super) fn named(server: &Server) -> BTreeSet<String> {
    let rules = server
        .state()
        .role
        .as_ref()
        .map(|role| role["rules"].clone());
    let rules = rules
        .into_iter()
        .flat_map(|r| r.as_array().unwrap().clone());
    let names = rules.flat_map(|rule| {
        rule["resourceNames"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    });
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .filter(|name| name != role::PROBE)
        .collect()
}
