//! The one select loop between WebSocket, timers, commands and the session.
//!
//! Two tasks a line: the loop, which the caller runs, and a writer that owns the sink. The session lives
//! behind a lock that is held for a few copies and never over an await; streams work on it directly and wake
//! the loop where something is to be sent.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role as WebSocketRole, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};
use tokio_util::sync::CancellationToken;

use super::session::{Config, Event, Over, Role, Session};
use super::{Ended, Incoming, LineError, LineFacts, Stream};
use crate::wire::frame::{Class, Code, Goaway, Kind, MAX_MESSAGE};

mod exchange;
mod socket;

pub use exchange::{ExchangeError, receive, send};
pub use socket::{Counted, tune};

/// A goodbye that the peer does not take in this time is not waited for.
const CLOSING: Duration = Duration::from_secs(2);

/// What stays the same while a line lives.
#[derive(Debug, Clone)]
pub struct Identity {
    pub epoch: u64,
    pub session: String,
    pub remote: String,
    pub instance: String,
    pub since: OffsetDateTime,
}

/// Handle of a running line; clones mean the same line.
#[derive(Clone)]
pub struct Line {
    shared: Arc<Shared>,
}

/// How far a line has come.
#[derive(Debug, Clone, Default)]
struct Phase {
    draining: Option<Goaway>,
    ended: Option<Ended>,
}

/// The session and who waits for it.
pub(super) struct Shared {
    state: Mutex<State>,
    /// The loop has something to do.
    wake: Notify,
    phase: watch::Sender<Phase>,
    identity: Identity,
    incoming: mpsc::Sender<Incoming>,
    sent: AtomicU64,
    received: AtomicU64,
}

pub(super) struct State {
    pub(super) session: Session,
    slots: HashMap<u32, Slot>,
}

/// Who waits for a stream.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) cancel: Option<CancellationToken>,
}

impl State {
    pub(super) fn slot(&mut self, id: u32) -> &mut Slot {
        self.slots.entry(id).or_default()
    }

    pub(super) fn forget(&mut self, id: u32) {
        self.slots.remove(&id);
    }
}

/// The driver's clock, which tests can pause.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The limits of the line's WebSocket. A small read buffer keeps idle lines small.
pub fn settings() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(8 << 10)
        .write_buffer_size(16 << 10)
        .max_write_buffer_size(256 << 10)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .accept_unmasked_frames(false)
}

/// A connection that notes when bytes arrive.
pub fn counted<S>(io: S) -> Counted<S> {
    Counted::new(io, now())
}

/// A WebSocket on a connection that was upgraded by other means.
pub async fn websocket<S>(io: S, role: Role) -> WebSocketStream<Counted<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let role = match role {
        Role::Agent => WebSocketRole::Client,
        Role::Hub => WebSocketRole::Server,
    };
    WebSocketStream::from_raw_socket(counted(io), role, Some(settings())).await
}

/// A line over an authenticated WebSocket, and the future that runs it: whoever awaits that owns the line.
/// Streams of the peer go to `incoming`; when it is full they are refused.
pub fn line<S>(
    socket: WebSocketStream<Counted<S>>,
    config: Config,
    identity: Identity,
    incoming: mpsc::Sender<Incoming>,
    stop: CancellationToken,
) -> (Line, impl Future<Output = Ended> + Send + 'static)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            session: Session::new(now(), config),
            slots: HashMap::new(),
        }),
        wake: Notify::new(),
        phase: watch::Sender::new(Phase::default()),
        identity,
        incoming,
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
    });
    let run = run(shared.clone(), socket, stop);
    (Line { shared }, run)
}

