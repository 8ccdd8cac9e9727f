//! What time brings: silence of the peer, a STOP that no FIN follows, and the end of a drain.

use std::time::{Duration, Instant};

use super::{Event, Over, Session};
use crate::wire::frame::Code;

/// Drained and empty, a line stays a little for streams that the peer opened before it heard of it.
const LINGER: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// We asked for it and close the line when it is empty.
    pub(super) ours: bool,
    pub(super) code: Code,
}

impl Session {
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.path.timeout(now) && self.over.is_none() {
            self.over = Some(Over {
                code: Code::LineLost,
                text: "nothing was heard from the peer for 24.5 s".to_owned(),
                fault: false,
                by_peer: self.peer_goaway.clone(),
                silence: self.path.silence(now),
            });
        }
        while let Some(&(at, id)) = self.stops.front() {
            if at > now {
                break;
            }
            self.stops.pop_front();
            if self
                .streams
                .get(&id)
                .is_some_and(|stream| !stream.fin_received)
            {
                self.reset(id, Code::Cancelled, "no end within 30 s after STOP");
                // Who waits for room to write, or for the end, would wait for a peer that says nothing.
                self.events.push_back(Event::Failed(id));
            }
        }
        self.end_of_drain(now);
        self.relieve(now);
    }

    fn end_of_drain(&mut self, now: Instant) {
        let Some(drain) = self.draining.filter(|_| self.over.is_none()) else {
            return;
        };
        let linger = self.path.rtt().map_or(LINGER, |rtt| (rtt * 2).max(LINGER));
        let empty =
            drain.ours && self.live() == 0 && now >= drain.since + linger && self.goaway.is_none();
        if empty || now >= drain.until {
            self.over = Some(Over {
                code: drain.code,
                text: if empty {
                    "drained".to_owned()
                } else {
                    "the time to drain is over".to_owned()
                },
                fault: false,
                by_peer: self.peer_goaway.clone(),
                silence: Duration::ZERO,
            });
        }
    }

    /// When to call [`Session::handle_timeout`].
    pub fn poll_timeout(&self) -> Instant {
        let mut next = self.path.next_timeout();
        if let Some((at, _)) = self.stops.front() {
            next = next.min(*at);
        }
        if let Some(drain) = self.draining {
            next = next.min(drain.until);
            if drain.ours && self.live() == 0 && self.goaway.is_none() {
                next = next
                    .min(drain.since + self.path.rtt().map_or(LINGER, |rtt| (rtt * 2).max(LINGER)));
            }
        }
        next
    }
}
