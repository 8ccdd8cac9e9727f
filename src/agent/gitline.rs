//! Git over the line: the engine's SSH connections to Service `linesman-git` become streams to the hub.
//!
//! SSH runs end to end between engine and Git host; here bytes are carried. Which host that is, the hub knows: no
//! address crosses the line. There is a listener only while the assignment says so, or the engine has not left it yet.

use std::io::Cursor;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::enroll::stored::within;
use super::enroll::{Context, FIELD_MANAGER};
use super::link::{self, LinkState};
use super::{Desired, Joined};
use crate::manifests::{self, GIT_RELAY_PORT, GIT_SERVICE};
use crate::tunnel::carry::{self, IDLE};
use crate::tunnel::{LineError, Stream};
use crate::wire::api::{Assignment, Via};
use crate::wire::frame::{Class, Code, Kind};
use crate::wire::report::{ConditionType, Status};

pub mod label;

/// Connections of the engine at once; the hub takes no more either.
const CONNECTIONS: usize = 64;
/// A connection waits for a line that is away for so long.
const PARKED: Duration = Duration::from_secs(10);
/// Between looks at Service and label.
const KEEP: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_secs(5);

/// How the last connection to the Git host went, as far as the hub's end of it is concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Carried {
    /// None yet, or the cluster reaches the Git host directly.
    #[default]
    Nothing,
    Well,
    /// The hub did not get to the Git host.
    Badly(LineError),
}

/// The relay and what it works with.
pub struct Relay {
    pub context: Context,
    pub joined: watch::Receiver<Option<Joined>>,
    /// What the engine is set up for: it leaves the line when another way is proven.
    pub desired: watch::Receiver<Option<Desired>>,
    pub link: watch::Receiver<LinkState>,
    pub carried: watch::Sender<Carried>,
}

impl Relay {
    /// Listens while Git goes over the line, until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let told = tell(self.context.clone(), self.carried.subscribe());
        let work = async {
            loop {
                if stop.run_until_cancelled(self.needed(true)).await.is_none() {
                    return;
                }
                tokio::select! {
                    () = self.listen(&stop) => {}
                    () = self.keep() => {}
                    () = self.needed(false) => info!("Git goes directly again"),
                }
                self.carried.send_replace(Carried::Nothing);
            }
        };
        tokio::select! {
            () = told => {}
            () = work => {}
        }
        Ok(())
    }

    /// Waits until Git goes over the line, or does no more.
    async fn needed(&self, wanted: bool) {
        let (mut joined, mut desired) = (self.joined.clone(), self.desired.clone());
        let over_line = |assignment: &Assignment| assignment.catalog.via == Via::Line;
        loop {
            let assigned = (joined.borrow_and_update().as_ref())
                .is_some_and(|joined| over_line(&joined.assignment));
            let kept = (desired.borrow_and_update().as_ref())
                .is_some_and(|desired| over_line(&desired.assignment));
            if (assigned || kept) == wanted {
                return;
            }
            let changed = tokio::select! {
                changed = joined.changed() => changed,
                changed = desired.changed() => changed,
            };
            if changed.is_err() {
                // A task that decides has ended, and this process will soon.
                std::future::pending::<()>().await;
            }
        }
    }

    async fn listen(&self, stop: &CancellationToken) {
        let listener = loop {
            match bind().await {
                Ok(listener) => break listener,
                Err(_) if stop.is_cancelled() => return,
                Err(error) => {
                    let text = format!("listen on port {GIT_RELAY_PORT}: {error}");
                    warn!(text, "Git over the line");
                    let error = LineError::new(Code::Internal, text);
                    self.carried.send_replace(Carried::Badly(error));
                    stop.run_until_cancelled(sleep(AGAIN)).await;
                }
            }
        };
        info!(port = GIT_RELAY_PORT, "Git goes over the line");
        let (link, carried) = (self.link.clone(), self.carried.clone());
        serve(listener, link, carried, stop.clone()).await;
    }

    /// Keeps what leads the engine here: the Service, and the label that it looks for.
    async fn keep(&self) {
        let Context {
            kube,
            namespace,
            pod,
            ..
        } = &self.context;
        let services = Api::<Service>::namespaced(kube.clone(), namespace);
        let began = Instant::now();
        loop {
            let kept = async {
                let params = PatchParams::apply(FIELD_MANAGER).force();
                let service = Patch::Apply(manifests::git_service());
                within(services.patch(GIT_SERVICE, &params, &service))
                    .await
                    .context("write Service linesman-git")?;
                label::mark(kube, namespace, pod, Some("true")).await?;
                label::unmark_others(kube, namespace, pod).await
            };
            let wait = match kept.await {
                // What took the label away before this one led, and was given up, may come to it yet.
                Ok(()) if began.elapsed() < label::LATE => label::LOOK,
                Ok(()) => KEEP,
                Err(error) => {
                    warn!(
                        error = format!("{error:#}"),
                        "the engine may not find the way to Git; apply the adoption YAML again"
                    );
                    AGAIN
                }
            };
            sleep(wait).await;
        }
    }
}

/// Of both families, or of IPv4 where that is all there is.
async fn bind() -> std::io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, GIT_RELAY_PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, GIT_RELAY_PORT)).await,
    }
}