impl Line {
    /// Opens a stream. Does not wait for the peer: its refusal comes as an error of the stream.
    #[expect(
        clippy::unused_async,
        reason = "callers must not depend on that opening never waits"
    )]
    pub async fn open(&self, kind: Kind, class: Class, meta: Bytes) -> Result<Stream, LineError> {
        let id = self
            .shared
            .with(|state| state.session.open(now(), kind, class, meta))?;
        Ok(Stream::new(self.shared.clone(), id))
    }

    pub fn facts(&self) -> LineFacts {
        let (rtt, live, opened, draining) = self.shared.with(|state| {
            let session = &state.session;
            (
                session.rtt(),
                session.live(),
                session.counts().0,
                session.is_draining(),
            )
        });
        let Identity {
            epoch,
            session,
            remote,
            instance,
            since,
        } = self.shared.identity.clone();
        let sent = self.shared.sent.load(Ordering::Relaxed);
        let received = self.shared.received.load(Ordering::Relaxed);
        LineFacts {
            epoch,
            session,
            remote,
            instance,
            since,
            rtt,
            live,
            opened,
            draining,
            sent,
            received,
        }
    }

    /// Opens no more streams and asks the peer for the same; the line ends when it is empty or after `drain`.
    pub fn goaway(&self, code: Code, retry_after: Duration, drain: Duration, text: &str) {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let goaway = Goaway {
            code,
            retry_after_ms: millis(retry_after),
            drain_ms: millis(drain),
            text: text.to_owned(),
        };
        self.shared.with(|state| state.session.drain(now(), goaway));
        // A drain that is over at once has no timer yet.
        self.shared.wake.notify_one();
    }

    /// Says goodbye and ends the line now.
    pub fn close(&self, code: Code, text: &str) {
        self.shared.with(|state| state.session.leave(code, text));
        self.shared.wake.notify_one();
    }

    /// Completes when either end takes no new streams any more: with the peer's or our own wish.
    pub async fn draining(&self) -> Goaway {
        let mut phase = self.shared.phase.subscribe();
        let found = phase
            .wait_for(|phase| phase.draining.is_some() || phase.ended.is_some())
            .await;
        found
            .ok()
            .and_then(|phase| phase.draining.clone())
            .unwrap_or_else(|| Goaway {
                code: Code::LineLost,
                retry_after_ms: 0,
                drain_ms: 0,
                text: String::new(),
            })
    }

    /// Completes when the line has ended.
    pub async fn closed(&self) -> Ended {
        let mut phase = self.shared.phase.subscribe();
        let ended = phase.wait_for(|phase| phase.ended.is_some()).await;
        ended
            .ok()
            .and_then(|phase| phase.ended.clone())
            .unwrap_or_else(|| lost("the line ended"))
    }

    /// False from the first GOAWAY on.
    pub fn takes_streams(&self) -> bool {
        let phase = self.shared.phase.borrow();
        phase.draining.is_none() && phase.ended.is_none()
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Line(epoch {}, {})",
            self.shared.identity.epoch, self.shared.identity.remote
        )
    }
}

