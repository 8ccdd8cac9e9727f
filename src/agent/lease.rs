//! Lease `linesman-agent`: of two replicas one acts, the other waits.
//!
//! The leader renews every 5 s for 15 s. It gives up only when it sees another holder: while the API server
//! cannot be reached nobody can take the Lease, and nobody can act. One that was stopped for a while, or whose node slept, cannot know
//! that another leads by now: [`Term`] says how long nobody else may, and whoever mends has a client that asks it before each write.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, Request};
use hyper::body::{Frame, SizeHint};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};
use tracing::{info, warn};

use super::calls;
use crate::clock;
use crate::lifetime::hearts::{Heart, Wait};
use crate::manifests;

/// How long a Lease lasts after its last renewal.
const DURATION: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(5);
/// Between tries of a standby, and of a leader whose renewal failed.
pub(super) const RETRY: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(5);
/// One step's calls together.
const STEP: Duration = DEADLINE.saturating_mul(3);
/// For so long a process that ends tries to let go: its Pod has 30 s for all.
const LEAVING: Duration = Duration::from_secs(10);
/// In the last second of [`DURATION`] nothing new is begun.
const TERM: Duration = Duration::from_secs(14);

/// For how long nobody else may lead, by our own clocks: the Lease's duration from before its last renewal was sent. Nobody
/// saw that renewal earlier.
#[derive(Clone, Debug)]
pub struct Term(watch::Receiver<Option<Moment>>);

/// By both clocks of the node: the one that timers go by stands still while the node sleeps, that of its boot goes on. None where it
/// cannot be read.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    up: Option<Duration>,
}

impl Moment {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            up: clock::boot().map(|boot| boot.up),
        }
    }

    /// How much later `other` is, by the clock that went further.
    fn until(self, other: Self) -> Duration {
        let awake = other.at.duration_since(self.at);
        let all = self.up.zip(other.up);
        let all = all.map(|(then, now)| now.saturating_sub(then));
        all.map_or(awake, |all| all.max(awake))
    }
}

impl Term {
    pub fn holds(&self) -> bool {
        let renewed = *self.0.borrow();
        renewed.is_some_and(|sent| sent.until(Moment::now()) < TERM)
    }

    /// The same client for whoever acts as the leader: a write is not sent once another replica may lead, however long what it
    /// is part of takes. Where `heart` is given, it beats with each call, and knows how long an answer may take: neither a chain of
    /// many calls nor a slow one is a task that stands still.
    pub fn client(&self, kube: &kube::Client, heart: Option<Heart>) -> kube::Client {
        let (kube, term) = (kube.clone(), self.clone());
        let namespace = kube.default_namespace().to_owned();
        let service = service_fn(move |request: Request<Body>| {
            let reads = matches!(*request.method(), Method::GET | Method::HEAD);
            let may = reads || term.holds();
            let lasts = calls::is_watch(&request);
            let wait = heart.as_ref().filter(|_| !lasts);
            let wait = wait.map(|heart| heart.wait(calls::LIMIT));
            let kube = kube.clone();
            async move {
                if !may {
                    return Err(BoxError::from(Over));
                }
                let answer = kube.send(request).await.map_err(BoxError::from)?;
                Ok::<_, BoxError>(answer.map(|body| Read { body, _wait: wait }))
            }
        });
        kube::Client::new(service, namespace)
    }
}

/// Why a write was not sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent: the lease was not renewed in time, and another replica may lead by now")]
struct Over;

/// An answer that is waited for until it is read, or dropped.
struct Read {
    body: Body,
    _wait: Option<Wait>,
}

impl hyper::body::Body for Read {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The Lease as one replica sees it.
pub struct Candidate {
    api: Api<Lease>,
    holder: String,
    /// The last version seen of another holder's Lease, and when: clocks of other nodes are not trusted.
    seen: Option<(String, Instant)>,
    /// As it was written last, by us: what the next renewal is written over, without a look before it.
    own: Option<Lease>,
    /// Out: when the last renewal that went well was sent.
    renewed: watch::Sender<Option<Moment>>,
    /// Out: after the end of [`Self::keep`], whether it names this replica no more.
    let_go: watch::Sender<bool>,
}

/// What one look at the Lease calls for.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// It is ours, free or abandoned.
    Take,
    /// Another replica holds it.
    Wait(String),
}

/// `since` is when this version of the Lease was first seen here.
fn turn(spec: &LeaseSpec, me: &str, now: Instant, since: Instant) -> Turn {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let lasts = spec.lease_duration_seconds.unwrap_or(15).clamp(1, 60);
    let lasts = Duration::from_secs(u64::from(lasts.unsigned_abs()));
    if holder.is_empty() || holder == me || now.duration_since(since) > lasts {
        Turn::Take
    } else {
        Turn::Wait(holder.to_owned())
    }
}

impl Candidate {
    pub fn new(kube: kube::Client, namespace: &str, holder: String) -> Self {
        Self {
            api: Api::namespaced(kube, namespace),
            holder,
            seen: None,
            own: None,
            renewed: watch::Sender::new(None),
            let_go: watch::Sender::new(false),
        }
    }

    /// Whether the Lease names this replica no more, as soon as [`Self::keep`] has ended.
    pub fn let_go(&self) -> watch::Receiver<bool> {
        self.let_go.subscribe()
    }

    pub fn term(&self) -> Term {
        Term(self.renewed.subscribe())
    }

