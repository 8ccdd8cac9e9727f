//! Hub's end and agent's end of a stream, joined in memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use linesman::agent::forward::exchange::{Exchange, Shared};
use linesman::agent::forward::serve;
use linesman::agent::forward::subjects::Want;
use linesman::agent::forward::upstream::{Credential, Upstream, authorization};
use linesman::agent::gate::Covered;
use linesman::agent::gate::policy::Policy;
use linesman::agent::gate::replay::Replay;
use linesman::assertion::{ApiMeta, Mode};
use linesman::clock;
use linesman::hub::assertion::{self, Subject};
use linesman::hub::proxy::exchange::{self, Answer, Failed};
use linesman::hub::proxy::rewrite::{self, Outgoing};
use linesman::keys::KeyPair;
use linesman::kubeapi::status::Refusal;
use linesman::kubeapi::trace::TraceParent;
use linesman::tunnel::switched::Ahead;
use linesman::wire::api::HubKey;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::apiserver::ApiServer;

pub(super) struct Pair {
    shared: Arc<Shared>,
    policy: watch::Sender<Option<Policy>>,
    covered: watch::Sender<Covered>,
    credential: watch::Sender<Credential>,
    key: KeyPair,
    count: AtomicU32,
    /// How far the agent's idea of the hub's time is from the hub's, in seconds.
    apart: AtomicI64,
    /// How far the hub's time is from the true one, by its handshake and its assertions alike, in seconds.
    lie: AtomicI64,
    /// Wishes for another line.
    renewals: Arc<AtomicU32>,
    /// Wishes that the role be written although it should hold the names.
    anew: Arc<AtomicU32>,
    tasks: Mutex<JoinSet<()>>,
}

impl Pair {
    pub(super) fn new(server: &ApiServer) -> Self {
        let (policy, policies) = watch::channel(Some(Policy::default()));
        let url = format!("http://{}/", server.authority());
        let anew = Arc::default();
        let (mut shared, credential, tasks) =
            Self::parts(&url, ("hub", "cluster"), policies, &anew);
        let (covered, lies) = watch::channel(Covered::Cluster);
        shared.covered = lies;
        Self {
            shared: Arc::new(shared),
            policy,
            covered,
            credential,
            key: KeyPair::from_seed(&[5; 32]),
            count: AtomicU32::new(0),
            apart: AtomicI64::new(0),
            lie: AtomicI64::new(0),
            renewals: Arc::default(),
            anew,
            tasks: Mutex::new(tasks),
        }
    }

    /// The agent's side alone, for a real line; its helpers end with the runtime.
    pub(super) fn shared(
        server: &ApiServer,
        hub: &str,
        cluster: &str,
        policy: &[(&str, &str)],
    ) -> Arc<Shared> {
        let policy = policy
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let policy = Policy::parse(&policy.collect(), clock::now()).unwrap();
        let url = format!("http://{}/", server.authority());
        Arc::new(Self::reaching(&url, hub, cluster, policy))
    }

    /// The same with an API server at this URL.
    pub(super) fn reaching(url: &str, hub: &str, cluster: &str, policy: Policy) -> Shared {
        let policies = watch::channel(Some(policy)).1;
        let (shared, _, mut tasks) = Self::parts(url, (hub, cluster), policies, &Arc::default());
        tasks.detach_all();
        shared
    }

    fn parts(
        url: &str,
        (hub, cluster): (&str, &str),
        policy: watch::Receiver<Option<Policy>>,
        anew: &Arc<AtomicU32>,
    ) -> (Shared, watch::Sender<Credential>, JoinSet<()>) {
        let token = |n: u64| Credential::Token {
            bearer: authorization(&if n == 1 {
                "line-token".to_owned()
            } else {
                format!("line-token-{n}")
            })
            .unwrap(),
            serial: n,
            bound: "uid".to_owned(),
        };
        let (credential, credentials) = watch::channel(token(1));
        let (renew, mut renewals) = mpsc::channel(1);
        let (wants, mut wanted) = mpsc::channel::<Want>(1_024);
        let mut tasks = JoinSet::new();
        let renewed = credential.clone();
        tasks.spawn(async move {
            while let Some(refused) = renewals.recv().await {
                // The refusal of an older one says nothing of the one in force.
                renewed.send_if_modified(|now| {
                    let holds =
                        matches!(now, Credential::Token { serial, .. } if *serial == refused);
                    if holds {
                        *now = token(refused + 1);
                    }
                    holds
                });
            }
        });
        let anew = anew.clone();
        tasks.spawn(async move {
            while let Some(want) = wanted.recv().await {
                anew.fetch_add(u32::from(want.again), Ordering::Relaxed);
                drop(want.done.send(Ok(())));
            }
        });
        let config = kube::Config::new(url.parse().unwrap());
        let shared = Shared {
            hub_id: hub.to_owned(),
            cluster_id: cluster.to_owned(),
            namespace: "linesman".to_owned(),
            argocd: "argocd".to_owned(),
            upstream: Upstream::new(&config, credentials, renew).unwrap(),
            policy,
            covered: watch::channel(Covered::Cluster).1,
            allowed: watch::channel(BTreeSet::new()).1,
            wants,
            replay: Mutex::new(Replay::default()),
            switched: TaskTracker::new(),
            ahead: Ahead::new(1 << 20),
        };
        (shared, credential, tasks)
    }

    /// How often the role was to be written although it should hold the names.
    pub(super) fn anew(&self) -> u32 {
        self.anew.load(Ordering::Relaxed)
    }