impl Shared {
    /// Works on the session, then wakes whoever waits for what changed.
    pub(super) fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut State) -> R) -> R {
        let mut woken = Vec::new();
        let mut opened = Vec::new();
        let mut state = self.lock();
        let result = work(&mut state);
        while let Some(event) = state.session.poll_event() {
            match event {
                Event::Readable(id) => {
                    woken.extend(state.slots.get_mut(&id).and_then(|slot| slot.reader.take()));
                }
                Event::Writable(id) => {
                    woken.extend(state.slots.get_mut(&id).and_then(|slot| slot.writer.take()));
                }
                Event::Failed(id) => {
                    if let Some(slot) = state.slots.get_mut(&id) {
                        woken.extend(slot.reader.take());
                        woken.extend(slot.writer.take());
                        if let Some(token) = &slot.cancel {
                            token.cancel();
                        }
                    }
                }
                Event::Opened {
                    id,
                    kind,
                    class,
                    meta,
                } => opened.push((id, kind, class, meta)),
                Event::Draining(goaway) => self
                    .phase
                    .send_modify(|phase| phase.draining = Some(goaway)),
            }
        }
        let send = state.session.has_transmit();
        drop(state);
        if send {
            self.wake.notify_one();
        }
        woken.into_iter().for_each(Waker::wake);
        for (id, kind, class, meta) in opened {
            let stream = Stream::new(self.clone(), id);
            let incoming = Incoming {
                kind,
                class,
                meta,
                epoch: self.identity.epoch,
                stream,
            };
            if let Err(full) = self.incoming.try_send(incoming) {
                full.into_inner()
                    .stream
                    .reset(Code::Limit, "too many new streams at once");
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(self: &Arc<Self>, ended: Ended) -> Ended {
        self.with(|state| state.session.lose(ended.code, &ended.text));
        self.phase
            .send_modify(|phase| phase.ended = Some(ended.clone()));
        ended
    }
}

enum Out {
    Frames(Bytes),
    Close(CloseCode),
}

/// Both directions of a connection.
struct Wire<S> {
    source: SplitStream<WebSocketStream<Counted<S>>>,
    outbox: mpsc::Sender<Out>,
    writer: JoinSet<Result<(), WebSocketError>>,
    heard: socket::Heard,
}

async fn run<S>(
    shared: Arc<Shared>,
    socket: WebSocketStream<Counted<S>>,
    stop: CancellationToken,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let heard = socket.get_ref().heard();
    let (sink, source) = socket.split();
    let (outbox, queue) = mpsc::channel(1);
    let mut writer = JoinSet::new();
    writer.spawn(write(sink, queue));
    let mut wire = Wire {
        source,
        outbox,
        writer,
        heard,
    };
    let (ended, code) = serve(&shared, &mut wire, &stop).await;
    let ended = shared.end(ended);
    // The last frames and the close code go out if the peer takes them; it is not waited for.
    let Wire {
        outbox, mut writer, ..
    } = wire;
    let close = async {
        if outbox.send(Out::Close(code)).await.is_ok() {
            drop(outbox);
            writer.join_next().await;
        }
    };
    if tokio::time::timeout(CLOSING, close).await.is_err() {
        tracing::debug!("the peer took no goodbye");
    }
    writer.shutdown().await;
    ended
}

async fn serve<S>(
    shared: &Arc<Shared>,
    wire: &mut Wire<S>,
    stop: &CancellationToken,
) -> (Ended, CloseCode)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut buffer = BytesMut::new();
    loop {
        let (send, timeout, over) = {
            let state = shared.lock();
            let send = state.session.has_transmit();
            (
                send,
                state.session.poll_timeout(),
                state.session.over().filter(|_| !send).cloned(),
            )
        };
        if let Some(over) = over {
            return finished(over);
        }
        tokio::select! {
            slot = wire.outbox.reserve(), if send => {
                let Ok(slot) = slot else { return (lost("the connection broke while sending"), CloseCode::Away) };
                if shared.with(|state| state.session.poll_transmit(now(), &mut buffer)) {
                    shared.sent.fetch_add(u64::try_from(buffer.len()).unwrap_or_default(), Ordering::Relaxed);
                    slot.send(Out::Frames(buffer.split().freeze()));
                }
            }
            message = wire.source.next() => {
                if let Some(end) = received(shared, message) {
                    return end;
                }
            }
            () = shared.wake.notified() => {}
            () = tokio::time::sleep_until(timeout.into()) => shared.with(|state| {
                state.session.heard(wire.heard.last());
                state.session.handle_timeout(now());
            }),
            () = stop.cancelled() => {
                shared.with(|state| state.session.leave(Code::Draining, "the process stops"));
                flush(shared, &wire.outbox).await;
                let text = "stopped".to_owned();
                return (Ended { code: Code::Draining, text, retry_after: None, by_peer: false }, CloseCode::Away);
            }
            end = wire.writer.join_next() => {
                let cause = match end {
                    Some(Ok(Err(error))) => error.to_string(),
                    _ => "the writer ended".to_owned(),
                };
                return (lost(&cause), CloseCode::Away);
            }
        }
    }
}

fn finished(over: Over) -> (Ended, CloseCode) {
    let code = if over.fault {
        CloseCode::Protocol
    } else {
        CloseCode::Normal
    };
    let retry_after = over
        .by_peer
        .as_ref()
        .map(|goaway| Duration::from_millis(goaway.retry_after_ms.into()));
    let by_peer = over.by_peer.is_some();
    (
        Ended {
            code: over.code,
            text: over.text,
            retry_after,
            by_peer,
        },
        code,
    )
}

/// Hands a message to the session; how the line ends where it was the last one.
fn received(
    shared: &Arc<Shared>,
    message: Option<Result<Message, WebSocketError>>,
) -> Option<(Ended, CloseCode)> {
    match message {
        Some(Ok(Message::Binary(message))) => {
            shared.received.fetch_add(
                u64::try_from(message.len()).unwrap_or_default(),
                Ordering::Relaxed,
            );
            shared.with(|state| state.session.handle_message(now(), message));
            None
        }
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => None,
        Some(Ok(Message::Text(_))) => Some((broken("a text message"), CloseCode::Protocol)),
        Some(Ok(Message::Close(_))) | None => Some((closed(shared), CloseCode::Normal)),
        Some(Err(error)) => Some(failed(&error)),
    }
}

/// The goodbye, if there is room for it soon.
async fn flush(shared: &Arc<Shared>, outbox: &mpsc::Sender<Out>) {
    let mut buffer = BytesMut::new();
    shared.with(|state| state.session.poll_transmit(now(), &mut buffer));
    let send = outbox.send_timeout(Out::Frames(buffer.freeze()), CLOSING);
    if send.await.is_err() {
        tracing::debug!("the peer took no goodbye");
    }
}

async fn write<S>(
    mut sink: SplitSink<WebSocketStream<Counted<S>>, Message>,
    mut queue: mpsc::Receiver<Out>,
) -> Result<(), WebSocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(out) = queue.recv().await {
        let mut next = Some(out);
        while let Some(out) = next {
            match out {
                Out::Frames(frames) => sink.feed(Message::Binary(frames)).await?,
                Out::Close(code) => {
                    return sink
                        .send(Message::Close(Some(CloseFrame {
                            code,
                            reason: "".into(),
                        })))
                        .await;
                }
            }
            next = queue.try_recv().ok();
        }
        sink.flush().await?;
    }
    Ok(())
}

fn lost(text: &str) -> Ended {
    Ended {
        code: Code::LineLost,
        text: text.to_owned(),
        retry_after: None,
        by_peer: false,
    }
}

fn broken(text: &str) -> Ended {
    Ended {
        code: Code::Protocol,
        text: text.to_owned(),
        retry_after: None,
        by_peer: false,
    }
}

/// The peer closed: with the reason that its GOAWAY gave, if it gave one.
fn closed(shared: &Shared) -> Ended {
    match &shared.phase.borrow().draining {
        Some(goaway) => Ended {
            code: goaway.code,
            text: goaway.text.clone(),
            retry_after: Some(Duration::from_millis(goaway.retry_after_ms.into())),
            by_peer: true,
        },
        None => lost("the peer closed the connection"),
    }
}

fn failed(error: &WebSocketError) -> (Ended, CloseCode) {
    match error {
        WebSocketError::Capacity(_) => (broken(&error.to_string()), CloseCode::Size),
        WebSocketError::Protocol(_) | WebSocketError::Utf8(_) => {
            (broken(&error.to_string()), CloseCode::Protocol)
        }
        _ => (lost(&error.to_string()), CloseCode::Away),
    }
}