/// Carries each connection until its end. After `stop` there are no new ones, and those that run end with their line.
pub async fn serve(
    listener: TcpListener,
    link: watch::Receiver<LinkState>,
    carried: watch::Sender<Carried>,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let socket = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    // Out of descriptors: wait for some to come back.
                    debug!(%error, "connection to Git not accepted");
                    sleep(Duration::from_millis(200)).await;
                    continue;
                }
            },
        };
        let Ok(place) = room.clone().try_acquire_owned() else {
            warn!("{CONNECTIONS} connections to Git at once; one more is refused");
            carry::reset(&socket);
            continue;
        };
        let (followed, carried) = (link.clone(), carried.clone());
        connections.spawn(async move {
            connection(socket, followed, &carried).await;
            drop(place);
        });
    }
    drop(listener);
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(link::DRAIN, rest).await.is_err() {
        debug!("connections to Git were still running when the agent stopped");
    }
}

async fn connection(
    socket: TcpStream,
    link: watch::Receiver<LinkState>,
    carried: &watch::Sender<Carried>,
) {
    let stream = match open(link, PARKED).await {
        Ok(stream) => stream,
        Err(error) => {
            debug!(%error, "connection to Git");
            return carry::reset(&socket);
        }
    };
    match carry::carry(stream, socket, IDLE).await {
        Ok((sent, received)) => {
            debug!(sent, received, "connection to Git over");
            note(carried, Ok(()));
        }
        Err(error) => {
            info!(%error, "connection to Git cut");
            if let Some(error) = error.get_ref().and_then(|e| e.downcast_ref()) {
                note(carried, Err(error));
            }
        }
    }
}

/// A stream to the Git host, over a line that is up or comes within `limit`.
async fn open(mut link: watch::Receiver<LinkState>, limit: Duration) -> Result<Stream, LineError> {
    let up = |state: &LinkState| match state {
        LinkState::Up { line, .. } => line.takes_streams(),
        LinkState::Down { .. } => false,
    };
    let found = match timeout(limit, link.wait_for(up)).await {
        Ok(Ok(state)) => match &*state {
            LinkState::Up { line, .. } => Some(line.clone()),
            LinkState::Down { .. } => None,
        },
        Ok(Err(_)) | Err(_) => None,
    };
    let down = || LineError::new(Code::LineLost, "the line to the hub is down");
    let meta = Bytes::from_static(b"{}");
    found
        .ok_or_else(down)?
        .open(Kind::Git, Class::Normal, meta)
        .await
}

/// A stream on which the Git host has said its first words, as SSH servers do (RFC 4253 §4.2), within `limit`; they are
/// read again. Notes what came of it.
pub async fn heard(
    link: watch::Receiver<LinkState>,
    carried: &watch::Sender<Carried>,
    limit: Duration,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, LineError> {
    let mut first = [0; 256];
    let greeted = async {
        let mut stream = open(link, Duration::ZERO).await?;
        match stream.read(&mut first).await {
            Ok(0) => Err(LineError::new(Code::Cancelled, "the Git host hung up")),
            Ok(len) => Ok((stream, len)),
            Err(error) => Err(stream
                .failure()
                .unwrap_or_else(|| LineError::new(Code::Internal, error.to_string()))),
        }
    };
    let greeted = timeout(limit, greeted).await.unwrap_or_else(|_| {
        let text = format!("no word of the Git host in {} s", limit.as_secs());
        Err(LineError::new(Code::DialTimeout, text))
    });
    note(carried, greeted.as_ref().map(|_| ()));
    let (stream, len) = greeted?;
    let (read, write) = tokio::io::split(stream);
    let read = Cursor::new(first).take(len as u64).chain(read);
    Ok(tokio::io::join(read, write))
}

/// Remembers how it went, where that says something of the hub's way to the Git host.
fn note(carried: &watch::Sender<Carried>, ended: Result<(), &LineError>) {
    let now = match ended {
        Ok(()) => Carried::Well,
        Err(error) if is_of_the_target(error.code) => Carried::Badly(error.clone()),
        Err(_) => return,
    };
    carried.send_if_modified(|before| {
        let changed = *before != now;
        *before = now;
        changed
    });
}

fn is_of_the_target(code: Code) -> bool {
    matches!(
        code,
        Code::DialRefused
            | Code::DialTimeout
            | Code::Dns
            | Code::Unreachable
            | Code::Tls
            | Code::DeniedTarget
    )
}

/// Says so in condition `GitOverLine`.
async fn tell(context: Context, mut carried: watch::Receiver<Carried>) {
    let kind = ConditionType::GitOverLine;
    let mut told = false;
    while carried.changed().await.is_ok() {
        let now = carried.borrow_and_update().clone();
        let (status, reason, text) = match &now {
            Carried::Nothing if !told => continue,
            Carried::Nothing => (Status::Unknown, "Direct".to_owned(), String::new()),
            Carried::Well => (Status::True, "Carried".to_owned(), String::new()),
            Carried::Badly(error) => {
                let reason = format!("{:?}", error.code);
                (Status::False, reason, error.to_string())
            }
        };
        told = true;
        context.condition(kind, status, &reason, &text).await;
    }
}

#[cfg(test)]
mod tests;
