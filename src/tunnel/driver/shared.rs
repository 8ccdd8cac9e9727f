//! The session of a line and who waits for it, behind a lock that is held for a few copies and never over an await.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::super::session::{Event, Session};
use super::super::{Ended, Incoming, Stream};
use super::Identity;
use crate::wire::frame::{Code, Goaway};

/// How far a line has come.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase {
    pub(super) draining: Option<Goaway>,
    pub(super) ended: Option<Ended>,
}

/// The session and who waits for it.
pub(in crate::tunnel) struct Shared {
    pub(super) state: Mutex<State>,
    /// The loop has something to do.
    pub(super) wake: Notify,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) identity: Identity,
    pub(super) incoming: mpsc::Sender<Incoming>,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) begun: Instant,
}

pub(in crate::tunnel) struct State {
    pub(in crate::tunnel) session: Session,
    slots: HashMap<u32, Slot>,
}

/// Who waits for a stream.
#[derive(Default)]
pub(in crate::tunnel) struct Slot {
    pub(in crate::tunnel) reader: Option<Waker>,
    pub(in crate::tunnel) writer: Option<Waker>,
    pub(in crate::tunnel) cancel: Option<CancellationToken>,
}

impl State {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            slots: HashMap::new(),
        }
    }

    pub(in crate::tunnel) fn slot(&mut self, id: u32) -> &mut Slot {
        self.slots.entry(id).or_default()
    }

    pub(in crate::tunnel) fn forget(&mut self, id: u32) {
        self.slots.remove(&id);
    }
}

impl Shared {
    /// Works on the session, then wakes whoever waits for what changed.
    pub(in crate::tunnel) fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut State) -> R) -> R {
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

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn end(self: &Arc<Self>, ended: Ended) -> Ended {
        // Both at once: who hears of it by a stream finds that the line has ended.
        self.with(|state| {
            state.session.lose(ended.code, &ended.text);
            self.phase
                .send_modify(|phase| phase.ended = Some(ended.clone()));
        });
        ended
    }
}