    /// As where the owner deletes Secret `linesman-line-bind`.
    pub(super) fn withdraw(&self) {
        self.credential.send_replace(Credential::Withdrawn {
            namespace: "linesman".to_owned(),
        });
    }

    /// As where they delete it and make it again, and the agent hears of the second alone.
    pub(super) fn bind_anew(&self) {
        self.credential.send_replace(Credential::Token {
            bearer: authorization("line-token-2").unwrap(),
            serial: 2,
            bound: "another uid".to_owned(),
        });
    }

    /// Sets the two clocks apart, and says how often another line was asked for before.
    pub(super) fn set_apart(&self, seconds: i64) -> u32 {
        self.apart.store(seconds, Ordering::Relaxed);
        self.renewals.load(Ordering::Relaxed)
    }

    /// Sets the hub's clock, as it says it.
    pub(super) fn lie(&self, seconds: i64) {
        self.lie.store(seconds, Ordering::Relaxed);
    }

    fn hub_time(&self) -> time::OffsetDateTime {
        clock::now() + time::Duration::seconds(self.lie.load(Ordering::Relaxed))
    }

    pub(super) fn policy(&self, key: &str, value: &str) {
        let policy =
            Policy::parse(&[(key.to_owned(), value.to_owned())].into(), clock::now()).unwrap();
        self.policy.send_replace(Some(policy));
    }

    /// As where the agent has just begun; gives what it will read.
    pub(super) fn unread(&self) -> Option<Policy> {
        self.policy.send_replace(None)
    }

    pub(super) fn read(&self, policy: Option<Policy>) {
        self.policy.send_replace(policy);
    }

    /// As where the owner applies adoption YAML that covers these namespaces.
    pub(super) fn cover(&self, namespaces: &[&str]) {
        let namespaces = namespaces.iter().map(|name| (*name).to_owned());
        let covered = Covered::Namespaces(namespaces.collect());
        self.covered.send_replace(covered);
    }

    pub(super) fn id(n: u32) -> String {
        format!("request-{n}")
    }

    pub(super) fn meta(&self, method: &str, target: &str) -> ApiMeta {
        let id = Self::id(self.count.fetch_add(1, Ordering::SeqCst) + 1);
        let method: Method = method.parse().unwrap();
        let request = assertion::Request {
            hub_id: "hub",
            cluster_id: "cluster",
            epoch: 3,
            id: &id,
            attempt: 0,
            method: &method,
            target,
            ip: "10.1.2.3",
            trace: TraceParent::begin([7; 16], [7; 8]),
        };
        let groups = ["linesman:admin".to_owned(), "linesman:ops".to_owned()];
        let subject = Subject {
            user: "linesman:ada",
            groups: &groups,
            actor: None,
            mode: Mode::Full,
            namespaces: None,
        };
        assertion::issue(&request, &subject, self.hub_time(), "k1", |input| {
            self.key.sign(input)
        })
        .unwrap()
    }

    pub(super) fn plan(request: &Request<Bytes>) -> Result<Outgoing, Refusal> {
        let parts = request.clone().into_parts().0;
        rewrite::framing(&parts)?;
        rewrite::outgoing(&parts, &rewrite::target(&parts.uri).unwrap(), "")
    }

    /// As the hub does it.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response<Answer>, Failed> {
        let plan = Self::plan(&request).unwrap();
        let meta = self.meta(plan.method.as_str(), plan.rest.as_str());
        let (mut parts, body) = self
            .send_with(plan.request(request.into_body()), meta)
            .await?
            .into_parts();
        let switched = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        rewrite::answer(&mut parts, &plan).unwrap();
        parts
            .extensions
            .extend(switched.map_or_else(http::Extensions::new, |on| {
                let mut kept = http::Extensions::new();
                kept.insert(on);
                kept
            }));
        Ok(Response::from_parts(parts, body))
    }

    /// As a hub that applies no rule would.
    pub(super) async fn send_raw(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Answer>, Failed> {
        let target = rewrite::target(request.uri()).unwrap().rest;
        let meta = self.meta(request.method().as_str(), target.as_str());
        let (mut parts, body) = request.into_parts();
        parts.uri = target.into();
        self.send_with(Request::from_parts(parts, body), meta).await
    }

    pub(super) async fn send_with(
        &self,
        request: Request<Bytes>,
        meta: ApiMeta,
    ) -> Result<Response<Answer>, Failed> {
        let (hub, agent) = tokio::io::duplex(64 << 10);
        let key = HubKey {
            kid: "k1".to_owned(),
            key: self.key.public().to_base64(),
            not_after: None,
        };
        let apart = self.apart.load(Ordering::Relaxed);
        let renewals = self.renewals.clone();
        let exchange = Exchange {
            meta,
            epoch: 3,
            keyset: vec![key],
            hub_now: self.hub_time() + time::Duration::seconds(apart),
            renew: Arc::new(move || {
                renewals.fetch_add(1, Ordering::Relaxed);
            }),
            cancelled: CancellationToken::new(),
            stop: Arc::new(|| {}),
        };
        let cancelled = exchange.cancelled.clone();
        self.tasks
            .lock()
            .unwrap()
            .spawn(serve(agent, self.shared.clone(), exchange));
        let hub = Resetting { io: hub, cancelled };
        exchange::send(hub, request.map(Body::from), None).await
    }
}

/// Fires the other end's token when this one is dropped, as a line's RST does.
struct Resetting {
    io: tokio::io::DuplexStream,
    cancelled: CancellationToken,
}

impl Drop for Resetting {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}

impl tokio::io::AsyncRead for Resetting {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl tokio::io::AsyncWrite for Resetting {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