    /// Whether this replica leads now; otherwise who does, as far as that could be seen.
    pub async fn try_lead(&mut self) -> Result<(), Option<String>> {
        match self.step().await {
            Ok(None) => {
                info!(holder = self.holder, "leading");
                Ok(())
            }
            Ok(Some(other)) => Err(Some(other)),
            Err(error) => {
                warn!(error = format!("{error:#}"), "lease not taken");
                Err(None)
            }
        }
    }

    /// Whether the Lease names this replica: a container that starts again finds the name of its former life.
    pub async fn is_named(&self) -> Result<bool> {
        let look = timeout(DEADLINE, self.api.get_opt(manifests::AGENT));
        let lease = look.await.context("lease: no answer in 5 s")??;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        Ok(holder.as_ref() == Some(&self.holder))
    }

    /// Renews until `stop`, then frees the Lease or gives it to `heir`; ends with an error when another replica took it.
    pub async fn keep(
        mut self,
        heart: Heart,
        heir: watch::Receiver<Option<String>>,
        stop: CancellationToken,
    ) -> Result<()> {
        let mut wait = RENEW;
        loop {
            heart.rests(wait + STEP);
            let turn = async {
                sleep(wait).await;
                self.step().await
            };
            let Some(seen) = stop.run_until_cancelled(turn).await else {
                // One that goes on to live would take it again.
                let given = heir.borrow().clone();
                let limit = given.as_ref().map_or(LEAVING, |_| DURATION);
                // What drains meanwhile has its own bound.
                heart.rests(limit + super::DRAIN);
                let freed = self.free(&given.unwrap_or_default(), limit).await;
                self.let_go.send_replace(freed);
                return Ok(());
            };
            wait = match seen {
                Ok(None) => RENEW,
                Ok(Some(other)) => bail!("replica {other} took the lease"),
                Err(error) => {
                    warn!(error = format!("{error:#}"), "lease not renewed");
                    RETRY
                }
            };
        }
    }

    /// One write where the Lease is as we left it; else one look and, where it is our turn, one write. The other holder, if
    /// there is one.
    async fn step(&mut self) -> Result<Option<String>> {
        if let Some(own) = self.own.take()
            && self.write(own).await?
        {
            return Ok(None);
        }
        let look = timeout(DEADLINE, self.api.get_opt(manifests::AGENT));
        let Some(lease) = look.await.context("lease: no answer in 5 s")?? else {
            let fresh = self.written(Lease::default());
            let sent = Moment::now();
            let params = PostParams::default();
            let create = timeout(DEADLINE, self.api.create(&params, &fresh));
            return match create.await.context("lease: no answer in 5 s")? {
                Ok(made) => {
                    self.own = Some(made);
                    self.renewed.send_replace(Some(sent));
                    Ok(None)
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    Ok(Some("another replica".to_owned()))
                }
                Err(error) => Err(error).context("create lease"),
            };
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => Instant::now(),
        };
        self.seen = Some((version, since));
        let spec = lease.spec.clone().unwrap_or_default();
        if let Turn::Wait(other) = turn(&spec, &self.holder, Instant::now(), since) {
            return Ok(Some(other));
        }
        ensure!(self.write(lease).await?, "the lease changed meanwhile");
        Ok(None)
    }

    /// `false` where it is not as given any more.
    async fn write(&mut self, lease: Lease) -> Result<bool> {
        let lease = self.written(lease);
        let sent = Moment::now();
        let params = PostParams::default();
        let write = timeout(
            DEADLINE,
            self.api.replace(manifests::AGENT, &params, &lease),
        );
        match write.await.context("lease: no answer in 5 s")? {
            Ok(now) => {
                self.own = Some(now);
                self.renewed.send_replace(Some(sent));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error).context("write lease"),
        }
    }

    fn written(&self, mut lease: Lease) -> Lease {
        let now = stamp();
        lease.metadata.name = Some(manifests::AGENT.to_owned());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(&self.holder) {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds = Some(i32::try_from(DURATION.as_secs()).unwrap_or(15));
        spec.renew_time = Some(now);
        lease
    }

    /// Where the Lease names this replica, it is anybody's.
    pub async fn release(&self) {
        self.free("", LEAVING).await;
    }

    /// Tries for as long as `limit`; true = the Lease names this replica no more. `heir` may be nobody.
    async fn free(&self, heir: &str, limit: Duration) -> bool {
        self.renewed.send_replace(None);
        let tries = async {
            while let Err(error) = self.give(heir).await {
                warn!(error = format!("{error:#}"), "lease not freed yet");
                sleep(RETRY).await;
            }
        };
        let freed = timeout(limit, tries).await.is_ok();
        if !freed {
            warn!("lease not freed; it ends by itself in 15 s");
        }
        freed
    }

    async fn give(&self, heir: &str) -> Result<()> {
        let look = timeout(DEADLINE, self.api.get_opt(manifests::AGENT));
        let Some(mut lease) = look.await.context("lease: no answer in 5 s")?? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(&self.holder) {
            return Ok(());
        }
        spec.holder_identity = Some(heir.to_owned());
        if heir.is_empty() {
            spec.lease_duration_seconds = Some(1);
        } else {
            // From now on, should it never come.
            spec.renew_time = Some(stamp());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        let params = PostParams::default();
        let write = timeout(
            DEADLINE,
            self.api.replace(manifests::AGENT, &params, &lease),
        );
        write
            .await
            .context("lease: no answer in 5 s")?
            .context("write lease")?;
        Ok(())
    }
}

/// Now, as people and other replicas read it in the Lease.
fn stamp() -> MicroTime {
    let now = clock::now().unix_timestamp_nanos();
    MicroTime(Timestamp::from_nanosecond(now).unwrap_or_default())
}

#[cfg(test)]
mod tests;
